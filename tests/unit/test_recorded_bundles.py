"""Bundles that recorded tools make and link."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recorded import RecordedTools
from support.recorded_link import LINKED, make_object

from mlir_offload.driver import cli
from mlir_offload.driver.bundle import requirement
from mlir_offload.toolchain.errors import ToolchainError, VerificationError


def call(tools: RecordedTools, *words: str) -> int:
    places = ("-j2", f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")
    return cli._guarded((*words, *places, "scale.mlir"))


def test_a_bundle_is_made_without_the_tools_that_link_it(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    archs = "--offload-arch=sm_90,gfx90a,host"
    assert call(tools, "bundle", "-o", "scale.mob", archs, "--with-device-libs") == 0
    assert not [one for one in tools.commands if one.program == "ptxas" and "-o" in one.argv]
    with Path("scale.mob").open("rb") as stream:
        assert b"scale/README.md" in stream.read(512)

    linking = ("link", "scale.mob", "-c", "-o", "scale.o", "-save-temps=unpacked")
    places = (f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")
    assert cli._guarded((*linking, *places, "-###")) == 0
    lines = capsys.readouterr().err
    assert "-fembed-offload-object=unpacked/bundle0/" in lines
    script = Path("unpacked/bundle0/link.sh").read_text()
    assert "--offload-link" in script
    assert "-march=sm_90" in script
    assert "sm_90" in Path("unpacked/bundle0/README.md").read_text()


@pytest.fixture
def bundle(tools: RecordedTools, capsys: pytest.CaptureFixture[str]) -> RecordedTools:
    """Return the tools, once they have made scale.mob."""
    assert call(tools, "bundle", "-o", "scale.mob", "--offload-arch=sm_90,gfx90a", "-O3") == 0
    capsys.readouterr()
    return tools


@pytest.mark.parametrize(
    ("llvm", "words", "message"),
    [
        (22, ("scale.mob", "-o", "scale", "-###"), "mlir-offload unpacked/"),
        (22, ("scale.mob", "-###", "-c"), "-O3"),
        (19, ("scale.mob", "-c"), "needs clang of LLVM 22 or newer, here is LLVM 19.1.0"),
        (15, ("scale.mob", "-c"), "no LLVM installation there"),
        (22, ("scale.mlir",), "link needs a bundle"),
        (22, ("scale.mob", "call.c", "-c"), "call.c is not a bundle"),
        (22, ("scale.mob", "again.mob", "-c"), "two host modules would both become scale.o"),
        (22, ("scale.mob", "again.mob", "-c", "-o", "k.o"), "-o names one file"),
        (22, ("scale.mob", "-o", "scale", "-fgpu-rdc"), "link does not take -fgpu-rdc"),
        (22, ("other.mob", "-c"), "other.mob"),
    ],
    ids=str,
)
def test_a_bundle_is_linked_or_says_what_is_missing(
    llvm: int,
    words: tuple[str, ...],
    message: str,
    bundle: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = Path("scale.mob").read_bytes()
    Path("again.mob").write_bytes(content)
    Path("other.mob").write_bytes(content.replace(b"define", b"remove", 1))
    places = (f"--llvm={bundle.root}/llvm-{llvm}", f"--cuda-path={bundle.root}/cuda")
    status = cli._guarded(("link", *words, *places, "-save-temps=unpacked"))
    captured = capsys.readouterr()
    assert message in captured.err
    assert (status == 0) == ("-###" in words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("scale.mlir",), "bundle needs an output"),
        (("call.c", "-o", "k.mob"), "a bundle holds what was lowered from MLIR"),
        (("scale.mlir", "-o", "k.mob", "--offload-arch=spirv64"), "a bundle holds kernels for"),
        (("scale.mlir", "-o", "k.mob", "--with-device-libs"), "no --offload-arch="),
    ],
    ids=str,
)
def test_what_no_bundle_can_hold_is_refused(
    words: tuple[str, ...],
    message: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli._guarded(("bundle", *words, f"--llvm={tools.root}/llvm-22"))
    assert message in capsys.readouterr().err


def linked(tools: RecordedTools, *words: str) -> int:
    places = (f"--llvm={tools.root}/llvm-22", f"--cuda-path={tools.root}/cuda")
    return cli._guarded(("link", *words, *places))


def test_a_bundle_is_linked_to_a_program_that_is_verified(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tools, "bundle", "-o", "scale.mob", "--offload-arch=sm_90") == 0
    host = Path(make_object("host.o", ["scale"])).read_bytes()
    made, other = (
        Path(make_object(f"{name}.o", [name], replaced=LINKED)).read_bytes()
        for name in ("scale", "other")
    )
    cubin = bytearray((Path(__file__).parents[1] / "golden/cubin/sm_90.11.8.cubin").read_bytes())
    # The field e_type becomes ET_REL.
    cubin[16] = 1
    tools.outputs = {"0-scale.0.nvptx.sm_90.o": bytes(cubin), "0-scale.o": host, "linked": made}
    assert linked(tools, "scale.mob", "-o", "program") == 0, capsys.readouterr().err
    assert Path("program").read_bytes() == made
    tools.outputs["linked"] = other
    assert linked(tools, "scale.mob", "-o", "program") == VerificationError.exit_status
    message = capsys.readouterr().err
    assert (
        "program: error: the device images lack kernels that the host registers: 'scale'" in message
    )
    assert "hint: compile scale.mob again; its image for sm_90 lost the kernel" in message
    tools.outputs["0-scale.o"] = b"\x7fELF no object"
    assert linked(tools, "scale.mob", "-o", "program") == VerificationError.exit_status
    assert "scale.mob: error: malformed ELF file" in capsys.readouterr().err


def test_everything_that_a_link_of_a_bundle_lacks_is_one_error(
    bundle: RecordedTools, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (bundle.root / "llvm-22/bin/clang-linker-wrapper").unlink()
    (bundle.root / "cuda/bin/fatbinary").unlink()
    monkeypatch.setattr(requirement, "host_triple", lambda: "riscv64-unknown-linux-gnu")
    monkeypatch.setattr(requirement, "runtime_digest", lambda: "another")
    assert linked(bundle, "scale.mob", "-o", "scale") == ToolchainError.exit_status
    message = capsys.readouterr().err
    for text in (
        "has no clang-linker-wrapper",
        "no complete CUDA toolkit",
        "the bundle is for x86_64-pc-linux-gnu, this machine is riscv64-unknown-linux-gnu",
        "the bundle requires the runtime of mlir-offload ",
    ):
        assert text in message
