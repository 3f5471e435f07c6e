"""Command lines as users of clang, nvcc and hipcc write them, with the real tools."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cuda_tools import cuda_root

from mlir_offload.driver.cli import main
from mlir_offload.driver.message.report import MessageOptions, report

pytestmark = pytest.mark.llvm(22)
SAXPY = Path(__file__).resolve().parents[2] / "docs" / "examples" / "saxpy.mlir"
HOST = "--offload-arch=host"
CALLS_ADD = """
func.func private @add(%a: i32) -> i32
func.func @main() -> i32 {
  %one = arith.constant 1 : i32
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%a, %b, %c) in (%d = %c1, %e = %c1, %f = %c1)
             threads(%g, %h, %i) in (%j = %c1, %k = %c1, %l = %c1) {
    gpu.terminator
  }
  %sum = func.call @add(%one) : (i32) -> i32
  %zero = arith.constant 0 : i32
  return %zero : i32
}
"""
UNUSED = "argument unused during compilation: '{}'"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.mlir").write_text(SAXPY.read_text())
    (tmp_path / "h.h").write_text("#define ZERO 0\n")
    (tmp_path / "m.c").write_text('#include "h.h"\nint main(void) { return ZERO; }\n')
    (tmp_path / "n.mlir").write_text("func.func @f() { return }\n")
    (tmp_path / "m.cc").write_text("int f() { return 1; }\n")
    (tmp_path / "text").write_text('#include "h.h"\nint main(void) { return ZERO; }\n')
    return tmp_path


def run(words: str | list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command line in this process; a process of its own would take as long again."""
    ended: list[int] = []

    def leave(status: int) -> None:
        sys.stdout.flush()
        ended.append(status)

    monkeypatch.setattr("mlir_offload.driver.cli._leave", leave)
    main(words.split() if isinstance(words, str) else words)
    report().options = MessageOptions()
    return ended[0]


@pytest.mark.parametrize(
    "words",
    [
        "-c m.c -O -o m.o",
        "-c m.c -Os -g3",
        "-c m.c -Oz -ggdb",
        "-c m.c -Og -gline-tables-only",
        "-c m.c -Ofast -g0",
        "-c m.c -march=x86-64-v2 -mtune=generic -mavx2",
        "-c m.c -fno-exceptions -fstack-protector-strong -fno-strict-aliasing",
        "-c m.c -ffunction-sections -fdata-sections -fvisibility=hidden",
        "-c m.c -pipe -Wall -Wextra -Werror=return-type -pedantic -w --param ssp-buffer-size=4",
        "-c m.c -isystem . -iquote . -idirafter . -include h.h -U NOT -D X=1",
        "-c m.c -Xclang -fno-builtin -mllvm -stats=0 -Xpreprocessor -DX",
        "-c m.cc -std=c++20 -stdlib=libstdc++ -fno-rtti -Wa,--noexecstack",
        "-c m.c --target=x86_64-pc-linux-gnu --sysroot=/ -B/usr/bin",
        "-c m.c -Xarch_host -O1 -Qunused-arguments -fcf-protection",
        "-c m.c -om.o --verbose",
        "-c m.c m.c",
        "-c -x c text -o text.o",
        "-c -x c text -x none m.cc",
        "-S m.c -fverbose-asm -fno-asynchronous-unwind-tables",
        "-E m.c -dM -P",
        "-M m.c -MT x.o -MP",
        "-MM m.c -MF m.d",
        "-fsyntax-only m.c m.cc k.mlir",
        "m.c -o m -pie -fPIE -Xlinker -z -Xlinker now -rdynamic",
        "m.c -o m -no-pie -s -z noexecstack -rtlib=libgcc",
        "m.c -o m -flto -fuse-ld=lld -Wl,--as-needed -Xlinker --gc-sections",
        "m.c m.cc -o m -static -pthread -save-temps=obj",
        "m.c -o m -nostdlib -e main -r",
        "-shared -fPIC m.cc -o m.so -u f -Wl,-soname,m.so",
        f"-c {HOST} k.mlir -Os -mcmodel=large -ffunction-sections -fno-plt",
        f"-c {HOST} k.mlir -mcpu=x86-64-v2 -ggdb3 -save-temps=cwd",
        "--offload-arch sm_90 --device-code bitcode --for-clang 22 -c k.mlir",
        f"-S -emit-llvm {HOST} k.mlir -o -",
        "-print-search-dirs",
        "-dumpmachine",
    ],
)
def test_a_command_line_of_clang_works(
    words: str, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words, monkeypatch) == 0, capfd.readouterr().err
    assert "unused" not in capfd.readouterr().err
    del here


def test_assembly_of_c_is_that_of_clang_with_the_same_options(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "f.c").write_text(
        "int a[64], *p = a; int g(int *); __attribute__((weak)) int h(void) { int b[64]; return g(b); }\n"
        "void f(float *x, float *y) { for (int i = 0; i < 64; ++i) x[i] += y[i]; p[1] = h(); }\n"
    )
    # What is configured is an argument, too.
    monkeypatch.delenv("MLIR_OFFLOAD_MARCH", raising=False)
    plain = ["-O2", "-S", "f.c"]
    options = [
        "-mavx2",
        "-mtune=skylake",
        "-mcmodel=large",
        "-fstack-protector-strong",
        "-fno-omit-frame-pointer",
        "-ffunction-sections",
        "-fno-plt",
        "-fno-vectorize",
        "-fpie",
        "-O0",
        "-fno-fast-math",
    ]
    expected = {}
    for option in ("-O2", "-mllvm --x86-asm-syntax=intel", *options):
        clang = [*plain, *option.split(), "-o", "-"]
        expected[option] = subprocess.run(
            ["/usr/lib/llvm-22/bin/clang", *clang], capture_output=True, text=True, check=True
        ).stdout
        assert run([*plain, *option.split(), "-o", "f.s"], monkeypatch) == 0
        assert (here / "f.s").read_text() == expected[option], option
    assert len(set(expected.values())) > len(options) - 3


@pytest.mark.parametrize(
    "words",
    [
        "-fsyntax-only -MD m.c",
        "-fsyntax-only -MD m.c -o made.x",
        "-fsyntax-only -MMD -MF own.d -MP m.c",
        "-E -MD m.c",
        "-E -MD m.c -o made.i",
    ],
)
def test_rules_without_an_object_are_those_of_clang(
    words: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = "/usr/lib/llvm-22/bin/clang -include h.h"
    subprocess.run([*clang.split(), *words.split()], check=True, capture_output=True)
    (rule,) = here.glob("*.d")
    expected = rule.read_text()
    rule.unlink()
    assert run(f"-include h.h {words}", monkeypatch) == 0
    assert rule.read_text().split() == expected.split()


def test_files_that_clang_writes_besides_the_object_are_next_to_the_output(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = "-g -gsplit-dwarf --coverage -ftime-trace -fstack-usage -fsave-optimization-record -O1"
    for words in (f"-c m.c {flags}", f"m.c {flags} -o app"):
        made = []
        for folder in ("clang", "ours"):
            (here / folder).mkdir()
            monkeypatch.chdir(here / folder)
            arguments = f"-include ../h.h ../{words.removeprefix('-c ')}".split()
            arguments += ["-c"] * words.startswith("-c")
            if folder == "clang":
                subprocess.run(["/usr/lib/llvm-22/bin/clang", *arguments], check=True)
            else:
                assert run(arguments, monkeypatch) == 0
            if not words.startswith("-c"):
                subprocess.run([here / folder / "app"], check=True)
            made.append({file.name for file in (here / folder).iterdir()})
            (here / folder).rename(here / f"{folder}-{len(words)}")
        # clang writes the stack usage of all files of a program to app.su.
        assert {"app-m.su" if name == "app.su" else name for name in made[0]} == made[1]
        assert any(name.endswith(".gcno") for name in made[0])
    assert run(f"-c --llvm=16 {here}/m.c --coverage", monkeypatch) == 4
    assert "clang 16 cannot write the files of --coverage" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"-c {HOST} k.mlir -I.", UNUSED.format("-I .")),
        (f"-c {HOST} k.mlir -isystem .", UNUSED.format("-isystem .")),
        (f"-c {HOST} k.mlir -U X", UNUSED.format("-U X")),
        (f"-c {HOST} k.mlir -ffrobnicate", "unknown argument: '-ffrobnicate'"),
        ("-c m.c -lm", "-lm: 'linker' input unused"),
        ("-c m.c -L.", UNUSED.format("-L.")),
        ("-c m.c -Wl,-x", "-Wl,-x: 'linker' input unused"),
        ("-c m.c -MF m.d -MT m.x", UNUSED.format("-MF m.d")),
        ("-c m.c -pie", UNUSED.format("-pie")),
        ("-c m.c -s", UNUSED.format("-s")),
        ("-E k.mlir", "k.mlir: previously preprocessed input"),
    ],
)
def test_what_nothing_uses_is_told_as_clang_tells_it(
    words: str,
    said: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run(words, monkeypatch) == 0
    assert f"warning: {said} [-Wunused-command-line-argument]" in capfd.readouterr().err
    assert run(f"{words} -Wno-unused-command-line-argument -q", monkeypatch) == 0
    assert capfd.readouterr().err == ""
    del here


def test_standard_input_is_mlir_and_output_may_be_standard_output(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((here / "k.mlir").read_bytes())))
    assert run(f"-c {HOST} - -o -", monkeypatch) == 0
    assert capfdbinary.readouterr().out.startswith(b"\x7fELF")
    assert not list(here.glob("*.o"))


def test_an_error_in_standard_input_names_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    del here
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"func.func @f( {\n")))
    assert run(f"-c {HOST} -", monkeypatch) == 1
    assert "<stdin>:1:" in capfd.readouterr().err


def test_a_rule_for_make_names_what_mlir_reads(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "p.yaml").write_text("passes: [canonicalize]\n")
    assert run("-M --pipeline=p.yaml k.mlir", monkeypatch) == 0
    assert capfd.readouterr().out == "k.o: k.mlir p.yaml\n"


@pytest.mark.parametrize(
    ("form", "ending", "content"),
    [
        ("-S --offload-arch=sm_90", "cuda-nvptx64-nvidia-cuda-sm_90.s", b".target sm_90"),
        ("-c --offload-arch=gfx90a", "hip-amdgcn-amd-amdhsa-gfx90a.hsaco", b"\x7fELF"),
        ("-S --offload-arch=gfx90a", "hip-amdgcn-amd-amdhsa-gfx90a.s", b"s_endpgm"),
        ("-c --offload-arch=spirv64", "sycl-spirv64-unknown-unknown-spirv64.spv", b"\3\2\x23\7"),
        ("-S --offload-arch=spirv64", "sycl-spirv64-unknown-unknown-spirv64.s", b"OpEntryPoint"),
        ("-S --offload-arch=host", "openmp-x86_64-pc-linux-gnu-host.s", b".globl"),
        ("-S -emit-llvm --offload-arch=sm_90", "cuda-nvptx64-nvidia-cuda-sm_90.ll", b"ptx_kernel"),
    ],
)
def test_device_code_alone_is_a_file_for_each_device(
    form: str, ending: str, content: bytes, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_PATH", str(cuda_root()))
    assert run(f"--offload-device-only {form} k.mlir", monkeypatch) == 0
    assert content in (here / f"k-{ending}").read_bytes()


def test_a_fat_binary_has_cubins_and_ptx_and_is_named_as_nvcc_names_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_PATH", str(cuda_root()))
    assert run("-fatbin --offload-arch=sm_80,sm_90,gfx90a k.mlir", monkeypatch) == 0
    capfd.readouterr()
    assert run("inspect --json k.fatbin k.hipfb", monkeypatch) == 0
    files = json.loads(capfd.readouterr().out)["files"]
    forms = [[(one["arch"], one["format"]) for one in file["images"]] for file in files]
    assert forms == [
        [("sm_80", "cubin"), ("sm_90", "cubin"), ("sm_90", "PTX")],
        [("gfx90a", "AMDGPU code object")],
    ]
    assert run(f"-fatbin {HOST} k.mlir", monkeypatch) == 2
    del here


def test_checks_of_undefined_behaviour_work_beside_kernels_for_the_cpu(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "m.cc").write_text('extern "C" int add(int a) { return a + 2147483647; }\n')
    (here / "m.mlir").write_text(CALLS_ADD)
    assert run(f"-fsanitize=undefined {HOST} m.mlir m.cc -o m", monkeypatch) == 0
    done = subprocess.run([here / "m"], capture_output=True, text=True, check=False)
    assert "signed integer overflow" in done.stderr


def test_host_code_alone_has_no_device_code(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"--offload-host-only -S -emit-llvm {HOST} k.mlir"
    assert run(words, monkeypatch) == 0
    assert "@.offloading.entry." in (here / "k.ll").read_text()
    assert ".llvm.offloading" not in (here / "k.ll").read_text()


def test_host_code_alone_compiles_no_device_code(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--offload-host-only -### -c --offload-arch=sm_90,host k.mlir"
    assert run(words, monkeypatch) == 0
    assert [path.name for path in here.glob("*.o")] == []
    steps = capsys.readouterr().err
    assert [line.count("device0") > 0 for line in steps.splitlines() if "/clang " in line] == [
        False
    ]
    assert "ptxas" not in steps
    assert "step package" not in steps


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("-ptx -arch=sm_80", "--offload-arch=sm_80"),
        ("-ptx -arch sm_80", "--offload-arch=sm_80"),
        ("-c -gencode arch=compute_80,code=sm_80", "--offload-arch=sm_80"),
        ("-dc -G --gpu-architecture=sm_80", "-g -O0"),
        ("-c -rdc=true -lineinfo -use_fast_math -arch=sm_80", "-ffast-math"),
        ("-c -maxrregcount 32 -Xcompiler -fPIC,-Wall -arch=sm_80", "-fPIC -Wall"),
        ("-c --amdgpu-target=gfx90a", "--offload-arch=gfx90a"),
        ("-c -ccbin g++ --expt-relaxed-constexpr -arch=sm_80", "no effect"),
    ],
)
def test_options_of_nvcc_and_hipcc_are_understood_and_ours_are_named(
    words: str,
    ours: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run(f"{words} k.mlir", monkeypatch) == 0
    assert ours in capfd.readouterr().err
    del here


@pytest.mark.parametrize("option", ["-Xptxas -v", "-Xptxas=-v", "--ptxas-options=-v"])
def test_ptxas_tells_registers_and_spills(
    option: str, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = (
        f"-c --device-code=object --offload-arch=sm_80 --cuda-path={cuda_root()} {option} k.mlir"
    )
    assert run(words, monkeypatch) == 0
    said = capfd.readouterr().err
    assert "registers" in said
    assert "spill stores" in said
    del here


def test_an_mlir_opt_of_the_user_is_used_and_named_by_the_identity_of_the_tools(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own = here / "own-opt"
    own.write_text('#!/bin/sh\necho called >> log\nexec /usr/lib/llvm-22/bin/mlir-opt "$@"\n')
    own.chmod(0o755)
    assert run(f"-c {HOST} --mlir-opt={own} k.mlir", monkeypatch) == 0
    assert (here / "log").read_text()
    identities = []
    for words in ("--toolchain-id", f"--toolchain-id --mlir-opt={own}"):
        capfd.readouterr()
        assert run(words, monkeypatch) == 0
        identities.append(capfd.readouterr().out)
    other = here / "other-opt"
    other.write_text(own.read_text() + "# another\n")
    other.chmod(0o755)
    assert run(f"--toolchain-id --mlir-opt={other}", monkeypatch) == 0
    assert len({*identities, capfd.readouterr().out}) == 3


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("inspct k.mlir", "inspct: no such file", "did you mean the subcommand 'inspect'?"),
        ("help inspct", "no such subcommand", "did you mean 'inspect'?"),
        ("run k.mlir 100", "'100' is not an input", "run k.mlir -- 100"),
        ("--pipeline=linlag k.mlir", "unknown pipeline", "did you mean 'linalg'?"),
        ("--device-code=objekt k.mlir", "unknown value", "did you mean 'object'?"),
        ("-x cudaa k.mlir", "unknown language", "did you mean 'cuda'?"),
        ("m.c -o -", "a link writes a file", "name the file"),
        ("-c m.c -ffrobnicate", "unknown argument: '-ffrobnicate'", "clang"),
        ("-c m.c --target=riscv64-linux", "host code is for this machine", "--offload-arch="),
        ("--offload-device-only m.c", "no device code", ".mlir, .cu and .hip"),
        ("-ptx k.mlir", "no such code for host", "--offload-arch=sm_90"),
        ("-c k.mlir -Werror -I.", "'-I .' [-Werror,-Wunused-command-line-argument]", ""),
        ("-lib k.mlir", "'-lib' of nvcc is not supported", "ar rcs"),
        (
            "--offload-device-only -c n.mlir",
            "n.mlir has no device code for host",
            "-fgpu-rdc keeps",
        ),
        ("--mlir-opt=/bin/true -c k.mlir", "printed no version", "mlir-opt"),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(
    words: str,
    said: str,
    hint: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    del here
    assert run([*words.split(), *([HOST] if ".mlir" in words else [])], monkeypatch) in {2, 3, 7}
    error = capfd.readouterr().err
    assert said in error
    assert hint in error


def test_the_package_runs_as_a_module(here: Path) -> None:
    command = [sys.executable, "-m", "mlir_offload", "help", "run"]
    done = subprocess.run(
        command, cwd=here, env=dict(os.environ), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("usage: mlir-offload run")


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("-c m.c -H", ". ./h.h\n"),
        ("-c m.c -Xclang -fdump-record-layouts -include stdlib.h", "Dumping AST Record Layout"),
        ("-c m.c -mllvm -print-changed=quiet", "IR Dump"),
        ("m.c -o m -Xlinker -t", "crt1.o\n"),
        ("-c warned.c -Xptxas -v -Xlinker -q", "-Wparentheses]"),
        (f"-c {HOST} k.mlir --version --llvm=22", "mlir-offload "),
        ("m.c -o m -Xlinker -h -Xlinker name", ""),
    ],
)
def test_what_clang_prints_is_shown(
    words: str,
    printed: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (here / "warned.c").write_text("int f(int a) { if (a = 1) return 2; return a; }\n")
    assert run(words, monkeypatch) == 0
    said = "".join(capfd.readouterr())
    assert printed in said
    assert "usage: " not in said.lower()
