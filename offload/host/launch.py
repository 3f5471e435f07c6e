"""Resolve the launches of a host module: each names the address of its kernel, and no module is loaded.

mlir-translate loads a binary for each `gpu.module`: when the program starts (LLVM 20 and newer), or at each
launch. Nothing of that is left. Values have numbers, so that an instruction gives way to another one.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from mlir_offload.offload.host.module import global_name, string_constants, symbol_of, unescape
from mlir_offload.offload.ir_syntax import concealed, reference, revealed
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.ir_pattern import ir_line, ir_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_GET_FUNCTION = ir_pattern(
    "call ptr @mgpuModuleGetFunction(ptr `words``operand`, ptr `words``name:operand`)"
)
_GET_FUNCTION_USE = ir_pattern("@mgpuModuleGetFunction")
_DECLARATION = ir_line("declare `head`@mgpuModule`Load|Unload|GetFunction`(`rest`\n")
_UNLOAD = ir_line("  call void @mgpuModuleUnload(`rest`\n")
_LOAD = ir_pattern("call ptr @mgpuModuleLoad(ptr `binary:global`, i64 `number`)")
_LOADED = ir_pattern("load ptr, ptr `handle:global`, align `number`")
_STUB = ir_pattern("`value:local` = bitcast ptr `stub:global` to ptr")
_LAUNCH = ir_pattern("`call:call void @mgpuLaunch``verb:word`(ptr `function:local`,")
_REFERENCE = ir_pattern("`global`")
_VARIABLE = ir_line("`name:global` = `rest`\n")
_FUNCTION_END = "\n}\n"
_STARTUP = ir_line(
    'define internal void `name:global`() section ".text.startup"`rest`{\n`body:lines`}\n'
)
_STORED = ir_pattern("store ptr `local`, ptr `handle:global`,")
_LISTED = ir_line(
    "`name:@llvm.global_ctors|@llvm.global_dtors` = appending global"
    " [`number` x { i32, ptr, ptr }] [`listed:rest`]\n"
)
_STRUCTOR = ir_pattern("{ i32, ptr, ptr } { i32 `number`, ptr `function:global`, ptr `operand` }")


def resolve_launches(text: str, addresses: Mapping[str, str], location: str = "") -> str:
    """Return the module with each launch naming the address of its kernel."""

    def resolved(match: re.Match[str]) -> str:
        if match[1] not in names:
            raise _unresolvable(location)
        symbol = unescape(names[match[1]])
        if symbol not in addresses:
            raise _unknown_kernel(symbol, addresses, location)
        spelled.add(match[1])
        return f"bitcast ptr {global_name(addresses[symbol])} to ptr"

    if not _DECLARATION.search(text):
        return text
    spelled = set[str]()
    names = {
        f"@{reference(symbol_of(name[1:]))}": content
        for name, content in string_constants(text).items()
    }
    body = _GET_FUNCTION.sub(resolved, _DECLARATION.sub("", concealed(text)))
    if _GET_FUNCTION_USE.search(body):
        raise _unresolvable(location)
    return revealed(_without_loading(body, spelled))


def _without_loading(text: str, spelled: set[str]) -> str:
    """Return the module without what loads binaries; `spelled` are the strings that named kernels."""
    startup = {
        match[1]: match[2] for match in _STARTUP.finditer(text) if "@mgpuModule" in match["body"]
    }
    handles = {name for body in startup.values() for name in _STORED.findall(body)}
    unused = spelled | handles | set(_LOAD.findall(text))
    text = _STARTUP.sub(lambda match: "" if match[1] in startup else match[0], text)
    text = _LISTED.sub(lambda match: _unlisted(match, startup), text)
    text = _UNLOAD.sub("", _LOAD.sub("bitcast ptr null to ptr", text))
    text = _LOADED.sub(
        lambda match: "bitcast ptr null to ptr" if match[1] in handles else match[0], text
    )
    text = _without_variables(text, unused)
    return _FUNCTION_END.join(map(_naming_stubs, text.split(_FUNCTION_END)))


def _naming_stubs(function: str) -> str:
    """Return a function whose launches name stubs themselves, as the host code of CUDA C++ does."""
    stubs = dict(_STUB.findall(function))
    return _LAUNCH.sub(
        lambda match: f"{match[1]}{match[2]}(ptr {stubs.get(match[3], match[3])},", function
    )


def _unlisted(match: re.Match[str], functions: Iterable[str]) -> str:
    kept = [item[0] for item in _STRUCTOR.finditer(match[2]) if item[1] not in functions]
    if not kept:
        return ""
    return (
        f"{match[1]} = appending global [{len(kept)} x {{ i32, ptr, ptr }}] [{', '.join(kept)}]\n"
    )


def _without_variables(text: str, names: set[str]) -> str:
    """Return the module without those of the variables that nothing uses."""
    uses = Counter(_REFERENCE.findall(text))
    removed = {name for name in names if uses[name] <= 1}
    return _VARIABLE.sub(lambda match: "" if match[1] in removed else match[0], text)


def _unresolvable(location: str) -> SourceError:
    return SourceError(
        "a launch does not name its kernel by a constant",
        hint="launch kernels with gpu.launch or gpu.launch_func, do not call mgpuModuleGetFunction",
        location=location,
    )


def _unknown_kernel(symbol: str, kernels: Iterable[str], location: str) -> SourceError:
    known = ", ".join(sorted(kernels)) or "none"
    return SourceError(
        f"kernel '{symbol}' is launched, but no gpu.module defines it",
        hint=f"kernels defined here: {known}",
        location=location,
    )
