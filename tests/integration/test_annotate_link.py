"""Annotated host modules, compiled and linked by each release, and run on the CPU."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path

import pytest
from support.device_image import DeviceImage, image_kind_of, serialize_binary

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.offload.ir_syntax import kernel_signatures
from mlir_offload.offload.link.coverage import check_coverage
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.offload.llvm_ir import (
    assemble_command,
    in_process_llvm_major,
    is_written_in_process,
    write_bitcode_in_process,
)
from mlir_offload.toolchain.errors import ToolFailedError, VerificationError
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, run_checked
from mlir_offload.toolchain.target import Kind, Target, host_triple
from mlir_offload.toolchain.tool import ToolVersion

INPUTS = Path(__file__).parent / "inputs"
LOWERED = Path(__file__).parent.parent / "golden" / "lowered"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
KERNELS = ("saxpy", "other", "__mo_k2")


def llvm(major: int) -> LlvmToolchain:
    prefix = Path(f"/usr/lib/llvm-{major}")
    names = ("clang", "llvm-dis")
    tools = tuple((name, prefix / "bin" / name) for name in names)
    return LlvmToolchain(prefix, ToolVersion(major, 1, 0), tools)


def clang(major: int, *arguments: object) -> Completed:
    argv = (str(llvm(major).tool("clang")), "-Wno-override-module", *map(str, arguments))
    return run_checked(ProcessRunner(), Command(argv))


def lowered(name: str, major: int) -> str:
    return (LOWERED / f"{name}.{major}.ll").read_text(encoding="utf-8")


def annotated(major: int, binary: bytes, *kinds: Kind) -> str:
    signatures = kernel_signatures(lowered("kernels", major) + lowered("second", major))
    return embed_offload_data(
        lowered("host", major),
        kernels=[HostKernel(symbol, signatures[symbol]) for symbol in KERNELS],
        kinds=kinds,
        binary=binary,
        abis=(load_abi(major),),
    )


def host_object(major: int, directory: Path, *, name: str = "host.o", drop: str = "") -> Path:
    """Compile the program of `golden/lowered` with an image of kind openmp made from C."""
    image = directory / "image.o"
    macros = (f"-D{drop}=unused",) if drop else ()
    clang(major, "-O1", "-fPIC", *macros, "-c", INPUTS / "cpu_kernels.c", "-o", image)
    data = image.read_bytes()
    target = Target(Kind.OPENMP, host_triple(), "host")
    binary = serialize_binary([DeviceImage(target, data, image_kind_of(data))], load_abi(major))
    text, output = directory / "host.ll", directory / name
    text.write_text(annotated(major, binary, Kind.OPENMP), encoding="utf-8")
    clang(major, "-O1", "-c", text, "-o", output)
    return output


def link(major: int, directory: Path, *inputs: object) -> Path:
    """Link with the release's own libomptarget, unused sections dropped."""
    launcher, program = directory / "launcher.o", directory / "program"
    clang(major, "-c", INPUTS / "openmp_launcher.c", "-o", launcher)
    libraries = llvm(major).prefix / "lib"
    # The plain name is in a package for development only.
    omptarget = next(libraries.glob("libomptarget.so*"))
    options = ("-fuse-ld=lld", "-Wl,--gc-sections", f"-Wl,-rpath,{libraries}")
    clang(major, "--offload-link", *inputs, launcher, *options, omptarget, "-o", program)
    return program


@pytest.mark.parametrize("opt_level", [0, 2])
@pytest.mark.parametrize("major", RELEASES)
def test_a_launch_names_its_stub_at_every_level(major: int, opt_level: int, tmp_path: Path) -> None:
    source, output = tmp_path / "host.ll", tmp_path / "out.ll"
    source.write_text(annotated(major, b"binary", Kind.CUDA, Kind.OPENMP), encoding="utf-8")
    clang(major, f"-O{opt_level}", "-S", "-emit-llvm", source, "-o", output)
    text = output.read_text(encoding="utf-8")
    stubs = re.findall(r"call void @mgpuLaunchKernel\(ptr (?:nonnull )?@(\w+),", text)
    assert stubs == [f"__mo_stub__{kernel}" for kernel in KERNELS]
    assert not re.search(r"(?:call|declare).*@mgpuModule", text)


@pytest.mark.parametrize("major", RELEASES)
def test_kernels_are_found_by_their_stubs_when_the_program_runs(major: int, tmp_path: Path) -> None:
    host = host_object(major, tmp_path)
    program = link(major, tmp_path, host)
    check_coverage(program, read_objects(host))
    environment = (("OMP_TARGET_OFFLOAD", "MANDATORY"),)
    completed = run_checked(ProcessRunner(), Command((str(program),), environment))
    assert completed.stdout.splitlines() == [
        "saxpy grid 10 n 4",
        "other grid 10 n -1",
        *["__mo_k2 grid 10 n -1"] * 10,
        "saxpy grid 0 n 7",
    ]


@pytest.mark.llvm(22)
def test_a_kernel_that_the_image_lacks_is_reported_after_the_link(tmp_path: Path) -> None:
    host = host_object(22, tmp_path, drop="other")
    program = link(22, tmp_path, host)
    with pytest.raises(
        VerificationError, match="lack kernels that the host registers: 'other' for host"
    ):
        check_coverage(program, read_objects(host))


@pytest.mark.llvm(22)
def test_two_files_that_define_one_kernel_do_not_link(tmp_path: Path) -> None:
    first = host_object(22, tmp_path)
    second = host_object(22, tmp_path, name="again.o")
    with pytest.raises(ToolFailedError) as caught:
        link(22, tmp_path, first, second)
    assert re.search(r"multiple definition of .saxpy", caught.value.stderr)


@pytest.mark.llvm(22)
def test_objects_tell_images_entries_and_what_the_runtime_must_define(tmp_path: Path) -> None:
    (contents,) = read_objects(host_object(22, tmp_path))
    assert contents.kinds == {"openmp"}
    assert contents.kernels("openmp") == KERNELS
    assert {(entry.section, entry.fields) for entry in contents.entries} == {
        ("llvm_offload_entries", 9)
    }
    assert [image.triple for image in contents.images] == [host_triple()]
    assert {"mgpuLaunchKernel", "mlir_offload_launch_stub"} <= contents.runtime_symbols
    assert not any("Module" in symbol for symbol in contents.runtime_symbols)


@pytest.mark.llvm(22)
def test_a_damaged_object_is_read_or_refused_but_never_crashes_the_reader(tmp_path: Path) -> None:
    path = host_object(22, tmp_path)
    data = path.read_bytes()
    source = random.Random(2)  # noqa: S311 (not for secrets)
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(source.randint(1, 8)):
            # The headers of sections, at the end, steer the reader.
            start = source.choice((0, len(data) - 64 * 40))
            broken[source.randrange(start, len(data))] = source.randrange(256)
        path.write_bytes(broken)
        with contextlib.suppress(VerificationError):
            read_objects(path)


@pytest.mark.llvm(22)
def test_both_writers_of_bitcode_give_the_same_module(tmp_path: Path) -> None:
    if not is_written_in_process(22):
        pytest.skip(f"llvmlite is of LLVM {in_process_llvm_major()}")
    source, theirs, ours = (tmp_path / name for name in ("m.ll", "theirs.bc", "ours.bc"))
    text = annotated(22, b"binary\0\xff", Kind.CUDA, Kind.OPENMP)
    # clang adds the triple and the layout where there are none.
    target = f'target triple = "{host_triple()}"\ntarget datalayout = "{_layout(tmp_path)}"\n'
    source.write_text(target + text, encoding="utf-8")
    run_checked(ProcessRunner(), assemble_command(llvm(22), source, theirs))
    ours.write_bytes(write_bitcode_in_process(target + text))
    assert _disassembled(ours) == _disassembled(theirs)


def test_text_that_is_no_module_is_refused_in_process() -> None:
    if in_process_llvm_major() is None:
        pytest.skip("llvmlite cannot be loaded")
    with pytest.raises(VerificationError, match="the generated LLVM IR is not valid"):
        write_bitcode_in_process("define void @f() {\n  ret i32 0\n}\n")


def _layout(directory: Path) -> str:
    empty, output = directory / "empty.c", directory / "empty.ll"
    empty.write_text("", encoding="utf-8")
    clang(22, "-S", "-emit-llvm", empty, "-o", output)
    match = re.search(r'target datalayout = "(.*)"', output.read_text(encoding="utf-8"))
    assert match is not None
    return match.group(1)


def _disassembled(bitcode: Path) -> list[str]:
    command = Command((str(llvm(22).tool("llvm-dis")), str(bitcode), "-o", "-"))
    text = run_checked(ProcessRunner(), command).stdout
    return [line for line in text.splitlines() if not line.startswith("; ModuleID")]
