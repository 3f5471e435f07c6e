"""The decisions before a build, on a host without CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.driver.tools.choose import choose_toolkit_for
from mlir_offload.driver.tools.releases import Releases
from mlir_offload.offload.kind_format import check_targets
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.search import SearchPlaces
from mlir_offload.toolchain.target import parse_offload_arch
from mlir_offload.toolchain.tool import ToolchainRequest, ToolVersion


def one_release(major: int) -> Releases:
    llvm = LlvmToolchain(Path("/llvm"), ToolVersion(major, 1, 0), ())
    return Releases(llvm, llvm, major)


def test_bitcode_needs_no_cuda_toolkit(tmp_path: Path) -> None:
    options = parse_arguments(["-c", "--offload-arch=sm_90", "k.mlir"])
    assert (
        choose_toolkit_for(options, SearchPlaces(root=tmp_path), ProcessRunner(), needed=True)
        is None
    )


@pytest.mark.parametrize(
    "arguments", [["k.mlir"], ["-c", "--device-code=object", "k.mlir"]], ids=str
)
def test_a_link_and_an_assembled_object_need_one(tmp_path: Path, arguments: list[str]) -> None:
    options = parse_arguments(arguments)
    with pytest.raises(ToolchainError, match="no CUDA toolkit found"):
        choose_toolkit_for(options, SearchPlaces(root=tmp_path), ProcessRunner(), needed=True)


def test_a_toolkit_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    places = SearchPlaces(root=tmp_path, cuda=ToolchainRequest(str(tmp_path), "--cuda-path"))
    with pytest.raises(ToolchainError, match="no CUDA toolkit there"):
        choose_toolkit_for(parse_arguments(["-c", "k.mlir"]), places, ProcessRunner(), needed=True)


def test_an_architecture_is_checked_without_a_toolkit_too() -> None:
    check_targets(
        [parse_offload_arch("sm_90"), parse_offload_arch("host")], one_release(22).makers(None)
    )
    with pytest.raises(CompatibilityError, match="LLVM 22 does not know sm_999"):
        check_targets([parse_offload_arch("sm_999")], one_release(22).makers(None))
