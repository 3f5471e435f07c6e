"""Rewrite device functions for the CPU: add the context parameter, replace intrinsics, address workgroup memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR, without_linkage
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_words
from mlir_offload.translate.barrier_place import read_places
from mlir_offload.translate.cpu.asynchronous import asm_call
from mlir_offload.translate.cpu.foreign import exported_names, foreign_function
from mlir_offload.translate.cpu.intrinsics import find_replacement, source_name_of
from mlir_offload.translate.cpu.library import c_function, c_functions
from mlir_offload.translate.cpu.replacement import Replacement, Sync
from mlir_offload.translate.cpu.shared import SharedLayout, lay_out_shared, place_shared
from mlir_offload.translate.cpu.tensor import find_tensor_operation
from mlir_offload.translate.cpu.text import (
    CALL,
    DeviceModule,
    Function,
    callee_name,
    location_of,
    references,
    symbol,
)

CONTEXT = "%mo.c"
_DROPPED = ir_words("ptx_kernel", "ptx_device", "unnamed_addr", "local_unnamed_addr", "dso_local")


# The prefixes of LLVM intrinsics that may need a replacement. The CPU supports all others.
_REPLACED = ("llvm.nvvm.", "llvm.fma.", "llvm.maximum.", "llvm.minimum.")
_SUPPORTED = _REPLACED[1:]


class RewrittenModule(Struct, frozen=True):
    """The rewritten functions, the replacements that they call, and the threads with which they synchronize.

    `exported` are symbol names for other files, each with the function. `places` are the source locations of the
    barriers, in the order of their strings (`place_name`).
    """

    functions: tuple[Function, ...]
    replacements: tuple[Replacement, ...]
    layout: SharedLayout
    waits: tuple[tuple[str, Sync], ...]
    exported: tuple[tuple[str, str], ...] = ()
    places: tuple[str, ...] = ()

    def sync_of(self, function: str) -> Sync:
        """Return the threads with which a function synchronizes, directly or in its callees."""
        return dict(self.waits)[function]


def place_name(number: int) -> str:
    """Return the name of the string with the source location of a barrier."""
    return f"mo.at{number}"


def rewrite_functions(
    module: DeviceModule,
    library: frozenset[str] = frozenset(),
    *,
    public: Collection[str] = (),
    is_open: bool = False,
) -> RewrittenModule:
    """Rewrite all functions of a module.

    Calls of functions in `library` are not changed. `public` are functions that other files may call. If `is_open`,
    other files define the functions that the module declares. Raises SourceError for a call that the CPU does not
    support.
    """
    layout = lay_out_shared(module)
    calls = _Calls(module, library, is_open=is_open)
    functions = []
    for function in module.functions:
        calls.enter(function)
        body = tuple(calls.rewrite(function.name, line) for line in function.body)
        renamed = replace(function, body=body, head=_internal(function.head))
        with_context = renamed.with_parameters((f"ptr {CONTEXT}", *renamed.parameters))
        functions.append(place_shared(with_context, layout, CONTEXT))
    waits = calls.waits()
    sharing = calls.callers_of(_sharing(module, layout))
    exported = (
        (alias, name)
        for name in public
        if name in waits and name not in sharing
        for alias in exported_names(name, waits=waits[name] is not Sync.NONE)
    )
    return RewrittenModule(
        tuple(functions),
        tuple(calls.used.values()),
        layout,
        tuple(waits.items()),
        tuple(exported),
        tuple(calls.places),
    )


def _sharing(module: DeviceModule, layout: SharedLayout) -> Iterator[str]:
    """Yield the functions that use static workgroup memory, whose layout only kernels of the same file know."""
    static = {symbol(name) for name, _ in layout.offsets}
    for function in module.functions:
        if not static.isdisjoint(references(function.body)):
            yield function.name


def _internal(head: str) -> str:
    words = _DROPPED.sub("", head).removeprefix("define ")
    return f"define internal {without_linkage(words)}"


class NotOnCpuError(SourceError):
    """An operation that the CPU does not support. With debug information, the error has a location."""


class _Calls:
    """Rewrites calls, and records the replacements, the barriers and the call graph."""

    def __init__(self, module: DeviceModule, library: frozenset[str], *, is_open: bool) -> None:
        self._library = library
        self._is_open = is_open
        self.used: dict[str, Replacement] = {}
        self._defined = {function.name for function in module.functions}
        self._module = module
        self._edges: dict[str, set[str]] = {name: set() for name in self._defined}
        self._own: dict[str, Sync] = dict.fromkeys(self._defined, Sync.NONE)
        self.places: list[str] = []
        self._marked: Iterator[str] = iter(())
        # The call sites of subgroup operations in two files must have different numbers.
        names = " ".join(sorted(self._defined)).encode()
        self._sites = crc32(names) % 0x7FFF << 16 if is_open else 0

    def enter(self, function: Function) -> None:
        """Start a function: read the source locations of its barriers."""
        self._marked = read_places(self._module.tail, function.head)

    def rewrite(self, caller: str, line: str) -> str:
        if " asm " in line and "call " in line:
            known = asm_call(line)
            if known is None:
                what = "inline PTX assembly (llvm.inline_asm)"
                raise self._unsupported(what, line)
            line = known
        match = CALL.match(line)
        if match is None:
            return line
        callee = callee_name(match["callee"])
        if match["callee"].startswith("%") or callee in self._defined:
            self._edges[caller].add(callee)
            return _with_arguments(match, match["callee"], (f"ptr {CONTEXT}",))
        if callee.startswith("llvm.") and not callee.startswith(_REPLACED):
            self._check_name(c_function(callee), callee, line)
            return line
        return self._replace(caller, line, match, callee)

    def _replace(self, caller: str, line: str, match: re.Match[str], callee: str) -> str:
        replacement = find_replacement(callee) or find_tensor_operation(self._module, callee)
        if replacement is None and callee in self._library:
            replacement = Replacement(callee, takes_context=False)
        if replacement is None and self._is_open:
            replacement = foreign_function(self._module, callee)
        if replacement is None and callee.startswith(_SUPPORTED):
            return line
        if replacement is None:
            raise self._missing(callee, line)
        for name in c_functions(replacement):
            self._check_name(name, callee, line)
        self.used[replacement.name] = replacement
        if replacement.sync.value > self._own[caller].value:
            self._own[caller] = replacement.sync
        extra: tuple[str, ...] = (f"ptr {CONTEXT}",) if replacement.takes_context else ()
        if replacement.takes_site:
            self._sites += 1
            extra = (*extra, f"i32 {self._sites}")
        if replacement.takes_place:
            extra = (*extra, f"ptr {symbol(place_name(len(self.places)))}")
            self.places.append(next(self._marked, ""))
        extra = (*extra, *replacement.operands)
        if not replacement.takes_operands:
            end = match.start("rest") + LLVM_IR.closing("(" + match["rest"], 0) - 1
            suffix = line[end + 1 :]
            return f"{match['head']}{symbol(replacement.name)}({', '.join(extra)}){suffix}"
        return _with_arguments(match, symbol(replacement.name), extra)

    def waits(self) -> dict[str, Sync]:
        """Return the threads with which each function synchronizes, callees included.

        An indirect call counts as a subgroup operation.
        """
        waits = dict(self._own)
        changed = True
        while changed:
            changed = False
            for name, callees in self._edges.items():
                found = max(
                    (waits[name], *self._reached(callees, waits)), key=lambda sync: sync.value
                )
                changed = changed or found is not waits[name]
                waits[name] = found
        return waits

    def callers_of(self, names: Iterable[str]) -> frozenset[str]:
        """Return the functions with their direct and indirect callers."""
        found = set(names)
        while grown := {
            name for name, callees in self._edges.items() if callees & found and name not in found
        }:
            found |= grown
        return frozenset(found)

    def _reached(self, callees: Iterable[str], waits: dict[str, Sync]) -> list[Sync]:
        return [
            sync
            for callee in callees
            for sync in ([waits[callee]] if callee in waits else [Sync.WARP])
        ]

    def _missing(self, callee: str, line: str) -> SourceError:
        if callee.startswith("llvm.") or callee not in dict(self._module.declarations):
            return self._unsupported(source_name_of(callee), line)
        return SourceError(
            f"device function @{callee} is not defined for the CPU",
            hint="define it, compile with -fgpu-rdc where another file does, or name its library: --device-lib=",
            location=location_of(self._module, line),
        )

    def _check_name(self, name: str, callee: str, line: str) -> None:
        if name in self._defined:
            msg = f"the device module defines @{name}: {callee} calls a C function of this name on the CPU"
            hint = "rename the kernel or function of the device module"
            raise NotOnCpuError(msg, hint=hint, location=location_of(self._module, line))

    def _unsupported(self, what: str, line: str) -> NotOnCpuError:
        return NotOnCpuError(
            f"{what} is not supported on the CPU",
            hint="leave 'host' out of --offload-arch, or replace the operation",
            location=location_of(self._module, line),
        )


def _with_arguments(match: re.Match[str], callee: str, extra: tuple[str, ...]) -> str:
    rest = match["rest"]
    comma = ", " if extra and not rest.startswith(")") else ""
    return f"{match['head']}{callee}({', '.join(extra)}{comma}{rest}"
