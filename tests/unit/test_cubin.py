from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest
from support.cuda_tools import assemble, cuda_tool
from support.hostile import (
    assert_bounded,
    bit_flips,
    extreme_fields,
    spliced,
    survives,
    truncations,
)

from mlir_offload.offload.device.cubin import cubin_kernel_names, hash_cubin_kernels, read_cubin
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter
from mlir_offload.offload.device.ptx_image import read_ptx
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import VerificationError

GOLDEN = Path(__file__).parents[1] / "golden" / "cubin"
STORE = "{ .reg .b64 %r<4>; .reg .b32 %x<4>; ld.param.u64 %r1, [p]; st.global.u32 [%r1], 1; ret; }"
HEADER = ".version 9.0\n.target sm_{arch}\n.address_size 64\n"
KERNELS = f"""
.extern .shared .align 16 .b8 dynamic[];
.shared .align 8 .b8 common[640];
.visible .global .align 4 .u32 counter;
.visible .entry nothing() {{ ret; }}
.visible .entry many(.param .u64 p, .param .u8 a, .param .u16 b, .param .u32 c, .param .f64 d,
    .param .align 16 .b8 e[48], .param .f16 f, .param .align 1 .b8 g[3], .param .u64 h)
.maxntid 128, 2, 1
.minnctapersm 2
{STORE}
.visible .entry large(.param .u64 p, .param .align 8 .b8 s[4000]) .reqntid 32, 2, 4 {STORE}
.visible .entry shares(.param .u64 p) .maxntid 16
{{ .reg .b64 %r<4>; .reg .b32 %x<4>; .shared .align 4 .b8 mine[100]; ld.shared.u32 %x1, [mine];
  ld.shared.u32 %x2, [common+8]; ld.shared.u32 %x3, [dynamic]; add.u32 %x1, %x1, %x2;
  add.u32 %x1, %x1, %x3; ld.param.u64 %r1, [p]; st.global.u32 [%r1], %x1; ret; }}
.visible .func (.param .b32 r) deep(.param .b32 i)
{{ .reg .b64 %r<4>; .reg .b32 %x<4>; .local .align 4 .b8 there[256]; ld.param.b32 %x1, [i];
  cvt.u64.u32 %r1, %x1; mov.u64 %r2, there; add.u64 %r2, %r2, %r1; st.local.u32 [%r2], %x1;
  ld.local.u32 %x2, [there+16]; st.param.b32 [r], %x2; ret; }}
.weak .entry stacks(.param .u64 p) .maxnreg 40
{{ .reg .b64 %r<4>; .reg .b32 %x<4>; .local .align 4 .b8 here[64]; ld.param.u64 %r1, [p];
  ld.global.u32 %x1, [%r1]; cvt.u64.u32 %r2, %x1; mov.u64 %r3, here; add.u64 %r3, %r3, %r2;
  st.local.u32 [%r3], %x1;
  {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %x1; call (b), deep, (a); ld.param.b32 %x2, [b]; }}
  ld.local.u32 %x3, [here+4]; add.u32 %x2, %x2, %x3; st.global.u32 [%r1], %x2; ret; }}
"""
MODES = {"linked": (), "relocatable": ("-c",), "debug": ("-g", "-c"), "lines": ("-lineinfo",)}
ARCHS = ("75", "80", "90a", "100f", "120")


def read(data: bytes) -> DeviceCode:
    view = memory_view(data)
    code = read_cubin(view)
    hash_cubin_kernels(view, cubin_kernel_names(view))
    return code


def read_file(path: Path) -> DeviceCode:
    with open_view(path) as view:
        return read_cubin(view)


def said_by_ptxas(text: str) -> dict[str, tuple[int, int, int]]:
    """Return registers, shared bytes and stack bytes of each kernel, as `ptxas -v` prints them."""
    found = {}
    for part in re.split(r"Compiling entry function ", text)[1:]:
        name = part.split("'")[1]
        numbers = {
            key: int(match[1]) if (match := re.search(rf"(\d+) bytes {key}", part)) else 0
            for key in ("smem", "stack frame", "cumulative stack size")
        }
        registers = re.search(r"Used (\d+) registers", part)
        assert registers is not None
        stack = numbers["cumulative stack size"] or numbers["stack frame"]
        found[name] = int(registers[1]), numbers["smem"], stack
    return found


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("mode", MODES)
def test_kernels_are_told_as_ptxas_tells_them(arch: str, mode: str, tmp_path: Path) -> None:
    ptx = HEADER.format(arch=arch) + KERNELS
    cubin = tmp_path / "k.cubin"
    said = said_by_ptxas(assemble(ptx, cubin, f"-arch=sm_{arch}", *MODES[mode]))
    code = read_file(cubin)
    assert (code.form, code.arch, code.triple) == ("cubin", f"sm_{arch}", "nvptx64-nvidia-cuda")
    assert code.is_relocatable == ("-c" in MODES[mode])
    assert code.producer.startswith("ptxas, Cuda compilation tools, release ")
    found = {k.name: (k.registers, k.shared_bytes, k.local_bytes) for k in code.kernels}
    assert found == said
    source = read_ptx(memory_view(ptx.encode()))
    for kernel in code.kernels:
        declared = source.kernel(kernel.name)
        assert declared is not None
        assert declared.parameters is not None
        assert kernel.parameters == tuple(
            KernelParameter(one.offset, one.size_bytes) for one in declared.parameters
        )
        assert (kernel.max_threads, kernel.required_threads) == (
            declared.max_threads,
            declared.required_threads,
        )
        # ptxas converts blocks per multiprocessor, with 65,536 registers in total, to a register limit.
        bound = 65536 // (2 * 256) if declared.min_blocks else declared.max_registers
        assert kernel.max_registers == bound
    assert code.undefined == source.undefined == ()


def test_each_architecture_of_ptxas_is_told_from_a_cubin_for_it(tmp_path: Path) -> None:
    completed = subprocess.run(
        [cuda_tool("ptxas"), "--help"], check=True, capture_output=True, text=True
    )
    archs = sorted(set(re.findall(r"'sm_(\d+[af]?)'", completed.stdout)))
    assert len(archs) > 10
    for arch in archs:
        assemble(HEADER.format(arch=arch) + f".entry k(.param .u64 p) {STORE}", tmp_path / "k.cubin", f"-arch=sm_{arch}")  # fmt: skip
        assert read_file(tmp_path / "k.cubin").arch == f"sm_{arch}"


def test_a_linked_cubin_names_the_linker_and_lacks_nothing(tmp_path: Path) -> None:
    caller = HEADER.format(arch="90a") + """
    .extern .func (.param .b32 r) helper(.param .b32 x);
    .visible .entry k(.param .u64 p) .maxntid 7 { .reg .b64 %r<2>; .reg .b32 %x<3>; .shared .b32 s[10];
      ld.shared.u32 %x1, [s]; ld.param.u64 %r1, [p];
      { .param .b32 a; .param .b32 b; st.param.b32 [a], %x1; call (b), helper, (a); ld.param.b32 %x2, [b]; }
      st.global.u32 [%r1], %x2; ret; }
    """  # fmt: skip
    callee = HEADER.format(arch="90a") + """
    .visible .func (.param .b32 r) helper(.param .b32 x) { .reg .b32 %x<2>; ld.param.b32 %x1, [x]; st.param.b32 [r], %x1; ret; }
    """  # fmt: skip
    objects = [tmp_path / "caller.cubin", tmp_path / "callee.cubin"]
    for path, text in zip(objects, (caller, callee), strict=True):
        assemble(text, path, "-arch=sm_90a", "-c")
    assert read_file(objects[0]).undefined == ("helper",)
    assert read_file(objects[1]).kernels == ()
    linked = tmp_path / "linked.cubin"
    subprocess.run([cuda_tool("nvlink"), "-arch=sm_90a", *objects, "-o", linked], check=True)
    code = read_file(linked)
    assert (code.arch, code.is_relocatable, code.undefined) == ("sm_90a", False, ())
    assert code.producer.startswith("nvlink, Cuda compilation tools, release ")
    (kernel,) = code.kernels
    assert kernel.name == "k"
    assert (kernel.max_threads, kernel.shared_bytes) == (7, 40)
    assert kernel.parameters == (KernelParameter(0, 8),)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.cubin")), ids=lambda path: path.stem)
def test_cubins_of_older_toolkits_are_read(file: Path) -> None:
    arch, _, release = file.stem.partition(".")
    code = read_file(file)
    assert code.arch == arch
    assert f"{release}" in code.producer
    (kernel,) = code.kernels
    (declared,) = read_ptx(memory_view((GOLDEN / "kernel.ptx").read_bytes())).kernels
    assert declared.parameters is not None
    assert kernel.parameters == tuple(
        KernelParameter(one.offset, one.size_bytes) for one in declared.parameters
    )
    assert (kernel.max_threads, kernel.shared_bytes, kernel.local_bytes) == (128, 1024, 64)


def test_a_parameter_larger_than_16_kib_keeps_its_size(tmp_path: Path) -> None:
    ptx = (
        HEADER.format(arch="90") + f".entry k(.param .align 8 .b8 s[20000], .param .u64 p) {STORE}"
    )
    assemble(ptx, tmp_path / "k.cubin", "-arch=sm_90")
    (kernel,) = read_file(tmp_path / "k.cubin").kernels
    assert kernel.parameters == (KernelParameter(0, 20000), KernelParameter(20000, 8))


def test_code_hashes_are_equal_where_the_code_is(tmp_path: Path) -> None:
    body = "{ .reg .b64 %r<2>; .reg .b32 %x<3>; ld.param.u64 %r1, [p]; st.global.u32 [%r1], CODE; ret; }"
    caller = body.replace("ld.param", "call NAME; ld.param")
    hashes = {}
    for name, kernels in {
        "first": {"same": body.replace("CODE", "1"), "other": body.replace("CODE", "1"), "calls": caller.replace("CODE", "1").replace("NAME", "f")},
        "second": {"more": "{ ret; }", "same": body.replace("CODE", "1"), "other": body.replace("CODE", "2"), "calls": caller.replace("CODE", "1").replace("NAME", "g")},
    }.items():  # fmt: skip
        text = HEADER.format(arch="90") + ".extern .func f(); .extern .func g();"
        text += "".join(f".visible .entry {k}(.param .u64 p) {v}" for k, v in kernels.items())
        assemble(text, tmp_path / name, "-arch=sm_90", "-c")
        with open_view(tmp_path / name) as view:
            hashes[name] = hash_cubin_kernels(view, {"same", "other", "calls", "none"})
    first, second = hashes["first"], hashes["second"]
    assert set(first) == {"same", "other", "calls"}
    assert first["same"] == second["same"] == first["other"]
    assert first["other"] != second["other"]
    assert first["calls"] != second["calls"], "they differ in what they call"


def test_a_thousand_kernels_are_listed_in_little_memory(tmp_path: Path) -> None:
    text = HEADER.format(arch="90") + "".join(
        f".visible .entry kernel_{i}_with_a_long_name(.param .u64 p, .param .u32 n, .param .u64 q) .maxntid 128 {STORE}\n"
        for i in range(1000)
    )
    assemble(text, tmp_path / "k.cubin", "-arch=sm_90", "-c")
    assert len(read_file(tmp_path / "k.cubin").kernels) == 1000
    data = (tmp_path / "k.cubin").read_bytes()
    assert_bounded(read_cubin_bytes, data, 4)


def read_cubin_bytes(data: bytes) -> DeviceCode:
    return read_cubin(memory_view(data))


def test_damaged_cubins_are_refused_or_read_within_bounds() -> None:
    data = (GOLDEN / "sm_90a.12.4.cubin").read_bytes()
    newer = (GOLDEN / "sm_100a.12.8.cubin").read_bytes()
    for cubin in (data, newer):
        table = struct.unpack_from("<Q", cubin, 40)[0]
        assert survives(read, truncations(cubin, step=3)) > 0
        assert survives(read, extreme_fields(cubin, limit=64)) > 0
        survives(read, bit_flips(cubin[:table], step=31))
        headers = (cubin[:table] + change for change in bit_flips(cubin[table:], step=7))
        assert survives(read, headers) > 0
        survives(read, spliced(cubin, 150))


def elf(*sections: tuple[str, int, bytes]) -> bytes:
    """Return a cubin for sm_90 of these sections (name, type, content)."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in sections)
    rows, offset, place = bytes(64), 64, 1
    for name, kind, content in (*sections, ("", 3, names)):
        row = (place if name else 0, kind, 0, 0, offset, len(content), len(sections) + 1, 0, 1, 0)
        rows += struct.pack("<IIQQQQIIQQ", *row)
        offset += len(content)
        place += len(name) + 1
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1\x33\7", 1, 190, 124, 0, 0, offset, 0x5A055A, 64, 0, 0, 64, len(sections) + 2, len(sections) + 1)  # fmt: skip
    return head + b"".join(content for _, _, content in sections) + names + rows


def kernel_with(attributes: bytes) -> bytes:
    """Return a cubin of one kernel, `k`, whose name is the end of that of its section."""
    symbol = struct.pack("<IBBHQQ", len("\0.text."), 0x12, 0x10, 1, 0, 8)
    text, records = (".text.k", 1, bytes(8)), (".nv.info.k", 0x70000000, attributes)
    return elf(text, records, (".symtab", 2, bytes(24) + symbol))


def parameters_of(kernel: DeviceKernel | None) -> tuple[KernelParameter, ...] | None:
    assert kernel is not None
    return kernel.parameters


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        (b"\x04\x17\xff\x00", "attribute 0x17"),
        (b"\x04\x17\x04\x00\0\0\0\0", "attribute at"),
        (b"\x04\x05\x00\x00", "attribute at"),
        (b"\x07\x17\x00\x00", "attribute format"),
        (b"\x00\x00\x00\x00", "attribute format"),
    ],
)
def test_errors_name_the_attribute(attributes: bytes, field: str) -> None:
    with pytest.raises(VerificationError, match=f"malformed cubin: {field}.*offset \\d+"):
        read(kernel_with(attributes))


def test_many_records_of_any_kind_are_read_in_linear_time_and_memory() -> None:
    assert parameters_of(read(kernel_with(b"\x01\x50\0\0" * 100_000)).kernel("k")) == ()
    assert parameters_of(read(kernel_with(b"\x04\x37\0\0" * 100_000)).kernel("k")) == ()
    record = struct.Struct("<BBHIHHI")
    endless = b"".join(
        record.pack(4, 0x17, 12, 0, i & 0xFFFF, i & 0xFFF, 4 << 18) for i in range(20_000)
    )
    data = kernel_with(endless)
    assert len(parameters_of(read(data).kernel("k")) or ()) == 20_000
    assert_bounded(read, data, 16)
    assert parameters_of(read(kernel_with(b"\x03\x19\x08\0")).kernel("k")) is None


def test_attribute_sections_that_overlap_are_refused() -> None:
    data = bytearray(elf(*((f".nv.info.{n}", 0x70000000, b"") for n in range(50))))
    (table,) = struct.unpack_from("<Q", data, 40)
    for number in range(1, 51):
        struct.pack_into("<QQ", data, table + number * 64 + 24, 0, len(data) // 2)
    with pytest.raises(VerificationError, match=r"sections \.nv\.info at offset 0: they overlap"):
        read(bytes(data))


def test_what_is_no_cubin_is_refused() -> None:
    data = bytearray(kernel_with(b""))
    data[18] = 62
    with pytest.raises(VerificationError, match="machine at offset 18: found 62"):
        read(bytes(data))
