"""Installations of LLVM as distributions, package managers and build trees lay them out, with programs of LLVM 22."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.trunk import REAL

from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.search import SearchPlaces, find_llvm, search_places
from mlir_offload.toolchain.tool import ToolchainRequest

LOWER = ("mlir-opt", "mlir-translate")
LINK = ("clang", "clang-linker-wrapper", "clang-nvlink-wrapper", "ld.lld")
ALL = (*LOWER, *LINK)

pytestmark = pytest.mark.llvm(22)


def _programs(folder: Path, names: tuple[str, ...] = ALL, *, suffix: str = "") -> Path:
    """Put scripts that start the programs into a folder, as wrappers of Nix do; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        script = folder / f"{name}{suffix}"
        script.write_text(f'#!/bin/sh\nexec {REAL / name} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return folder


def _linked(folder: Path, target: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for program in target.iterdir():
        (folder / program.name).symlink_to(program)
    return folder


def _build_tree(prefix: Path, projects: str, names: tuple[str, ...]) -> Path:
    """Make what is in a build directory: cache, files for CMake, static libraries, resources of clang."""
    _programs(prefix / "bin", names)
    lines = ("CMAKE_BUILD_TYPE:STRING=Release", f"LLVM_ENABLE_PROJECTS:STRING={projects}")
    flags = ("LLVM_ENABLE_ASSERTIONS:BOOL=ON", "LLVM_BUILD_LLVM_DYLIB:BOOL=OFF")
    (prefix / "CMakeCache.txt").write_text("\n".join((*lines, *flags, "")), encoding="utf-8")
    for name in ("llvm", "mlir"):
        (prefix / "lib" / "cmake" / name).mkdir(parents=True)
    (prefix / "lib" / "libLLVMCore.a").touch()
    (prefix / "lib" / "clang" / "22" / "include").mkdir(parents=True)
    return prefix


def _choose(places: SearchPlaces) -> LlvmToolchain:
    return choose_llvm(find_llvm(places), places.llvm, llvm_probe(ProcessRunner()))


def _on_path(folder: Path, **more: str) -> SearchPlaces:
    return search_places({"PATH": str(folder), **more}, ())


def _homebrew(root: Path) -> SearchPlaces:
    cellar = _programs(root / "opt/homebrew/Cellar/llvm/22.1.8/bin").parent
    (root / "opt/homebrew/opt").mkdir()
    (root / "opt/homebrew/opt/llvm").symlink_to(cellar)
    return SearchPlaces(root=root)


def _fedora(root: Path) -> SearchPlaces:
    _programs(root / "usr/lib64/llvm22/bin")
    return SearchPlaces(root=root)


def _debian(root: Path) -> SearchPlaces:
    real = _programs(root / "usr/lib/llvm-22/bin")
    (root / "usr/bin").mkdir()
    for name in ALL:
        (root / "usr/bin" / f"{name}-22").symlink_to(real / name)
    return _on_path(root / "usr/bin")


def _arch(root: Path) -> SearchPlaces:
    return _on_path(_programs(root / "usr/bin"))


def _suse(root: Path) -> SearchPlaces:
    # update-alternatives: clang is a link to a link to clang-22.
    folder = _programs(root / "usr/bin", suffix="-22")
    (root / "etc/alternatives").mkdir(parents=True)
    for name in ALL:
        (root / "etc/alternatives" / name).symlink_to(folder / f"{name}-22")
        (folder / name).symlink_to(root / "etc/alternatives" / name)
    return _on_path(folder)


def _conda(root: Path) -> SearchPlaces:
    _programs(root / "envs/gpu/bin", LOWER)
    _programs(root / "envs/gpu/bin", LINK, suffix="-22")
    return _on_path(root / "none", CONDA_PREFIX=str(root / "envs/gpu"))


def _nix(root: Path) -> SearchPlaces:
    packages = {"a-mlir-22.1.8": LOWER, "b-clang-wrapper-22.1.8": ("clang",), "c-llvm": LINK[1:]}
    for name, programs in packages.items():
        _linked(root / "profile/bin", _programs(root / "nix/store" / name / "bin", programs))
    return _on_path(root / "profile/bin")


def _tree(root: Path) -> SearchPlaces:
    prefix = _build_tree(root / "llvm-project/build", "clang;lld;mlir", ALL)
    return SearchPlaces(llvm=ToolchainRequest(str(prefix), "--llvm"), root=root)


def _links(root: Path) -> SearchPlaces:
    prefix = _linked(root / "opt/llvm/bin", REAL).parent
    return SearchPlaces(llvm=ToolchainRequest(str(prefix), "--llvm"), root=root)


@pytest.mark.parametrize(
    "lay_out", [_homebrew, _fedora, _debian, _arch, _suse, _conda, _nix, _tree, _links]
)
def test_an_installation_is_found_and_identified(
    tmp_path: Path, lay_out: Callable[[Path], SearchPlaces]
) -> None:
    chosen = _choose(lay_out(tmp_path))
    assert chosen.is_complete
    assert (chosen.version.major, chosen.is_measured) == (22, True)
    assert {name for name, _ in chosen.tools}.issuperset(ALL)
    # None of them has a shared libLLVM, and that of the system is of another build.
    assert chosen.library is None


@pytest.mark.parametrize(
    ("projects", "names", "hint"),
    [
        ("mlir", LOWER, 'cmake -DLLVM_ENABLE_PROJECTS="mlir;clang" {prefix}, and build again'),
        ("clang;lld", LINK, 'cmake -DLLVM_ENABLE_PROJECTS="clang;lld;mlir" {prefix}'),
        ("clang;mlir", (*LOWER, "clang"), "cmake --build {prefix} --target clang-linker-wrapper"),
    ],
    ids=["mlir alone", "without mlir", "not all built"],
)
def test_what_a_build_tree_lacks_is_named(
    tmp_path: Path, projects: str, names: tuple[str, ...], hint: str
) -> None:
    prefix = _build_tree(tmp_path / "build", projects, names)
    request = ToolchainRequest(str(prefix), "--llvm")
    with pytest.raises(ToolchainError, match="has no ") as caught:
        _choose(SearchPlaces(llvm=request, root=tmp_path))
    assert hint.format(prefix=prefix) in caught.value.hint


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("llvm-project", "name the build directory: --llvm={root}/llvm-project/build"),
        (
            "llvm-project/build",
            (
                'build it: cmake -DLLVM_ENABLE_PROJECTS="mlir;clang" {root}/llvm-project/build && '
                "cmake --build {root}/llvm-project/build --target mlir-opt mlir-translate clang "
                "clang-linker-wrapper clang-nvlink-wrapper"
            ),
        ),
        ("sources", "{root}/sources is the source; name a build directory"),
        ("nothing", "apt install mlir-22-tools"),
    ],
)
def test_a_tree_that_is_not_built_is_told_from_a_path_without_llvm(
    tmp_path: Path, path: str, hint: str
) -> None:
    _build_tree(tmp_path / "llvm-project/build", "mlir", ())
    (tmp_path / "sources/llvm").mkdir(parents=True)
    request = ToolchainRequest(str(tmp_path / path), "--llvm")
    with pytest.raises(ToolchainError, match="no LLVM installation there") as caught:
        _choose(SearchPlaces(llvm=request, root=tmp_path))
    assert hint.format(root=tmp_path) in caught.value.hint


def test_an_installed_prefix_without_clang_is_told_to_link_elsewhere(tmp_path: Path) -> None:
    prefix = _programs(tmp_path / "mlir/bin", LOWER).parent
    request = ToolchainRequest(str(prefix), "--llvm")
    with pytest.raises(ToolchainError, match="has no clang") as caught:
        _choose(SearchPlaces(llvm=request, root=tmp_path))
    assert '-DLLVM_ENABLE_PROJECTS="clang"' in caught.value.hint
    assert "--for-clang=" in caught.value.hint
    assert "mlir-offload bundle" in caught.value.hint
