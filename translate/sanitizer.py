"""Sanitizers: what instruments host code and kernels for the CPU, and what their programs link."""

from __future__ import annotations

from enum import StrEnum

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern

_DEFINE = ir_line("define `head`@`name`(")
# What may stand between the parameters and the attributes (LLVM LangRef, "Functions").
_BEFORE_ATTRIBUTES = ir_pattern("` local_unnamed_addr| unnamed_addr?``addrspace?`")
# Checks of clang's front end: code without them, such as kernels, links with code that has them.
_HOST_CHECKS = frozenset(
    [
        "alignment",
        "array-bounds",
        "bool",
        "bounds",
        "builtin",
        "enum",
        "float-cast-overflow",
        "float-divide-by-zero",
        "function",
        "implicit-conversion",
        "integer",
        "integer-divide-by-zero",
        "local-bounds",
        "nonnull-attribute",
        "null",
        "nullability",
        "object-size",
        "pointer-overflow",
        "return",
        "returns-nonnull-attribute",
        "shift",
        "shift-base",
        "shift-exponent",
        "signed-integer-overflow",
        "undefined",
        "unreachable",
        "unsigned-integer-overflow",
        "vla-bound",
        "vptr",
    ]
)


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
        """Return the function attribute that marks what will be instrumented.

        Clang adds it where it compiles a source language; LLVM IR must bring it.
        """
        return f"sanitize_{self}"

    @property
    def runtime_flags(self) -> tuple[str, ...]:
        """Return how the device runtime is compiled: the fibers must be told of.

        ThreadSanitizer must not take the switching between threads for what a kernel does.
        """
        return ("-DMO_TSAN",) if self is Sanitizer.THREAD else (self.flag,)

    @property
    def finds_races(self) -> bool:
        """Return whether each thread of a block must run on a fiber, which it sees as a thread of its own."""
        return self is Sanitizer.THREAD


def parse_sanitizers(names: str) -> tuple[Sanitizer | None, tuple[str, ...]]:
    """Return the sanitizer among names with commas, and the names of checks for C and C++ alone.

    Raises UsageError for two sanitizers, and for one whose programs must be instrumented as a whole.
    """
    words = list(filter(None, names.split(",")))
    checks = tuple(word for word in words if word in _HOST_CHECKS)
    others = [word for word in words if word not in _HOST_CHECKS]
    if not others:
        return None, checks
    if len(set(others)) > 1 or others[0] not in set(Sanitizer):
        msg = f"-fsanitize={names} is not supported for programs with kernels"
        known = " or ".join(Sanitizer)
        raise UsageError(msg, hint=f"use {known}; undefined may be added to either")
    return Sanitizer(others[0]), checks


def instrumented(text: str, sanitizer: Sanitizer) -> str:
    """Return LLVM IR with every function that it defines marked for the sanitizer."""
    parts, position = [], 0
    for match in _DEFINE.finditer(text):
        end = LLVM_IR.closing(text, match.end() - 1) + 1
        between = _BEFORE_ATTRIBUTES.match(text, end)
        end = between.end() if between else end
        parts += [text[position:end], f" {sanitizer.attribute}"]
        position = end
    return "".join((*parts, text[position:]))
