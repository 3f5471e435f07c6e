"""Values of several parts in one word of a command line: `file=k.o,arch=sm_90`, as LLVM's tools spell them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from mlir_offload.offload.container.packager import ImageArgument, image_argument
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.target import device_kind, kind_of_image

# A comma ends a part; two stand for one that does not.
_PARTS = pattern(r"(?:[^,]|,,)+")


class Keyed(Struct, frozen=True):
    """A value whose fields are the keys; a switch is its name alone, a tuple repeats the key."""

    def __str__(self) -> str:
        """Return the word."""
        return ",".join(part.replace(",", ",,") for part in self._parts())

    @property
    def values(self) -> tuple[object, ...]:
        """Return what the fields hold."""
        return tuple(getattr(self, key) for key in self.__struct_fields__)

    def _parts(self) -> Iterator[str]:
        names, defaults = self.__struct_fields__, self.__struct_defaults__
        default = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        for key in names:
            value = getattr(self, key)
            if value is True:
                yield key
            elif isinstance(value, tuple):
                yield from (f"{key}={item}" for item in value)
            elif value is False:
                continue
            # A size may be 0: what is required is written, whatever it is.
            elif value not in {0, ""} or value != default.get(key):
                yield f"{key}={value}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read such a word. Raises ValueError for what is missing, wrong or unknown."""
        hints = get_type_hints(cls)
        values: dict[str, object] = {}
        for part in _PARTS.findall(text):
            key, _, value = part.replace(",,", ",").partition("=")
            if key not in hints:
                msg = f"unknown {key}"
                raise ValueError(msg)
            values[key] = _read(hints[key], value, values.get(key))
        missing = [one.name for one in fields(cls) if one.required and one.name not in values]
        if missing:
            msg = f"no {' or '.join(missing)}"
            raise ValueError(msg)
        return cls(**values)


def _read(hint: type, text: str, before: object) -> object:
    """Return a part as its field has it: `before` is what a repeated key has already."""
    if hint is bool:
        return True
    if hint == tuple[str, ...]:
        return (*(before if isinstance(before, tuple) else ()), text)
    found: object = hint(text)
    return found


class PackagedImage(Keyed, frozen=True):
    """A device image to be packaged, by the keys of clang-offload-packager."""

    file: Path
    triple: str
    arch: str
    kind: str
    feature: str = ""

    @property
    def argument(self) -> ImageArgument:
        """Return what the container holds of it: containers do not name the architecture of the CPU."""
        kind = kind_of_image(self.kind, self.triple)
        arch = self.arch if kind is None else device_kind(kind).container_arch(self.arch)
        words = [f"file={self.file}", f"triple={self.triple}", f"arch={arch}", f"kind={self.kind}"]
        return image_argument((*words, f"feature={self.feature}") if self.feature else words)
