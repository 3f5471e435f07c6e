"""Builds with ccache, on real tools and real stores: what is compiled again, and what never is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support import cache_servers
from support.cuda_tools import cuda_root, cuda_tool
from support.loopback import free_port, running, wait_for_port

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.process import ProcessRunner

pytestmark = pytest.mark.llvm(22)

SOURCE = (Path(__file__).parent / "inputs" / "two_kernels.mlir").read_text()
ATTACHED = """\
gpu.module @k [#nvvm.target<chip = "sm_80">] {
  gpu.func @run() kernel {
    gpu.return
  }
}
"""
NOTHING: Mapping[str, str] = {}
KERNELS = ("image sm_80", "image sm_80")
STORE_FAILURES = ("remote_storage_error", "remote_storage_timeout")
Server = Callable[[Path], AbstractContextManager[cache_servers.Store]]
# Stands behind ccache: what it is called with is what was not in the cache. The second step that
# is compiled does what STORE_FAULT says.
NOTE_STEPS = """\
#!/bin/sh
printf "%s\\n" "$*" >>"$STEP_LOG"
if [ -n "$STORE_FAULT" ] && [ "$(wc -l <"$STEP_LOG")" -ge 2 ] && mkdir "$STEP_LOG.fault" 2>/dev/null
then $STORE_FAULT
fi
exec "$@"
"""


@dataclass(frozen=True)
class Build:
    """What one call did: its exit status, what it said, and the steps that were not in the cache."""

    status: int
    stderr: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Checkout:
    """A directory with a program, and the cache that its builds use."""

    place: Path
    command: tuple[str, ...]
    cache: Path
    launcher: Path
    toolkit: Path

    @property
    def source(self) -> Path:
        return self.place / "k.mlir"

    @property
    def object(self) -> Path:
        return self.place / "k.o"

    def build(
        self, *options: str, status: int = 0, environment: Mapping[str, str] = NOTHING
    ) -> Build:
        log = self.place / "steps"
        log.write_text("")
        chosen = {"CUDA_PATH": str(self.toolkit), "XDG_CACHE_HOME": str(self.cache / "facts")}
        cache = {"CCACHE_DIR": str(self.cache), "STEP_LOG": str(log)}
        result = subprocess.run(
            [*self.command, "-c", *options, self.source.name],
            cwd=self.place,
            env={**os.environ, **chosen, **cache, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == status, result.stderr
        return Build(result.returncode, result.stderr, _steps(log))

    def cached(
        self,
        *options: str,
        arch: str = "sm_80",
        status: int = 0,
        environment: Mapping[str, str] = NOTHING,
    ) -> Build:
        """Build with ccache for the architecture."""
        words = (f"--offload-arch={arch}", "--cache", f"--launcher={self.launcher}")
        return self.build(*words, *options, status=status, environment=environment)


def _steps(log: Path) -> tuple[str, ...]:
    found = []
    for line in log.read_text().splitlines():
        words = line.split()
        step = next(word for word in words if word.endswith("-step")).strip("-")
        archs = [word.partition("=")[2] for word in words if word.startswith("--offload-arch=")]
        found.append(" ".join((step.removesuffix("-step"), *archs)))
    return tuple(sorted(found))


@pytest.fixture(scope="module")
def toolkit() -> CudaToolkit:
    if shutil.which("ccache") is None:
        pytest.skip("ccache is not installed")
    cuda_tool("ptxas")
    return choose_toolkit(places_for(), ProcessRunner())


@pytest.fixture(scope="module")
def filled(
    tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str], toolkit: CudaToolkit
) -> Checkout:
    """Return a checkout whose cache knows all steps of the program for sm_80."""
    cache = tmp_path_factory.mktemp("cache")
    launcher = cache / "note-steps"
    launcher.write_text(NOTE_STEPS)
    launcher.chmod(0o755)
    checkout = _checkout(
        Checkout(cache / "first", tuple(mlir_offload), cache, launcher, toolkit.root)
    )
    build = checkout.cached()
    assert build.steps == ("host", *KERNELS, "object")
    return checkout


@pytest.fixture
def checkout(tmp_path: Path, filled: Checkout) -> Checkout:
    """Return a checkout in a directory of its own, which uses the filled cache."""
    return _checkout(replace(filled, place=tmp_path / "checkout"))


def _checkout(checkout: Checkout) -> Checkout:
    checkout.place.mkdir()
    checkout.source.write_text(SOURCE)
    return checkout


def test_what_comes_from_the_cache_is_what_a_build_without_it_makes(checkout: Checkout) -> None:
    build = checkout.cached("-MD")
    files = (checkout.object, checkout.place / "k.d")
    cached = [file.read_bytes() for file in files]
    checkout.build("--offload-arch=sm_80", "--no-cache", "-MD")

    assert build.steps == ()
    assert cached == [file.read_bytes() for file in files]


def tools_of(build: Build) -> set[str]:
    """Return the tools of LLVM that a call with -v ran itself."""
    return {
        name for name in ("mlir-opt", "mlir-translate", "clang") if f"bin/{name} " in build.stderr
    }


def test_a_call_that_was_made_before_starts_no_tool(
    checkout: Checkout, toolkit: CudaToolkit
) -> None:
    checkout.source.write_text(SOURCE.replace("arith.mulf %old, %by", "math.powf %old, %by"))
    assert tools_of(checkout.cached("-v", "-MD")) == {"mlir-opt"}
    files = (checkout.object, checkout.place / "k.d")
    made = [file.read_bytes() for file in files]
    assert str(toolkit.libdevice) in made[1].decode()
    for file in files:
        file.unlink()

    assert tools_of(checkout.cached("-v", "-MD")) == set()
    assert [file.read_bytes() for file in files] == made


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ([], {}),
        (["-O1"], {}),
        (["--device-lib=cuda=l.bc"], {}),
        ([], {"SOURCE_DATE_EPOCH": "9"}),
        ([], {"CPATH": "/nonexistent"}),
    ],
    ids=["program", "option", "device library", "time", "setting of clang"],
)
def test_a_call_that_differs_in_anything_is_made_again(
    checkout: Checkout, options: list[str], environment: dict[str, str]
) -> None:
    library = checkout.place / "l.bc"
    write_library(library, 3)
    checkout.cached("-v", *(options if library.name in str(options) else []))
    if library.name in str(options):
        write_library(library, 4)
    elif not options and not environment:
        checkout.source.write_text(f"// a comment\n{SOURCE}")

    assert tools_of(checkout.cached("-v", *options, environment=environment)) == {"mlir-opt"}
    assert tools_of(checkout.cached("-v", *options, environment=environment)) == set()


def test_a_library_that_is_not_there_is_named(checkout: Checkout) -> None:
    said = checkout.cached("--device-lib=absent.bc", status=7).stderr

    assert "cannot read absent.bc: No such file or directory\n  hint: check the name" in said


def test_what_a_call_says_is_said_each_time(checkout: Checkout) -> None:
    checkout.source.write_text("func.func @f(%t: tensor<4xf32>) { return }\n")
    first, second = checkout.cached().stderr, checkout.cached().stderr

    assert "works on tensors" in first
    assert first == second


def test_of_a_program_that_is_edited_meanwhile_no_call_is_kept(checkout: Checkout) -> None:
    arch, edit = "sm_86", {"STORE_FAULT": f"sed -i 1s,^,//, {checkout.source}"}
    checkout.cached("-v", arch=arch, environment=edit)
    assert checkout.source.read_text() != SOURCE
    checkout.source.write_text(SOURCE)

    assert tools_of(checkout.cached("-v", arch=arch)) == {"mlir-opt"}
    assert tools_of(checkout.cached("-v", arch=arch)) == set()


def test_why_rebuilt_counts_a_call_that_was_kept(checkout: Checkout) -> None:
    for level in ("-O2", "-O1"):
        checkout.cached("-v", level)
    assert tools_of(checkout.cached("-v", "-O2")) == set()

    explained = checkout.cached("-O2", "--why-rebuilt").stderr
    assert explained == "mlir-offload: note: k.o: nothing changed since it was built last\n"


def test_another_architecture_compiles_for_that_one_only(checkout: Checkout) -> None:
    build = checkout.cached(arch="sm_80,sm_90")

    assert build.steps == ("image sm_90", "image sm_90", "object")


def test_comments_and_lines_above_a_kernel_compile_nothing(checkout: Checkout) -> None:
    lines = SOURCE.replace("  func.func @run", "\n  // called by main\n\n  func.func @run")
    checkout.source.write_text(f"// a comment\n\n{lines}")

    assert checkout.cached().steps == ()


def test_other_host_code_compiles_no_kernel(checkout: Checkout) -> None:
    added = """
  func.func @twice(%value: f32, %data: memref<?xf32, affine_map<(d) -> (d * 2)>>) -> f32 {
    cf.br ^next
  ^next:
    %sum = arith.addf %value, %value : f32
    return %sum : f32
  }
  func.func @run("""
    checkout.source.write_text(SOURCE.replace("\n  func.func @run(", added))

    assert checkout.cached().steps == ("host", "object")


def test_another_kernel_compiles_that_one_only(checkout: Checkout) -> None:
    checkout.source.write_text(SOURCE.replace("arith.mulf", "arith.addf"))

    build = checkout.cached("--why-rebuilt")

    assert build.steps == ("image sm_80", "object")


def test_why_rebuilt_names_what_changed(checkout: Checkout) -> None:
    first = checkout.cached("--why-rebuilt")
    checkout.source.write_text(f"// a comment\n{SOURCE}")
    second = checkout.cached("--why-rebuilt", "-DTOKEN=secret", arch="sm_80,sm_90")
    same = checkout.cached("--why-rebuilt", "-DTOKEN=secret", arch="sm_80,sm_90")

    note = "mlir-offload: note: k.o: "
    assert first.stderr == f"{note}no earlier build of it is on record\n"
    assert second.stderr.splitlines() == [
        f"{note}input changed: k.mlir",
        f"{note}flag added: --offload-arch=sm_90",
        f"{note}flag added: -DTOKEN",
    ]
    assert same.stderr == f"{note}nothing changed since it was built last\n"
    records = list((checkout.cache / "facts").rglob("builds/*.json"))
    assert records
    assert not [record for record in records if "secret" in record.read_text()]


def test_a_device_library_is_a_part_of_what_is_kept(checkout: Checkout) -> None:
    library = checkout.place / "l.bc"
    option = f"--device-lib=cuda={library.name}"
    write_library(library, 1)
    first = checkout.cached(option, "--why-rebuilt")
    assert first.steps.count("image sm_80") == 2
    assert checkout.cached(option, "--why-rebuilt").steps == ()
    write_library(library, 2)
    changed = checkout.cached(option, "--why-rebuilt")
    assert changed.steps.count("image sm_80") == 2
    assert "input changed: l.bc" in changed.stderr


def write_library(output: Path, number: int) -> None:
    cuda = f"--cuda-path={cuda_root()}"
    device = ("--target=nvptx64-nvidia-cuda", "-march=sm_80", cuda, "-nogpulib", "-O2")
    argv = ("/usr/lib/llvm-22/bin/clang", *device, "-c", "-emit-llvm", "-x", "c", "-", "-o", output)
    text = f"int number(void) {{ return {number}; }}\n"
    subprocess.run(argv, input=text, text=True, check=True)


@pytest.mark.parametrize(
    ("source", "option", "reason"),
    [
        (SOURCE, "-fno-gpu-rdc", "-fno-gpu-rdc"),
        (ATTACHED, "-O2", "attached"),
    ],
    ids=["final objects", "attached targets"],
)
def test_device_code_that_is_not_kept_is_named(
    source: str, option: str, reason: str, checkout: Checkout
) -> None:
    checkout.source.write_text(source)
    stderr = checkout.cached(option).stderr
    assert "the device code of k.mlir is compiled without ccache: " in stderr
    assert reason in stderr


@pytest.mark.llvm(19)
def test_another_release_of_llvm_finds_nothing_of_this_one(checkout: Checkout) -> None:
    build = checkout.cached("--llvm=19")

    assert build.steps == ("host", *KERNELS, "object")


def test_a_toolkit_is_known_by_its_content_not_by_its_place(
    checkout: Checkout, tmp_path: Path, toolkit: CudaToolkit
) -> None:
    environment = {"CUDA_PATH": str(tmp_path / "cuda")}
    for _, part in toolkit.installation.parts:
        place = tmp_path / "cuda" / part.relative_to(toolkit.root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(part)

    assert checkout.cached(environment=environment).steps == ()

    ptxas = tmp_path / "cuda" / "bin" / "ptxas"
    content = ptxas.read_bytes()
    ptxas.unlink()
    ptxas.write_bytes(content + b"\0")
    ptxas.chmod(0o755)

    assert checkout.cached(environment=environment).steps == KERNELS


def test_a_failing_step_says_what_it_says_without_a_cache_and_is_not_kept(
    checkout: Checkout,
) -> None:
    lines = """      %t = tensor.from_elements %by, %by : tensor<2xf32>
      %first = tensor.extract %t[%i] : tensor<2xf32>
      memref.store %first, %data[%i] : memref<?xf32>
      gpu.return"""
    checkout.source.write_text(SOURCE.replace("      gpu.return", lines, 1))
    plain = checkout.build("--offload-arch=sm_80", "--no-cache", status=1)
    first = checkout.cached(status=1)
    second = checkout.cached(status=1)

    assert plain.stderr.startswith("k.mlir:9:12: error: tensor.from_elements on tensors")
    assert first.stderr == second.stderr == plain.stderr
    assert first.steps == second.steps == ("image sm_80",)
    assert not checkout.object.exists()


def test_any_launcher_runs_the_steps(checkout: Checkout) -> None:
    checkout.cached()
    cached = checkout.object.read_bytes()
    build = checkout.build(
        "--offload-arch=sm_80", environment={"MLIR_OFFLOAD_LAUNCHER": str(checkout.launcher)}
    )

    assert build.steps == ("host", *KERNELS, "object")
    assert checkout.object.read_bytes() == cached


def test_sccache_runs_the_steps_and_keeps_none_of_them(checkout: Checkout, tmp_path: Path) -> None:
    checkout.cached()
    cached = checkout.object.read_bytes()
    port = free_port()
    place = {"SCCACHE_DIR": str(tmp_path / "kept"), "SCCACHE_SERVER_PORT": str(port)}
    serves = {"SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
    with running(("sccache",), place | serves) as server:
        wait_for_port(port, server)
        checkout.build("--offload-arch=sm_80", "--launcher=sccache", environment=place)
        words = ("sccache", "--show-stats", "--stats-format=json")
        shown = subprocess.run(words, env=os.environ | place, capture_output=True, check=True)
    stats = json.loads(shown.stdout)["stats"]

    assert checkout.object.read_bytes() == cached
    counts = ("compile_requests", "requests_not_cacheable", "requests_executed")
    assert [stats[name] for name in counts] == [4, 4, 0]


def test_a_launcher_that_fails_by_itself_is_named(checkout: Checkout) -> None:
    build = checkout.build("--offload-arch=sm_80", "--launcher=false", status=5)

    assert "a step fails under the launcher 'false' only" in build.stderr


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (["--cache"], {"PATH": "/nonexistent"}, "--cache: no program 'ccache'"),
        (["--launcher=no-such"], {}, "--launcher: no program 'no-such'"),
        ([], {"MLIR_OFFLOAD_LAUNCHER": "no-such"}, "MLIR_OFFLOAD_LAUNCHER: no program 'no-such'"),
    ],
    ids=["ccache", "option", "variable"],
)
def test_a_launcher_that_is_not_installed_is_an_error(
    checkout: Checkout, options: list[str], environment: dict[str, str], message: str
) -> None:
    build = checkout.build(*options, "--offload-arch=sm_80", status=3, environment=environment)

    assert message in build.stderr


STEP = ("--image-step", "-x", "cpp-output", "--offload-arch=sm_80", "-c", "k.mlir", "-o", "k.image")


def run_step(checkout: Checkout, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_PATH": str(checkout.toolkit)}
    return subprocess.run(
        [*checkout.command, *STEP, *options],
        cwd=checkout.place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_step_refuses_other_tools_than_those_of_the_build(checkout: Checkout) -> None:
    result = run_step(checkout, "--toolchain-id=0")

    assert result.returncode == 4
    assert "the tools here are not those of the build" in result.stderr
    assert not (checkout.place / "k.image").exists()


def test_a_step_names_the_device_library_that_it_took_in(
    checkout: Checkout, toolkit: CudaToolkit
) -> None:
    kernel = SOURCE[SOURCE.index("  gpu.module") : SOURCE.index("  func.func")]
    called = kernel.replace("arith.mulf %old, %by", "math.powf %old, %by")
    checkout.source.write_text(f"module {{\n{called}}}\n")
    result = run_step(checkout, "--kernel=scale", "-MD", "-MF", "k.d")

    assert result.returncode == 0, result.stderr
    rule = (checkout.place / "k.d").read_text().replace("\\\n", " ")
    assert rule.split() == ["k.image:", "k.mlir", str(toolkit.libdevice)]


def test_a_step_for_a_kernel_that_is_not_there_fails(checkout: Checkout) -> None:
    kernel = SOURCE[SOURCE.index("  gpu.module") : SOURCE.index("  func.func")]
    checkout.source.write_text(f"module {{\n{kernel}}}\n")
    result = run_step(checkout, "--kernel=other")

    assert result.returncode == 2
    assert "the input defines no kernel other" in result.stderr


@dataclass(frozen=True)
class WholeCalls:
    """Calls behind ccache as docs/howto/cache.md has them; `started` logs each start of the driver."""

    checkout: Checkout
    program: Path
    started: Path
    flags: tuple[str, ...]

    def key(self, **environment: str) -> str:
        return subprocess.run(
            [self.program, "--print-cache-key", *self.flags],
            cwd=self.checkout.place,
            env={**os.environ, **self._places, **environment},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def build(self, key: str = "", status: int = 0, **environment: str) -> str:
        """Compile, with the key for these flags and this environment; return what was said."""
        self.checkout.object.unlink(missing_ok=True)
        chosen = key or self.key(**environment)
        self.started.write_text("")
        settings = {
            "MLIR_OFFLOAD_CACHE": "off",
            "CCACHE_COMPILERTYPE": "other",
            "CCACHE_COMPILERCHECK": f"string:{chosen}",
        }
        done = self.checkout.build(
            *self.flags, status=status, environment={**settings, **environment}
        )
        return done.stderr

    @property
    def was_started(self) -> bool:
        return bool(self.started.read_text())

    @property
    def _places(self) -> dict[str, str]:
        cache = self.checkout.cache / "facts"
        return {"CUDA_PATH": str(self.checkout.toolkit), "XDG_CACHE_HOME": str(cache)}


@pytest.fixture
def whole(checkout: Checkout, tmp_path: Path) -> WholeCalls:
    program, started = tmp_path / "mlir-offload", tmp_path / "started"
    program.write_text(f'#!/bin/sh\necho x >>{started}\nexec {" ".join(checkout.command)} "$@"\n')
    program.chmod(0o755)
    words = ("ccache", str(program), "-x", "cpp-output", "-o", "k.o")
    flags = ("--llvm=22", "--pipeline=p.yaml", "--device-lib=hip=l.bc")
    (checkout.place / "p.yaml").write_text("passes: [canonicalize]\n")
    (checkout.place / "l.bc").write_bytes(b"of another kind")
    return WholeCalls(replace(checkout, command=words), program, started, flags)


def set_pipeline(place: Path) -> None:
    (place / "p.yaml").write_text("passes: [cse]\n")


def set_library(place: Path) -> None:
    (place / "l.bc").write_bytes(b"another")


def set_level(place: Path) -> None:
    (place / "mlir-offload.toml").write_text("opt-level = 1\n")


def test_a_whole_call_behind_ccache_is_started_for_every_change(whole: WholeCalls) -> None:
    whole.build(MLIR_OFFLOAD_ARCH="sm_80")
    made = whole.checkout.object.read_bytes()
    assert whole.was_started
    whole.build(MLIR_OFFLOAD_ARCH="sm_80")
    assert not whole.was_started
    assert whole.checkout.object.read_bytes() == made
    keys = {whole.key(MLIR_OFFLOAD_ARCH="sm_80"), whole.key(MLIR_OFFLOAD_ARCH="sm_90")}
    keys.add(whole.key(MLIR_OFFLOAD_ARCH="sm_80", SOURCE_DATE_EPOCH="9"))
    for number, change in enumerate((set_pipeline, set_library, set_level)):
        change(whole.checkout.place)
        keys.add(whole.key(MLIR_OFFLOAD_ARCH="sm_80"))
        assert len(keys) == 4 + number
    whole.build(MLIR_OFFLOAD_ARCH="sm_90")
    assert whole.was_started
    assert whole.checkout.object.read_bytes() != made


def test_a_whole_call_with_another_key_makes_nothing(whole: WholeCalls) -> None:
    # Nothing is stored for this level.
    whole = replace(whole, flags=(*whole.flags, "-O1"))
    error = whole.build(whole.key(MLIR_OFFLOAD_ARCH="sm_80"), 4, MLIR_OFFLOAD_ARCH="sm_90")
    assert "CCACHE_COMPILERCHECK is not the key of this call" in error
    assert not whole.checkout.object.exists()
    source = whole.checkout.source
    attached = '#nvvm.target<chip = "sm_80", link = ["l.bc"]>'
    source.write_text(f"gpu.module @k [{attached}] {{}}\n")
    assert "ccache does not see the device library l.bc" in whole.build("", 2)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_key_starts_no_tool_of_llvm(
    whole: WholeCalls, tmp_path: Path, fresh_mlir_offload: list[str]
) -> None:
    whole.key(MLIR_OFFLOAD_ARCH="sm_80")
    trace = tmp_path / "trace"
    follow = f"exec strace -f -qq -e trace=execve -o {trace} {' '.join(fresh_mlir_offload)}"
    whole.program.write_text(f'#!/bin/sh\n{follow} "$@"\n')
    whole.key(MLIR_OFFLOAD_ARCH="sm_80")
    started = [line for line in trace.read_text().splitlines() if " = 0" in line]
    # The driver itself.
    assert len(started) == 1, started


@pytest.mark.parametrize(
    "server", [cache_servers.redis, cache_servers.nginx, cache_servers.directory]
)
def test_a_second_checkout_takes_all_from_a_remote_store(
    checkout: Checkout, tmp_path: Path, server: Server
) -> None:
    (tmp_path / "server").mkdir()
    with server(tmp_path / "server") as store:
        # What is found in the local cache is written to the store too.
        checkout.cached(environment={"CCACHE_REMOTE_STORAGE": store.url, "CCACHE_RESHARE": "1"})
        first = checkout.object.read_bytes()
        checkout.object.unlink()
        empty = {"CCACHE_REMOTE_STORAGE": store.url, "CCACHE_DIR": str(tmp_path / "empty")}
        second = checkout.cached(environment=empty)

    assert second.steps == ()
    assert checkout.object.read_bytes() == first


@pytest.mark.parametrize(
    ("server", "fault"), [(cache_servers.redis, "KILL"), (cache_servers.nginx, "STOP")]
)
def test_a_store_that_ends_or_hangs_in_the_middle_costs_a_step_one_wait(
    checkout: Checkout, tmp_path: Path, server: Server, fault: str
) -> None:
    statistics, place = tmp_path / "statistics", tmp_path / "server"
    place.mkdir()
    checkout.cached()
    expected = checkout.object.read_bytes()
    with server(place) as store:
        environment = {
            "CCACHE_DIR": str(tmp_path / "empty"),
            "CCACHE_REMOTE_STORAGE": f"{store.url}|operation-timeout=100",
            "CCACHE_STATSLOG": str(statistics),
            "STORE_FAULT": f"kill -s {fault} {store.pid}",
        }
        build = checkout.cached(environment=environment)

    assert build.steps == ("host", *KERNELS, "object")
    assert build.stderr == ""
    assert checkout.object.read_bytes() == expected
    # ccache writes a paragraph for each of its calls.
    calls = [call.splitlines() for call in statistics.read_text().split("# ")[1:]]
    # It also looks the whole call up, and keeps that.
    assert len(calls) == len(build.steps) + 2
    failures = [sum(line in STORE_FAILURES for line in call) for call in calls]
    assert max(failures) == 1
