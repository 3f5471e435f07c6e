"""Findings in objects, libraries, containers, PTX and cubins, and their locations."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest
from support import hostile
from support.bitcode_corpus import assemble, tool
from support.offload_binary import MAGIC, Image, write
from support.skew_cases import BARRIER, BOUNDED, CASES, NVPTX, function

from mlir_offload.offload.link.objects import read_objects
from mlir_offload.offload.skew.check import SkewFinding, check_file, check_objects, check_view
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.skew.fact import Consumer
from mlir_offload.toolchain.skew.identity import Severity
from mlir_offload.toolchain.tool import ToolVersion

CUBINS = Path(__file__).resolve().parents[1] / "golden" / "cubin"
LAYOUT = 'target datalayout = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"\n'
SM_90 = (("arch", "sm_90"), ("triple", "nvptx64-nvidia-cuda"))
ENTRY = """
%entry = type { i64, i16, i16, i32, ptr, ptr, i64, i64, ptr }
@name = internal constant [2 x i8] c"k\\00", section ".llvm.rodata.offloading"
@stub = global i8 0
@e = weak constant %entry { i64 0, i16 1, i16 2, i32 0, ptr @stub, ptr @name, i64 0, i64 0, ptr null }, section "llvm_offload_entries", align 8
"""
PTX = ".version {version}\n.target {target}\n.address_size 64\n.visible .entry k()\n{{\nret;\n}}\n"


def found(data: bytes, consumer: Consumer, name: str = "k.o") -> list[SkewFinding]:
    return list(check_view(memory_view(data, location=name), consumer))


def errors(findings: list[SkewFinding]) -> list[str]:
    return sorted(one.rule for one in findings if one.severity is Severity.ERROR)


def cuda(major: int, minor: int) -> CudaToolkit:
    return CudaToolkit(Path("cuda"), ToolVersion(major, minor))


def ptx(version: str, target: str) -> bytes:
    return PTX.format(version=version, target=target).encode()


def host_object(binary: bytes, folder: Path, name: str = "host.o") -> Path:
    """Return an object that embeds an offload binary, as clang does."""
    (folder / "images").write_bytes(binary)
    source = (
        f'__asm__(".section .llvm.offloading,\\"e\\"\\n.incbin \\"{folder}/images\\"\\n.text");\n'
    )
    command = [tool(22, "clang"), "-x", "c", "-c", "-", "-o", str(folder / name)]
    subprocess.run(command, input=source.encode(), check=True)
    return folder / name


def packaged(content: bytes, strings: tuple[tuple[str, str], ...] = SM_90, kind: int = 2) -> bytes:
    """Return an offload binary of version 1 with one image of kind cuda, or hip for AMD."""
    offload_kind = 4 if strings[1][1].startswith("amdgcn") else 2
    table = b"\0" + b"".join(text.encode() + b"\0" for pair in strings for text in pair)
    places, at = [], 1
    for text in (text for pair in strings for text in pair):
        places.append(at)
        at += len(text.encode()) + 1
    strings_at = 32 + 40
    table_at = strings_at + 16 * len(strings)
    image_at = -(-(table_at + len(table)) // 8) * 8
    entries = struct.pack(
        "<HHIQQQQ", kind, offload_kind, 0, strings_at, len(strings), image_at, len(content)
    )
    offsets = [table_at + place for place in places]
    body = entries + struct.pack(f"<{len(offsets)}Q", *offsets) + table
    whole = body.ljust(image_at - 32, b"\0") + content
    whole += bytes(-len(whole) % 8)
    return struct.pack("<4sIQQQ", MAGIC, 1, 32 + len(whole), 32, 40) + whole


def binary(text: str, strings: tuple[tuple[str, str], ...] = SM_90) -> bytes:
    return packaged(assemble(22, text), strings)


@pytest.mark.llvm(22)
def test_a_finding_names_file_image_kernel_and_construct(tmp_path: Path) -> None:
    path = host_object(binary(LAYOUT + BOUNDED), tmp_path)
    (one,) = [one for one in check_file(path, Consumer(19)) if one.rule == "BC015"]
    assert one == SkewFinding(
        "BC015",
        Severity.ERROR,
        "LLVM 19 does not look at its launch bounds nvvm.maxntid; they would be lost",
        str(path),
        "write !nvvm.annotations as well, or name the linking LLVM with --for-clang=",
        "cuda nvptx64-nvidia-cuda sm_90",
        "f",
    )
    assert one.text.startswith(
        "image cuda nvptx64-nvidia-cuda sm_90: 'f': LLVM 19 does not look at"
    )
    assert check_file(path, Consumer(22)) == ()


@pytest.mark.llvm(22)
def test_a_member_of_a_library_is_named(tmp_path: Path) -> None:
    objects = [
        host_object(binary(LAYOUT + text), tmp_path, name)
        for name, text in (("good.o", NVPTX), ("bad.o", BOUNDED))
    ]
    subprocess.run([tool(22, "llvm-ar"), "rc", "k.a", *map(str, objects)], check=True, cwd=tmp_path)
    findings = [*check_file(tmp_path / "k.a", Consumer(19))]
    assert [one.location for one in findings if one.rule == "BC015"] == [f"{tmp_path}/k.a(bad.o)"]


@pytest.mark.llvm(22)
def test_objects_that_were_read_already_are_found_the_same(tmp_path: Path) -> None:
    path = host_object(binary(LAYOUT + BOUNDED), tmp_path)
    whole = [one for one in check_file(path, Consumer(19)) if one.rule != "OF008"]
    assert [*check_objects(read_objects(path), Consumer(19))] == whole


@pytest.mark.llvm(22)
def test_host_bitcode_is_checked_by_itself_and_in_a_library(tmp_path: Path) -> None:
    data = assemble(22, CASES["getelementptr constant"].text)
    assert [one.rule for one in found(data, Consumer(16))] == ["BC012"]
    (tmp_path / "m.o").write_bytes(data)
    subprocess.run([tool(22, "llvm-ar"), "rc", "m.a", "m.o"], check=True, cwd=tmp_path)
    (one,) = check_file(tmp_path / "m.a", Consumer(16))
    assert (one.rule, one.location, one.image) == ("BC012", f"{tmp_path}/m.a(m.o)", "")


def test_text_names_its_line() -> None:
    data = function(" %r = zext nneg i32 %i to i64\n ret void", "i32 %i").encode()
    assert [one.location for one in found(data, Consumer(16), "k.ll")] == ["k.ll:2"]
    assert found(data, Consumer(22), "k.ll") == []


def test_text_for_a_device_is_checked_once() -> None:
    data = (NVPTX + BARRIER).encode()
    assert [one.rule for one in found(data, Consumer(19), "k.ll")] == ["BC014"]


def test_text_in_an_offload_binary_is_no_image() -> None:
    data = packaged((NVPTX + function(" ret void")).encode())
    assert errors(found(data, Consumer(22))) == ["BC007"]


@pytest.mark.llvm(22)
def test_packaged_bitcode_needs_a_layout_and_all_of_libdevice() -> None:
    assert errors(found(binary(NVPTX + function(" ret void")), Consumer(22))) == ["DL001"]
    calls = LAYOUT + NVPTX + "declare float @__nv_sqrtf(float)\n"
    assert [one.rule for one in found(binary(calls), Consumer(22))] == ["NV012"]
    # Bitcode that is not packaged may be linked with the missing library.
    assert found(assemble(22, NVPTX + "declare float @__nv_sqrtf(float)\n"), Consumer(22)) == []


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("arch", "triple", "release", "rules"),
    [
        ("sm_90", "nvptx64-nvidia-cuda", 15, ["NV003"]),
        ("sm_90", "nvptx64-nvidia-cuda", 16, []),
        ("sm_120", "nvptx64-nvidia-cuda", 19, ["NV003"]),
        ("sm_120", "nvptx64-nvidia-cuda", 20, []),
        ("sm_20", "nvptx64-nvidia-cuda", 22, []),
        ("sm_999", "nvptx64-nvidia-cuda", 22, ["NV003"]),
        ("gfx942", "amdgcn-amd-amdhsa", 16, ["AM006"]),
        ("gfx942:xnack+", "amdgcn-amd-amdhsa", 19, []),
        ("gfx940", "amdgcn-amd-amdhsa", 19, []),
        ("gfx940", "amdgcn-amd-amdhsa", 22, ["AM006"]),
        ("gfx1250", "amdgcn-amd-amdhsa", 20, ["AM006"]),
        ("gfx1250", "amdgcn-amd-amdhsa", 21, []),
        ("gfx90a", "amdgcn-amd-amdhsa", 15, []),
    ],
)
def test_an_architecture_that_the_release_does_not_know_is_told(
    arch: str, triple: str, release: int, rules: list[str]
) -> None:
    text = f'target datalayout = "e"\ntarget triple = "{triple}"\n@g = global i8 0\n'
    data = binary(text, (("arch", arch), ("triple", triple)))
    assert errors(found(data, Consumer(release))) == rules


@pytest.mark.llvm(22)
def test_the_architecture_of_a_function_counts_too() -> None:
    text = NVPTX + 'define void @f() "target-cpu"="sm_120" {\n ret void\n}\n'
    assert "NV003" in errors(found(assemble(22, text), Consumer(19)))


def test_an_offload_binary_of_a_later_version_is_told() -> None:
    data = write([Image(ptx("7.0", "sm_80"), image_kind=5)], 2)
    assert errors(found(data, Consumer(22))) == ["OF001"]
    assert errors(found(data, Consumer(23))) == []


@pytest.mark.parametrize(
    ("version", "target", "toolkit", "rules"),
    [
        ("8.5", "sm_80", cuda(11, 8), ["NV002"]),
        ("7.8", "sm_80", cuda(11, 8), []),
        ("7.0", "sm_90", None, ["NV001"]),
        ("7.8", "sm_90", None, []),
        ("6.3", "sm_70", cuda(13, 0), ["NV004"]),
        ("8.6", "sm_101", cuda(13, 0), ["NV005"]),
        ("8.6", "sm_101", cuda(12, 8), []),
        ("9.0", "sm_110", cuda(12, 9), ["NV002", "NV005"]),
        ("8.0", "sm_80", cuda(10, 0), []),
    ],
)
def test_ptx_is_checked_against_its_architecture_and_ptxas(
    version: str, target: str, toolkit: CudaToolkit | None, rules: list[str]
) -> None:
    assert errors(found(ptx(version, target), Consumer(22, toolkit))) == rules


@pytest.mark.parametrize(
    ("version", "driver", "rules"),
    [
        ("8.7", "550.54.14", ["NV010"]),
        ("8.4", "550.54.14", []),
        ("7.0", "440.33", ["NV010"]),
        ("9.5", "595.10", []),
        ("9.5", None, []),
    ],
)
def test_ptx_newer_than_the_driver_is_a_warning(
    version: str, driver: str | None, rules: list[str]
) -> None:
    findings = found(ptx(version, "sm_80"), Consumer(22, driver=driver))
    assert [one.rule for one in findings] == rules
    assert errors(findings) == []


def test_ptx_that_calls_what_nobody_defines_is_told() -> None:
    extern = b".extern .func llvm.nvvm.barrier.cta.sync.aligned.all\n(\n.param .b32 a\n)\n;\n"
    data = ptx("7.0", "sm_80").replace(b".visible", extern + b".visible")
    assert [one.rule for one in found(data, Consumer(22))] == ["NV012"]


@pytest.mark.parametrize(
    ("driver", "rules"),
    [("535.54.03", []), ("470.42", ["NV011"]), ("440.33", ["NV011"]), (None, [])],
)
def test_a_cubin_needs_a_driver_of_its_major_release(driver: str | None, rules: list[str]) -> None:
    data = (CUBINS / "sm_100a.12.8.cubin").read_bytes()
    assert errors(found(data, Consumer(22, driver=driver))) == rules


@pytest.mark.llvm(22)
def test_the_old_way_to_call_fatbinary_is_a_warning() -> None:
    data = binary(LAYOUT + NVPTX + "@g = global i8 0\n")
    rules = {
        release: [one.rule for one in found(data, Consumer(release, cuda(13, 0)))]
        for release in (19, 22)
    }
    assert rules == {19: ["NV007", "BC002"], 22: []}


@pytest.mark.llvm(22)
def test_entries_and_images_that_the_wrapper_does_not_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "e.o"
    command = [tool(22, "clang"), "-w", "-x", "ir", "-c", "-", "-o", str(path)]
    subprocess.run(command, input=ENTRY.encode(), check=True)
    assert errors([*check_file(path, Consumer(19))]) == ["OF002"]
    assert check_file(path, Consumer(22)) == ()
    for data in (ENTRY.encode(), assemble(22, ENTRY)):
        assert errors(found(data, Consumer(19))) == ["OF002"]
        assert found(data, Consumer(22)) == []
    lost = host_object(packaged(ptx("7.8", "sm_90"), kind=1), tmp_path)
    assert "OF008" in errors([*check_file(lost, Consumer(22))])


def test_what_is_no_code_has_no_findings_and_what_is_damaged_has_one() -> None:
    for data in (b"some text\n", bytes(100), b"module {}\n"):
        assert found(data, Consumer(16)) == []
    assert [one.message for one in found(b"", Consumer(16))] == ["it cannot be read: it is empty"]
    (one,) = found(b"BC\xc0\xde" + bytes(20) + b"x", Consumer(16))
    assert one.rule == "BC005"


@pytest.mark.llvm(22)
def test_damaged_files_give_findings_or_nothing() -> None:
    device = binary(
        LAYOUT + BOUNDED + "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n"
    )
    sources = (device, assemble(22, CASES["debug information"].text), ptx("7.0", "sm_90"))
    for data in sources:
        step = max(1, len(data) // 60)
        changed = [*hostile.truncations(data, step), *hostile.spliced(data, 60)]
        # Nothing is raised: damage is a finding.
        assert hostile.survives(lambda read: found(read, Consumer(16)), iter(changed)) == 0
