"""Convert CUDA's vprintf to OpenCL's printf, with a format in constant memory and separate arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from mlir_offload.offload.ir_syntax import LLVM_IR, string_of, unescape_bytes
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.translate.cpu.text import DeviceModule, symbol
from mlir_offload.translate.spirv.pointer import GENERIC

_ARGUMENTS, _ONE_FORMAT = "the arguments of printf are", "the format of printf is"
PRINTF = "_Z6printfPU3AS2Kcz"
PRINTF_DECLARATION = f"declare spir_func i32 @{PRINTF}(ptr addrspace(2), ...) nounwind"
_VPRINTF = ir_line(
    "`indent``result:result``tail ?`call i32 @vprintf(ptr addrspace(4) `format:some`, "
    "ptr addrspace(4) `buffer:operand`)"
)
_FORMAT = ir_pattern("addrspacecast (ptr addrspace(1) `format:global` to ")
_TEXT = ir_pattern('[`number` x i8] c"`text:string`"')
_BUFFER = ir_line("`indent`%mo.stack.`name:bare` = alloca {` ?``types:some`` ?`}`align?``end`")
# OpenCL C does not have `ll`; `l` is for 64 bits.
_LENGTH = re.compile(r"%(?:%|([-+ #0-9.*]*)ll(?=[diouxX]))")


class PrintfCalls(Struct):
    """Rewrites the calls of one module. `formats` are the variables with format strings."""

    module: DeviceModule
    formats: dict[str, str] = field(default_factory=dict)

    def rewrite(self, line: str, buffers: Mapping[str, tuple[str, ...]], number: int) -> list[str]:
        """Return the lines that replace a line. `buffers` are the types of the arguments by stack variable."""
        match = _VPRINTF.match(line)
        if match is None:
            return [line]
        text = self._format(match["format"])
        buffer = match["buffer"].removeprefix("%")
        if buffer != "null" and buffer not in buffers:
            raise _unknown(_ARGUMENTS)
        types = buffers.get(buffer, ())
        kind = f"{{ {', '.join(types)} }}"
        lines, arguments = [], [f"ptr addrspace(2) {text}"]
        for index, argument in enumerate(types):
            name = f"%mo.printf.{number}.{index}"
            place = f"i32 0, i32 {index}"
            lines += [
                f"  {name}.p = getelementptr {kind}, {GENERIC} {match['buffer']}, {place}",
                f"  {name} = load {argument}, {GENERIC} {name}.p",
            ]
            arguments.append(f"{argument} {name}")
        signature = "i32 (ptr addrspace(2), ...)"
        # nomerge: a merged call of two branches would select its format, which must be a constant.
        call = f"call spir_func {signature} @{PRINTF}({', '.join(arguments)}) nomerge"
        return [*lines, f"  {match['result'] or ''}{call}"]

    def _format(self, value: str) -> str:
        """Return the address of the format in constant memory."""
        reference = _FORMAT.match(value)
        globals_ = {symbol(name): line for name, line in self.module.globals}
        found = _TEXT.search(globals_.get(reference[1], "")) if reference else None
        if reference is None or found is None:
            raise _unknown(_ONE_FORMAT)
        text = _LENGTH.sub(_without_length, string_of(found["text"]))
        size = len(unescape_bytes(text))
        name = f"@mo.format.{len(self.formats)}"
        line = f'internal unnamed_addr addrspace(2) constant [{size} x i8] c"{text}"'
        return self.formats.setdefault(line, name)


def _without_length(match: re.Match[str]) -> str:
    # `%%` must match first, so that the characters after it are not a conversion.
    return match[0] if match[0] == "%%" else f"%{match[1]}l"


def printf_buffers(body: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the member types of each stack variable of a function that is a struct."""
    matches = (_BUFFER.match(line) for line in body)
    return {match["name"]: tuple(LLVM_IR.split_list(match["types"])) for match in matches if match}


def _unknown(what: str) -> SourceError:
    msg = f"{what} not known when a kernel is compiled for spirv64"
    return SourceError(msg, hint="use gpu.printf with a constant format")
