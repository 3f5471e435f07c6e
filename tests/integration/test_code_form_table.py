"""The table of docs/reference/device-code.md: each form for each kind of device, linked by an old release of LLVM.

What links objects for any release is tried in test_for_any_clang.py; each form is linked by newer
releases in test_device_code_forms.py, test_hip.py and test_amd_code.py.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.cuda_tools import cuda_tool

from mlir_offload.offload.link.objects import read_objects

HERE = Path(__file__).parent
INPUTS = HERE / "inputs" / "rdc"
PAGE = HERE.parents[1] / "docs" / "reference" / "device-code.md"
ARCHS = {"NVIDIA": "sm_80", "AMD": "gfx90a", "CPU": "host"}
DEBIAN_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
RECORDERS = {
    "libcudart.so": ("runtime/recording_cudart.c", "inputs/recording_registration.c"),
    "libamdhip64.so": ("runtime/recording_gpu.c",),
}
REFUSED = "no: "


@dataclass(frozen=True, slots=True)
class Row:
    """A form, and for each kind the releases that link it or why none does."""

    form: str
    cells: dict[str, str]

    @property
    def options(self) -> list[str]:
        return self.form.split()

    @property
    def sources(self) -> list[Path]:
        names = ("calling", "library") if "-fgpu-rdc" in self.form else ("alone",)
        return [INPUTS / f"{name}.mlir" for name in names]


def read_rows() -> list[Row]:
    lines = [line.strip("|").split("|") for line in PAGE.read_text().splitlines()]
    table = [[cell.strip() for cell in cells] for cells in lines if len(cells) == 4]
    _, *kinds = table[0]
    return [
        Row(cells[0].strip("`"), dict(zip(kinds, cells[1:], strict=True))) for cells in table[2:]
    ]


ROWS = read_rows()
REFUSALS = [(row, kind) for row in ROWS for kind, cell in row.cells.items() if cell.startswith(REFUSED)]  # fmt: skip
pytestmark = pytest.mark.skipif(not DEBIAN_LIBRARIES.is_dir(), reason="no rocm-device-libs")


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with libraries that stand for those of the vendors, and a main program."""
    folder = tmp_path_factory.mktemp("runtimes")
    for name, sources in RECORDERS.items():
        run("gcc", "-DHIP", "-shared", "-fPIC", "-w", *(HERE / source for source in sources), "-o", folder / name)  # fmt: skip
    return folder


def run(*argv: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    words = list(map(str, argv))
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_form_and_every_kind_has_its_cell() -> None:
    assert len(ROWS) == 6
    for row in ROWS:
        assert row.cells.keys() == ARCHS.keys()
        assert all(
            cell.startswith(REFUSED) or cell == "15, 16, 19, 22" for cell in row.cells.values()
        )


@pytest.mark.llvm(16)
@pytest.mark.llvm(22)
@pytest.mark.parametrize("row", ROWS[:-1], ids=lambda row: row.form)
def test_a_form_is_linked_to_a_program_that_has_its_kernels(
    row: Row, mlir_offload: list[str], runtimes: Path, tmp_path: Path
) -> None:
    cuda_tool("ptxas")
    kinds = [kind for kind, cell in row.cells.items() if "16" in cell.split(", ")]
    archs = f"--offload-arch={','.join(ARCHS[kind] for kind in kinds)}"
    main, program = INPUTS / "single.c", tmp_path / "program"
    compiler = [*mlir_offload, "--rocm-path=/usr"]
    made = [*row.options, archs, "--llvm=22", "--for-clang=16", *row.sources]
    if "-fno-gpu-rdc" in row.form:
        run(*compiler, *made, "-c", "-o", tmp_path / "final.o")
        link = ["-L", runtimes, "-lcudart", "-lamdhip64", f"-Wl,-rpath,{runtimes}", "-lm"]
        run("gcc", main, tmp_path / "final.o", *link, "-o", program)
    else:
        run(*compiler, *made, main, "-o", program)

    (contents,) = read_objects(program)
    linked = {"NVIDIA": contents.fatbins, "AMD": contents.hip_fatbins}
    assert all(linked[kind] for kind in kinds if kind in linked)
    on_host = run(program, env={"MLIR_OFFLOAD_DEVICE": "host"})
    assert on_host.splitlines()[-1] == "42"


@pytest.mark.llvm(22)
@pytest.mark.parametrize(("row", "kind"), REFUSALS, ids=lambda item: getattr(item, "form", item))
def test_a_form_that_does_not_work_is_refused_with_the_reason(
    row: Row, kind: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    argv = [*mlir_offload, "--rocm-path=/usr", *row.options, f"--offload-arch={ARCHS[kind]}"]
    argv += ["-c", str(row.sources[0]), "-o", str(tmp_path / "k.o")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert row.cells[kind].removeprefix(REFUSED) in done.stderr
