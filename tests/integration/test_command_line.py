"""What the options of the compiler do, on real tools and running programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlir_offload.offload.link.objects import read_objects

pytestmark = pytest.mark.llvm(22)

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
HOST = "--offload-arch=host"


Compiler = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def compiler(
    mlir_offload: list[str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Compiler:
    """Return the compiler as a function that runs it in `tmp_path` and checks its exit status.

    It must leave no temporary file.
    """
    temporary = tmp_path_factory.mktemp("temporary")
    environment = {**os.environ, "TMPDIR": str(temporary)}

    def run(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [*mlir_offload, *map(str, arguments)]
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == status, result.stderr
        assert list(temporary.iterdir()) == []
        return result

    return run


def output_of(program: Path, *arguments: str, status: int = 0, **environment: str) -> str:
    result = subprocess.run(
        [program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == status, result.stderr
    return result.stdout


def test_run_passes_arguments_and_the_exit_status_of_the_program(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "p.mlir").write_text(
        "func.func @main(%argc: i32, %argv: !llvm.ptr) -> i32 {\n"
        "  %forty = arith.constant 40 : i32\n"
        "  %sum = arith.addi %argc, %forty : i32\n"
        "  return %sum : i32\n}\n"
    )
    compiler("run", HOST, "p.mlir", "--", "-x", "y", status=43)
    assert [path.name for path in tmp_path.iterdir()] == ["p.mlir"]


def test_names_and_strings_that_look_like_code_are_left_alone(
    compiler: Compiler, tmp_path: Path
) -> None:
    source = Path(__file__).parent / "inputs" / "odd_names.mlir"
    compiler("--llvm=22", "-ffast-math", "--offload-arch=sm_90,gfx90a,host", source, "-o", "odd")
    expected = "= #arith.fastmath<none> linkage = #llvm.linkage<external>; %2 8.000000 l\n"
    assert output_of(tmp_path / "odd", MLIR_OFFLOAD_DEVICE="host") == expected
    text = source.read_text(encoding="utf-8")
    # A kernel for spirv64 takes no struct.
    plain = re.sub(r'!llvm\.struct<"a>b, \(", \(f32, i32\)>', "f32", text)
    plain = re.sub(r"\n *%\w+ = llvm\.(?:mlir\.undef|insertvalue|extractvalue).*", "", plain)
    (tmp_path / "plain.mlir").write_text(
        plain.replace("(%f)", "(%s)").replace("args(%s", "args(%f")
    )
    compiler("--llvm=22", "--offload-arch=spirv64", "plain.mlir", "-o", "plain")


def test_a_name_behind_two_dashes_may_begin_with_one(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "-x.mlir").write_text((EXAMPLES / "square.mlir").read_text())
    (tmp_path / "-y.c").write_text((EXAMPLES / "main.c").read_text())
    noted = ("-MD", "-MJ", "cc.json", "--manifest=m.json", "--emit-header=square.h")
    compiler(HOST, *noted, "-o", "app", "--", "-x.mlir", "-y.c")
    assert "ok" in output_of(tmp_path / "app")
    assert "square" in compiler("inspect", "--", "-x.mlir").stdout


def test_a_name_may_begin_with_the_current_directory(compiler: Compiler, tmp_path: Path) -> None:
    for name in ("square.mlir", "main.c"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    (tmp_path / "main.in").write_text(
        "#ifdef GIVEN\n" + (tmp_path / "main.c").read_text() + "#endif\n"
    )
    compiler(HOST, "./square.mlir", ".//main.c", "-o", "./app")
    compiler(HOST, "-DGIVEN", "./square.mlir", "-x", "c", "./main.in", "-o", "given")
    compiler("bundle", HOST, "./square.mlir", "-o", "./square.mob")
    compiler("link", "./square.mob", "./main.c", "-o", "bundled")

    for name in ("app", "given", "bundled"):
        assert output_of(tmp_path / name) == "square: ok, 1000 elements\n"


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_can_be_read_once_only_or_has_no_end_is_refused(
    compiler: Compiler, tmp_path: Path, kind: str
) -> None:
    for name in ("k.mlir", "k.o", "k.c"):
        if kind == "pipe":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to("/dev/zero")
    for words in (("-c", HOST, "k.mlir"), ("-c", "k.c"), ("k.o",), ("inspect", "k.o")):
        assert "regular file" in compiler(*words, status=7).stderr


def test_run_gives_a_signal_as_a_shell_does(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "p.mlir").write_text(
        "llvm.func @abort()\nfunc.func @main() -> i32 {\n  llvm.call @abort() : () -> ()\n"
        "  %c = arith.constant 0 : i32\n  return %c : i32\n}\n"
    )
    compiler("run", HOST, "p.mlir", status=134)


def test_without_an_arch_it_says_which_device_it_compiles_for(
    compiler: Compiler, tmp_path: Path
) -> None:
    stderr = compiler("-c", EXAMPLES / "saxpy.mlir").stderr
    assert "compiling for the" in stderr
    assert (tmp_path / "saxpy.o").exists()


def test_objects_and_a_c_file_link_to_a_program(compiler: Compiler, tmp_path: Path) -> None:
    compiler("-c", HOST, EXAMPLES / "square.mlir", "-o", "k.o")
    compiler("k.o", EXAMPLES / "main.c", "-o", "app")
    assert "ok" in output_of(tmp_path / "app")


def test_two_files_outlined_from_equal_names_keep_their_own_kernels(
    compiler: Compiler, tmp_path: Path
) -> None:
    body = (EXAMPLES / "square.mlir").read_text()
    main = (EXAMPLES / "main.c").read_text()
    assert "square" in body
    (tmp_path / "a.mlir").write_text(body)
    (tmp_path / "b.mlir").write_text(body.replace("@square", "@other"))
    (tmp_path / "main.c").write_text(main)
    compiler(HOST, "a.mlir", "b.mlir", "main.c", "-o", "app")
    assert "ok" in output_of(tmp_path / "app")


def test_a_file_without_gpu_code_gives_a_plain_object(compiler: Compiler, tmp_path: Path) -> None:
    compiler("-c", HOST, EXAMPLES / "plain.mlir", "-o", "plain.o")
    assert read_objects(tmp_path / "plain.o") == ()
    subprocess.run(
        ["/usr/lib/llvm-22/bin/clang", tmp_path / "plain.o", "-o", tmp_path / "plain", "-lm"],
        check=True,
    )
    assert "ok" in output_of(tmp_path / "plain")


@pytest.mark.parametrize("archs", [HOST, f"{HOST},sm_90"])
def test_a_shared_library_brings_its_kernels(
    compiler: Compiler, tmp_path: Path, archs: str
) -> None:
    compiler("-shared", "-fPIC", archs, EXAMPLES / "square.mlir", "-o", "libsquare.so")
    compiler(EXAMPLES / "main.c", "-L", tmp_path, "-lsquare", f"-Wl,-rpath,{tmp_path}", "-o", "app")
    assert "ok" in output_of(tmp_path / "app", MLIR_OFFLOAD_DEVICE="host")


@pytest.mark.parametrize(
    ("options", "name", "content"),
    [
        (("-S",), "saxpy.s", b".section\t.llvm.offloading"),
        (("-S", "-emit-llvm"), "saxpy.ll", b"@llvm.embedded.object"),
        (("-c", "-emit-llvm"), "saxpy.bc", b"BC\xc0\xde"),
        (("-c",), "saxpy.o", b"\x7fELF"),
    ],
    ids=["assembly", "text", "bitcode", "object"],
)
def test_each_last_stage_leaves_its_form_of_the_host_module(
    compiler: Compiler, tmp_path: Path, options: tuple[str, ...], name: str, content: bytes
) -> None:
    compiler(*options, HOST, EXAMPLES / "saxpy.mlir")
    assert content in (tmp_path / name).read_bytes()


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O3"])
def test_every_optimisation_level_computes_the_same(compiler: Compiler, level: str) -> None:
    assert "ok" in compiler("run", level, HOST, EXAMPLES / "matmul.mlir").stdout


def test_the_printed_steps_can_be_pasted_into_a_shell(
    compiler: Compiler, mlir_offload: list[str], tmp_path: Path
) -> None:
    printed = compiler("-###", f"{HOST},sm_90", EXAMPLES / "matmul.mlir", "-o", "app")
    assert printed.stdout == ""
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "mlir-offload"
    command.write_text(f'#!/bin/sh\nexec {" ".join(mlir_offload)} "$@"\n')
    command.chmod(0o755)
    subprocess.run(
        ["sh", "-e"],
        input=printed.stderr,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        check=True,
    )
    assert "ok" in output_of(tmp_path / "app", MLIR_OFFLOAD_DEVICE="host")


def test_verbose_shows_the_steps_and_still_builds(compiler: Compiler, tmp_path: Path) -> None:
    stderr = compiler("-v", HOST, EXAMPLES / "saxpy.mlir", "-o", "app").stderr
    assert "mlir-opt" in stderr
    assert "--offload-link" in stderr
    assert (tmp_path / "app").exists()


def test_intermediate_files_are_kept_on_request_only(compiler: Compiler, tmp_path: Path) -> None:
    compiler("-save-temps=kept", HOST, EXAMPLES / "saxpy.mlir", "-o", "app")
    kept = {path.name for path in (tmp_path / "kept").rglob("*")}
    assert {"normal.mlir", "host.ll", "images.offload"} <= kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app", "kept"]


def test_paths_may_hold_spaces_quotes_and_other_letters(compiler: Compiler, tmp_path: Path) -> None:
    folder = tmp_path / "a b'c\"d, é"
    folder.mkdir()
    source = folder / "pro gram'é.mlir"
    source.write_bytes((EXAMPLES / "saxpy.mlir").read_bytes())
    compiler(HOST, source, f"-save-temps={folder / 'te mps'}", "-o", folder / "o ut")
    assert "ok" in output_of(folder / "o ut")


def test_one_program_holds_images_for_the_gpu_and_the_cpu(
    compiler: Compiler, tmp_path: Path
) -> None:
    compiler("--offload-arch=sm_90", HOST, EXAMPLES / "two_modules.mlir", "-o", "app")
    assert "ok" in output_of(tmp_path / "app", MLIR_OFFLOAD_DEVICE="host")


def test_kernels_that_a_link_would_lose_are_named_and_nothing_is_written(
    compiler: Compiler, tmp_path: Path
) -> None:
    compiler("-c", "--offload-arch=sm_80", EXAMPLES / "saxpy.mlir", "-o", "a.o")
    compiler("-c", "--offload-arch=sm_90", EXAMPLES / "square.mlir", "-o", "b.o")
    result = compiler("a.o", "b.o", "-o", "app", status=6)
    assert "sm_80" in result.stderr
    assert "sm_90" in result.stderr
    assert not (tmp_path / "app").exists()


@pytest.mark.llvm(19)
def test_an_object_of_another_release_is_refused(compiler: Compiler, tmp_path: Path) -> None:
    compiler("-c", "--llvm=19", HOST, EXAMPLES / "saxpy.mlir", "-o", "a.o")
    result = compiler("--llvm=22", "a.o", "-o", "app", status=4)
    assert "a.o" in result.stderr
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize("release", [pytest.param(19, marks=pytest.mark.llvm(19)), 22])
def test_kernels_that_only_a_static_library_has_arrive(
    compiler: Compiler, tmp_path: Path, release: int
) -> None:
    llvm = f"--llvm={release}"
    compiler(llvm, "-c", f"{HOST},sm_90", EXAMPLES / "square.mlir", "-o", "k.o")
    subprocess.run(["ar", "rcs", "libk.a", "k.o"], cwd=tmp_path, check=True)
    compiler(llvm, EXAMPLES / "main.c", "-L.", "-lk", "-o", "app")
    assert "ok" in output_of(tmp_path / "app", MLIR_OFFLOAD_DEVICE="host")


@pytest.mark.parametrize("release", [pytest.param(19, marks=pytest.mark.llvm(19)), 22])
@pytest.mark.parametrize("form", ["bitcode", "object"])
def test_gpu_code_links_from_bitcode_and_from_objects(
    compiler: Compiler, tmp_path: Path, release: int, form: str
) -> None:
    llvm = f"--llvm={release}"
    compiler(
        llvm,
        "-c",
        f"--device-code={form}",
        "--offload-arch=sm_90",
        EXAMPLES / "saxpy.mlir",
        "-o",
        "k.o",
    )
    images = [image for item in read_objects(tmp_path / "k.o") for image in item.images]
    assert [image.data[:4] for image in images] == [
        b"BC\xc0\xde" if form == "bitcode" else b"\x7fELF"
    ]
    compiler(llvm, "k.o", "-o", "app")
    assert (tmp_path / "app").exists()


def test_a_file_that_was_there_is_removed_where_the_program_is_wrong(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "app").write_text("old")
    (tmp_path / "p.mlir").write_text("func.func @f() {\n  nothing\n}\n")
    compiler(HOST, "p.mlir", "-o", "app", status=1)
    assert not (tmp_path / "app").exists()


def test_toolchains_names_the_default_and_every_release(compiler: Compiler) -> None:
    listed = compiler("toolchains").stdout
    assert "22." in listed
    assert "/usr/lib/llvm-22" in listed
    assert "* = used by default" in listed


@pytest.mark.parametrize("release", [pytest.param(19, marks=pytest.mark.llvm(19)), 22])
def test_the_wheels_of_the_cuda_extra_are_all_that_a_gpu_program_needs(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    wheels = [path for path in map(Path, sys.path) if (path / "nvidia" / "cu13").is_dir()]
    assert wheels, "install the extra: pip install '.[cuda]'"
    subprocess.run(
        [
            *mlir_offload,
            f"--llvm={release}",
            f"--cuda-path={wheels[0] / 'nvidia' / 'cu13'}",
            "--offload-arch=sm_80,sm_90",
            EXAMPLES / "saxpy.mlir",
            "-o",
            tmp_path / "app",
        ],
        # No toolkit on PATH may help out.
        env={**os.environ, "PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert read_objects(tmp_path / "app")[0].fatbins


@pytest.mark.parametrize("release", [pytest.param(19, marks=pytest.mark.llvm(19)), 22])
def test_without_libomptarget_the_stand_in_runs_the_kernels(
    compiler: Compiler, tmp_path: Path, release: int
) -> None:
    real, prefix = Path(f"/usr/lib/llvm-{release}"), tmp_path / "llvm"
    for folder in ("bin", "lib"):
        (prefix / folder).mkdir(parents=True)
        for path in (real / folder).iterdir():
            if not path.name.startswith("libomptarget"):
                (prefix / folder / path.name).symlink_to(path)
    compiler(f"--llvm={prefix}", HOST, EXAMPLES / "two_modules.mlir", "-o", "app")
    needed = subprocess.run(["ldd", tmp_path / "app"], capture_output=True, text=True, check=True)
    assert "libomptarget" not in needed.stdout
    assert "ok" in output_of(tmp_path / "app")


def test_the_locale_does_not_decide_which_file_a_name_means(
    fresh_mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "é.mlir").write_text("func.func @f() { return }\n")
    (tmp_path / "offload.yaml").write_text("archs: host\nmodules: [é.mlir]\n", encoding="utf-8")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [*fresh_mlir_offload, "build", "--dry-run"],
        cwd=tmp_path,
        env={**os.environ, **locale},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
