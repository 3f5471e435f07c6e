"""A step of a compilation is a value: its fields say all that it does, and its command line is made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePath

from msgspec import Struct

from mlir_offload.driver.step.keyed import Keyed
from mlir_offload.driver.step.option import STEP_OPTIONS
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.translate.mlir import symbol as mlir_symbol

_WRITTEN = frozenset(("output", "kernel_heads", "weak"))


class Step(Struct, frozen=True, kw_only=True):
    """A step that runs in process, and as a command: what `-###` prints can be pasted.

    It reads files and writes files; it knows nothing of the plan that it is part of.
    """

    def run(self) -> None:
        """Do it. Raises MlirOffloadError, at the step's location where that names none."""
        try:
            self._do()
        except MlirOffloadError as error:
            file = getattr(self, "location", "")
            error.location = error.location or mlir_symbol.place_of_symbol(error.message, file)
            raise

    def _do(self) -> None:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Return the word that names it."""
        return str(self.__struct_config__.tag)

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the files and directories that it makes."""
        return tuple(self._files(_WRITTEN))

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the other files that its fields name."""
        return tuple(self._files(frozenset(self.__struct_fields__) - _WRITTEN))

    def _files(self, names: Collection[str]) -> Iterator[str]:
        values = (getattr(self, name) for name in self.__struct_fields__ if name in names)
        for item in (item for value in values for item in _items(value)):
            parts = item.values if isinstance(item, Keyed) else (item,)
            yield from (str(part) for part in parts if isinstance(part, PurePath))

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the words from which `parse_step` makes it again."""
        operands = [
            str(item)
            for field in self.__struct_fields__
            if not STEP_OPTIONS[field].names
            for item in _items(getattr(self, field))
        ]
        # The output last, as people write it.
        options = sorted(self.__struct_fields__, key="output".__eq__)
        words = spelled_options(self, options)
        if any(operand.startswith("-") for operand in operands):
            return (self.name, *words, "--", *operands)
        return (self.name, *operands, *words)


def spelled_options(step: Step, names: Iterable[str]) -> tuple[str, ...]:
    """Return the words of those of the fields that are options."""
    return tuple(
        word
        for field in names
        for name in STEP_OPTIONS[field].names[:1]
        for item in _items(getattr(step, field))
        for word in _spelled(name, item)
    )


def _items(value: object) -> tuple[object, ...]:
    """Return what is spelled: a switch that is off, and nothing, are not."""
    if isinstance(value, tuple):
        return value
    return () if value is None or value is False or value == "" else (value,)


def _spelled(name: str, item: object) -> tuple[str, ...]:
    if item is True:
        return (name,)
    return (f"{name}{item}",) if name.endswith("=") else (name, str(item))


class TextStep(Step, frozen=True, kw_only=True):
    """A step that makes one text of another."""

    source: Path
    output: Path

    def _do(self) -> None:
        write_text(self.output, self._rewritten(read_text(self.source)))

    def _rewritten(self, text: str) -> str:
        raise NotImplementedError


class DeviceIrStep(TextStep, frozen=True, kw_only=True):
    """A step that prepares the LLVM IR of a device module for a back end."""

    kernels: tuple[str, ...] = ()
    rdc: bool = False
    llvm: int


def read_text(path: Path) -> str:
    """Return the text of a file, bytes that are no UTF-8 kept as they are."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write_text(path: Path, text: str) -> None:
    """Write what `read_text` reads."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
