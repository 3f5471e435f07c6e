"""Validated reading of untrusted JSON; errors name the format, the field and the value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from msgspec import Struct

from mlir_offload.toolchain.errors import VerificationError

_LARGEST = 1 << 53
_SHOWN = 60


class JsonField(Struct, frozen=True):
    """A value in a JSON document of some format, and its path (`units[0].host`)."""

    value: Any
    form: str
    path: str
    location: str

    def __getitem__(self, key: str) -> JsonField:
        """Return a member of an object. Raises VerificationError if it is missing."""
        path = f"{self.path}.{key}" if self.path else key
        if not isinstance(self.value, dict):
            self.fail("not an object")
        if key not in self.value:
            msg = f"malformed {self.form}: {path} is missing"
            raise VerificationError(msg, hint="make the file again", location=self.location)
        return JsonField(self.value[key], self.form, path, self.location)

    @property
    def is_null(self) -> bool:
        """Return whether the value is `null`."""
        return self.value is None

    def members(self) -> Iterator[tuple[str, JsonField]]:
        """Yield the names and values of an object."""
        if not isinstance(self.value, dict):
            self.fail("not an object")
        return ((key, self[key]) for key in self.value)

    def items(self) -> Iterator[JsonField]:
        """Yield the items of an array."""
        if not isinstance(self.value, list):
            self.fail("not an array")
        return (
            JsonField(item, self.form, f"{self.path}[{number}]", self.location)
            for number, item in enumerate(self.value)
        )

    def text(self, pattern: re.Pattern[str] | None = None) -> str:
        """Return a string, which must match the pattern if one is passed."""
        if not isinstance(self.value, str):
            self.fail("not a string")
        if pattern is not None and pattern.fullmatch(self.value) is None:
            self.fail(f"not of the form {pattern.pattern}")
        return self.value

    def number(self, most: int = _LARGEST) -> int:
        """Return an integer from 0 to `most`."""
        if type(self.value) is not int or not 0 <= self.value <= most:
            self.fail(f"not a whole number from 0 to {most}")
        return self.value

    def number_or_none(self) -> int | None:
        """Return a non-negative integer, or None for `null`."""
        return None if self.is_null else self.number()

    def truth(self) -> bool:
        """Return a boolean."""
        if not isinstance(self.value, bool):
            self.fail("neither true nor false")
        return self.value

    def fail(self, reason: str) -> NoReturn:
        """Raise VerificationError for this value."""
        shown = ascii(self.value)[:_SHOWN]
        msg = f"malformed {self.form}: {self.path or 'the document'} is {shown}: {reason}"
        raise VerificationError(msg, hint="make the file again", location=self.location)
