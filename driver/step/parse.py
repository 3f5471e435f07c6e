"""Parse command lines of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec.structs import fields

from mlir_offload.driver.option.command_line import option_words
from mlir_offload.driver.option.row import Group, Option, Subcommand, read_option
from mlir_offload.driver.step.compiler_step import COMPILER_STEPS, OF_COMPILER, CompilerStep
from mlir_offload.driver.step.step import STEP_OPTIONS, Keyed, Step
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import Target, parse_offload_arch
from mlir_offload.toolchain.tool import ToolVersion, parse_version
from mlir_offload.translate.kind_lowering import DeviceForm, parse_form
from mlir_offload.translate.prefix_map import PrefixMap, parse_prefix_map
from mlir_offload.translate.sanitizer import Sanitizer

S = TypeVar("S", bound=Step)
_MODULES: Mapping[str, Sequence[str]] = {
    "split_file": ("split", "header", "join", "separate", "part"),
    "device": ("unwrap",),
    "step": ("nvptx-ir", "ptx-time"),
    "cuda_directory": ("cuda-directory",),
    "hip": ("amdgpu-ir", "amdgpu-check", "hip-fat-binary"),
    "spirv": ("spirv-ir", "spirv-check"),
    "cpu": ("cpu-ir", "cpu-finish"),
    "downgrade": ("downgrade", "same-kernels"),
    "image_file": ("package", "unpack", "embed"),
    "object_file": (
        *("dummy-image", "members", "detach", "relocatable-linker"),
        *("registration-names", "runtime-symbols"),
    ),
    "rule": ("depfile",),
}
STEPS: Mapping[str, str] = {step: name for name, steps in _MODULES.items() for step in steps}
"""The module of each step that runs in process."""
# Old names of steps, so that scripts made from the `-###` output of earlier releases still work.
_FORMER = {"annotate": "embed"}


def parse_step(words: Sequence[str]) -> Step:
    """Return the step that a command line spells. Raises UsageError."""
    step = find_step(words[0] if words else "")
    table = described_step(words[0])
    given: dict[str, list[str]] = {name: [] for name in step.__struct_fields__}
    operands: list[str] = []
    rest = list(reversed(words[1:]))
    while rest:
        word = rest.pop()
        if word == "--":
            operands += reversed(rest)
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            continue
        row, _, value = read_option(table, word, rest)
        given[_field_of(row.names, step)].append(value)
    return _made(step, given | _placed(operands, step))


def find_step(name: str) -> type[Step]:
    """Return the class of a step, by name. Raises UsageError for an unknown name."""
    name = _FORMER.get(name, name)
    if name not in STEPS:
        msg = f"there is no step '{name}'"
        raise UsageError(msg, hint=f"steps are {', '.join(STEPS)}")
    module = import_module(f"mlir_offload.driver.step.{STEPS[name]}")
    defined: list[type[Step]] = [one for one in vars(module).values() if _is_step(one)]
    return next(one for one in defined if one.__struct_config__.tag == name)


def _is_step(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Step)


def parse_compiler_step(words: Sequence[str]) -> CompilerStep:
    """Return the compiler step that a command line spells. Raises UsageError."""
    step = COMPILER_STEPS[words[0]]
    own = [name for name in step.__struct_fields__ if name not in OF_COMPILER]
    table = _table(words[0], [STEP_OPTIONS[name] for name in own])
    given: dict[str, list[str]] = {name: [] for name in step.__struct_fields__}
    rest = list(reversed(words[1:]))
    while rest:
        word = rest.pop()
        if table.find(word) is not None:
            row, _, value = read_option(table, word, rest)
            given[_field_of(row.names, step)].append(value)
        elif word == "-o" and rest:
            given["output"].append(rest.pop())
        elif word == "-x" and rest:
            rest.pop()
        elif not word.startswith("-"):
            given["source"].append(word)
        elif word != "-c":
            given["flags"] += option_words(word, rest)
    if len(given["source"]) != 1 or not given["output"]:
        msg = f"{words[0]} has one input and one output: -c IN -o OUT"
        raise UsageError(msg)
    return _made(step, given)


def render_steps() -> str:
    """Return the list of steps with their summaries."""
    lines = (f"  {name:20}{described_step(name).line}" for name in STEPS)
    head = "usage: mlir-offload step NAME ...; the steps of a compilation, as -### prints them"
    return "\n".join((head, "", *lines)) + "\n"


def described_step(name: str) -> Subcommand:
    """Return the description of a step in the form of a subcommand."""
    step = find_step(name)
    rows = [STEP_OPTIONS[field] for field in step.__struct_fields__]
    operands = " ".join(row.value for row in rows if not row.names)
    summary = (step.__doc__ or "").partition("\n\n")[0].replace("\n    ", " ")
    options = tuple(row for row in rows if row.names)
    usage = (f"{operands} [options]".lstrip(),)
    return _table(f"step {name}", options, summary, usage)


def _table(
    name: str, options: Sequence[Option], summary: str = "", usage: tuple[str, ...] = ()
) -> Subcommand:
    groups = (Group("options", tuple(options)),)
    return Subcommand(name, "", summary, summary, usage, groups)


def _field_of(names: tuple[str, ...], step: type[Step]) -> str:
    return next(name for name in step.__struct_fields__ if STEP_OPTIONS[name].names == names)


def _placed(operands: Sequence[str], step: type[Step]) -> dict[str, list[str]]:
    """Return the operands by field; all of them are for a field with a tuple, if there is one."""
    hints = get_type_hints(step)
    named = [name for name in step.__struct_fields__ if not STEP_OPTIONS[name].names]
    if any(get_origin(hints[name]) is tuple for name in named):
        return {named[0]: list(operands)}
    if len(operands) > len(named):
        msg = f"'{operands[len(named)]}' is one operand too many"
        raise UsageError(msg)
    return {name: [word] for name, word in zip(named, operands, strict=False)}


def _made(step: type[S], given: Mapping[str, Sequence[str]]) -> S:
    hints = get_type_hints(step)
    values: dict[str, Any] = {}
    for field in fields(step):
        words = given[field.name]
        if words:
            values[field.name] = _value(hints[field.name], words, field.name)
        elif field.required:
            msg = f"step {step.__struct_config__.tag} needs {_label(field.name)}"
            raise UsageError(
                msg, hint=f"see 'mlir-offload step {step.__struct_config__.tag} --help'"
            )
    return step(**values)


def _label(field: str) -> str:
    row = STEP_OPTIONS[field]
    return row.label if row.names else row.value


def _value(hint: Any, words: Sequence[str], field: str) -> object:
    """Return the value of a field; of a repeated option, the last value counts."""
    if hint is bool:
        return True
    if get_origin(hint) is tuple:
        return tuple(_read(get_args(hint)[0], word, field) for word in words)
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    return _read(kinds[0], words[-1], field)


def _read(kind: Any, word: str, field: str) -> object:
    reader = kind.parse if issubclass(kind, Keyed) else _READERS.get(kind, kind)
    try:
        found: object = reader(word)
    except (KeyError, ValueError) as error:
        names = STEP_OPTIONS[field].names
        msg = f"{names[0] if names else ''}{word}: {error}"
        raise UsageError(msg, hint=f"write {_label(field)}") from error
    return found


def _version(text: str) -> ToolVersion:
    version = parse_version(text)
    if version is None:
        msg = "no version"
        raise ValueError(msg)
    return version


_READERS: Mapping[type, Callable[[str], object]] = {
    Target: parse_offload_arch,
    DeviceForm: parse_form,
    Sanitizer: Sanitizer,
    PrefixMap: partial(parse_prefix_map, option="--prefix-map"),
    ToolVersion: _version,
}
