"""HIP fat binaries, as the bundler of each release makes and takes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

KERNEL = "__attribute__((amdgpu_kernel)) void k(int *p) { *p = 1; }\n"
ARCHS = ("gfx90a", "gfx1100")
HOSTS = {19: "host-x86_64-unknown-linux", 22: "host-x86_64-unknown-linux-gnu-"}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of linked code objects, and of one that is not linked."""
    folder = tmp_path_factory.mktemp("hip")
    (folder / "k.c").write_text(KERNEL, encoding="utf-8")
    clang = ["/usr/lib/llvm-22/bin/clang", "--target=amdgcn-amd-amdhsa", "-nogpulib"]
    for arch in ARCHS:
        linked = ["-fuse-ld=lld", "-o", f"{arch}.hsaco"]
        subprocess.run([*clang, f"-mcpu={arch}", "k.c", *linked], cwd=folder, check=True)
    subprocess.run([*clang, "-mcpu=gfx90a", "-c", "k.c", "-o", "k.o"], cwd=folder, check=True)
    return folder


def run(command: list[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [*command, "package", "--format=hipfb", *arguments]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def images() -> list[str]:
    return [f"--image=file={arch}.hsaco,arch={arch},kind=hip" for arch in ARCHS]


@pytest.mark.parametrize(
    "major", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in HOSTS]
)
def test_a_fat_binary_is_what_the_bundler_writes(
    major: int, mlir_offload: list[str], objects: Path
) -> None:
    made = run(mlir_offload, objects, *images(), f"--for-clang={major}", "-o", "ours.hipfb")
    assert (made.returncode, made.stderr) == (0, "")
    targets = [HOSTS[major], *(f"hip-amdgcn-amd-amdhsa--{arch}" for arch in ARCHS)]
    inputs = [Path("/dev/null"), *(objects / f"{arch}.hsaco" for arch in ARCHS)]
    subprocess.run(
        [
            f"/usr/lib/llvm-{major}/bin/clang-offload-bundler",
            *("-type=o", "-bundle-align=4096", f"-targets={','.join(targets)}"),
            *(f"-input={path}" for path in inputs),
            f"-output={objects / 'theirs.hipfb'}",
        ],
        check=True,
    )
    assert (objects / "ours.hipfb").read_bytes() == (objects / "theirs.hipfb").read_bytes()


@pytest.mark.llvm(22)
@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_the_bundler_takes_a_compressed_one_apart(
    method: str, mlir_offload: list[str], objects: Path, tmp_path: Path
) -> None:
    output = tmp_path / "k.hipfb"
    arguments = (*images(), f"--compress={method}", "--for-clang=22", "-o", str(output))
    assert run(mlir_offload, objects, *arguments).returncode == 0
    assert output.stat().st_size < (objects / "gfx90a.hsaco").stat().st_size
    bundler = ["/usr/lib/llvm-22/bin/clang-offload-bundler", "-type=o", "-unbundle"]
    target = "-targets=hip-amdgcn-amd-amdhsa--gfx1100"
    subprocess.run(
        [*bundler, target, f"-input={output}", f"-output={tmp_path / 'out'}"], check=True
    )
    assert (tmp_path / "out").read_bytes() == (objects / "gfx1100.hsaco").read_bytes()


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--image=file=k.o,arch=gfx90a,kind=hip",), 4, "k.o: error: the HIP runtime loads linked"),
        (("--image=file=gfx90a.hsaco,kind=hip",), 2, "each with its arch="),
        (("--image=file=gfx90a.hsaco,arch=sm_80,kind=cuda",), 2, "holds images of kind=hip"),
        ((*images(), *images()), 2, "two images of a bundle have the target id"),
        ((*images(), "--compress=zstd", "--for-clang=16"), 4, "LLVM 16 reads no compressed"),
        ((*images(), "--compress=lz4"), 2, "--compress=lz4 is not known"),
        ((*images(), "--format=zip"), 2, "--format=zip is not known"),
        ((*images(), "--format=offload-binary", "--compress=zlib"), 2, "--compress is for"),
    ],
)
def test_what_the_runtime_would_not_load_is_refused(
    arguments: tuple[str, ...], status: int, message: str, mlir_offload: list[str], objects: Path
) -> None:
    release = () if any("--for-clang" in word for word in arguments) else ("--for-clang=22",)
    made = run(mlir_offload, objects, *arguments, *release, "-o", "refused.hipfb")
    assert (made.returncode, message in made.stderr) == (status, True), made.stderr
    assert "hint:" in made.stderr
    assert not (objects / "refused.hipfb").exists()
