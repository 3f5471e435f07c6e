"""The LLVM that a CMake project selects with MLIR_DIR and LLVM_DIR."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

MODULE = Path(__file__).resolve().parents[2] / "toolchain" / "cmake" / "MLIROffloadLLVM.cmake"


@pytest.mark.parametrize(
    ("settings", "given", "options"),
    [
        ({}, "", ""),
        ({"MLIR_DIR": "{root}/build/lib/cmake/mlir"}, "", "--llvm={root}/build"),
        ({"LLVM_DIR": "{root}/clang/lib/cmake/llvm"}, "", "--llvm={root}/clang"),
        (
            {"MLIR_DIR": "{root}/build/lib/cmake/mlir", "LLVM_DIR": "{root}/clang/lib/cmake/llvm"},
            "",
            "--llvm={root}/build;--for-clang={root}/clang",
        ),
        ({"MLIR_DIR": "{root}/build/lib/cmake/mlir"}, "--llvm=22", ""),
    ],
    ids=["none", "MLIR_DIR", "LLVM_DIR", "clang elsewhere", "the option wins"],
)
def test_the_directories_of_find_package_name_the_llvm(
    tmp_path: Path, settings: dict[str, str], given: str, options: str
) -> None:
    clang = tmp_path / "clang" / "bin" / "clang"
    clang.parent.mkdir(parents=True)
    clang.touch()
    lines = [f'set({name} "{value.format(root=tmp_path)}")' for name, value in settings.items()]
    script = tmp_path / "test.cmake"
    text = (
        f'include("{MODULE}")\nmlir_offload_llvm_options("{given}" found)\nmessage("${{found}}")\n'
    )
    script.write_text("\n".join((*lines, text)), encoding="utf-8")
    done = subprocess.run(
        ["cmake", "-P", script],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin"},
    )
    assert done.stderr.strip() == options.format(root=tmp_path)
