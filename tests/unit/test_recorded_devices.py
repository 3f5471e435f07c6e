"""Device code in complete compilations with recorded tools: its lowering, libraries and images."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from llvmlite import binding
from support.recorded import RECORDED, RecordedTools
from support.recorded_link import LINKED, make_object

from mlir_offload.driver import cli
from mlir_offload.driver.compile import device
from mlir_offload.driver.compile.kind_build import ImageFile, as_made
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    SourceError,
    ToolchainError,
)
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, Target

NO_IMAGE = {'".llvm.offloading"': '".no.images"'}
KERNEL = """\
target triple = "nvptx64-nvidia-cuda"
{declaration}
define ptx_kernel void @scale({parameter} %0) {{
  {call}
  ret void
}}
"""
LIBRARY = """\
target triple = "nvptx64-nvidia-cuda"
{more}
define void @helper() {{
  ret void
}}
"""


def compiled(tools: RecordedTools, *words: str, major: int = 22) -> int:
    places = (f"--llvm={tools.root}/llvm-{major}", f"--cuda-path={tools.root}/cuda")
    return cli._guarded(("-j2", "-c", "scale.mlir", "-o", "scale.o", *places, *words))


def shown(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str], *words: str, major: int = 22
) -> list[str]:
    """Return the lines of a compilation whose intermediate files are in temps, without running the tools."""
    status = compiled(tools, "-###", "-save-temps=temps", *words, major=major)
    said = capsys.readouterr().err
    assert status == 0, said
    return said.replace(f"{Path.cwd()}/", "").replace(f"{tools.root}/", "").splitlines()


def kernel(called: str = "", *, parameter: str = "ptr") -> bytes:
    """Return the lowered device module, whose kernel calls a function."""
    declaration = f"declare void @{called}()" if called else ""
    call = f"call void @{called}()" if called else ""
    return KERNEL.format(declaration=declaration, call=call, parameter=parameter).encode()


def library(name: str, more: str = "") -> str:
    """Write a library of device code; return its name."""
    Path(name).write_bytes(binding.parse_assembly(LIBRARY.format(more=more)).as_bitcode())
    return name


def test_lowering_the_parts_together_gives_what_lowering_each_gives(
    tools: RecordedTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for most in (0, 1 << 20):
        monkeypatch.setattr(device, "_MOST_BYTES", most)
        tools.commands.clear()
        assert compiled(tools, "--offload-arch=sm_90", "-S", "-emit-llvm") == 0
        lowered = [one.argv[-1] for one in tools.commands if one.program == "mlir-translate"]
        made.append(([Path(name).name for name in lowered], Path("scale.o").read_bytes()))
    (apart, text), (together, same) = made
    assert sorted(apart) == ["device0.ll", "host.ll"]
    assert together == ["joint.ll"]
    assert text == same
    # Passes for another vendor's GPU run separately.
    tools.commands.clear()
    assert compiled(tools, "--offload-arch=sm_90,gfx90a", "-nogpulib") == 0
    lowered = [one.argv[-1] for one in tools.commands if one.program == "mlir-translate"]
    assert sorted(Path(name).name for name in lowered) == ["device0.gfx90a.ll", "joint.ll"]
    # What mlir-opt reads has the host and the device code.
    assert compiled(tools, "--offload-arch=sm_90", "-save-temps=temps") == 0
    joint = Path("temps/0/joint.mlir").read_text()
    assert joint.count('"gpu.module"() <{sym_name = "devices"}>') == 1
    assert '"gpu.launch_func"' in joint
    assert '"math.exp"' in joint


def test_what_mlir_opt_says_of_a_device_module_is_an_error_in_the_source(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: command.argv[-1].endswith("device0.low.mlir")
    tools.said = "scale.mlir:15:12: error: failed to legalize operation 'math.exp'\n"
    assert compiled(tools, "--offload-arch=sm_90") == SourceError.exit_status
    assert (
        "scale.mlir:15:12: error: math.exp is not supported in a kernel" in capsys.readouterr().err
    )


def test_host_code_alone_needs_one_lowering_and_no_image(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--offload-arch=sm_80,sm_90,gfx90a", "--offload-host-only", "-nogpulib")
    lines = shown(tools, capsys, *words)
    lowered = [line for line in lines if "mlir-translate" in line and "device0" in line]
    assert len(lowered) == 1
    assert not any("step nvptx-ir" in line or "step package" in line for line in lines)
    (embed,) = [line for line in lines if "step embed" in line]
    assert " --device=temps/0/split/device0.ll " in embed
    assert "--binary=" not in embed


def test_libraries_of_device_code_are_linked_into_kernels_that_call_others(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--offload-arch=sm_90", f"--device-lib={library('mine.bc')}", "-MD", "-MF", "scale.d")
    tools.outputs["device0.ll"] = kernel("helper")
    (made,) = [line for line in shown(tools, capsys, *words) if "-march=sm_90" in line]
    assert " -Xclang -mlink-builtin-bitcode -Xclang mine.bc " in made
    assert compiled(tools, *words) == 0
    assert Path("scale.d").read_text().split() == ["scale.o:", "scale.mlir", "mine.bc"]
    tools.outputs["device0.ll"] = kernel()
    assert "mine.bc" not in "".join(shown(tools, capsys, *words))
    assert compiled(tools, *words) == 0
    assert "mine.bc" not in Path("scale.d").read_text()


def test_a_library_that_is_attached_to_a_module_is_next_to_the_program(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder").mkdir()
    library("folder/attached.bc")
    text = (RECORDED / "normal.mlir").read_text()
    targets = 'targets = [#nvvm.target<chip = "sm_90", link = ["attached.bc"]>], '
    attached = text.replace('"gpu.module"() <{', f'"gpu.module"() <{{{targets}')
    tools.outputs |= {"normal.mlir": attached.encode(), "device0.ll": kernel("helper")}
    Path("scale.mlir").rename("folder/scale.mlir")
    places = (f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")
    words = ("-c", "folder/scale.mlir", "--offload-arch=sm_90", "-###", *places)
    assert cli._guarded(words) == 0
    (made,) = [line for line in capsys.readouterr().err.splitlines() if "-march=sm_90" in line]
    assert " -Xclang -mlink-builtin-bitcode -Xclang folder/attached.bc " in made


@pytest.mark.llvm(15)
def test_a_clang_that_links_no_library_gets_linked_code(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.install(15)
    tools.outputs["device0.ll"] = kernel("helper")
    Path("older.ll").write_text(LIBRARY.format(more=""))
    subprocess.run(["/usr/lib/llvm-15/bin/llvm-as", "older.ll", "-o", "older.bc"], check=True)
    words = ("--offload-arch=sm_80", "--device-lib=older.bc", f"--for-clang={tools.root}/llvm-15")
    lines = shown(tools, capsys, *words)
    (linked,) = [line for line in lines if "/llvm-link " in line]
    assert " older.bc " in linked
    (made,) = [line for line in lines if "-march=sm_80" in line and " -emit-llvm " in line]
    assert "/device0.sm_80.linked.bc " in made
    assert "older.bc" not in made


def test_the_only_device_code_of_a_program_is_packed_without_a_device_link(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    cubin = (Path(__file__).parents[1] / "golden/cubin/sm_90.11.8.cubin").read_bytes()
    program = Path(make_object("made.o", ["scale"], replaced=LINKED)).read_bytes()
    # The object of the source registers the kernel, and has no image.
    host = Path(make_object("host.o", ["scale"], replaced=NO_IMAGE)).read_bytes()
    tools.outputs = {"device0.sm_90.o": cubin, "scale.o": host, "linked": program}
    places = (f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")
    words = ("scale.mlir", "-o", "scale", "--offload-arch=sm_90", *places)
    assert cli._guarded(words) == 0, capsys.readouterr().err
    (line,) = [one.argv for one in tools.commands if one.argv[-1].endswith("/linked")]
    assert any("--override-image=" in word for word in line)
    assert Path("scale").read_bytes() == program


@pytest.mark.parametrize(("head", "ending"), [(b"BC\xc0\xde", ".bc"), (b"\x7fELF", ".o")])
def test_the_image_of_a_step_has_the_extension_of_its_content(
    head: bytes, ending: str, tmp_path: Path
) -> None:
    target = Target(Kind.CUDA, NVPTX_TRIPLE, "sm_90")
    # A cubin is made as one, and in a dry run there is no image.
    for name in ("image.o", "none.bc"):
        assert as_made(ImageFile(tmp_path / name, target)).path == tmp_path / name
    given = ImageFile(tmp_path / "image.bc", target)
    given.path.write_bytes(head)
    made = as_made(given)
    assert made.path == tmp_path / f"image{ending}"
    assert made.path.read_bytes() == head


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (("--device-lib=none.bc",), InputOutputError, "none.bc: no such file"),
        (("--device-lib=scale.mlir",), CompatibilityError, "scale.mlir is not LLVM bitcode"),
        (("--device-lib=mine.bc", "--for-clang=19"), CompatibilityError, "mine.bc is bitcode of LLVM"),
    ],
)  # fmt: skip
def test_a_library_that_cannot_be_linked_is_rejected(
    words: tuple[str, ...],
    error: type[SourceError],
    said: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    library("mine.bc")
    tools.outputs["device0.ll"] = kernel("helper")
    assert compiled(tools, "--offload-arch=sm_90", *words) == error.exit_status
    assert said in capsys.readouterr().err


def test_a_library_that_calls_libdevice_is_linked_with_it(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.outputs["device0.ll"] = kernel("helper")
    words = ("--offload-arch=sm_90", "--device-lib=mine.bc")
    library("mine.bc")
    assert "libdevice" not in "".join(shown(tools, capsys, *words))
    library("mine.bc", "declare float @__nv_expf(float)")
    assert "libdevice.10.bc" in "".join(shown(tools, capsys, *words))


def test_a_kernel_that_calls_libdevice_needs_a_toolkit_that_has_it(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--offload-arch=sm_90", "--cuda-path=none", "--device-code=bitcode")
    assert compiled(tools, *words) == ToolchainError.exit_status
    said = capsys.readouterr().err
    assert "scale.mlir: error: a kernel calls math functions of libdevice" in said
    assert compiled(tools, *words, "-nogpulib") == 0


@pytest.mark.parametrize(
    ("archs", "parameter"), [("sm_90", "i24"), ("spirv64", "[2 x i32]")], ids=str
)
def test_a_parameter_that_a_device_cannot_take_is_located_at_its_kernel(
    archs: str, parameter: str, tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("device0.ll", "device0.spirv.ll"):
        tools.outputs[name] = kernel(parameter=parameter)
    assert compiled(tools, f"--offload-arch={archs}") == SourceError.exit_status
    said = capsys.readouterr().err
    assert "scale.mlir:12:5: error: " in said
    assert f"{parameter}" in said


def test_what_the_cpu_cannot_do_is_located_by_a_second_lowering(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    call = "llvm.nvvm.none"
    tools.outputs["device0.ll"] = kernel(call)
    located = kernel(call).decode().replace(f"@{call}()\n  ret", f"@{call}(), !dbg !3\n  ret")
    located += '!1 = !DIFile(filename: "scale.mlir", directory: "")\n'
    located += '!2 = distinct !DISubprogram(name: "scale", file: !1, line: 12)\n'
    located += "!3 = !DILocation(line: 15, column: 12, scope: !2)\n"
    low = (RECORDED / "device0.low.mlir").read_bytes()
    tools.outputs["device0.lines.low.mlir"] = low
    tools.outputs["device0.lines.ll"] = located.encode()
    assert compiled(tools, "--offload-arch=host") == SourceError.exit_status
    said = capsys.readouterr().err
    assert "scale.mlir:15:12: error: " in said
    # Without a place in the second one either, the error is about the source.
    tools.outputs["device0.lines.ll"] = kernel(call)
    assert compiled(tools, "--offload-arch=host") == SourceError.exit_status
    assert "llvm.nvvm.none" in capsys.readouterr().err
    # With -g the first one has the lines.
    tools.commands.clear()
    assert compiled(tools, "--offload-arch=host", "-g") == SourceError.exit_status
    assert not any("lines" in one.argv[-1] for one in tools.commands)


@pytest.mark.parametrize(
    ("called", "read"),
    [("helper", ["mine.bc"]), ("__nv_f", ["libdevice.10.bc", "mine.bc"]), ("", [])],
    ids=["a library", "libdevice", "nothing"],
)
def test_a_launched_step_gives_what_the_compiler_gives(
    called: str,
    read: list[str],
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    library("mine.bc")
    # The step gives its files other names.
    tools.outputs["device0.ll"] = tools.outputs["input.ll"] = kernel(called)
    words = ("--offload-arch=sm_90", "--device-lib=mine.bc", "-S", "-emit-llvm")
    assert compiled(tools, *words) == 0
    expected = Path("scale.o").read_bytes()
    assert shown(tools, capsys, *words)
    places = (f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")
    Path("device.i").write_bytes(Path("temps/0/split/device0.mlir").read_bytes())
    step = ("--image-step", "-x", "cpp-output", "-c", "device.i", "-o", "made.offload", *words[:2])
    image = ("--kernel=scale", "--device-code=bitcode")
    assert cli._guarded((*step, *image, *places)) == 0
    tools.outputs["device0.sm_90.offload"] = Path("made.offload").read_bytes()
    assert compiled(tools, *words, "--launcher=launch", "-MD", "-MF", "scale.d") == 0
    assert Path("scale.o").read_bytes() == expected
    rule = Path("scale.d").read_text().replace("\\\n", "").split()
    assert [Path(word).name for word in rule] == ["scale.o:", "scale.mlir", *read]
