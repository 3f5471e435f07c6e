"""Sanitizers: what instruments host code and kernels for the CPU, and what their programs link."""

from __future__ import annotations

import re
from enum import StrEnum

from mlir_offload.toolchain.errors import UsageError

_DEFINE = re.compile(r'^define [^\n]*?@(?:"[^"]*"|[-\w$.]+)(?=\()', re.MULTILINE)
# What may stand between the parameters and the attributes (LLVM LangRef, "Functions").
_BEFORE_ATTRIBUTES = re.compile(r"(?: (?:local_)?unnamed_addr)?(?: addrspace\(\d+\))?")
_QUOTED_OR_BRACKET = re.compile(r'"[^"]*"|[()]')


class Sanitizer(StrEnum):
    """A sanitizer of clang, as `-fsanitize=` spells it."""

    ADDRESS = "address"
    THREAD = "thread"

    @property
    def flag(self) -> str:
        """Return the option of clang that instruments."""
        return f"-fsanitize={self}"

    @property
    def library(self) -> str:
        """Return the name of its library without prefix and ending."""
        return {Sanitizer.ADDRESS: "asan", Sanitizer.THREAD: "tsan"}[self]

    @property
    def attribute(self) -> str:
        """Return the function attribute that marks what is to be instrumented.

        Clang adds it where it compiles a source language; LLVM IR must bring it.
        """
        return f"sanitize_{self}"

    @property
    def runtime_flags(self) -> tuple[str, ...]:
        """Return how the device runtime is compiled: the fibers must be told of.

        ThreadSanitizer must not take the switching between work-items for what a kernel does.
        """
        return ("-DMO_TSAN",) if self is Sanitizer.THREAD else (self.flag,)

    @property
    def finds_races(self) -> bool:
        """Return whether each work-item must run as a thread of its own."""
        return self is Sanitizer.THREAD


def parse_sanitizer(name: str) -> Sanitizer:
    """Return the sanitizer of a name. Raises UsageError for one that finds nothing in kernels."""
    try:
        return Sanitizer(name)
    except ValueError as error:
        msg = f"-fsanitize={name}: not a sanitizer for kernels"
        names = " or ".join(Sanitizer)
        raise UsageError(msg, hint=f"use {names}, one at a time") from error


def instrumented(text: str, sanitizer: Sanitizer) -> str:
    """Return LLVM IR with every function that it defines marked for the sanitizer."""
    parts, position = [], 0
    for match in _DEFINE.finditer(text):
        end = _after_brackets(text, match.end())
        between = _BEFORE_ATTRIBUTES.match(text, end)
        end = between.end() if between else end
        parts += [text[position:end], f" {sanitizer.attribute}"]
        position = end
    return "".join((*parts, text[position:]))


def _after_brackets(text: str, start: int) -> int:
    depth = 0
    for match in _QUOTED_OR_BRACKET.finditer(text, start):
        depth += {"(": 1, ")": -1}.get(match.group(), 0)
        if depth == 0:
            return match.end()
    return start
