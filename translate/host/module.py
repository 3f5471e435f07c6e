"""Check the lowered host module, and correct its LLVM IR."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from msgspec import Struct

from mlir_offload.offload.ir_syntax import LLVM_IR, concealed, is_local, revealed
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate.host import arithmetic
from mlir_offload.translate.host.launch import SourceWarning
from mlir_offload.translate.lower import check_lowered
from mlir_offload.translate.mlir.module import Locations, parse_module
from mlir_offload.translate.mlir.operation import Operation, function_type
from mlir_offload.translate.mlir.syntax import integer_width, parse_shaped

_LAYOUT = ir_line("target datalayout = `rest`\n")
_LABEL = ir_line("`bare`:")
_FRAME = ir_line("  `local` = alloca `local`, align `number`")
_PARAMETERS = ir_line("  `frame:local` = alloca ptr, i64 `number`, align `number`")
_LAUNCH = ir_line("  call void @mgpuLaunch`Kernel|ClusterKernel`(`arguments:rest`")
_STREAM = ir_line("  `stream:local` = call ptr @mgpuStreamCreate()")
_VALUE = ir_pattern("`local`")
_LIBM = "mo.libm."
_LIBM_DECLARATION = ir_line("declare `head`@`name:(`mo.libm.`bare``)`(`rest`\n")
_FUNCTION = ir_line("`declare|define` `head`@`name:bare`(")
_MAIN = "main"
_VOID_MAIN = ir_pattern("void @main(")
_VOID_MAIN_BODY = ir_line("define `head`void @main(`rest`\n`lines`}")
_RETURN = ir_line("  ret void")
# The size of an array as a constant product, which LLVM 21 and newer do not parse.
_PRODUCT = "mul (i64 ptrtoint (ptr getelementptr ("
_ONE, _COUNT = ", ptr null, i32 1) to i64), i64 ", "ptrtoint (ptr getelementptr ("
_DEBUG_SUFFIX = ir_pattern(", !dbg !`number``end`")
_INTRINSICS = {
    "@llvm.stacksave.p0(": "declare ptr @llvm.stacksave.p0()",
    "@llvm.stackrestore.p0(": "declare void @llvm.stackrestore.p0(ptr)",
}
_DESTROY_DECLARATION = ir_line("`declare|define` `head`@mgpuStreamDestroy(")
_BORROWS_STREAM = ir_pattern(
    "call `head`@mgpu`LaunchKernel|LaunchClusterKernel|MemAlloc|MemFree|Memcpy|MemcpyMemRef|Memset"
    "|MemsetMemRef|StreamSynchronize|StreamWaitEvent|EventRecord``number?`("
)
_LOWERED = "llvm.func"
_FUNCTIONS = frozenset({"func.func", _LOWERED})
_MAIN_PARAMETERS = ("i32", "!llvm.ptr", "!llvm.ptr")
_LONGEST = 64
# Parts of all operations that may have to be expanded.
_EXPANDED = ("bfloat", ".constrained.fptrunc.", "f16(", "f80(", "f128(")
# Small integers, and the attributes with which C compilers pass them: `bool`, `int8_t` and `int16_t`.
_EXTENSIONS = {"i1": "zeroext", "i8": "signext", "i16": "signext"}
_DEFINED = ir_line("define `words:words``type:i1|i8|i16` @")
_DECLARED = ir_line("`head:(`declare `head`@`name:bare``)`(`rest:rest`")
_CALLED = ir_line(
    "`head:(``indent``result``tail |musttail |notail ?``call|invoke` `type:some``)``callee:callee`(`rest:rest`"
)
# Functions of the runtime and of MLIR's runner libraries with unsigned parameters.
_UNSIGNED = ("mgpu", "printF16", "printBF16")
_INDIRECT = ir_pattern(" %`bare`(")
_INTRINSIC, _VARIADIC = "llvm.", "..."
_C_INTERFACE = "llvm.emit_c_interface"
_UNRANKED = "memref<*x"
# The lowered form of an unranked memref.
_LOWERED_MEMREF = ["i64", "!llvm.ptr"]


def check_host(text: str) -> None:
    """Raise SourceError if the lowered host module contains an operation that mlir-translate does not support."""
    module = parse_module(text)
    check_lowered(module.operations, Locations(module.aliases), place="host code")


def legalize_host_ir(text: str) -> str:
    """Correct the LLVM IR of the host module.

    mlir-translate allocates the argument array of a launch on the stack and never releases it, which
    overflows the stack in a loop; therefore launches are enclosed in stacksave and stackrestore. A
    stream that the lowering creates for a token and never destroys is destroyed after its last use;
    its work continues. A `main` without a result returns 0. Sizes get a form that every release reads.
    Small integers are extended where C relies on it. Arithmetic that the back end computes wrongly is
    expanded; SourceError if that is not supported.
    The data layout of the lowering is removed: clang adds that of the target.
    """
    text = _LAYOUT.sub("", concealed(text), count=1)
    text = _with_exit_status(_with_extensions(_with_libm_names(text)))
    text = _with_sizes(text)
    if any(word in text for word in _EXPANDED):
        text = arithmetic.expand_arithmetic(text)
    return revealed(_fix_launches(text) if "@mgpu" in text else text)


def _fix_launches(text: str) -> str:
    out: list[str] = []
    counter = _Counter()
    lines = iter(text.splitlines())
    for line in lines:
        out.append(line)
        if line.startswith("define ") and line.endswith("{"):
            out.extend(_fix_function(_function_body(lines), counter))
    if counter.saved:
        out.extend(declaration for name, declaration in _INTRINSICS.items() if name not in text)
    if counter.destroyed and _DESTROY_DECLARATION.search(text) is None:
        out.append("declare void @mgpuStreamDestroy(ptr)")
    return "\n".join(out) + "\n"


def _with_libm_names(text: str) -> str:
    """Give functions of libm, which have a prefix in the lowering (`near_zero`), their names."""
    if _LIBM not in text:
        return text
    known = {match["name"] for match in _FUNCTION.finditer(text)}

    def declared(match: re.Match[str]) -> str:
        return "" if match["name"].removeprefix(_LIBM) in known else match[0]

    return _LIBM_DECLARATION.sub(declared, text).replace(f"@{_LIBM}", "@")


def _with_extensions(text: str) -> str:
    """Extend integers of less than 32 bits that external functions return and take.

    The x86-64 ABI does not specify the upper bits of `signed char` and `short`, but code of clang relies on callers to
    extend arguments and on functions to extend results, and any compiler's on `bool`. MLIR extends only what has the
    attribute `llvm.signext` or `llvm.zeroext`. Results of declared functions get no attribute, which is a promise of
    the function: C may define it with an unsigned result.
    """
    text = _DECLARED.sub(_declaration, _DEFINED.sub(_definition, text))
    if _VARIADIC in text or _INDIRECT.search(text) is not None:
        text = _CALLED.sub(_call, text)
    return text


def _definition(match: re.Match[str]) -> str:
    words, kind = match["words"], match["type"]
    if is_local(words) or _is_extended(words):
        return match[0]
    return f"define {words}{_EXTENSIONS[kind]} {kind} @"


def _declaration(match: re.Match[str]) -> str:
    if match["name"].startswith(_INTRINSIC):
        return match[0]
    made = _extended_list(match, 0)
    if match["name"].startswith(_UNSIGNED):
        made = made.replace(" signext", " zeroext")
    return made


def _call(match: re.Match[str]) -> str:
    """Extend the arguments whose parameters no declaration describes: of a pointer, and variadic ones."""
    callee, before = match["callee"], match["type"]
    if callee.startswith("%"):
        return _extended_list(match, 0)
    if callee.startswith(f"@{_INTRINSIC}") or _VARIADIC not in before:
        return match[0]
    fixed = LLVM_IR.split_list(LLVM_IR.inside(before, before.rindex("(")))
    return _extended_list(match, len(fixed) - 1)


def _extended_list(match: re.Match[str], first: int) -> str:
    """Return the matched line with extended elements in its list, from the `first` one on."""
    head, rest = match["head"], match["rest"]
    if not any(kind in rest for kind in _EXTENSIONS):
        return match[0]
    callee = match["callee"] if "callee" in match.re.groupindex else ""
    end = LLVM_IR.closing(f"({rest}", 0) - 1
    given = LLVM_IR.split_list(rest[:end])
    listed = [*given[:first], *map(_extended_item, given[first:])]
    return f"{head}{callee}({', '.join(listed)}{rest[end:]}"


def _extended_item(item: str) -> str:
    kind, space, behind = item.partition(" ")
    if kind not in _EXTENSIONS or _is_extended(behind):
        return item
    return f"{kind} {_EXTENSIONS[kind]}{space}{behind}"


def _is_extended(words: str) -> bool:
    return not {"signext", "zeroext", "noext"}.isdisjoint(words.split())


def _with_exit_status(text: str) -> str:
    """Make a `main` without a result return 0."""
    body = _VOID_MAIN_BODY.search(text)
    if body is None:
        return text
    made = _RETURN.sub("  ret i32 0", body[0])
    return _VOID_MAIN.sub("i32 @main(", f"{text[: body.start()]}{made}{text[body.end() :]}")


def _with_sizes(text: str) -> str:
    """Rewrite the size of N elements as the address of element N from null."""
    first, *rest = text.split(_PRODUCT)
    made = [first]
    for part in rest:
        kind, one, behind = part.partition(_ONE)
        count, end, behind = behind.partition(")")
        is_size = one and end and count.isdecimal() and "\n" not in kind
        made.append(
            f"{_COUNT}{kind}, ptr null, i64 {count}) to i64){behind}"
            if is_size
            else _PRODUCT + part
        )
    return "".join(made)


class _Counter(Struct):
    saved: int = 0
    destroyed: int = 0


def _function_body(lines: Iterator[str]) -> list[str]:
    body = []
    for line in lines:
        body.append(line)
        if line == "}":
            break
    return body


def _fix_function(body: list[str], counter: _Counter) -> list[str]:
    if not any("@mgpu" in line for line in body):
        return body
    return _restore_stack(_destroy_streams(body, counter), counter)


def _restore_stack(body: list[str], counter: _Counter) -> list[str]:
    """Enclose each launch outside of the entry block in stacksave and stackrestore."""
    out: list[str] = []
    in_entry = True
    open_frames: dict[str, str] = {}
    for index, line in enumerate(body):
        in_entry = in_entry and not (index and _LABEL.match(line))
        parameters = _PARAMETERS.match(body[index + 1]) if _FRAME.match(line) else None
        if parameters and not in_entry:
            saved = f"%mo.stack.{counter.saved}"
            counter.saved += 1
            open_frames[parameters[1]] = saved
            out.append(f"  {saved} = call ptr @llvm.stacksave.p0()")
        out.append(line)
        launch = _LAUNCH.match(line) if open_frames else None
        frame = (
            next((name for name in _VALUE.findall(launch[1]) if name in open_frames), None)
            if launch
            else None
        )
        if frame is not None:
            debug = _DEBUG_SUFFIX.search(line)
            suffix = debug[0] if debug else ""
            out.append(f"  call void @llvm.stackrestore.p0(ptr {open_frames.pop(frame)}){suffix}")
    return out


def _destroy_streams(body: list[str], counter: _Counter) -> list[str]:
    """Destroy each stream that is never destroyed and does not escape from its block."""
    last_uses: dict[int, list[str]] = {}
    for index, line in enumerate(body):
        stream = _STREAM.match(line)
        last = _last_use(body, index, stream[1]) if stream else None
        if stream and last is not None:
            last_uses.setdefault(last, []).append(stream[1])
    out: list[str] = []
    for index, line in enumerate(body):
        out.append(line)
        debug = _DEBUG_SUFFIX.search(line)
        for name in last_uses.get(index, ()):
            counter.destroyed += 1
            out.append(f"  call void @mgpuStreamDestroy(ptr {name}){debug[0] if debug else ''}")
    return out


def _last_use(body: list[str], start: int, stream: str) -> int | None:
    uses = [i for i, line in enumerate(body) if i != start and _uses(line, stream)]
    block_end = next((i for i in range(start, len(body)) if _LABEL.match(body[i])), len(body))
    if any(not start < i < block_end for i in uses):
        return None
    if not all(_BORROWS_STREAM.search(body[i]) for i in uses):
        return None
    return uses[-1] if uses else start


def _uses(line: str, value: str) -> bool:
    """Return whether a line uses a value. The substring test is fast and excludes most lines."""
    return value in line and value in _VALUE.findall(line)


def check_main(operations: Iterable[Operation], locations: Locations) -> None:
    """Raise SourceError for a `main` with parameters or a result that the C runtime does not support."""
    for operation in operations:
        if operation.name not in _FUNCTIONS or operation.is_declaration:
            continue
        if operation.symbol != _MAIN:
            continue
        takes, gives = function_type(operation)
        gets_all = tuple(takes) == _MAIN_PARAMETERS[: len(takes)]
        if gets_all and (not gives or (len(gives) == 1 and _is_status(gives[0]))):
            continue
        msg = f"a program cannot start with @main of type ({', '.join(takes)}) -> ({', '.join(gives)})"
        hint = (
            "use func.func @main(), or @main(%argc: i32, %argv: !llvm.ptr), with an integer result or none; "
            "a function for other callers needs another name, or -shared or -fPIC"
        )
        raise SourceError(msg, hint=hint, location=locations.of(operation))


def _is_status(kind: str) -> bool:
    is_signless = kind.startswith("i") and 0 < integer_width(kind) <= _LONGEST
    return kind == "index" or is_signless


class _Signature(Struct, frozen=True, kw_only=True):
    """The parameter and result types of a library function, and a hint for calls with another type.

    `interface`: the types are those of the function with `llvm.emit_c_interface`.
    """

    takes: list[str] = []
    gives: list[str] = []
    hint: str = ""
    interface: bool = False

    def __str__(self) -> str:
        return f"({', '.join(self.takes)}) -> ({', '.join(self.gives)})"


@cache
def _signatures() -> dict[str, _Signature]:
    """Return the signatures of the library functions by name."""
    rows = load_table("mlir_offload.toolchain", "runner_libraries")["signatures"]
    return {
        name: _Signature(**{key: row[key] for key in row if key != "names"})
        for row in rows
        for name in row["names"]
    }


def find_other_types(host: Iterable[Operation], locations: Locations) -> Iterator[SourceWarning]:
    """Yield a warning for each declaration of a library function with a wrong type.

    Functions are linked by name only; with a wrong type, the values would be in other registers.
    """
    for operation in host:
        if operation.name not in _FUNCTIONS or not operation.is_declaration:
            continue
        signature = _signatures().get(operation.symbol)
        takes, gives = function_type(operation)
        if signature and signature.interface and operation.name == _LOWERED:
            continue
        if signature and not (
            _is_same(takes, signature.takes) and _is_same(gives, signature.gives)
        ):
            name, given = operation.symbol, f"({', '.join(takes)}) -> ({', '.join(gives)})"
            text = f"'{name}' of MLIR's runner library is {signature}, and declared as {given}"
            hint = f": {signature.hint}" if signature.hint else ""
            yield SourceWarning(f"{text}{hint}", locations.of(operation))
        elif signature and signature.interface and not operation.has(_C_INTERFACE):
            text = f"'{operation.symbol}' of MLIR's runner library takes memrefs by the C interface only"
            hint = f": declare it with attributes {{{_C_INTERFACE}}}"
            yield SourceWarning(f"{text}{hint}", locations.of(operation))


def _is_same(given: list[str], wanted: list[str]) -> bool:
    if any(kind.startswith(_UNRANKED) for kind in wanted) and given == _LOWERED_MEMREF:
        return True
    return list(map(_passed, given)) == list(map(_passed, wanted))


def _passed(kind: str) -> str:
    """Return the type that is passed: a memref without sizes, layout and memory space, i64 for `index`."""
    if kind.startswith(_UNRANKED):
        element = kind.removeprefix(_UNRANKED).partition(",")[0].removesuffix(">")
        return f"{_UNRANKED}{_passed(element)}>"
    if memref := parse_shaped(kind, "memref"):
        return f"memref<{'?x' * len(memref.sizes)}{_passed(memref.element)}>"
    return "i64" if kind == "index" else kind
