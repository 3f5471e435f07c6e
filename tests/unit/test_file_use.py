"""No invocation writes a file that it reads, or writes a file twice, under any name."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlir_offload.driver.cli import main
from mlir_offload.driver.message.report import report
from mlir_offload.driver.option.checks import OutputFile, check_files
from mlir_offload.driver.option.row import Subcommand
from mlir_offload.driver.option.subcommand import every_subcommand
from mlir_offload.toolchain.errors import UsageError

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
GCC = "input file '{}' is the same as output file"
DIRECTORIES = frozenset({"-save-temps", "-save-temps="})
# Arguments with which each subcommand reads the file k.
CALLS = {
    "": ["--offload-arch=host", "-c", "-MD", "{k}.mlir"],
    "run": ["-o", "other", "-MD", "--offload-arch=host", "{k}.mlir"],
    "build": ["{k}.yaml"],
    "bundle": ["-o", "other.mob", "{k}.mlir"],
    "link": ["-o", "other", "{k}.mob"],
    "inspect": ["{k}.mlir"],
    "extract": ["{k}.o"],
    "package": ["--for-clang=22", "--image=file={k}.bc,kind=cuda,arch=sm_90,triple=nvptx64-nvidia-cuda"],
    "check": ["--for-clang=22", "{k}.o"],
    "toolchains": [],
    "doctor": [],
    "learn": [],
    "explain": [],
    "new": [],
    "trust": [],
}  # fmt: skip


def _outputs() -> Iterator[tuple[str, str]]:
    for name, subcommand in every_subcommand().items():
        for option in _output_options(subcommand):
            yield name, option
        yield name, "--message-file="


def _output_options(subcommand: Subcommand) -> list[str]:
    rows = [row for row in subcommand.rows if row.path == "output"]
    names = [row.names[0] for row in rows]
    return [name for name in names if name not in DIRECTORIES | {"--message-file="}]


def _keeps(subcommand: Subcommand) -> bool:
    return any("-save-temps" in row.names for row in subcommand.rows)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "saxpy.mlir", "k.mlir")
    Path("k.bc").write_bytes(b"BC\xc0\xde")
    Path("k.mob").write_bytes(b"PK\3\4")
    Path("k.yaml").write_text("archs: host\nmodules: [k.mlir]\n")
    # An object with one device image.
    image = b"\x7fELF" + bytes(60)
    Path("image").write_bytes(image)
    subprocess.run(
        ["/usr/lib/llvm-22/bin/llvm-offload-binary", "-o", "k.o", "--image=file=image,kind=openmp,arch=x,triple=x"],
        check=True,
    )  # fmt: skip
    return tmp_path


def _run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    ended: list[int] = []

    def leave(status: int) -> None:
        ended.append(status)

    monkeypatch.setattr("mlir_offload.driver.cli._leave", leave)
    main(arguments)
    report().options = type(report().options)()
    return ended[0]


@pytest.mark.llvm(22)
@pytest.mark.parametrize("link", [os.link, os.symlink])
@pytest.mark.parametrize(("subcommand", "option"), [case for case in _outputs() if CALLS[case[0]]])
def test_no_output_of_a_subcommand_is_its_input(
    subcommand: str,
    option: str,
    link: object,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = [word.format(k="k") for word in CALLS[subcommand]]
    (name,) = [path.name for path in here.glob("k.*") if path.name in " ".join(words)]
    content = (here / name).read_bytes()
    assert callable(link)
    link(here / name, here / "alias")
    written = [f"{option}alias"] if option.endswith("=") else [option, "alias"]
    emit = ["--emit", "make"] if (subcommand, option) == ("build", "-o") else []
    kept = [word for word in words if option != "-o" or not word.startswith(("-o", "other"))]
    assert _run([*([subcommand] if subcommand else []), *written, *emit, *kept], monkeypatch) == 2
    said = capfd.readouterr().err
    assert GCC.format(name) in said
    assert option.rstrip("=") in said
    assert (here / name).read_bytes() == content


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    "subcommand", [name for name, subcommand in every_subcommand().items() if _keeps(subcommand)]
)
def test_no_kept_file_replaces_an_input(
    subcommand: str, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [word.format(k="k") for word in CALLS[subcommand]]
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    (here / "linked").symlink_to(here)
    assert (
        _run([*([subcommand] if subcommand else []), "-save-temps=linked", *words], monkeypatch)
        == 2
    )
    assert "is in 'linked', where -save-temps replaces files" in capfd.readouterr().err
    (here / "linked").unlink()
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.llvm(22)
def test_a_wrong_command_line_does_not_destroy_a_source_either(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (here / "k.mlir").read_bytes()
    for option in ("--message-file=k.mlir", "--reproduce=k.mlir"):
        assert _run([option, "k.mlir", "--no-such-option"], monkeypatch) == 2
    assert (here / "k.mlir").read_bytes() == content


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "-o", "x", "--manifest=x"),
        ("-c", "-MD", "-MF", "k.o"),
        ("-o", "x", "-Wl,-Map,./x"),
        ("-o", "x", "-Wl,--dependency-file=x"),
        ("-c", "-MJ", "x", "--message-file=x"),
        ("--emit-header=x", "-o", "./x"),
        ("-c", "@words"),
        ("-c", "@nested"),
        ("-c", "sub/k.mlir"),
    ],
    ids=" ".join,
)
def test_no_two_outputs_are_one_file(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("k.mlir", "sub/k.mlir"):
        (tmp_path / name).write_text("module {}\n")
    (tmp_path / "words").write_text("-o words")
    (tmp_path / "nested").write_text("@words")
    assert _run(["--offload-arch=host", "k.mlir", *words], monkeypatch) == 2
    said = capfd.readouterr().err
    assert ("is named twice" in said) != words[-1].startswith("@")
    assert (tmp_path / "words").read_text() == "-o words"


def test_a_standard_stream_that_is_an_input_is_no_output(tmp_path: Path) -> None:
    source = tmp_path / "k.mlir"
    source.write_text("module {}\n")
    descriptor = os.open(source, os.O_RDWR)
    try:
        stream = OutputFile(Path(f"/dev/fd/{descriptor}"), "-o")
        with pytest.raises(UsageError, match="is the same as output file"):
            check_files([source], [stream])
    finally:
        os.close(descriptor)


def test_devices_and_pipes_may_be_named_twice() -> None:
    null = OutputFile(Path(os.devnull), "-o")
    check_files([Path(os.devnull)], [null, null, OutputFile(Path("-"), "-MF")])
    check_files([], [OutputFile(Path("-"), "-MF"), OutputFile(Path("-"), "--html")])
