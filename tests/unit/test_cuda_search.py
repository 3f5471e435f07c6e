"""Find CUDA toolkits and ROCm device libraries, in every layout of their packages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlir_offload.toolchain.cuda import (
    CudaToolkit,
    UnusableCuda,
    choose_cuda,
    cuda_probe,
    probe_cuda,
)
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.toolchain.rocm import choose_rocm
from mlir_offload.toolchain.search import SearchPlaces, find_cuda, find_rocm, search_places
from mlir_offload.toolchain.tool import ToolchainRequest, ToolVersion

TOOLKIT = (
    "bin/ptxas",
    "bin/nvlink",
    "bin/fatbinary",
    "nvvm/libdevice/libdevice.10.bc",
    "lib64/libcudart.so",
    "lib64/libcudart_static.a",
)
WHEELS = (*TOOLKIT[:4], "lib/libcudart.so.13", "lib/libcudart_static.a")


@dataclass(frozen=True)
class FakePtxas:
    output: str = "ptxas: NVIDIA\nCuda compilation tools, release 13.0, V13.0.88\n"

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        assert input_text is None
        assert command.argv[1:] == ("--version",)
        return Completed(command, 0, self.output, "")


def install(root: Path, files: Iterable[str] = TOOLKIT) -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(0o755 if path.parent.name == "bin" else 0o644)
    return root


def choose(places: SearchPlaces, ptxas: FakePtxas | None = None) -> CudaToolkit:
    return choose_cuda(find_cuda(places), places.cuda, cuda_probe(ptxas or FakePtxas()))


def test_the_usual_place_is_found_once_although_it_is_a_link(tmp_path: Path) -> None:
    root = install(tmp_path / "usr/local/cuda-13.0")
    (tmp_path / "usr/local/cuda").symlink_to(root)
    places = SearchPlaces(root=tmp_path)
    assert [cuda.root for cuda in find_cuda(places)] == [root]
    toolkit = choose(places)
    assert toolkit.version == ToolVersion(13, 0, 88)
    assert toolkit.cudart == root / "lib64/libcudart.so"
    assert toolkit.libdevice == root / "nvvm/libdevice/libdevice.10.bc"


def test_a_folder_on_path_that_cannot_be_looked_into_is_skipped(tmp_path: Path) -> None:
    install(tmp_path / "usr/local/cuda-13.0")
    # The name is too long, which simulates the error for a directory of another user.
    places = SearchPlaces(path=(tmp_path / ("too long" * 100),), root=tmp_path)
    assert len(find_cuda(places)) == 1


def test_the_newest_of_several_numbered_folders_comes_first(tmp_path: Path) -> None:
    for version in ("9.2", "12.9", "13.0"):
        install(tmp_path / f"usr/local/cuda-{version}")
    names = [cuda.root.name for cuda in find_cuda(SearchPlaces(root=tmp_path))]
    assert names == ["cuda-13.0", "cuda-12.9", "cuda-9.2"]


def test_the_wheels_of_the_python_environment_are_a_toolkit(tmp_path: Path) -> None:
    root = install(tmp_path / "site-packages/nvidia/cu13", WHEELS)
    places = SearchPlaces(site_packages=(tmp_path / "site-packages",), root=tmp_path / "empty")
    toolkit = choose(places)
    assert toolkit.root == root
    assert toolkit.cudart == root / "lib/libcudart.so.13"
    assert toolkit.source == "Python environment"


def test_an_installed_toolkit_goes_before_the_wheels(tmp_path: Path) -> None:
    root = install(tmp_path / "usr/local/cuda")
    install(tmp_path / "site-packages/nvidia/cu13", WHEELS)
    assert (
        choose(SearchPlaces(site_packages=(tmp_path / "site-packages",), root=tmp_path)).root
        == root
    )


def test_an_incomplete_toolkit_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path / "usr/local/cuda-13.0", TOOLKIT[:1])
    complete = install(tmp_path / "usr/local/cuda-12.9")
    assert choose(SearchPlaces(root=tmp_path)).root == complete


@pytest.mark.parametrize("spelling", ["", "bin"], ids=["root", "bin folder"])
def test_a_path_asked_for_is_the_only_candidate(tmp_path: Path, spelling: str) -> None:
    root = install(tmp_path / "my cuda")
    install(tmp_path / "usr/local/cuda")
    places = SearchPlaces(
        cuda=ToolchainRequest(str(root / spelling), "--cuda-path=x"), root=tmp_path
    )
    assert [cuda.root for cuda in find_cuda(places)] == [root]


def test_options_go_before_variables_and_cuda_path_before_cuda_home() -> None:
    environment = {"CUDA_PATH": "/a", "CUDA_HOME": "/b", "ROCM_PATH": "/r"}
    assert search_places(environment, [], cuda_path="/o").cuda == ToolchainRequest(
        "/o", "--cuda-path=/o"
    )
    assert search_places(environment, []).cuda == ToolchainRequest("/a", "CUDA_PATH=/a")
    assert search_places({"CUDA_HOME": "/b"}, []).cuda == ToolchainRequest("/b", "CUDA_HOME=/b")
    assert search_places(environment, [], rocm_path="/o").rocm == ToolchainRequest(
        "/o", "--rocm-path=/o"
    )


def test_what_an_explicit_toolkit_lacks_is_named_with_the_wheel(tmp_path: Path) -> None:
    root = install(tmp_path / "cuda", TOOLKIT[:3])
    with pytest.raises(ToolchainError) as caught:
        choose(SearchPlaces(cuda=ToolchainRequest(str(root), "--cuda-path=c"), root=tmp_path))
    assert "--cuda-path=c: no complete CUDA toolkit" in caught.value.message
    assert "has no libdevice and no cudart" in caught.value.message
    assert "nvidia-nvvm, nvidia-cuda-runtime" in caught.value.hint


def test_a_static_runtime_alone_is_enough(tmp_path: Path) -> None:
    install(tmp_path / "usr/local/cuda", [name for name in TOOLKIT if not name.endswith(".so")])
    assert choose(SearchPlaces(root=tmp_path)).cudart is None


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (None, "no CUDA toolkit found"),
        (ToolchainRequest("/none", "CUDA_PATH=/none"), "CUDA_PATH=/none: no CUDA toolkit"),
    ],
    ids=["nothing", "explicit"],
)
def test_where_there_is_no_toolkit_the_extra_is_named(
    tmp_path: Path, requested: ToolchainRequest | None, message: str
) -> None:
    with pytest.raises(ToolchainError, match=message) as caught:
        choose(SearchPlaces(cuda=requested, root=tmp_path))
    assert "mlir-offload[cuda]" in caught.value.hint


def test_a_ptxas_on_path_that_is_only_a_script_is_no_toolkit(tmp_path: Path) -> None:
    install(tmp_path / "local", ("bin/ptxas",))
    root = install(tmp_path / "real")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "ptxas").symlink_to(root / "bin" / "ptxas")
    places = SearchPlaces(
        path=(tmp_path / "local/bin", tmp_path / "links"), root=tmp_path / "empty"
    )
    assert [(cuda.root, cuda.source) for cuda in find_cuda(places)] == [(root, "PATH")]


def test_a_ptxas_that_prints_garbage_is_unusable_and_never_raises(tmp_path: Path) -> None:
    install(tmp_path / "usr/local/cuda")
    (found,) = find_cuda(SearchPlaces(root=tmp_path))
    probed = probe_cuda(FakePtxas("release candidate\n"), found)
    assert isinstance(probed, UnusableCuda)
    assert "printed no version" in probed.reason


def test_a_tool_without_the_executable_bit_is_named_with_its_cure(tmp_path: Path) -> None:
    root = install(tmp_path / "usr/local/cuda")
    (root / "bin/nvlink").chmod(0o644)
    with pytest.raises(ToolchainError, match=r"nvlink is not executable: chmod \+x"):
        choose(SearchPlaces(root=tmp_path))


def install_device_libs(folder: Path, names: Iterable[str] = ("ocml.bc", "ockl.bc")) -> Path:
    folder.mkdir(parents=True)
    for name in (*names, "oclc_abi_version_500.bc", "oclc_abi_version_400.bc"):
        (folder / name).touch()
    return folder


def test_rocm_device_libraries_are_found_in_rocm_and_in_debian(tmp_path: Path) -> None:
    rocm = install_device_libs(tmp_path / "opt/rocm-6.3.1/amdgcn/bitcode")
    debian = install_device_libs(tmp_path / "usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
    version_file = tmp_path / "opt/rocm-6.3.1/.info/version"
    version_file.parent.mkdir()
    version_file.write_text("6.3.1-48\n")
    found = find_rocm(SearchPlaces(root=tmp_path))
    assert [libs.bitcode for libs in found] == [rocm, debian]
    assert found[0].version == ToolVersion(6, 3, 1)
    assert found[1].version is None
    assert found[0].abi_versions == (400, 500)
    assert choose_rocm(found, None) is found[0]


def test_device_libraries_that_are_not_all_there_do_not_count(tmp_path: Path) -> None:
    install_device_libs(tmp_path / "opt/rocm/amdgcn/bitcode", ["ocml.bc"])
    places = SearchPlaces(
        rocm=ToolchainRequest(str(tmp_path / "opt/rocm"), "--rocm-path=r"), root=tmp_path
    )
    assert find_rocm(places) == ()
    with pytest.raises(ToolchainError, match="--rocm-path=r: no ROCm device libraries there"):
        choose_rocm((), places.rocm)
