"""A project's files choose no programs, unless the user trusts them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlir_offload.driver.option.config import configured
from mlir_offload.driver.option.subcommand import SUBCOMMANDS, every_subcommand
from mlir_offload.driver.option.trusted import program_flags, trust_store
from mlir_offload.driver.project.file import read_project
from mlir_offload.toolchain.errors import InputOutputError, UsageError

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
READING = ("check", "explain", "extract", "inspect")
NAMING = {
    "llvm": ("./evil", "evil", "/usr/lib/llvm-22"),
    "for-clang": ("./evil",),
    "cuda-path": ("evil",),
    "rocm-path": ("evil",),
    "remote": ("grpcs://evil:1",),
    "remote-token": ("evil",),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "sub").mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    return tmp_path / "project"


def settled(project: Path, arguments: Sequence[str], **variables: str) -> tuple[str, ...]:
    environment = {"XDG_STATE_HOME": str(project.parent / "state"), **variables}
    found = configured(arguments, environment, project / "sub")
    assert found is not None
    return found


def write(project: Path, text: str) -> Path:
    file = project / "mlir-offload.toml"
    file.write_text(text)
    return file


def trusted(project: Path, file: Path) -> None:
    variables = {"XDG_STATE_HOME": str(project.parent / "state")}
    trust_store(variables).add(file, file.read_bytes())


@pytest.mark.parametrize("subcommand", ["", *SUBCOMMANDS])
@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in NAMING.items() for value in values]
)
def test_a_project_chooses_no_program_for_any_subcommand(
    subcommand: str, key: str, value: str, project: Path
) -> None:
    file = write(project, f'{key} = "{value}"\nquiet = true\n')
    words = [*([subcommand] if subcommand else []), "k.o"]
    takes = every_subcommand()[subcommand].find(f"--{key}={value}") is not None
    if subcommand not in READING and takes:
        with pytest.raises(UsageError, match="chooses programs, but this file is not trusted"):
            settled(project, words)
    else:
        assert "evil" not in " ".join(settled(project, words))
    trusted(project, file)
    assert ("--" in " ".join(settled(project, words))) == (subcommand not in READING and takes)
    # The user has not read the added line.
    file.write_text(file.read_text() + "#\n")
    if subcommand not in READING and takes:
        with pytest.raises(UsageError, match="not trusted"):
            settled(project, words)


def test_trust_is_bound_to_the_place(project: Path) -> None:
    trusted(project, write(project, 'llvm = "./evil"\n'))
    copy = Path(shutil.copytree(project, project.parent / "copy"))
    assert settled(project, ["k.o"])[0].startswith("--llvm=")
    with pytest.raises(UsageError, match="not trusted"):
        settled(copy, ["k.o"], XDG_STATE_HOME=str(project.parent / "state"))


def test_what_the_user_says_needs_no_trust(project: Path, tmp_path: Path) -> None:
    file = write(project, 'llvm = "./evil"\noffload-arch = ["host"]\n')
    archs = "--offload-arch=host"
    assert settled(project, ["--llvm=22", "k.o"]) == (archs, "--llvm=22", "k.o")
    assert settled(project, ["k.o"], MLIR_OFFLOAD_LLVM="22") == (archs, "k.o")
    named = settled(project, [f"--config={file}", "k.o"])
    assert named == (archs, f"--llvm={project}/evil", "k.o")
    assert settled(project, ["k.o"], MLIR_OFFLOAD_CONFIG=str(file)) == named
    own = tmp_path / "config" / "mlir-offload" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('cuda-path = "/opt/cuda"\n')
    write(project, "quiet = true\n")
    config = str(tmp_path / "config")
    assert "--cuda-path=/opt/cuda" in settled(project, ["k.o"], XDG_CONFIG_HOME=config)


def test_a_release_is_chosen_among_what_is_installed(project: Path) -> None:
    write(project, 'llvm = "22"\nfor-clang = "any"\n')
    assert settled(project, ["k.o"]) == ("--for-clang=any", "--llvm=22", "k.o")


@pytest.mark.parametrize(
    "flags",
    [
        "--llvm=./evil",
        "--cuda-path=evil",
        "--rocm-path=/tmp/evil",
        "-fuse-ld=./evil",
        "-Wl,-plugin,evil.so",
        "-Wl,--load-pass-plugin=evil.so",
        "-Wl,@words",
        "-Xlinker @words",
        "-Xdevice-opt -fpass-plugin=evil.so",
        "-Xdevice-opt -Xclang",
        "-Xdevice-opt -B.",
        "-Wl,-Map=/home/user/.profile",
        "-Xptxas -o -Xptxas ../../file",
        "-Wp,-dependency-file,../../file",
        "-Wa,-o,../../file",
    ],
)
def test_the_manifest_of_a_project_chooses_no_program(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    manifest = tmp_path / "offload.yaml"
    (tmp_path / "k.mlir").touch()
    for text in (
        f"flags: {flags}\nmodules: [k.mlir]\n",
        f"modules: [{{file: k.mlir, flags: {flags.split(' ')}}}]\n",
    ):
        manifest.write_text(text)
        with pytest.raises(UsageError, match="not trusted") as raised:
            read_project(manifest)
        assert raised.value.location.startswith(f"{manifest}:1:")
    trust_store(os.environ).add(manifest, manifest.read_bytes())
    read_project(manifest)


def test_a_pipeline_of_a_project_loads_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("evil.so").touch()
    Path("k.mlir").touch()
    Path("p.yaml").write_text("passes: [canonicalize]\nplugins: [evil.so]\n")
    Path("offload.yaml").write_text("flags: --pipeline=p.yaml\nmodules: [k.mlir]\n")
    with pytest.raises(UsageError, match=r"evil\.so' chooses programs"):
        read_project(Path("offload.yaml"))
    Path("p.yaml").write_text("passes: [canonicalize]\n")
    read_project(Path("offload.yaml"))


def test_flags_that_choose_no_program_need_no_trust() -> None:
    harmless = (
        "--llvm=22",
        "--for-clang=any",
        "-fuse-ld=lld",
        "-Wl,-O1",
        "-Wl,-rpath,$ORIGIN/../lib",
        "-lplugin",
        "-I.",
        "-O3",
    )
    assert program_flags(harmless) == ()


def test_without_a_home_nothing_is_trusted(project: Path) -> None:
    store = trust_store({})
    file = write(project, 'llvm = "./evil"\n')
    assert not store.is_trusted(file, file.read_bytes())
    with pytest.raises(InputOutputError, match="no directory"):
        store.add(file, file.read_bytes())


@pytest.mark.parametrize("record", [b"", b"[]", b"{", b'{"path": 1}', b"\xff"])
def test_a_damaged_record_trusts_nothing(record: bytes, project: Path) -> None:
    file = write(project, 'llvm = "./evil"\n')
    trusted(project, file)
    (kept,) = (project.parent / "state" / "mlir-offload" / "trusted").iterdir()
    kept.write_bytes(record)
    with pytest.raises(UsageError, match="not trusted"):
        settled(project, ["k.o"])


@pytest.mark.llvm(22)
def test_reading_in_a_hostile_directory_runs_nothing_of_it(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    tools = tmp_path / "evil" / "bin"
    tools.mkdir(parents=True)
    for name in ("mlir-opt", "mlir-translate", "clang", "clang-linker-wrapper"):
        (tools / name).write_text("#!/bin/sh\ntouch ran\nexit 1\n")
        (tools / name).chmod(0o755)
    (tmp_path / "mlir-offload.toml").write_text('llvm = "./evil"\n')
    shutil.copy(EXAMPLES / "saxpy.mlir", tmp_path / "k.mlir")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*mlir_offload, *words],
            cwd=tmp_path,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )

    assert "saxpy_kernel" in run("inspect", "k.mlir").stdout
    assert run("-c", "k.mlir").returncode == 2
    assert not (tmp_path / "ran").exists()
    assert run("trust").stdout == f"trusted: {tmp_path}/mlir-offload.toml\n"
    assert run("trust", "--list").stdout == f"{tmp_path}/mlir-offload.toml\n"
    assert "saxpy_kernel" in run("inspect", "k.mlir").stdout
    assert not (tmp_path / "ran").exists()
    assert run("-c", "--offload-arch=host", "k.mlir").returncode == 3
    assert (tmp_path / "ran").exists()
    assert "no longer trusted" in run("trust", "--revoke").stdout
    assert run("-c", "k.mlir").returncode == 2
    assert run("trust", "evil").returncode == 0
    assert run("trust", "absent").returncode == 7
