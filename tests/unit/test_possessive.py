"""Regular expressions under every supported release of Python.

Python 3.11.2, which Debian 12 has, does not return to the end of the last match if a group with a possessive
quantifier fails after some characters (CPython's gh-106052, fixed in 3.11.5): `a(?:::b)*+` matches all of `a::`.
"""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path

import pytest

from mlir_offload.offload.container.file_form import _LLVM_IR_BEGIN
from mlir_offload.offload.device.ptx_text import _TOKEN
from mlir_offload.offload.image import PTX_BEGIN

ROOT = Path(__file__).resolve().parents[2]
_GROUP = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+|\(\?>")
# A string ends at the first quote that no backslash precedes, which a failed escape cannot be.
_ALLOWED = {"translate/mlir/syntax.py"}
_COMMENT = rb"/\*(?:[^*]|\*(?!/))*\*/"
# Each pattern, without possessive quantifiers, and the characters that matter to it.
_PLAIN = {
    "token": (
        _TOKEN,
        rb"\s+|//[^\n]*|/\*|\"[^\"\n]*\"?|\.?[\w$%](?:[\w$.]*)(?![\w$.])(?:::\w+(?!\w))*|.",
        b' a:.$%/"*\n',
    ),
    "ptx": (
        PTX_BEGIN,
        rb"((?:\s|//[^\n]*(?![^\n])|" + _COMMENT + rb")*)\.version(?!\w)",
        b" \n/*ab1",
    ),
    "llvm-ir": (_LLVM_IR_BEGIN, rb"(?:\s|;[^\n]*(?![^\n]))*(?:define|[%@$!^])", b" ;\n@a"),
}
_ENDINGS = {"ptx": b".version 8", "llvm-ir": b"define"}


def _end(pattern: re.Pattern[bytes], text: bytes) -> int:
    match = pattern.match(text)
    return -1 if match is None else match.end()


@pytest.mark.parametrize("name", _PLAIN)
def test_a_possessive_pattern_matches_what_the_plain_one_does(name: str) -> None:
    pattern, source, letters = _PLAIN[name]
    plain, chosen = re.compile(source), random.Random(1)  # noqa: S311
    for _ in range(5000):
        text = bytes(chosen.choices(letters, k=chosen.randrange(1, 12))) + _ENDINGS.get(name, b"")
        assert _end(pattern, text) == _end(plain, text), text


def test_no_group_has_a_possessive_quantifier() -> None:
    found = set()
    for package in ("toolchain", "offload", "translate", "driver"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                value = node.value if isinstance(node, ast.Constant) else None
                text = value.decode(errors="replace") if isinstance(value, bytes) else value
                if isinstance(text, str) and _GROUP.search(text):
                    found.add(str(path.relative_to(ROOT)))

    assert found == _ALLOWED
