"""Equal inputs give equal bytes: everything is built twice, in places that have nothing in common."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from support.warm_driver import warm_driver

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SOURCES = ("saxpy.mlir", "square.mlir", "main.c")
RELEASES = [
    pytest.param(major, marks=pytest.mark.llvm(major), id=f"llvm{major}") for major in (19, 22)
]
TARGETS = ("sm_90", "sm_80", "gfx90a", "spirv64", "host")
# What is built, in this order, by its name: form of device code, arguments behind -g.
BUILDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "bitcode": {
        "bitcode.o": ("--device-code=bitcode", "-c", "saxpy.mlir"),
        "bitcode": ("--device-code=bitcode", "bitcode.o"),
    },
    "object": {"object.o": ("--device-code=object", "-c", "saxpy.mlir")},
    "at once": {"saxpy": ("--device-code=bitcode", "saxpy.mlir")},
    "with C": {"square": ("--device-code=object", "square.mlir", "main.c")},
    "library": {"lib.so": ("--device-code=bitcode", "-shared", "square.mlir")},
    "bitcode of all": {"all.bc": ("--device-code=bitcode", "-c", "-emit-llvm", "square.mlir")},
    "text of all": {"all.ll": ("--device-code=object", "-S", "-emit-llvm", "square.mlir")},
}


# What else is made of a program for all of them, by its name.
OUTPUTS: Mapping[tuple[str, ...], Sequence[str]] = {
    ("b.mob",): ("bundle", "--offload-arch=sm_80,host", "saxpy.mlir", "-o", "b.mob"),
    ("final.o", "lib.h", "lib.tar", "m.json"): (
        *("-c", "-fno-gpu-rdc", "--offload-arch=host", "square.mlir", "-o", "final.o"),
        *("--emit-header=lib.h", "--reproduce=lib.tar", "--manifest=m.json"),
    ),
    ("made.html",): ("inspect", "--html=made.html", "made.o"),
    ("build/default/lib/both.a",): ("build", "-j1"),
}


def archs_of(release: int, form: Sequence[str], targets: Sequence[str]) -> str:
    """Return the targets that a release of LLVM makes this form of device code for.

    Two GPUs of one kind, whose order must not matter, are in the builds of one source. Outputs
    that contain the device code of an object in another form are for one GPU.
    """
    cannot = {"gfx90a", "spirv64"} if release < 22 else set[str]()
    if "square.mlir" in form or "-g0" in form:
        cannot.add("sm_80")
    if "-g0" in form:
        cannot.add("gfx90a")
    if "--device-code=object" in form:
        cannot.add("spirv64")
    if "-emit-llvm" in form:
        cannot |= {"gfx90a", "spirv64"}
    if "-shared" in form:
        cannot |= {"gfx90a", "sm_90"}
    return ",".join(target for target in targets if target not in cannot)


@dataclass(frozen=True)
class Place:
    """One of two machines, as far as one machine can be two."""

    directory: Path
    temporary: Path
    targets: tuple[str, ...]
    jobs: int
    user: str
    seconds: int
    compiler: Sequence[str]

    def prepare(self) -> None:
        self.temporary.mkdir(parents=True)
        self.directory.mkdir(parents=True)
        for name in SOURCES:
            shutil.copy(EXAMPLES / name, self.directory)
            os.utime(self.directory / name, (self.seconds, self.seconds))

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "USER": self.user,
            "LOGNAME": self.user,
            "HOME": str(self.temporary),
            **start_variables(self.jobs),
            "SOURCE_DATE_EPOCH": "1000000",
        }

    def build(self, command: Sequence[str]) -> bytes:
        """Run a compiler here and return the output that -o names; all words are formatted."""
        given = [
            word.format(here=self.directory, archs=self.archs(command), jobs=self.jobs)
            for word in command
        ]
        self.run(given)
        return self.content(given[-1])

    def run(self, words: Sequence[str]) -> str:
        """Run the compiler here and return what it prints."""
        argv = [*self.compiler, *words]
        return subprocess.run(
            argv,
            cwd=self.directory,
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def archs(self, command: Sequence[str]) -> str:
        release = next((word[7:] for word in command if word.startswith("--llvm=")), "22")
        return archs_of(int(release), command, self.targets)

    def content(self, name: str) -> bytes:
        content = (self.directory / name).read_bytes()
        assert os.fsencode(self.temporary) not in content
        return content


def start_variables(jobs: int) -> dict[str, str]:
    """Return the variables of a place that Python reads when it starts."""
    return {"PYTHONHASHSEED": str(jobs), "TZ": f"UTC{jobs:+}"}


@pytest.fixture(scope="module")
def compilers(fresh_mlir_offload: list[str]) -> Iterator[dict[int, list[str]]]:
    """Return the compiler of each place, by its number of jobs."""
    with ExitStack() as stack:
        yield {
            jobs: stack.enter_context(warm_driver(fresh_mlir_offload, **start_variables(jobs)))
            for jobs in (1, 3)
        }


@pytest.fixture
def places(tmp_path: Path, compilers: dict[int, list[str]]) -> tuple[Place, Place]:
    first = Place(tmp_path / "a", tmp_path / "t1", TARGETS, 1, "ada", 10**9, compilers[1])
    second = Place(
        tmp_path / "a longer" / "way" / "b",
        tmp_path / "t2" / "further",
        TARGETS[::-1],
        3,
        "grace",
        10**9 + 12345,
        compilers[3],
    )
    for place in (first, second):
        place.prepare()
    return first, second


def both(places: tuple[Place, Place], command: Sequence[str]) -> list[bytes]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda place: place.build(command), places))


def cases() -> list[object]:
    """Return every build with line tables of the newest release, and a choice of the others."""
    chosen = [(22, "-g0" if name == "at once" else "-g", name) for name in BUILDS]
    chosen += [(19, "-g", "text of all"), (19, "-g0", "at once")]
    return [
        pytest.param(*case, marks=pytest.mark.llvm(case[0]), id="-".join(map(str, case)))
        for case in chosen
    ]


@pytest.mark.parametrize(("release", "debug", "name"), cases())
def test_a_build_gives_the_same_bytes_in_another_place(
    places: tuple[Place, Place], release: int, debug: str, name: str
) -> None:
    options = (
        f"--llvm={release}",
        "--offload-arch={archs}",
        "-j{jobs}",
        "-ffile-prefix-map={here}=/src",
    )
    for output, words in BUILDS[name].items():
        first, second = both(places, [*options, debug, *words, "-o", output])
        assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest(), output


@pytest.mark.llvm(22)
def test_every_other_output_is_the_same_in_another_place(places: tuple[Place, Place]) -> None:
    manifest = "archs: host\nmodules: [square.mlir]\ntargets:\n  both.a: {kind: static, inputs: [square.mlir, main.c]}\n"
    for place in places:
        (place.directory / "offload.yaml").write_text(manifest)
    both(places, ["-c", "--offload-arch=sm_90,host", "square.mlir", "-o", "made.o"])
    for names, command in OUTPUTS.items():
        for place in places:
            place.run(command)
        for name in names:
            first, second = (place.content(name) for place in places)
            assert first == second, name
    printed = [place.run(("inspect", "--json", "--code-hashes", "made.o")) for place in places]
    assert printed[0] == printed[1]


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("option", "kind"), [("-ffile-prefix-map", ()), ("-fdebug-prefix-map", ("-c",))]
)
def test_an_absolute_path_leaves_no_trace_where_it_is_mapped(
    places: tuple[Place, Place], option: str, kind: tuple[str, ...]
) -> None:
    arguments = [
        "-g",
        *kind,
        "--device-code=object",
        "{here}/saxpy.mlir",
        f"{option}={{here}}=/src",
        "-o",
        "out",
    ]
    first, second = both(places, ["--offload-arch={archs}", *arguments])
    assert first == second
    for place in places:
        assert os.fsencode(place.directory) not in first
    assert b"/src" in first


ASSERTING = """\
func.func @f(%n: index, %m: memref<?xf32>, %value: f32) {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    %inside = arith.cmpi ult, %bx, %n : index
    cf.assert %inside, "out of range"
    memref.store %value, %m[%bx] : memref<?xf32>
    gpu.terminator
  }
  return
}
"""


@pytest.mark.parametrize("release", RELEASES)
def test_the_file_that_an_assertion_names_is_mapped_too(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    source = tmp_path / "asserting.mlir"
    source.write_text(ASSERTING)
    command = [*mlir_offload, f"--llvm={release}", "--offload-arch=host", "-c", str(source)]
    for options, is_there in (((), True), ((f"-ffile-prefix-map={tmp_path}/=",), False)):
        subprocess.run([*command, *options, "-o", tmp_path / "a.o"], check=True)
        content = (tmp_path / "a.o").read_bytes()
        assert b"asserting.mlir" in content
        assert (os.fsencode(tmp_path) in content) == is_there


@pytest.mark.llvm(22)
def test_an_error_names_the_file_that_the_user_named(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "bad.mlir"
    # It is read, split, and only then found wanting.
    kind = "tensor<4xf32>"
    source.write_text(f"func.func @f(%t: {kind}) -> {kind} {{\n  return %t : {kind}\n}}\n")
    command = [
        *mlir_offload,
        "--offload-arch=host",
        "--pipeline=none",
        "-c",
        str(source),
        f"-ffile-prefix-map={tmp_path}=/src",
    ]
    result = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith(f"{source}:"), result.stderr


@pytest.mark.llvm(22)
def test_the_time_that_is_written_is_that_of_the_environment(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "when.c").write_text("const char *when = __DATE__;")

    def run(time: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*mlir_offload, "-c", "when.c"],
            cwd=tmp_path,
            env={**os.environ, "SOURCE_DATE_EPOCH": time},
            check=False,
            capture_output=True,
            text=True,
        )

    assert run("86400").returncode == 0
    assert b"Jan  2 1970" in (tmp_path / "when.o").read_bytes()
    for wrong in ("yesterday", "-1", "1" * 20):
        refused = run(wrong)
        assert refused.returncode == 2
        assert f"SOURCE_DATE_EPOCH is '{wrong}'" in refused.stderr


@cache
def digest(path: Path) -> str:
    """Return the hash of a file: the tools and their libraries have hundreds of megabytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest_of(place: Path, command: Sequence[str | Path]) -> dict[str, object]:
    subprocess.run([*command, "--manifest=m.json"], cwd=place, check=True)
    loaded = json.loads((place / "m.json").read_text())
    schema = json.loads((ROOT / "driver" / "data" / "manifest.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(loaded, schema)
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "saxpy.mlir", "--offload-arch=sm_80"),
        ("square.mlir", "main.c", "-MD", "--offload-arch=host", "-o", "app"),
        ("-S", "-emit-llvm", "square.mlir", "main.c", "--offload-arch=sm_80,host"),
    ],
    ids=["object", "program", "several"],
)
def test_the_manifest_says_what_went_in_and_what_came_out(
    mlir_offload: list[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is configured is an argument, too.
    monkeypatch.delenv("MLIR_OFFLOAD_MARCH", raising=False)
    for name in SOURCES:
        shutil.copy(EXAMPLES / name, tmp_path)
    manifest = manifest_of(tmp_path, [*mlir_offload, *arguments])
    predicate = manifest["predicate"]
    assert isinstance(predicate, dict)
    definition = predicate["buildDefinition"]
    assert definition["externalParameters"]["arguments"] == [*arguments, "--manifest=m.json"]
    outputs = {row["name"] for row in manifest["subject"]}  # type: ignore[attr-defined]  # JSON
    made = {path.name for path in tmp_path.iterdir()} - {*SOURCES, "m.json"}
    byproducts = {row["name"] for row in predicate["runDetails"]["byproducts"]}
    assert outputs | byproducts == made
    rows = [*manifest["subject"], *definition["resolvedDependencies"]]  # type: ignore[misc]  # JSON
    for row in rows:
        path = Path(row["uri"].removeprefix("file://")) if "uri" in row else tmp_path / row["name"]
        assert row["digest"]["sha256"] == digest(path)
    names = {row["name"]: row["annotations"]["role"] for row in rows}
    for name in set(SOURCES) & set(arguments):
        assert names[name] == "input"
    assert names["mlir-opt"] == names["clang"] == "tool"
    assert ("ptxas" in names) == ("sm_80" in " ".join(arguments))
    assert ("/usr/include/stdio.h" in names) == ("main.c" in arguments)
    files = {Path(name).name for name in names}
    assert any(name.startswith("libomptarget") for name in files) == ("app" in arguments)


@pytest.mark.llvm(22)
def test_a_failed_build_writes_no_manifest(mlir_offload: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.mlir").write_text("func.func @f() { foo.bar }")
    command = [*mlir_offload, "--offload-arch=host", "-c", "bad.mlir", "--manifest=m.json"]
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.mlir"]
