"""A tool that is replaced while it compiles: an error, no output, and nothing wrong in a cache."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.project import run_in, write_project

pytestmark = pytest.mark.llvm(22)
LLVM = Path("/usr/lib/llvm-22/bin")
COMPILE = ("--no-cache", "--offload-arch=sm_90", "-c", "m0.mlir", "-o", "m0.o")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Return a directory of LLVM's programs, of which one replaces clang when it works."""
    folder = tmp_path / "llvm" / "bin"
    folder.mkdir(parents=True)
    for tool in LLVM.iterdir():
        (folder / tool.name).symlink_to(tool)
    return folder


def arm(tools: Path, trigger: str) -> None:
    """Let one call of a program put another clang into the place of the one that there is."""
    other = tools.parent / "other"
    other.write_text(f'#!/bin/sh\n# Another one.\nexec {LLVM}/clang "$@" -O0\n')
    other.chmod(0o755)
    (tools / trigger).unlink()
    (tools / trigger).write_text(
        f"""#!/bin/sh
case "$*" in --version) ;; *) mv '{other}' '{tools}/clang' 2>/dev/null ;; esac
exec {LLVM}/{trigger} "$@"
"""
    )
    (tools / trigger).chmod(0o755)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> bytes:
    """Return the object that the tools make of which none is replaced."""
    folder = write_project(tmp_path_factory.mktemp("right"), "", modules=1)
    done = run_in(folder, [*mlir_offload, f"--llvm={LLVM.parent}", *COMPILE])
    assert done.returncode == 0, done.stderr
    return (folder / "m0.o").read_bytes()


@pytest.mark.parametrize("trigger", ["mlir-opt", "mlir-translate"])
@pytest.mark.parametrize("cache", ["--no-cache", "--cache"])
def test_a_tool_that_is_replaced_ends_the_compilation(
    trigger: str, cache: str, tools: Path, right: bytes, tmp_path: Path, mlir_offload: list[str]
) -> None:
    if cache == "--cache" and shutil.which("ccache") is None:
        pytest.skip("ccache is not installed")
    folder = write_project(tmp_path / "project", "", modules=1)
    output = folder / "m0.o"
    command = [*mlir_offload, f"--llvm={tools.parent}", *COMPILE, cache]
    environment = {"CCACHE_DIR": str(tmp_path / "cache")}
    output.write_bytes(right)
    arm(tools, trigger)
    done = run_in(folder, command, environment)
    assert done.returncode == 4, done.stderr
    assert f"{tools}/clang was replaced during the build" in done.stderr
    assert not output.exists()
    if cache == "--no-cache":
        return
    assert run_in(folder, command, environment).returncode == 0
    assert output.read_bytes() != right
    (tools / "clang").unlink()
    (tools / "clang").symlink_to(LLVM / "clang")
    # What the first tools began and the second ended is nowhere kept under the name of either.
    assert run_in(folder, command, environment).returncode == 0
    assert output.read_bytes() == right


def test_a_tool_that_gets_a_hard_link_is_the_same_tool(
    tools: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = write_project(tmp_path / "project", "", modules=1)
    # A file of its own: that of the system may lie on another file system.
    (tools / "clang").unlink()
    shutil.copy(LLVM / "clang", tools / "clang")
    (tools / "mlir-opt").unlink()
    (tools / "mlir-opt").write_text(
        f"""#!/bin/sh
ln '{tools}/clang' '{tmp_path}/profile' 2>/dev/null && chmod a-w '{tools}/clang'
exec {LLVM}/mlir-opt "$@"
"""
    )
    (tools / "mlir-opt").chmod(0o755)
    command = [*mlir_offload, "--no-cache", f"--llvm={tools.parent}", "-c", "m0.mlir", "-o", "m0.o"]
    done = run_in(folder, [*command, "--offload-arch=sm_90"])
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "profile").samefile(tools / "clang")
