"""The library of a sanitizer: clang's, or GCC's if that is compatible."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.link.sanitizer import sanitizer_library
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command, ProcessRunner
from mlir_offload.translate.sanitizer import Sanitizer


def context_with(folder: Path, *libraries: str) -> BuildContext:
    """Return a context whose clang finds these libraries alone."""
    clang = folder / "clang"
    clang.write_text(
        "#!/bin/sh\nname=${1#-print-file-name=}\n"
        f'if [ -e "{folder}/$name" ]; then echo "{folder}/$name"; else echo "$name"; fi\n'
    )
    clang.chmod(0o755)
    for library in libraries:
        (folder / library).touch()
    llvm = SimpleNamespace(tool=lambda _: clang, version=SimpleNamespace(major=19))
    executor = SimpleNamespace(runner=ProcessRunner())
    return cast("BuildContext", SimpleNamespace(llvm=llvm, executor=executor))


def test_address_sanitizer_of_gcc_serves_where_clang_has_none(tmp_path: Path) -> None:
    context = context_with(tmp_path, "libasan.so", "libtsan.so")
    assert sanitizer_library(context, Sanitizer.ADDRESS) == tmp_path / "libasan.so"


def test_thread_sanitizer_of_gcc_is_never_taken(tmp_path: Path) -> None:
    context = context_with(tmp_path, "libasan.so", "libtsan.so")
    with pytest.raises(ToolchainError, match="-fsanitize=thread was not found") as caught:
        sanitizer_library(context, Sanitizer.THREAD)
    assert caught.value.hint == "apt install libclang-rt-19-dev"


@pytest.mark.llvm(22)
def test_the_package_that_the_hint_names_has_the_library() -> None:
    runner = ProcessRunner()
    listed = runner.run(Command(("dpkg-query", "--listfiles", "libclang-rt-22-dev")))
    assert f"/libclang_rt.tsan-{os.uname().machine}.so\n" in listed.stdout
    # apt has a package of that name.
    install = Command(("apt-get", "install", "--simulate", "libclang-rt-22-dev"))
    assert runner.run(install).returncode == 0
