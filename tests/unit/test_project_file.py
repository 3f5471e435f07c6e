"""Manifests of projects: their contents, and errors with locations."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from mlir_offload.driver.project.file import Setting, TargetKind, read_project
from mlir_offload.toolchain.errors import InputOutputError, UsageError

FULL = """\
directory: out
archs: [sm_80, sm_90, sm_80]
flags: -O3 "-DNAME=a b"
variants:
  release:
  debug: {flags: [-g], archs: host}
modules:
  - k/*.mlir
  - {file: other.mlir, archs: sm_75, flags: -O1, variants: [debug]}
targets:
  app: {inputs: [k/a.mlir, {file: main.c, flags: -DX}, lib.a], flags: -lm}
  libk.so: {kind: shared, inputs: ['k/*.mlir'], variants: release}
"""


def manifest(folder: Path, text: str | bytes) -> Path:
    file = folder / "offload.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    (folder / "k").mkdir()
    for name in ("b.mlir", "a.mlir", "c.txt"):
        (folder / "k" / name).touch()
    for name in ("other.mlir", "main.c", "lib.a"):
        (folder / name).touch()
    return file


def test_a_manifest_tells_modules_variants_and_targets(tmp_path: Path) -> None:
    project = read_project(manifest(tmp_path, FULL))
    assert project.root == tmp_path
    assert project.directory == PurePosixPath("out")
    assert project.setting == Setting(("sm_80", "sm_90"), ("-O3", "-DNAME=a b"))
    assert [variant.name for variant in project.variants] == ["release", "debug"]
    assert project.variants[1].setting == Setting(("host",), ("-g",))
    assert [str(module.path) for module in project.modules] == [
        "k/a.mlir",
        "k/b.mlir",
        "other.mlir",
    ]
    assert project.modules[2].setting == Setting(("sm_75",), ("-O1",))
    assert project.modules[2].variants == ("debug",)
    app, library = project.targets
    assert [str(path) for path in app.inputs] == ["k/a.mlir", "main.c", "lib.a"]
    assert app.flags_of[PurePosixPath("main.c")] == ("-DX",)
    assert (app.kind, app.setting.flags) == (TargetKind.PROGRAM, ("-lm",))
    assert (library.kind, library.variants) == (TargetKind.SHARED, ("release",))


def test_without_variants_there_is_one(tmp_path: Path) -> None:
    project = read_project(manifest(tmp_path, "modules: [k/a.mlir]"))
    assert [variant.name for variant in project.variants] == ["default"]
    assert (str(project.directory), project.targets) == ("build", ())


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("modules: [x/*.mlir]", "1:11", "no file matches"),
        ("modules: [k/a.mlir, 'k/*.mlir']", "1:21", "k/a.mlir is listed twice"),
        ("modules: [k/c.txt]", "1:11", "is not a .mlir file"),
        ("modules: [../a.mlir]", "1:11", "does not lie below"),
        ("modules: [/a.mlir]", "1:11", "does not lie below"),
        ("modules: []\ndirectory: ../b", "2:12", "does not lie below"),
        ("modules: k/a.mlir", "1:10", "must be a list"),
        ("modules: [[a.mlir]]", "1:11", "must be a string"),
        ("modules:\n- archs: sm_80", "2:3", "has no file"),
        ("modules: []\narchs: sm_x", "2:8", "sm_x"),
        ("modules: []\nflags: --frob", "2:8", "unknown option '--frob'"),
        ("modules: []\nflags: [-O2, -c]", "2:8", "-c is not a flag"),
        ("modules: []\nflags: --offload-arch=sm_80", "2:8", "--offload-arch= is not a flag"),
        ("modules: []\nflags: -MJ /x", "2:8", "-MJ is not a flag"),
        ("modules: []\nflags: -MD -MF /x", "2:8", "-M is not a flag"),
        ("modules: []\nflags: --manifest=/x", "2:8", "--manifest= is not a flag"),
        ("modules: []\nflags: --emit-header=/x", "2:8", "--emit-header= is not a flag"),
        ("modules: []\nflags: a.c", "2:8", "'a.c' is not a flag"),
        ("modules: []\nflags: \"'\"", "2:8", "No closing quotation"),
        ("modules: []\ncolour: red", "2:1", "has no key 'colour'"),
        ("modules: []\nmodules: []", "2:1", "is listed twice"),
        ("archs: sm_80", "1:1", "has no modules"),
        ("modules: []\nvariants: {a/b: }", "2:17", "not a name of a variant"),
        ("modules: [{file: k/a.mlir, variants: [x]}]", "1:39", "there is no variant 'x'"),
        ("modules: []\ntargets: {app: {inputs: [k/a.mlir]}}", "2:26", "not a module of this manifest"),
        ("modules: []\ntargets: {app: {inputs: [a.f90]}}", "2:26", "no kind of file"),
        ("modules: []\ntargets: {a: {kind: static, inputs: [b.a]}}", "2:38", "cannot hold the library b.a"),
        ("modules: []\ntargets: {app: {inputs: []}}", "2:25", "has no inputs"),
        ("modules: []\ntargets: {app: {}}", "2:16", "has no inputs"),
        ("modules: []\ntargets: {a: {kind: x, inputs: []}}", "2:21", "no kind 'x'"),
        ("- a", "1:1", "must be a mapping"),
        ("modules: *x", "1:10", "nothing is anchored"),
        ("modules: &x [*x]", "1:10", "must be a string"),
        ("modules: [", "2:1", "invalid YAML"),
        ("[" * 99 + "]" * 99, "1:16", "nested so deeply"),
        ("modules: ~", "1:10", "must be a list"),
        ("modules: []\ntargets: {app: {inputs: [{file: k/a.mlir, flags: -g}]}}", "2:26", "only a source has flags"),
        ("modules: []\ntargets: {app: {inputs: [{file: main.c, flags: -c}]}}", "2:48", "-c is not a flag"),
        ("modules: [k/z.mlir]", "1:11", "no file is called 'k/z.mlir'"),
        ("modules: []\ntargets: {app: {inputs: [z.c]}}", "2:26", "no file is called 'z.c'"),
        ("modules: []\ntargets:\n  a: {kind: shared, inputs: [b]}\n  b: {kind: shared, inputs: [a]}", "3:6", "need each other: a, b"),
        ("modules: []\ntargets: {a: {inputs: [main.c]}, b: {inputs: [a]}}", "2:47", "no kind of file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(
    text: str, place: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message.replace("[", r"\[")) as caught:
        read_project(manifest(tmp_path, text))
    assert caught.value.location == f"{tmp_path / 'offload.yaml'}:{place}"


def test_a_file_of_brackets_does_not_crash_the_parser(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nested so deeply"):
        read_project(manifest(tmp_path, "[" * 200_000))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("modules:\n\t- k/a.mlir", "indent with spaces: YAML allows no tabs"),
        ("# \u00e9\nmodules:\n\t- k/a.mlir", "indent with spaces: YAML allows no tabs"),
        ("modules: [*.mlir]", "in quotes"),
        ("modules: *x", "in quotes"),
        ("modules: [k/a.mlir", "check what begins at 1:10"),
        ("module: [k/a.mlir]", "did you mean 'modules'?"),
        ("modules: [k/aa.mlir]", "did you mean 'k/a.mlir'?"),
    ],
)
def test_a_hint_names_what_to_change(text: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_project(manifest(tmp_path, text))
    assert hint in caught.value.hint


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\0", b"a: \0", b"\x80"])
def test_what_is_no_text_is_refused(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"invalid YAML|empty"):
        read_project(manifest(tmp_path, text))


def test_a_file_that_stands_for_millions_of_values_ends_soon(tmp_path: Path) -> None:
    file = manifest(tmp_path, "")
    flags = f"flags: &f [{', '.join(['-O2'] * 3000)}]\n"
    modules = ", ".join(f"{{file: {number}.mlir, flags: *f}}" for number in range(3000))
    file.write_text(f"{flags}modules: [{modules}]")
    with pytest.raises(UsageError, match="expands to more than 4,000,000 values"):
        read_project(file)


def test_a_manifest_that_is_not_there_is_an_error_of_files(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError, match="cannot read"):
        read_project(tmp_path / "offload.yaml")
