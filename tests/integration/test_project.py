"""The subcommand build, on real tools: the compiler's own bytes, nothing twice, and right after a kill."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from support.cuda_tools import cuda_root, cuda_tool
from support.project import (
    call_by,
    counting_launcher,
    digests,
    run_in,
    started,
    write_project,
)

from mlir_offload.offload.link.objects import read_objects

pytestmark = pytest.mark.llvm(22)
SCHEMA = Path(__file__).resolve().parents[2] / "driver" / "data" / "project.schema.json"
MANIFEST = """\
archs: [sm_80, sm_90]
flags: --llvm=22 --device-code=bitcode
modules: ['m*.mlir']
"""
FOR_THE_CPU = """\
archs: host
flags: --llvm=22
modules: [m0.mlir]
targets:
  app: {inputs: [m0.mlir, main.c]}
  libapp.so: {kind: shared, inputs: [m0.mlir], flags: -fPIC}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> Path:
    folder = write_project(tmp_path_factory.mktemp("built"), MANIFEST)
    reports = ("--report=r.json", "--trace=t.json", "--timeline=t.html")
    done = run_in(folder, [*mlir_offload, "build", "-j2", *reports])
    assert (done.returncode, done.stdout) == (0, "")
    assert "8 steps built, 0 current" in done.stderr
    return folder


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def outcomes(folder: Path, command: list[str]) -> dict[str, str]:
    """Build again; return the outcome of each step by its kind, module and architecture."""
    done = run_in(folder, [*command, "build", "-j1", "--report=again.json"])
    assert done.returncode == 0, done.stderr
    steps = json.loads((folder / "again.json").read_text())["steps"]
    return {f"{s['kind']} {s['module']} {s['arch']}".rstrip(): s["outcome"] for s in steps}


def ran(folder: Path, command: list[str]) -> set[str]:
    return {name for name, outcome in outcomes(folder, command).items() if outcome == "built"}


def test_objects_are_those_of_the_compiler(built: Path, mlir_offload: list[str]) -> None:
    flags = ["--llvm=22", "--offload-arch=sm_80,sm_90", "-o", "alone.o"]
    assert run_in(built, [*mlir_offload, "-c", "m1.mlir", *flags]).returncode == 0
    alone = (built / "alone.o").read_bytes()
    assert (built / "build" / "default" / "m1.mlir.o").read_bytes() == alone


def test_reports_tell_what_was_done(built: Path) -> None:
    report = json.loads((built / "r.json").read_text())
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert report["counts"] == {"built": 8, "current": 0, "failed": 0, "skipped": 0}
    assert [(s["kind"], s["steps"]) for s in report["steps"]] == [("module", 4)] * 2
    events = json.loads((built / "t.json").read_text())["traceEvents"]
    whole = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in whole} == {0, 1}
    for lane in (0, 1):
        times = sorted((e["ts"], e["ts"] + e["dur"]) for e in whole if e["tid"] == lane)
        # One lane runs one step at a time.
        assert all(end <= start + 1 for (_, end), (start, _) in pairwise(times))
    assert "module m1.mlir" in (built / "t.html").read_text()


def test_a_second_build_does_nothing(copy: Path, mlir_offload: list[str]) -> None:
    before = digests(copy / "build", ".o", ".images", ".host", ".device")
    for path in copy.glob("*.mlir"):
        os.utime(path)
    assert ran(copy, mlir_offload) == set()
    assert digests(copy / "build", ".o", ".images", ".host", ".device") == before


def test_only_what_a_change_reaches_is_compiled(copy: Path, mlir_offload: list[str]) -> None:
    module = copy / "m0.mlir"
    text = module.read_text()
    module.write_text("// A comment.\n" + text)
    assert ran(copy, mlir_offload) == {"split m0.mlir"}
    module.write_text(text.replace("return", "%two = arith.constant 2 : index\n  return"))
    assert not any("device" in name for name in ran(copy, mlir_offload))
    module.write_text(text.replace('"%d', '"%x'))
    assert {"device m0.mlir sm_80", "device m0.mlir sm_90"} <= ran(copy, mlir_offload)
    manifest = copy / "offload.yaml"
    manifest.write_text(MANIFEST.replace("sm_90", "sm_90, sm_75"))
    added = {f"{kind} m{n}.mlir{arch}" for n in (0, 1) for kind, arch in (("device", " sm_75"), ("join", ""))}  # fmt: skip
    assert ran(copy, mlir_offload) == added


def test_errors_have_places_and_the_rest_goes_on(tmp_path: Path, mlir_offload: list[str]) -> None:
    folder = write_project(tmp_path, MANIFEST, modules=3)
    wrong = folder / "m0.mlir"
    wrong.write_text(wrong.read_text().replace("gpu.terminator", "gpu.terminate"))
    unfit = folder / "m1.mlir"
    launch = 'gpu.printf "%d\\n", %value : i32'
    assert launch in unfit.read_text()
    unfit.write_text(unfit.read_text().replace(launch, '"nvvm.cp.async.bulk.nothing"() : () -> ()'))
    command = [*mlir_offload, "build", "-j1", "--keep-going", "--report=r.json"]
    done = run_in(folder, command)
    assert done.returncode == 1
    assert "m0.mlir:7:5: error: " in done.stderr
    assert "m1.mlir:6:" in done.stderr
    assert "module m0.mlir [default] failed" in done.stderr
    report = json.loads((folder / "r.json").read_text())
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert not report["succeeded"]
    good = [step for step in report["steps"] if step["module"] == "m2.mlir"]
    assert [(step["outcome"], step["steps"]) for step in good] == [("built", 4)]


def test_a_device_step_that_fails_is_told_with_its_place(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = write_project(tmp_path, FOR_THE_CPU, modules=1)
    module = folder / "m0.mlir"
    # The CPU has no surfaces.
    load = (
        '%texel = llvm.call_intrinsic "llvm.nvvm.suld.1d.i32.trap"(%zero, %at) : (i64, i32) -> i32'
    )
    numbers = "%zero = arith.constant 0 : i64\n    %at = arith.constant 0 : i32"
    wrong = f"{numbers}\n    {load}\n    gpu.terminator"
    module.write_text(module.read_text().replace("gpu.terminator", wrong))
    done = run_in(folder, [*mlir_offload, "build"])
    assert done.returncode == 1, done.stderr
    assert "module m0.mlir [default] failed" in done.stderr
    assert "\nm0.mlir:9:14: error: llvm.nvvm.suld.1d.i32.trap is not supported" in done.stderr


def test_each_compile_command_makes_the_object_of_the_build(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    sources = "targets: {app: {inputs: [m0.mlir, {file: main.c, flags: -DN=3}]}}\n"
    folder = write_project(tmp_path, MANIFEST + sources, modules=1)
    assert run_in(folder, [*mlir_offload, "build", "--emit=compile_commands"]).returncode == 0
    entries = json.loads((folder / "compile_commands.json").read_text())
    assert {entry["file"] for entry in entries} == {"m0.mlir", "main.c"}
    for entry in entries:
        assert entry["directory"] == str(folder)
        (folder / entry["output"]).parent.mkdir(parents=True, exist_ok=True)
        done = run_in(folder, entry["arguments"])
        assert done.returncode == 0, done.stderr
    made = digests(folder / "build", ".o")
    assert run_in(folder, [*mlir_offload, "build", "-j1"]).returncode == 0
    assert digests(folder / "build", ".o") == made


@pytest.mark.parametrize("form", ["ninja", "make"])
def test_emitted_files_build_the_same_bytes(
    form: str, built: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    program = shutil.which(form)
    if program is None:
        pytest.skip(f"{form} is not installed")
    folder = write_project(tmp_path, MANIFEST)
    assert run_in(folder, [*mlir_offload, "build", f"--emit={form}"]).returncode == 0
    file = "build/build.ninja" if form == "ninja" else "build/Makefile"
    if form == "make":
        # One of the two calls the compiler as it is emitted.
        call_by(mlir_offload, folder / file)
    command = [program, "-j2", "-f", file]
    done = run_in(folder, command)
    assert done.returncode == 0, done.stdout + done.stderr
    endings = (".o", ".images", ".host", ".device")
    assert digests(folder / "build", *endings) == digests(built / "build", *endings)
    again = run_in(folder, command)
    assert "--step" not in again.stdout
    assert "no work to do" in again.stdout or "Nothing to be done" in again.stdout
    text = (folder / "m0.mlir").read_text()
    (folder / "m0.mlir").write_text(f"// A comment.\n{text}")
    third = run_in(folder, [*command, *(["-v"] if form == "ninja" else [])])
    assert third.returncode == 0
    assert "--split-step -c m0.mlir" in third.stdout
    assert "--device-step" not in third.stdout


def test_make_refuses_names_that_it_cannot_hold_and_ninja_takes_them(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    module = "a|b $c:d.mlir"
    folder = write_project(tmp_path, f"archs: sm_80\nmodules: ['{module}']\n", modules=0)
    (folder / module).touch()
    done = run_in(folder, [*mlir_offload, "build", "--emit=make"])
    assert done.returncode == 2
    assert "make cannot take the file name" in done.stderr
    assert run_in(folder, [*mlir_offload, "build", "--emit=ninja"]).returncode == 0
    ninja = shutil.which("ninja")
    if ninja is None:
        pytest.skip("ninja is not installed")
    query = [ninja, "-f", "build/build.ninja", "-t", "query", f"build/default/{module}.host"]
    assert f"    {module}\n" in run_in(folder, query).stdout


def test_programs_and_libraries_follow_their_headers(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = write_project(tmp_path, FOR_THE_CPU, modules=1)
    done = run_in(folder, [*mlir_offload, "build", "-j1"])
    assert done.returncode == 0, done.stderr
    program = folder / "build" / "default" / "bin" / "app"
    assert run_in(folder, [program]).stdout == "0\n0\n"
    assert (folder / "build" / "default" / "lib" / "libapp.so").read_bytes()[:4] == b"\x7fELF"
    (folder / "count.h").write_text("#define COUNT 3\n")
    assert ran(folder, mlir_offload) == {"source main.c", "link app"}
    assert run_in(folder, [program]).stdout == "0\n0\n0\n"


def test_a_build_that_is_killed_goes_on_where_it_was(
    built: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = write_project(tmp_path / "project", MANIFEST)
    pid = tmp_path / "pid"
    environment = {"MLIR_OFFLOAD_LAUNCHER": str(counting_launcher(tmp_path, pid, fatal=3))}
    child = subprocess.Popen(
        ["/bin/sh", "-c", 'echo $$ > "$0"; exec "$@"', pid, *mlir_offload, "build", "-j1"],
        cwd=folder,
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
    )
    assert child.wait(timeout=600) == -9
    done = run_in(folder, [*mlir_offload, "build", "--resume", "-j1"], environment)
    assert done.returncode == 0, done.stderr
    endings = (".o", ".images", ".host", ".device")
    assert digests(folder / "build", *endings) == digests(built / "build", *endings)
    # Two images of the module that was done, and twice those of the one under way, as far as it was.
    assert 5 <= len(started(tmp_path)) <= 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--emit=bazel"], "'bazel' is not one of"),
        (["--variant=x"], "there is no variant 'x'"),
        (["-j0"], "0 is not in the range"),
        (["--nonsense"], "unknown option '--nonsense'"),
    ],
)
def test_a_wrong_command_line_is_an_error_of_usage(
    arguments: list[str], message: str, tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = write_project(tmp_path, MANIFEST)
    done = run_in(folder, [*mlir_offload, "build", *arguments])
    assert done.returncode == 2
    assert message in done.stderr
    assert not (folder / "build").exists()


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("archs: sm_999", "2:11", "does not know sm_999"),
        ("archs: sm_90\nflags: --llvm=77", "3:11", "LLVM 77 is not installed"),
        ("archs: sm_90\nflags: --device-lib=cuda=no.bc", "2:8", "no file is called 'no.bc'"),
        (
            "targets: {app: {inputs: [main.c], flags: --llvm=77}}",
            "1:16",
            "LLVM 77 is not installed",
        ),
    ],
)
def test_what_no_tools_can_do_is_told_with_its_line_before_any_step(
    line: str, place: str, message: str, tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = write_project(tmp_path, f"{line}\nmodules: [m0.mlir]\n")
    done = run_in(folder, [*mlir_offload, "build"])
    assert f"offload.yaml:{place}: error: " in done.stderr
    assert message in done.stderr
    assert not (folder / "build").exists()


FORMS = """\
archs: [sm_80, sm_90]
modules:
  - {file: final.mlir, archs: [sm_90, host], flags: -fno-gpu-rdc -g}
  - variants.mlir
  - {file: kernel.mlir, archs: sm_80, flags: --device-lib=library.bc}
  - {file: lines.mlir, archs: [sm_90, host], flags: -g}
"""


def test_a_project_makes_every_form_of_device_code(mlir_offload: list[str], tmp_path: Path) -> None:
    cuda_tool("ptxas")
    inputs = Path(__file__).parent / "inputs" / "rdc"
    folder = write_project(tmp_path, FORMS, modules=0)
    sources = {"final": "alone", "kernel": "kernel", "lines": "alone", "variants": "variants"}
    for name, source in sources.items():
        text = (inputs / f"{source}.mlir").read_text()
        (folder / f"{name}.mlir").write_text(text)
    write_library(folder, 3)
    assert ran(folder, mlir_offload) == {f"module {name}.mlir" for name in sources}
    flags = ["--offload-arch=sm_90,host", "-fno-gpu-rdc", "-g", "-o", "alone.o"]
    assert run_in(folder, [*mlir_offload, "-c", "final.mlir", *flags]).returncode == 0
    made = folder / "build" / "default"
    assert (made / "final.mlir.o").read_bytes() == (folder / "alone.o").read_bytes()
    # One module for each GPU, with equal kernels.
    (contents,) = read_objects(made / "variants.mlir.o")
    assert sorted(image.arch for image in contents.images) == ["sm_80", "sm_90"]

    write_library(folder, 4)
    # The module for sm_80 calls nothing.
    devices = {"device kernel.mlir sm_80", "device variants.mlir sm_90"}
    assert ran(folder, mlir_offload) == devices | {"join kernel.mlir", "join variants.mlir"}

    # An object that is joined from older images has the lines of their kernels, too.
    lines = folder / "lines.mlir"
    lines.write_text(lines.read_text().replace("@go", "@gone"))
    assert ran(folder, mlir_offload) == {"split lines.mlir", "join lines.mlir"}
    flags = ["--offload-arch=sm_90,host", "-g", "-o", "lines.o"]
    assert run_in(folder, [*mlir_offload, "-c", "lines.mlir", *flags]).returncode == 0
    assert (made / "lines.mlir.o").read_bytes() == (folder / "lines.o").read_bytes()


def write_library(folder: Path, factor: int) -> None:
    source = f"float twice(float x) {{ return 2 * x; }}\nfloat thrice(float x) {{ return {factor} * x; }}\n"
    target = (
        "--target=nvptx64-nvidia-cuda",
        "-march=sm_80",
        "-nogpulib",
        f"--cuda-path={cuda_root()}",
        "-c",
        "-emit-llvm",
        "-O2",
    )
    clang = ["/usr/lib/llvm-22/bin/clang", "-Wno-unknown-cuda-version", *target, "-x", "c", "-"]
    argv = [*clang, "-o", str(folder / "library.bc")]
    subprocess.run(argv, input=source, text=True, check=True)


def test_a_build_with_nothing_to_do_sees_every_change_without_a_plan(
    copy: Path, mlir_offload: list[str]
) -> None:
    command = [*mlir_offload, "build", "-j1"]
    # The files must be older than two seconds, for their times to say something.
    settle(copy)
    assert "0 steps built, 8 current" in run_in(copy, command).stderr
    # Nothing but the snapshot is read now.
    journal = copy / "build" / ".mlir-offload-state"
    records = journal.read_bytes()
    journal.write_bytes(b"")
    assert "0 steps built, 8 current" in run_in(copy, command).stderr
    journal.write_bytes(records)
    text = (copy / "m0.mlir").read_text()
    (copy / "m0.mlir").write_text(f"// A comment.\n{text}")
    assert "1 step built" in run_in(copy, command).stderr
    (copy / "m2.mlir").write_text(text.replace("run0", "run2"))
    assert "4 steps built" in run_in(copy, command).stderr
    environment = {"SOURCE_DATE_EPOCH": "5", "MLIR_OFFLOAD_LLVM": "22"}
    assert "0 steps built, 12 current" in run_in(copy, command, environment).stderr
    (copy / "build" / "default" / "m2.mlir.o").unlink()
    assert "1 step built" in run_in(copy, command).stderr


def settle(folder: Path) -> None:
    """Let the files of a folder become old enough."""
    newest = max(path.stat().st_ctime_ns for path in folder.rglob("*"))
    while time.time_ns() - newest < 2_100_000_000:
        time.sleep(0.1)


def test_a_dry_run_names_the_steps_that_would_run(copy: Path, mlir_offload: list[str]) -> None:
    (copy / "m1.mlir").write_text((copy / "m1.mlir").read_text().replace('"%d', '"%x'))
    endings = (".o", ".images", ".host", ".device")
    before = digests(copy / "build", *endings)
    done = run_in(copy, [*mlir_offload, "build", "-n"])
    assert done.stderr.splitlines() == [
        *("split m1.mlir [default]", "device sm_80 m1.mlir [default]"),
        *("device sm_90 m1.mlir [default]", "join m1.mlir [default]"),
    ]
    assert digests(copy / "build", *endings) == before


def test_what_the_manifest_no_longer_names_is_pruned_and_all_of_it_cleaned(
    copy: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    journal, precious = copy / "build" / ".mlir-offload-state", tmp_path / "precious"
    own = copy / "build" / "default" / "own.txt"
    for path in (precious, own):
        path.write_text("kept")
    # A record from anyone names a file elsewhere.
    foreign = json.dumps(["build/x", "s", {"build/../../precious": [1, 4, "0"]}])
    journal.write_text(f"{journal.read_text()}{foreign}\n")
    (copy / "offload.yaml").write_text(MANIFEST.replace("m*.mlir", "m0.mlir"))
    assert "5 files removed" in run_in(copy, [*mlir_offload, "build", "--prune"]).stderr
    assert not list((copy / "build").rglob("m1.mlir*"))
    assert ran(copy, mlir_offload) == set()
    assert "5 files removed" in run_in(copy, [*mlir_offload, "build", "--clean"]).stderr
    left = {path.name for path in (copy / "build").rglob("*") if path.is_file()}
    assert left == {"own.txt", ".mlir-offload-state", ".mlir-offload-lock"}
    assert precious.read_text() == "kept"
