"""A bundle is made where there is no clang, and linked where there is no MLIR."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from support.cuda_tools import cuda_root, cuda_tool
from support.two_machines import Machine, linking_machine, lowering_machine

from mlir_offload.offload.container.contents import all_images
from mlir_offload.offload.file.contents_reader import read_contents

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
INPUTS = Path(__file__).parent / "inputs"
OK = "matmul: ok, 128 x 128\n"
PLAIN = """\
define i32 @answer() {
  ret i32 42
}
"""


def moved(bundle: Path, machine: Machine) -> Path:
    """Bring a bundle to another machine."""
    return Path(shutil.copy(bundle, machine.home))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> dict[int, Path]:
    """Return a bundle of matmul for the CPU, by the release that lowered it."""
    made = {}
    for major in (19, 22):
        machine = lowering_machine(
            tmp_path_factory.mktemp("lowering") / str(major), major, mlir_offload
        )
        shutil.copy(EXAMPLES / "matmul.mlir", machine.home)
        machine.mlir_offload("bundle", "matmul.mlir", "-o", "matmul.mob")
        made[major] = machine.home / "matmul.mob"
    return made


@pytest.fixture(scope="module")
def hip_bundle(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> Path:
    """Return a bundle for two GPUs of AMD."""
    maker = lowering_machine(tmp_path_factory.mktemp("hip") / "maker", 22, mlir_offload)
    shutil.copy(INPUTS / "hip_program.mlir", maker.home)
    archs = "--offload-arch=gfx90a,gfx1030"
    maker.mlir_offload("bundle", archs, "hip_program.mlir", "-o", "p.mob")
    return maker.home / "p.mob"


def readme_line(directory: Path) -> str:
    """Return the one line of the README that links with clang alone."""
    lines = (directory / "README.md").read_text().splitlines()
    (line,) = [
        line.strip() for line in lines if line.startswith("    ") and " --offload-link " in line
    ]
    return line


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
@pytest.mark.parametrize(("producer", "consumer"), [(22, 22), (19, 22)])
def test_the_line_of_the_readme_links_with_clang_alone(
    bundles: dict[int, Path], producer: int, consumer: int, tmp_path: Path, mlir_offload: list[str]
) -> None:
    machine = linking_machine(tmp_path, consumer, mlir_offload)
    machine.run("tar", "xf", str(moved(bundles[producer], machine)))
    line = readme_line(machine.home / "matmul")
    machine.run("sh", "-c", f"cd matmul && {line}")
    assert machine.run("matmul/matmul").stdout == OK


@pytest.mark.llvm(19)
def test_the_script_links_from_any_directory_and_takes_a_named_clang(
    bundles: dict[int, Path], tmp_path: Path, mlir_offload: list[str]
) -> None:
    machine = linking_machine(tmp_path, 19, mlir_offload)
    (machine.llvm / "bin" / "clang").rename(machine.llvm / "bin" / "clang-of-19")
    machine.run("tar", "xf", str(moved(bundles[19], machine)))
    machine.run("sh", "matmul/link.sh", "-o", "program", CLANG="clang-of-19")
    assert machine.run("./program").stdout == OK


@pytest.mark.llvm(19)
def test_an_error_of_a_link_names_the_bundle(
    bundles: dict[int, Path], tmp_path: Path, mlir_offload: list[str]
) -> None:
    machine = linking_machine(tmp_path, 19, mlir_offload)
    moved(bundles[19], machine)
    (machine.home / "main.c").write_text("int main(void) { return 0; }\n")
    said = machine.mlir_offload("link", "matmul.mob", "main.c", "-o", "program", status=1).stderr
    assert said.startswith("matmul.mob: error: the program has several functions 'main'\n")
    assert str(tmp_path) not in said


@pytest.mark.llvm(19)
@pytest.mark.llvm(22)
@pytest.mark.parametrize(("producer", "consumer"), [(22, 22), (19, 19)])
def test_link_checks_compiles_links_and_verifies(
    bundles: dict[int, Path], producer: int, consumer: int, tmp_path: Path, mlir_offload: list[str]
) -> None:
    machine = linking_machine(tmp_path, consumer, mlir_offload)
    moved(bundles[producer], machine)
    machine.mlir_offload("link", "matmul.mob", "-o", "program")
    assert machine.run("./program").stdout == OK
    assert [image.kind for image in all_images(read_contents(machine.home / "program"))] == [
        "openmp"
    ]


@pytest.mark.llvm(16)
@pytest.mark.llvm(22)
def test_a_bundle_for_an_older_release_is_in_its_form(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    maker = lowering_machine(tmp_path / "maker", 22, mlir_offload)
    shutil.copy(EXAMPLES / "matmul.mlir", maker.home)
    maker.mlir_offload("bundle", "--for-clang=16", "matmul.mlir", "-o", "matmul.mob")
    machine = linking_machine(tmp_path / "other", 16, mlir_offload)
    machine.run("tar", "xf", str(moved(maker.home / "matmul.mob", machine)))
    machine.run("sh", "-c", f"cd matmul && {readme_line(machine.home / 'matmul')}")
    assert machine.run("matmul/matmul").stdout == OK
    said = machine.mlir_offload("link", "matmul.mob", "-o", "program", status=3).stderr
    assert "has no llvm-link" in said
    (machine.llvm / "bin" / "llvm-link").symlink_to("/usr/lib/llvm-16/bin/llvm-link")
    machine.mlir_offload("link", "matmul.mob", "-o", "program")
    assert machine.run("./program").stdout == OK


@pytest.mark.llvm(22)
def test_equal_sources_give_equal_bytes_in_any_place_and_tell_none(
    tmp_path: Path, fresh_mlir_offload: list[str]
) -> None:
    made = []
    # Each starts Python anew: its sets have another order.
    for name in ("one", "another"):
        machine = lowering_machine(tmp_path / name, 22, fresh_mlir_offload)
        source = shutil.copy(EXAMPLES / "saxpy.mlir", machine.home)
        # The second one by its full name, with other names in front of it.
        spelled = source if name == "one" else "saxpy.mlir"
        archs = "--offload-arch=sm_90,host"
        machine.mlir_offload("bundle", "-g", archs, str(spelled), "-o", f"{name}.mob")
        made.append((machine.home / f"{name}.mob").read_bytes())
    assert made[0] == made[1]
    assert str(tmp_path).encode() not in made[0]
    assert str(Path.home()).encode() + b"/" not in made[0]


@pytest.mark.llvm(16)
@pytest.mark.llvm(22)
def test_all_that_is_missing_is_said_at_once(tmp_path: Path, mlir_offload: list[str]) -> None:
    maker = lowering_machine(tmp_path / "maker", 22, mlir_offload)
    shutil.copy(EXAMPLES / "saxpy.mlir", maker.home)
    maker.mlir_offload("bundle", "--offload-arch=host,sm_90", "saxpy.mlir", "-o", "saxpy.mob")
    machine = linking_machine(
        tmp_path / "other", 16, mlir_offload, without=("clang-linker-wrapper",)
    )
    moved(maker.home / "saxpy.mob", machine)
    said = machine.mlir_offload("link", "saxpy.mob", "-o", "program", status=4).stderr
    for part in (
        "the bundle needs clang of LLVM 22 or newer, here is LLVM 16",
        "has no clang-linker-wrapper",
        "no CUDA toolkit there",
        "kernels call libdevice",
    ):
        assert part in said
    assert not (machine.home / "program").exists()


@pytest.mark.llvm(22)
def test_a_bundle_for_gpus_brings_its_device_library_and_all_kernels(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    cuda_tool("ptxas")
    maker = lowering_machine(tmp_path / "maker", 22, mlir_offload)
    shutil.copy(EXAMPLES / "saxpy.mlir", maker.home)
    (maker.home / "plain.ll").write_text(PLAIN)
    words = ("--with-device-libs", "--offload-arch=sm_90,host", "saxpy.mlir", "plain.ll")
    maker.mlir_offload("bundle", *words, "-o", "saxpy.mob", cuda_path=str(cuda_root()))
    with tarfile.open(maker.home / "saxpy.mob") as archive:
        assert "saxpy/lib/libdevice.bc" in archive.getnames()
    machine = linking_machine(tmp_path / "other", 22, mlir_offload)
    moved(maker.home / "saxpy.mob", machine)
    # Bitcode needs no CUDA, not even for its math functions.
    machine.mlir_offload("link", "-c", "saxpy.mob")
    assert sorted(path.name for path in machine.home.glob("*.o")) == ["plain.o", "saxpy.o"]
    forms = {
        image.kind: image.form for image in all_images(read_contents(machine.home / "saxpy.o"))
    }
    assert forms["cuda"] == "LLVM bitcode"
    machine.mlir_offload("link", "-shared", "saxpy.mob", "-o", "x.so", cuda_path=str(cuda_root()))
    linked = {image.kind: image for image in all_images(read_contents(machine.home / "x.so"))}
    code = linked["cuda"].code
    assert code is not None
    assert [kernel.name.rpartition("__")[2] for kernel in code.kernels] == ["saxpy_kernel"]


@pytest.mark.llvm(22)
def test_clang_alone_links_for_gpus(tmp_path: Path, mlir_offload: list[str]) -> None:
    cuda_tool("ptxas")
    maker = lowering_machine(tmp_path / "maker", 22, mlir_offload)
    shutil.copy(EXAMPLES / "saxpy.mlir", maker.home)
    maker.mlir_offload("bundle", "--offload-arch=sm_90", "saxpy.mlir", "-o", "saxpy.mob")
    machine = linking_machine(tmp_path / "other", 22, mlir_offload)
    machine.run("tar", "xf", str(moved(maker.home / "saxpy.mob", machine)))
    # The wheels of CUDA have no lib64 but lib; the line is for a toolkit.
    toolkit = machine.root / "cuda"
    toolkit.mkdir()
    for name in ("bin", "nvvm", "include"):
        (toolkit / name).symlink_to(cuda_root() / name)
    (toolkit / "lib64").symlink_to(
        cuda_root() / ("lib64" if (cuda_root() / "lib64").exists() else "lib")
    )
    line = readme_line(machine.home / "saxpy")
    machine.run("sh", "-c", f"cd saxpy && {line}", CUDA_PATH=str(toolkit))
    (image,) = all_images(read_contents(machine.home / "saxpy" / "saxpy"))
    assert image.code is not None
    assert [kernel.name.rpartition("__")[2] for kernel in image.code.kernels] == ["saxpy_kernel"]


@pytest.mark.llvm(22)
def test_a_damaged_bundle_is_refused_before_any_tool_runs(
    bundles: dict[int, Path], tmp_path: Path, mlir_offload: list[str]
) -> None:
    machine = linking_machine(tmp_path, 22, mlir_offload)
    bundle = moved(bundles[22], machine)
    content = bundle.read_bytes()
    bundle.write_bytes(content.replace(b"define i32 @main", b"define i64 @main"))
    said = machine.mlir_offload("link", "matmul.mob", "-o", "program", status=6).stderr
    assert "host/0-matmul.ll is not what the manifest says" in said


@pytest.mark.llvm(22)
def test_inspect_shows_what_a_bundle_registers(
    bundles: dict[int, Path], tmp_path: Path, mlir_offload: list[str]
) -> None:
    machine = linking_machine(tmp_path, 22, mlir_offload)
    moved(bundles[22], machine)
    shown = json.loads(machine.run(*machine.compiler, "inspect", "--json", "matmul.mob").stdout)
    (file,) = shown["files"]
    assert file["format"] == "bundle for another machine"
    assert file["members"][0]["entries"][0]["name"] == "matmul"


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bundle", "k.c", "-o", "k.mob"), "a bundle holds what was lowered from MLIR"),
        (("bundle", "-shared", "k.mlir", "-o", "k.mob"), "bundle does not take -shared"),
        (("bundle", "k.mlir"), "bundle needs an output"),
        (("bundle", "k.mlir", "-o", "no/k.mob"), "there is no directory"),
        (("link", "k.c", "-o", "k"), "link needs a bundle"),
        (("link", "-c", "k.mob", "k.c"), "k.c is not a bundle"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_bundle_cannot_be_is_said(
    tmp_path: Path, words: tuple[str, ...], said: str, mlir_offload: list[str]
) -> None:
    for name in ("k.c", "k.mlir", "k.mob"):
        (tmp_path / name).write_text("")
    done = subprocess.run(
        [*mlir_offload, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode in {2, 7}
    assert said in done.stderr


@pytest.mark.llvm(22)
@pytest.mark.parametrize("way", ["mlir-offload", "clang alone"])
def test_a_bundle_for_amd_gpus_is_linked_where_rocm_is(
    way: str, hip_bundle: Path, rocm_recorder: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    machine = linking_machine(tmp_path, 22, mlir_offload)
    bundle = moved(hip_bundle, machine)
    if way == "mlir-offload":
        machine.mlir_offload("link", f"--rocm-path={rocm_recorder}", bundle.name, "-o", "program")
    else:
        machine.run("tar", "xf", bundle.name)
        script = ("sh", "hip_program/link.sh", "-o", "program")
        machine.run(*script, ROCM_PATH=str(rocm_recorder))
    calls = machine.run("./program").stdout.splitlines()
    assert calls[0].startswith("__hipRegisterFatBinary right version 1")
    assert len([call for call in calls if call.startswith("hipLaunchKernel scale ")]) == 1
    images = all_images(read_contents(machine.home / "program"))
    found = {image.arch: image.code for image in images if image.code is not None}
    assert sorted(found) == ["gfx1030", "gfx90a"]
    assert all(code.kernel("scale") and code.undefined == () for code in found.values())


@pytest.mark.llvm(22)
def test_what_rocm_lacks_is_told_before_anything_is_compiled(
    hip_bundle: Path, rocm_recorder: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    machine = linking_machine(tmp_path, 22, mlir_offload)
    bundle = moved(hip_bundle, machine)
    alone = tmp_path / "rocm"
    (alone / "lib").mkdir(parents=True)
    (alone / "lib" / "libamdhip64.so").symlink_to(rocm_recorder / "lib" / "libamdhip64.so")
    said = machine.mlir_offload("link", f"--rocm-path={alone}", bundle.name, status=3).stderr
    assert "kernels call ROCm's device libraries, which are not installed" in said
    assert "apt install rocm-device-libs" in said
