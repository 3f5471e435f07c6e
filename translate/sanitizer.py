"""Sanitizers for host code and for kernels on the CPU."""

from __future__ import annotations

from enum import StrEnum

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern

_DEFINE = ir_line("define `head`@`name`(")
# The optional text between parameters and attributes (LLVM LangRef, "Functions").
_BEFORE_ATTRIBUTES = ir_pattern("` local_unnamed_addr| unnamed_addr?``addrspace?`")
# Checks of clang's front end. Code with these checks can be linked with code without them, such as kernels.
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
    """A sanitizer, in the spelling of `-fsanitize=`."""

    ADDRESS = "address"
    THREAD = "thread"

    @property
    def flag(self) -> str:
        """Return the option of clang."""
        return f"-fsanitize={self}"

    @property
    def library(self) -> str:
        """Return the name of its runtime library without prefix and extension."""
        return {Sanitizer.ADDRESS: "asan", Sanitizer.THREAD: "tsan"}[self]

    @property
    def attribute(self) -> str:
        """Return the attribute of functions to instrument.

        clang adds the attribute to functions of source languages. LLVM IR must already contain it.
        """
        return f"sanitize_{self}"

    @property
    def runtime_flags(self) -> tuple[str, ...]:
        """Return the options for compiling the device runtime.

        For ThreadSanitizer, the runtime is not instrumented, but reports its fibers, so that switches
        between them are not mistaken for accesses of a kernel.
        """
        return ("-DMO_TSAN",) if self is Sanitizer.THREAD else (self.flag,)

    @property
    def finds_races(self) -> bool:
        """Return whether each thread of a block must run on its own fiber, to detect races between them."""
        return self is Sanitizer.THREAD


def parse_sanitizers(names: str) -> tuple[Sanitizer | None, tuple[str, ...]]:
    """Return the sanitizer in a comma-separated list, and the checks that apply only to C and C++.

    Raises UsageError for two sanitizers, and for one that requires instrumentation of the whole program.
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
    """Mark all functions that a module defines for the sanitizer."""
    parts, position = [], 0
    for match in _DEFINE.finditer(text):
        end = LLVM_IR.closing(text, match.end() - 1) + 1
        between = _BEFORE_ATTRIBUTES.match(text, end)
        end = between.end() if between else end
        parts += [text[position:end], f" {sanitizer.attribute}"]
        position = end
    return "".join((*parts, text[position:]))
