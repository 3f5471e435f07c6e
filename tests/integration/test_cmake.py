"""MLIR as a language of CMake, with the CMake of the system and the newest, and each generator."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.cuda_tools import cuda_root

pytestmark = pytest.mark.llvm(22)

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = Path(__file__).with_name("cmake")
KERNEL = (PROJECTS / "kernel.mlir").read_text(encoding="utf-8")
CUDA = cuda_root()
SYSTEM, NEWEST = Path("/usr/bin/cmake"), Path(sys.executable).with_name("cmake")
# The compiler is taken as it is, without the test of it.
FORCED = "-DCMAKE_MLIR_COMPILER_FORCED=1"


@dataclass(frozen=True, slots=True)
class Workshop:
    """A CMake, and a directory with an `mlir-offload` on PATH that notes each call."""

    root: Path
    cmake: Path = NEWEST

    @property
    def log(self) -> Path:
        return self.root / "calls"

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        ours = {"PATH": path, "MLIROffload_DIR": str(ROOT / "toolchain" / "cmake")}
        return subprocess.run(
            command,
            cwd=self.root,
            env={**os.environ, **ours, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def check(self, *command: str | Path, **environment: str) -> str:
        """Return what a command prints that must succeed."""
        result = self.run(*command, **environment)
        assert result.returncode == 0, result.stdout
        return result.stdout

    def source(self, name: str, *kernels: str) -> Path:
        """Copy a project here, with a `.mlir` file for each function, which squares on the device."""
        directory = self.root / name
        shutil.copytree(PROJECTS / name, directory)
        for kernel in kernels:
            text = KERNEL.replace("@kernel", f"@{kernel}")
            (directory / f"{kernel}.mlir").write_text(text, encoding="utf-8")
        return directory

    def configure(
        self, source: Path, *options: str, generator: str = "Ninja", archs: str = "host"
    ) -> Path:
        """Configure a project; the check of the compiler has a test of its own."""
        build = self.root / f"build-{source.name}"
        devices = f"-DMLIR_OFFLOAD_ARCHITECTURES={archs}"
        self.check(
            self.cmake, "-S", source, "-B", build, "-G", generator, devices, FORCED, *options
        )
        return build

    def build(self, build: Path, *options: str) -> str:
        return self.check(self.cmake, "--build", build, "--parallel", "2", "--verbose", *options)

    def calls(self) -> list[str]:
        """Return how mlir-offload was called since the last time, in the order of the outputs."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(lines, key=lambda line: line.partition(" -o ")[2])

    def outputs(self) -> list[str]:
        """Return the names of the files that mlir-offload has made since the last time."""
        return [Path(line.partition(" -o ")[2].split()[0]).name for line in self.calls()]


def open_workshop(root: Path, driver: Sequence[str], cmake: Path = NEWEST) -> Workshop:
    if not cmake.exists():
        pytest.skip(f"{cmake} is not installed")
    workshop = Workshop(root, cmake)
    compiler = root / "bin" / "mlir-offload"
    compiler.parent.mkdir()
    note = f"printf '%s\\n' \"$*\" >>'{workshop.log}'"
    compiler.write_text(f'#!/bin/sh\n{note}\nexec {shlex.join(driver)} "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    return workshop


@pytest.fixture
def workshop(tmp_path: Path, mlir_offload: list[str]) -> Workshop:
    return open_workshop(tmp_path, mlir_offload)


def binary(build: Path, name: str) -> Path:
    """Return a program of the build tree: a generator for several configurations nests it."""
    nested = build / "Debug" / name
    return nested if nested.exists() else build / name


def runpath(file: Path) -> list[str]:
    dynamic = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True)
    found = re.search(r"runpath: \[(.*)\]", dynamic.stdout)
    return found[1].split(":") if found else []


@pytest.mark.parametrize(
    ("cmake", "generator"),
    [(SYSTEM, "Unix Makefiles"), (NEWEST, "Ninja Multi-Config")],
)
def test_a_project_is_built_rebuilt_where_it_must_be_installed_and_used_by_another(
    tmp_path: Path, mlir_offload: list[str], cmake: Path, generator: str
) -> None:
    workshop = open_workshop(tmp_path, mlir_offload, cmake)
    source = workshop.source("project", "archived", "shared")
    prefix = tmp_path / "installed with spaces"
    # Once without FORCED: the compiler is checked.
    check = "-DCMAKE_MLIR_COMPILER_FORCED=0" if cmake == SYSTEM else FORCED
    debug = (check, "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_INSTALL_PREFIX={prefix}")
    build = workshop.configure(source, *debug, generator=generator)
    workshop.calls()

    workshop.build(build)
    assert workshop.check(binary(build, "program")) == "9 16\n"
    made = ["archived.mlir.o", "libshared.so.1.2", "program", "shared.mlir.o"]
    assert sorted(workshop.outputs()) == made

    again = workshop.build(build)
    assert workshop.calls() == []
    assert not re.search("Building|Linking|^\\[1/", again, re.MULTILINE), again

    (source / "archived.mlir").touch()
    workshop.build(build)
    assert sorted(workshop.outputs()) == ["archived.mlir.o", "program"]

    workshop.check(cmake, "--install", build, "--config", "Debug")
    found = {"LD_LIBRARY_PATH": str(prefix / "lib")}
    assert workshop.check(prefix / "bin" / "program", **found) == "9 16\n"
    # An empty entry would be the current directory of whoever runs the program.
    assert "" not in runpath(prefix / "bin" / "program") + runpath(prefix / "lib" / "libshared.so")

    consumer = workshop.configure(
        workshop.source("consumer"), f"-DCMAKE_PREFIX_PATH={prefix}", generator=generator
    )
    workshop.calls()
    workshop.build(consumer)
    assert workshop.check(binary(consumer, "with_archive")) == "25\n"
    assert workshop.check(binary(consumer, "with_shared")) == "36\n"
    assert workshop.outputs() == ["with_archive"]


def test_objects_modules_and_cxx_are_linked_by_response_files(workshop: Workshop) -> None:
    source = workshop.source("variety", "object", "module", "own")
    build = workshop.configure(source, "-DCMAKE_NINJA_FORCE_RESPONSE_FILE=1")
    workshop.calls()
    workshop.build(build)
    assert workshop.check(build / "program") == "49 64 81\n"
    assert all("@" in line for line in workshop.calls())


def test_a_project_without_mlir_fetches_one_with_kernels(workshop: Workshop) -> None:
    source = workshop.source("fetch")
    text = KERNEL.replace("@kernel", "@square")
    (source / "kernels" / "square.mlir").write_text(text, encoding="utf-8")
    build = workshop.configure(source)
    workshop.build(build)
    assert workshop.check(build / "app") == "18\n"
    call = f"import ctypes; print(ctypes.CDLL('{build / 'tool' / 'libtool.so'}').fourth(3))"
    assert workshop.check(sys.executable, "-c", call) == "81\n"

    refused = workshop.run(workshop.cmake, "--build", build, "--target", "direct")
    assert refused.returncode != 0
    said = " ".join(refused.stdout.split())
    assert "square.mlir: MLIR is not enabled in the directory of this target." in said
    assert "enable_language(MLIR)" in said


@pytest.mark.parametrize("name", ["python-cmake", "python-setuptools"])
def test_a_python_package_with_kernels_is_built_as_a_wheel(workshop: Workshop, name: str) -> None:
    shutil.copytree(ROOT / "docs" / "examples" / name, workshop.root / name)
    # Its backend does the same for pip, which starts it once more for the metadata.
    make = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check")
    generator = {"CMAKE_GENERATOR": "Ninja", "MLIR_OFFLOAD_ARCH": "host", "CMAKE_ARGS": FORCED}
    workshop.check(*make, f"./{name}", "--outdir", "wheels", **generator)
    wheel = next((workshop.root / "wheels").glob("scaling-0.1.0-py3-none-*.whl"))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(workshop.root / "installed")
    use = "import numpy, scaling; x = numpy.float32([1, 2]); scaling.scale(10, x); print(*x)"
    python = {"PYTHONPATH": f"{workshop.root / 'installed'}:{os.environ.get('PYTHONPATH', '')}"}
    assert workshop.check(sys.executable, "-c", use, **python) == "10.0 20.0\n"


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_what_the_compiler_read_is_a_dependency(workshop: Workshop, generator: str) -> None:
    if not CUDA.exists():
        pytest.skip("CUDA 13.0 is not installed")
    source = workshop.source("libdevice", "kernel")
    toolkit = workshop.root / "cuda"
    library = toolkit / "nvvm" / "libdevice" / "libdevice.10.bc"
    library.parent.mkdir(parents=True)
    shutil.copy(CUDA / "nvvm" / "libdevice" / "libdevice.10.bc", library)
    for part in CUDA.iterdir():
        if part.name != "nvvm":
            (toolkit / part.name).symlink_to(part)
    flags = f"-DCMAKE_MLIR_FLAGS=--cuda-path={toolkit}"
    build = workshop.configure(source, flags, generator=generator, archs="sm_90")
    workshop.calls()
    workshop.build(build)
    assert sorted(workshop.outputs()) == ["exponential.mlir.o", "kernel.mlir.o"]
    library.touch()
    workshop.build(build)
    assert workshop.outputs() == ["exponential.mlir.o"]


def commands(workshop: Workshop, build: Path, config: str) -> dict[str, str]:
    """Return the command line of each MLIR object of a configuration, by its target."""
    lines = workshop.check("ninja", "-C", build, "-f", f"build-{config}.ninja", "-t", "commands")
    found = re.findall(r"^.*CMakeFiles/(\w+)\.dir/\w+/kernel\.mlir\.o -c .*$", lines, re.MULTILINE)
    texts = re.findall(r"^.*/kernel\.mlir\.o -c .*$", lines, re.MULTILINE)
    return dict(zip(found, texts, strict=True))


def test_options_come_from_configuration_properties_and_generator_expressions(
    workshop: Workshop,
) -> None:
    source = workshop.source("flags", "kernel")
    given = ("-DCMAKE_MLIR_COMPILER_LAUNCHER=env;LAUNCHED=1;WORDS=a b", "-DCMAKE_LINKER_TYPE=BFD")
    build = workshop.configure(source, *given, generator="Ninja Multi-Config", archs="sm_75")
    debug, release = (commands(workshop, build, config) for config in ("Debug", "Release"))
    assert set(debug) == {"plain", "two_devices", "default_device", "mixed", "variable_device"}
    assert all(" -O0 -g " in line for line in debug.values())
    assert all(" -O3 " in line and " -g " not in line for line in release.values())
    assert all(line.startswith('env LAUNCHED=1 "WORDS=a b" ') for line in debug.values())
    archs = {target: re.findall(r"--offload-arch=(\S+)", line) for target, line in debug.items()}
    assert archs == {
        "plain": ["sm_75"],
        "mixed": ["sm_75"],
        "two_devices": ["sm_90,host"],
        "default_device": [],
        "variable_device": ["sm_80"],
    }
    assert "-ftime-report" in debug["mixed"]
    assert "-fstrict-aliasing" not in debug["mixed"]
    assert "DEFINED" not in debug["mixed"]


def test_the_devices_that_the_driver_chooses_are_said_once_and_kept(workshop: Workshop) -> None:
    source = workshop.source("flags", "kernel")
    configure = (NEWEST, "-S", source, "-B", workshop.root / "build", "-G", "Ninja")
    said = re.findall(
        r"^-- MLIR_OFFLOAD_ARCHITECTURES: (\S+) \(", workshop.check(*configure), re.MULTILINE
    )
    assert len(said) == 1
    assert "MLIR_OFFLOAD_ARCHITECTURES:" not in workshop.check(*configure)
    built = workshop.build(workshop.root / "build", "--target", "plain")
    assert f"--offload-arch={said[0]}" in built
    assert "mlir-offload: note" not in built


def test_a_toolchain_file_chooses_compiler_flags_and_devices(workshop: Workshop) -> None:
    compiler = workshop.root / "bin" / "mlir-offload"
    toolchain = workshop.root / "toolchain.cmake"
    toolchain.write_text(
        "set(CMAKE_SYSTEM_NAME Linux)\n"
        "set(CMAKE_SYSTEM_PROCESSOR x86_64)\n"
        f'set(CMAKE_MLIR_COMPILER "{compiler};--llvm=22")\n'
        "set(CMAKE_MLIR_FLAGS_INIT -g)\n"
        "set(MLIR_OFFLOAD_ARCHITECTURES host)\n"
        "set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)\n",
        encoding="utf-8",
    )
    source, build = workshop.source("flags", "kernel"), workshop.root / "build"
    file = f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"
    workshop.check(NEWEST, "-S", source, "-B", build, "-G", "Ninja Multi-Config", file)
    assert any(re.match(r"--llvm=22 -g --offload-arch=host -c ", line) for line in workshop.calls())
    command = commands(workshop, build, "Release")["plain"]
    assert f"{compiler} --llvm=22 -g -O3 --offload-arch=host " in command


def test_the_environment_names_compiler_and_flags(workshop: Workshop) -> None:
    source = workshop.source("flags", "kernel")
    other = workshop.root / "other name"
    shutil.move(workshop.root / "bin" / "mlir-offload", other)
    build = workshop.root / "build"
    configure = (NEWEST, "-S", source, "-B", build, "-G", "Ninja Multi-Config", FORCED)
    workshop.check(*configure, MLIROFFLOAD=f"'{other}' --llvm=19", MLIROFFLOADFLAGS="-g")
    command = commands(workshop, build, "Release")["default_device"]
    assert f'"{other}" --llvm=19 -g -O3 ' in command


@pytest.mark.parametrize(
    ("option", "environment", "said"),
    [
        pytest.param(
            "-DCMAKE_MLIR_COMPILER=no-such-compiler",
            {},
            r'there is no program\s+"no-such-compiler".*MLIROFFLOAD',
            id="no compiler",
        ),
        pytest.param(
            "-DCMAKE_MLIR_COMPILER=/bin/true",
            {},
            r'"/bin/true"\s+is not mlir-offload: with --version it ends with status 0',
            id="another program",
        ),
        pytest.param(
            "",
            {"MLIR_OFFLOAD_LLVM": "/nonexistent"},
            r"cannot make a program with a kernel \(status 3\).*no LLVM installation there\s+hint: apt",
            id="no LLVM",
        ),
        pytest.param(
            "-DMLIR_OFFLOAD_ARCHITECTURES=sm_90;sm_999",
            {},
            r"mlir-offload --offload-arch=sm_90,sm_999.*\(status 4\).*does not know sm_999",
            id="no such device",
        ),
        pytest.param(
            "-DCMAKE_MLIR_COMPILER_TARGET=aarch64-linux-gnu",
            {},
            r"--target=aarch64-linux-gnu: host code is for this machine",
            id="another machine",
        ),
    ],
)
def test_configuring_ends_with_what_is_missing(
    workshop: Workshop, option: str, environment: dict[str, str], said: str
) -> None:
    (workshop.root / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        "find_package(MLIROffload REQUIRED)\n"
        "project(refused LANGUAGES MLIR)\n",
        encoding="utf-8",
    )
    options = [option] if option else []
    result = workshop.run(NEWEST, "-B", "build", "-G", "Ninja", *options, **environment)
    assert result.returncode != 0
    assert re.search(said, result.stdout, re.DOTALL), result.stdout


# The wheels' nvcc does not find the wheels' libraries: only a toolkit has a whole CUDA language.
if (CUDA / "lib64").is_dir():

    def test_a_program_of_cuda_by_nvcc_and_mlir_runs(workshop: Workshop) -> None:
        cuda = (f"-DCMAKE_CUDA_COMPILER={CUDA / 'bin' / 'nvcc'}", "-DCMAKE_CUDA_ARCHITECTURES=90")
        build = workshop.configure(workshop.source("cuda", "own"), *cuda, archs="sm_90;host")
        workshop.build(build)
        # There may be no GPU here for the part in CUDA C++.
        output = workshop.check(build / "program", MLIR_OFFLOAD_DEVICE="host")
        assert output in {"100 -1\n", "100 42\n"}
        symbols = subprocess.run(
            ["nm", build / "program"], capture_output=True, text=True, check=True
        )
        assert "__device_stub__" in symbols.stdout
        assert "__nv_cudaEntityRegisterCallback" in symbols.stdout


def test_the_example_is_configured_built_and_run_by_its_preset(workshop: Workshop) -> None:
    example = workshop.root / "example"
    shutil.copytree(ROOT / "docs" / "examples" / "cmake", example)
    output = workshop.check("env", "-C", example, SYSTEM, "--workflow", "--preset", "cpu")
    assert "scale: ok, 1000 elements" in output


def test_pkg_config_finds_the_header(workshop: Workshop, mlir_offload: list[str]) -> None:
    directory = workshop.check(*mlir_offload, "--pkg-config-dir").strip()
    flags = workshop.check("pkg-config", "--cflags", "mlir-offload", PKG_CONFIG_PATH=directory)
    source = workshop.root / "source.c"
    source.write_text(
        "#include <mlir_offload.h>\nvoid *f(void) { return mlir_offload_get_stream(); }\n"
    )
    workshop.check("cc", "-fsyntax-only", "-Werror", *flags.split(), source)
