"""An upstream program, and how its RUN lines compile, run and check it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_RUN = re.compile(r"^\s*(?://|#)\s*RUN:(.*)$", re.MULTILINE)
_DEFINE = re.compile(r"^\s*(?://|#)\s*DEFINE:(.*)$", re.MULTILINE)
_RUNNER = re.compile(r"\bmlir-(?:cpu-)?runner\b")
_FILECHECK = re.compile(r"\bFileCheck\b(?P<options>.*)")
_PREFIX = re.compile(r"--?check-prefix(?:es)?[= ](\S+)")
_CHIP = re.compile(r"\bchip=(sm_\w+)")
_PASS = re.compile(r"(?<=\s)--?([a-z][\w-]*)(?:=(\"[^\"]*\"|'[^']*'|\S+))?")
_ASSERTION = re.compile(r"CHECK[\w-]*:.*\bAssertion `")
_MAIN = re.compile(r"\bfunc(?:\.func)? (?:public )?@(main|entry)\(")

# Passes that generate GPU code from a program; the driver itself runs the passes that lower GPU code.
_INPUT_PASSES = frozenset(
    {
        "transform-interpreter",
        "test-transform-dialect-erase-schedule",
        "convert-linalg-to-loops",
    }
)
# Passes that must run in this order, on functions.
_ON_FUNCTIONS = "test-vector-warp-distribute"
_SPARSIFIER = re.compile(r"--sparsifier=\"(?P<options>[^\"]*)")
_SPARSE_CODEGEN = "--sparse-gpu-codegen"
_SPARSE_LOOPS = re.compile(r"\bparallelization-strategy=[\w-]+")
_SPARSIFIER_OPTION = re.compile(r"\b(?:enable-gpu-libgen|parallelization-strategy=\S+)")
# The passes that --sparsifier runs until it has GPU code; it then serializes that.
_BEFORE_SPARSE = "func.func(linalg-generalize-named-ops,linalg-fuse-elementwise-ops)"
_AFTER_SPARSE = "sparse-storage-specifier-to-llvm,func.func(canonicalize),sparse-gpu-codegen"
_NEW_FEATURES = "sm_90a"


@dataclass(frozen=True, slots=True)
class Program:
    """A program: its name below the tests, and its path.

    `pipeline` is for --pipeline=, empty for a program that contains GPU code. `nvidia` is the architecture
    for which upstream compiles it, if that has architecture-specific features. `prefixes` are those of the
    lines that FileCheck compares with the program's output; if empty, upstream does not check the output.
    `is_run` if upstream runs it, `fails` if an assertion is expected to fail. `is_device` if it consists of
    functions for kernels of other files.
    """

    name: str
    path: Path
    pipeline: str
    nvidia: str
    prefixes: tuple[str, ...]
    merges_stderr: bool
    is_run: bool
    has_main: bool
    fails: bool
    is_device: bool = False


def find_programs(tests: Path, folders: tuple[str, ...]) -> list[Program]:
    """Return the programs in the directories of upstream's integration tests, sorted by name."""
    paths = (path for folder in folders for path in (tests / folder).rglob("*.mlir"))
    return [read_program(path, str(path.relative_to(tests))) for path in sorted(paths)]


def read_program(path: Path, name: str) -> Program:
    """Parse the RUN lines of a program."""
    text = path.read_text(encoding="utf-8")
    commands = _run_commands(text)
    run = [command for command in commands if _RUNNER.search(command)]
    checked = [match for command in run if (match := _FILECHECK.search(command))]
    chips = [chip for command in commands for chip in _CHIP.findall(command)]
    return Program(
        name=name,
        path=path,
        pipeline=_pipeline((run or commands or [""])[0]),
        nvidia=_NEW_FEATURES if _NEW_FEATURES in chips else "sm_90",
        prefixes=_prefixes(checked[-1]["options"]) if checked else (),
        merges_stderr=any("2>&1" in command for command in run),
        is_run=bool(run),
        has_main=_MAIN.search(text) is not None,
        fails=_ASSERTION.search(text) is not None,
    )


def _run_commands(text: str) -> list[str]:
    lines = [line.strip() for line in _RUN.findall(text)]
    joined = "\n".join(lines).replace("\\\n", " ")
    definitions = _definitions(text)
    commands = []
    for command in joined.splitlines():
        for name, value in definitions.items():
            command = command.replace(name, value)  # noqa: PLW2901
        commands.append(command)
    return [command for command in commands if command.strip()]


def _definitions(text: str) -> dict[str, str]:
    """Return the substitutions that a test defines, by their spelling."""
    lines = "\n".join(line.strip() for line in _DEFINE.findall(text)).replace("\\\n", " ")
    pairs = (line.partition("=") for line in lines.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _prefixes(options: str) -> tuple[str, ...]:
    named = [name for value in _PREFIX.findall(options) for name in value.split(",")]
    return tuple(named) or ("CHECK",)


def _sparse_pipeline(options: str) -> str:
    return f"{_BEFORE_SPARSE},sparsification-and-bufferization{{{options}}},{_AFTER_SPARSE}"


def _pipeline(command: str) -> str:
    if sparsifier := _SPARSIFIER.search(command):
        return _sparse_pipeline(" ".join(_SPARSIFIER_OPTION.findall(sparsifier["options"])))
    if _SPARSE_CODEGEN in command:
        loops = _SPARSE_LOOPS.search(command)
        return _sparse_pipeline(loops[0] if loops else "enable-gpu-libgen")
    found = [(name, value.strip(chr(34) + chr(39))) for name, value in _PASS.findall(command)]
    on_functions = [f"{name}{{{value}}}" for name, value in found if name == _ON_FUNCTIONS]
    passes = [name for name, _ in found if name in _INPUT_PASSES]
    return ",".join([*passes, *(f"func.func({name},canonicalize)" for name in on_functions)])
