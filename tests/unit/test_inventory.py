"""The rows of `mlir-offload toolchains`: installations, their use, and packages to install."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlir_offload.driver.tools.choose import choose_targets
from mlir_offload.toolchain import gpu
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.gpu import AmdGpus
from mlir_offload.toolchain.inventory import (
    Inventory,
    InventoryRow,
    Missing,
    Part,
    inventory_rows,
    take_inventory,
)
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.toolchain.search import SearchPlaces

PROGRAMS = ("mlir-opt", "mlir-translate", "clang", "clang-linker-wrapper", "clang-nvlink-wrapper")


@dataclass(frozen=True)
class FakeRelease:
    """Every program is of one release, less those named."""

    version: str
    others: Mapping[str, str]

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        assert input_text is None
        version = self.others.get(Path(command.argv[0]).name, self.version)
        if not version:
            msg = f"cannot start {command.argv[0]}: Permission denied"
            raise ToolchainError(msg)
        return Completed(command, 0, f"LLVM version {version}\n", "")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_LIBRARY", "libcuda-absent.so.1")


def install(root: Path, names: tuple[str, ...] = (*PROGRAMS, "opt", "ld.lld")) -> Path:
    folder = root / "usr/lib/llvm-22/bin"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder.parent


def rows_of(root: Path, version: str = "22.1.8", **others: str) -> dict[Part, InventoryRow]:
    names = {name.replace("_", "-"): value for name, value in others.items()}
    inventory = take_inventory(FakeRelease(version, names), SearchPlaces(root=root))
    return {row.part: row for row in inventory_rows(inventory)}


def test_a_complete_release_is_the_default_and_names_its_roles(tmp_path: Path) -> None:
    prefix = install(tmp_path)
    row = rows_of(tmp_path)[Part.LLVM]
    assert (row.version, row.location, row.is_default) == ("22.1.8", prefix, True)
    assert row.roles == ("lower", "link", "cpu")
    assert row.missing == (
        Missing("libomptarget", "cpu", "apt install liboffload-22", is_optional=True),
    )


def test_what_is_missing_names_its_role_and_package(tmp_path: Path) -> None:
    install(tmp_path, PROGRAMS)
    missing = rows_of(tmp_path)[Part.LLVM].missing
    assert Missing("opt", "cpu", "apt install llvm-22") in missing
    assert Missing("ld.lld", "link", "apt install lld-22", is_optional=True) in missing


def test_a_program_of_another_release_or_one_that_does_not_start_is_reported_once(
    tmp_path: Path,
) -> None:
    install(tmp_path)
    row = rows_of(tmp_path, mlir_opt="19.1.7", opt="")[Part.LLVM]
    reasons = {missing.name: missing.reason for missing in row.missing}
    assert reasons["mlir-opt"] == "it is of LLVM 19.1.7"
    assert "Permission denied" in reasons["opt"]
    assert len(reasons) == len(row.missing)


def test_a_release_that_does_not_answer_is_a_row_with_the_problem(tmp_path: Path) -> None:
    install(tmp_path)
    row = rows_of(tmp_path, clang="")[Part.LLVM]
    assert "Permission denied" in row.problem
    assert not row.is_default
    assert row.roles == ()


def test_an_empty_machine_gets_one_row_for_each_part_with_the_cure(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    assert set(rows) == set(Part)
    assert all(row.location is None for row in rows.values())
    assert "mlir-22-tools" in rows[Part.LLVM].missing[0].hint
    assert "mlir-offload[cuda]" in rows[Part.CUDA].missing[0].hint
    assert "rocm-device-libs" in rows[Part.ROCM].missing[0].hint
    assert "no NVIDIA GPU" in rows[Part.GPU].problem


def test_an_incomplete_toolkit_names_the_wheels(tmp_path: Path) -> None:
    ptxas = tmp_path / "usr/local/cuda/bin/ptxas"
    ptxas.parent.mkdir(parents=True)
    ptxas.touch(mode=0o755)
    row = rows_of(tmp_path)[Part.CUDA]
    assert row.roles == ()
    assert [m.name for m in row.missing] == ["nvlink", "fatbinary", "libdevice", "cudart"]
    assert row.missing[2].hint == "pip install 'mlir-offload[cuda]' (nvidia-nvvm)"


def test_gpus_are_listed_in_the_order_of_cuda() -> None:
    rows = inventory_rows(Inventory((), (), (), ("sm_90", "sm_80")))
    gpus = [row for row in rows if row.part is Part.GPU]
    assert [(row.version, row.source, row.is_default) for row in gpus] == [
        ("sm_90", "cuda:0", True),
        ("sm_80", "cuda:1", False),
    ]


def test_amd_gpus_are_listed_in_the_order_of_hip() -> None:
    amd = AmdGpus(("gfx90a", "gfx1100"), is_open=True)
    rows = inventory_rows(Inventory((), (), (), (), amd_gpus=amd))
    gpus = [row for row in rows if row.part is Part.GPU]
    assert [(row.version, row.source, row.is_default, row.problem) for row in gpus] == [
        ("gfx90a", "hip:0", True, ""),
        ("gfx1100", "hip:1", False, ""),
    ]


@pytest.fixture
def kfd(tmp_path: Path) -> Path:
    """Return the nodes of a machine with a CPU and four GPUs, one of which another user has."""
    versions = ("0", "90010", "90402", "100300", "120001")
    for number, version in enumerate(versions):
        node = tmp_path / str(8 + number)
        node.mkdir()
        (node / "properties").write_text(f"simd_count 4\ngfx_target_version {version}\n")
    (tmp_path / "13").mkdir()
    (tmp_path / "generation_id").touch()
    return tmp_path


def test_the_kernel_tells_the_amd_gpus(kfd: Path) -> None:
    found = gpu.probe_amd_gpus(kfd, Path("/dev/null"))
    assert found == AmdGpus(("gfx90a", "gfx942", "gfx1030", "gfx1201"), is_open=True)
    assert gpu.probe_amd_gpus(kfd / "absent", kfd / "absent") == AmdGpus((), is_open=False)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/absent"])
def test_native_is_every_gpu_that_can_be_opened(
    device: str, kfd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "_LIBRARY", "libcuda-absent.so.1")
    monkeypatch.setattr(gpu, "_KFD_NODES", kfd)
    monkeypatch.setattr(gpu, "_KFD_DEVICE", Path(device))
    if device == "/dev/null":
        found = {target.arch for target in choose_targets(["native"])}
        assert found == {"gfx90a", "gfx942", "gfx1030", "gfx1201"}
        return
    with pytest.raises(ToolchainError, match="has gfx90a, gfx942, gfx1030, gfx1201, but /dev/kfd"):
        choose_targets(["native"])


@pytest.mark.parametrize(
    "library", ["libcuda-absent.so.1", "libc.so.6"], ids=["absent", "no driver"]
)
def test_without_a_working_driver_there_are_no_gpus(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setattr(gpu, "_LIBRARY", library)
    assert gpu.probe_gpus() == ()


@dataclass(frozen=True)
class FakeDriver:
    """Has GPUs of these compute capabilities; cuInit answers with `status`."""

    capabilities: tuple[tuple[int, int], ...]
    status: int = 0

    def cuInit(self, flags: int) -> int:  # noqa: N802 (the driver's own name)
        assert flags == 0
        return self.status

    def cuDeviceGetCount(self, count: object) -> int:  # noqa: N802
        _store(count, len(self.capabilities))
        return 0

    def cuDeviceGet(self, device: object, ordinal: int) -> int:  # noqa: N802
        _store(device, ordinal)
        return 0

    def cuDeviceGetAttribute(self, value: object, attribute: int, device: ctypes.c_int) -> int:  # noqa: N802
        _store(value, self.capabilities[device.value][attribute - 75])
        return 0


def _store(reference: object, value: int) -> None:
    ctypes.cast(reference, ctypes.POINTER(ctypes.c_int))[0] = value  # type: ignore[arg-type]  # a byref


@pytest.mark.parametrize(
    ("status", "archs"), [(0, ("sm_90", "sm_120")), (100, ())], ids=["works", "no device"]
)
def test_the_driver_tells_the_architectures(
    monkeypatch: pytest.MonkeyPatch, status: int, archs: tuple[str, ...]
) -> None:
    driver = FakeDriver(((9, 0), (12, 0)), status)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    assert gpu.probe_gpus() == archs
