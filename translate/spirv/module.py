"""Convert device modules from NVVM IR to LLVM IR for the SPIR-V back end.

The lowering is that for NVIDIA GPUs, because it supports more of the gpu dialect than
convert-gpu-to-llvm-spv. Calls of NVVM intrinsics and libdevice become calls of OpenCL C functions, which
the back end recognizes by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR, is_local, revealed, without_linkage
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_line, ir_pattern, ir_words
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import SPIRV_TRIPLE
from mlir_offload.translate.cpu.hoisted_address import place_addresses
from mlir_offload.translate.cpu.text import (
    CALL,
    DeviceModule,
    Function,
    callee_name,
    first_type,
    location_of,
    parse_device_module,
    symbol,
)
from mlir_offload.translate.device_ir import LINK_LIBRARY
from mlir_offload.translate.kernel import ParameterTypeError
from mlir_offload.translate.spirv.assertion import with_failures
from mlir_offload.translate.spirv.bfloat import without_bfloat
from mlir_offload.translate.spirv.boolean import variable_of_bytes, with_bytes
from mlir_offload.translate.spirv.call import (
    SpirvFunction,
    atomic_function,
    find_spirv_function,
    spirv_layout,
)
from mlir_offload.translate.spirv.conversion import rewrite_conversion
from mlir_offload.translate.spirv.pointer import GENERIC, GLOBAL, with_spirv_spaces
from mlir_offload.translate.spirv.printf import (
    PRINTF_DECLARATION,
    PrintfCalls,
    printf_buffers,
)

SUBGROUP_SIZE = 32
# The back end drops a trap, and treats the code after it as unreachable.
_LACKING = frozenset({"vprintf", "__assertfail", "llvm.trap", "llvm.debugtrap"})
_DYNAMIC = ir_pattern("= `internal|external` addrspace(3) global [0 x ")
_DYNAMIC_PARAMETER = "%mo.dynamic"
_CONVENTION = ir_words("ptx_kernel", "ptx_device")
_UNNAMED = ir_words("unnamed_addr", "local_unnamed_addr")
_CALL_START = ir_pattern("call `flags:fast_flags`")
_ATOMIC = ir_line(
    "`head:(``indent``local` = `)`atomicrmw `volatile ?``operation:word` "
    "ptr addrspace(`space:number`) `address:some`, `type:word` `value:operand` "
)
_GENERIC_PARAMETER = ir_line("ptr addrspace(4) `attributes:some``name:local``end`")
# SPIR-V has no other number types. The back end would widen them, but the host passes their own width.
_PASSED = frozenset({"half", "bfloat", "float", "double", "i8", "i16", "i32", "i64"})
_VECTOR = ir_line("<`number` x `element:word`>`end`")
_BOOLEAN_PARAMETER = ir_line("i1 `words``name:local``end`")


class ToolPaths(Protocol):
    """The programs of an LLVM release."""

    def tool(self, name: str) -> Path:
        """Return the path of a program of this release."""


def spirv_device_ir(
    ll_text: str, *, kernels: Collection[str], llvm_major: int, keeps_functions: bool = False
) -> str:
    """Convert a device module for the SPIR-V back end of an LLVM release.

    Pointer parameters of kernels point to global memory. A kernel with dynamic workgroup memory gets an
    additional parameter for it; the launch passes its size. Everything else becomes internal; with
    `keeps_functions`, external functions stay external, for other files. Raises SourceError for code that
    SPIR-V does not support.
    """
    module = with_spirv_spaces(parse_device_module(ll_text))
    module = with_failures(module, kernels, keeps_functions=keeps_functions)
    calls = _Calls(module, PrintfCalls(module))
    functions = [calls.rewrite(function) for function in module.functions]
    dynamic = frozenset(name for name, line in module.globals if _DYNAMIC.search(line))
    number = module.next_metadata_id()
    # Functions of other files may also depend on the subgroup size.
    marked = calls.uses_subgroup or calls.calls_out or keeps_functions
    size = f" !intel_reqd_sub_group_size !{number}" if marked else ""
    made = []
    for function in functions:
        if function.name in kernels:
            made.append(_kernel(function, dynamic, size))
        else:
            _check_no_dynamic(function, dynamic)
            made.append(_function(function, keeps_functions=keeps_functions))
    text = "\n".join(
        (
            # Otherwise LLVM adds the name of the file, which may be temporary.
            'source_filename = "LLVMDialectModule"',
            f'target datalayout = "{spirv_layout(llvm_major)}"',
            f'target triple = "{SPIRV_TRIPLE}"',
            *module.types,
            *(
                _internal_variable(variable_of_bytes(without_bfloat(line)))
                for name, line in module.globals
                if name not in dynamic
            ),
            *calls.render(),
            *(function.render() for function in made),
            # Annotations would make LLVM's reader mark the kernels with ptx_kernel again.
            *(line for line in module.tail if not line.startswith("!nvvm.annotations")),
            *((f"!{number} = !{{i32 {SUBGROUP_SIZE}}}",) if marked else ()),
            "",
        )
    )
    return revealed(text)


def spirv_bitcode_command(
    llvm: ToolPaths,
    source: Path,
    output: Path,
    *,
    opt_level: int,
    libraries: Sequence[Path] = (),
    arguments: Sequence[str] = (),
) -> Command:
    """Return the command that optimizes a device module to bitcode, for code generation at link time."""
    linked = (
        word for library in libraries for word in ("-Xclang", LINK_LIBRARY, "-Xclang", str(library))
    )
    # At -O0 pointers stay in structs, in which the back end loses their pointees.
    level = f"-O{max(1, opt_level)}"
    flags = ("-c", "-emit-llvm", level, "-Wno-override-module", *linked, *arguments)
    return Command((*_clang(llvm), *flags, str(source), "-o", str(output)))


def spirv_code_command(llvm: ToolPaths, source: Path, output: Path) -> Command:
    """Return the command that compiles bitcode to SPIR-V, as the linker wrapper does later."""
    flags = ("-c", "-O0", "-Xclang", "-disable-llvm-passes", "-Wno-override-module")
    return Command((*_clang(llvm), *flags, str(source), "-o", str(output)))


def _clang(llvm: ToolPaths) -> tuple[str, ...]:
    return (str(llvm.tool("clang")), f"--target={SPIRV_TRIPLE}", "-x", "ir")


class _Calls(Struct):
    """Rewrites calls, and collects the functions that they require."""

    module: DeviceModule
    printf: PrintfCalls
    used: dict[str, SpirvFunction] = field(default_factory=dict)
    external: dict[str, str] = field(default_factory=dict)
    uses_subgroup: bool = False

    @property
    def calls_out(self) -> bool:
        """Return whether the module calls a function of another file."""
        return bool(self.external)

    def rewrite(self, function: Function) -> Function:
        """Replace the calls of a function by calls that the back end supports."""
        buffers = printf_buffers(function.body)
        body: list[str] = []
        for number, line in enumerate(self._converted(function)):
            for made in self.printf.rewrite(without_bfloat(line), buffers, number):
                body += self._atomic(made, number) if "atomicrmw f" in made else [self._call(made)]
        return replace(function, head=without_bfloat(function.head), body=tuple(body))

    def _converted(self, function: Function) -> Iterator[str]:
        for number, line in enumerate(function.body):
            conversion = rewrite_conversion(line)
            for used in conversion.used:
                self._use(used)
            for made in conversion.lines:
                yield from with_bytes(made, number)

    def render(self) -> list[str]:
        """Return the definitions and declarations of all called functions."""
        formats = [f"{name} = {line}" for line, name in self.printf.formats.items()]
        declared = [PRINTF_DECLARATION] if formats else []
        return [*formats, *declared, *self.external.values(), *(f.text for f in self.used.values())]

    def _call(self, line: str) -> str:
        if "call " not in line:
            return line
        if " asm " in line:
            what = "inline assembly"
            raise _unsupported(what, self.module, line)
        match = CALL.match(line)
        if match is None:
            return line
        if match["callee"].startswith("%"):
            what = "a call of a function whose name is not known"
            raise _unsupported(what, self.module, line)
        name = callee_name(match["callee"])
        types = _argument_types(match["rest"])
        found = find_spirv_function(name, _result_type(match["type"]), types)
        if found is not None:
            self._use(found)
            return _converted(line, match["callee"], symbol(found.symbol))
        if name.startswith(("llvm.nvvm.", "__nv_")) or name in _LACKING:
            what = f"a call of {name}"
            raise _unsupported(what, self.module, line)
        if name.startswith("llvm.") or "call spir_func " in match["head"]:
            self._declare(name)
            return line
        self._declare(name)
        return _converted(line, match["callee"], match["callee"])

    def _declare(self, name: str) -> None:
        """Declare a function that the module declares: an intrinsic, or a function of another file."""
        line = dict(self.module.declarations).get(name)
        if line is None:
            return
        if name.startswith("llvm."):
            self.used.setdefault(name, SpirvFunction(name, line))
        else:
            self.external.setdefault(name, _convergent(_converted_head("declare spir_func ", line)))

    def _use(self, function: SpirvFunction) -> None:
        self.uses_subgroup = self.uses_subgroup or function.uses_subgroup
        for needed in (*function.needs, function):
            if needed is function or not needed.needs:
                self.used.setdefault(needed.symbol, needed)
            else:
                self._use(needed)

    def _atomic(self, line: str, number: int) -> list[str]:
        match = _ATOMIC.match(line)
        found = atomic_function(match["operation"], match["type"]) if match else None
        if match is None or found is None:
            what = f"atomicrmw {' '.join(line.split()[3:4])} of this type"
            raise _unsupported(what, self.module, line)
        self._use(found)
        address, lines = match["address"], []
        if match["space"] != "4":
            address = f"%mo.atomic.{number}"
            given = f"ptr addrspace({match['space']}) {match['address']}"
            lines = [f"  {address} = addrspacecast {given} to {GENERIC}"]
        arguments = f"{GENERIC} {address}, {match['type']} {match['value'].rstrip(',')}"
        call = f"call spir_func {match['type']} @{found.symbol}({arguments})"
        return [*lines, f"{match['head']}{call}"]


def _result_type(text: str) -> str:
    """Return the result type of a call: the last part of the text between `call` and the callee."""
    text = text.strip()
    if text[-1] not in "}]>)":
        return text.rsplit(" ", 1)[-1]
    for start in range(len(text)):
        if text[start] in "{[<(" and LLVM_IR.closing(text, start) == len(text) - 1:
            return text[start:]
    return text


def _argument_types(rest: str) -> tuple[str, ...]:
    arguments = rest[: LLVM_IR.closing("(" + rest, 0) - 1]
    return tuple(_type_of(argument) for argument in LLVM_IR.split_list(arguments))


def _type_of(argument: str) -> str:
    if argument.startswith("ptr addrspace("):
        return argument[: argument.index(")") + 1]
    return first_type(argument)


def _converted(line: str, callee: str, called: str) -> str:
    """Replace the callee of a call, and add the calling convention of SPIR-V."""
    start = line.index(callee)
    head = _CALL_START.sub(r"call \g<flags>spir_func ", line[:start], count=1)
    return f"{head}{called}{line[start + len(callee) :]}"


def _kernel(function: Function, dynamic: frozenset[str], size: str) -> Function:
    """Convert a kernel: pointers to global memory, dynamic workgroup memory as last parameter."""
    parameters, entry = [], []
    for parameter in function.parameters:
        generic, boolean = _GENERIC_PARAMETER.match(parameter), _BOOLEAN_PARAMETER.match(parameter)
        if generic is not None:
            name = generic["name"]
            given = f"%mo.given.{name[1:]}"
            parameters.append(f"{GLOBAL} {generic['attributes']}{given}")
            entry.append(f"  {name} = addrspacecast {GLOBAL} {given} to {GENERIC}")
        elif boolean is not None:
            name = boolean["name"]
            parameters.append(f"i8 %mo.given.{name[1:]}")
            entry.append(f"  {name} = trunc i8 %mo.given.{name[1:]} to i1")
        else:
            parameters.append(_checked_parameter(parameter, function.name))
    placed = place_addresses(function, dynamic, _dynamic_address)
    if placed is not function:
        parameters.append(f"ptr addrspace(3) {_DYNAMIC_PARAMETER}")
    position = 1 if placed.body and placed.body[0].endswith(":") else 0
    body = (*placed.body[:position], *entry, *placed.body[position:])
    made = replace(placed, body=body).with_parameters(tuple(parameters))
    head = _converted_head("define spir_kernel ", _UNNAMED.sub("", made.head))
    return replace(made, head=f"{_convergent(head)}{size}")


def _convergent(head: str) -> str:
    """Add the attribute `convergent` to the head of a function."""
    end = LLVM_IR.closing(head, head.index("(", head.index("@"))) + 1
    return f"{head[:end]} convergent{head[end:]}"


def _dynamic_address(_: str) -> tuple[str, ...]:
    return (f"getelementptr i8, ptr addrspace(3) {_DYNAMIC_PARAMETER}, i64 0",)


def _checked_parameter(parameter: str, kernel: str) -> str:
    kind = _type_of(parameter)
    vector = _VECTOR.fullmatch(kind)
    is_passed = kind.startswith("ptr") or (vector["element"] if vector else kind) in _PASSED
    if " byval(" in parameter or not is_passed:
        why, hint = (
            "which a kernel for spirv64 cannot take",
            "pass its members one by one, or in memory",
        )
        raise ParameterTypeError(kernel, kind, why, hint=hint)
    return parameter


def _function(function: Function, *, keeps_functions: bool) -> Function:
    head = _UNNAMED.sub("", function.head)
    is_internal = is_local(head.removeprefix("define "))
    word = "define " if keeps_functions and not is_internal else "define internal "
    return replace(function, head=_convergent(_converted_head(f"{word}spir_func ", head)))


def _converted_head(words: str, head: str) -> str:
    """Replace the linkage and calling convention in the first line of a function."""
    rest = _CONVENTION.sub("", head.split(" ", 1)[1], count=1)
    return f"{words}{without_linkage(rest)}"


def _check_no_dynamic(function: Function, dynamic: Iterable[str]) -> None:
    for name in dynamic:
        if any(symbol(name) in line for line in function.body):
            msg = f"function '{function.name}' uses dynamic shared memory, which only kernels have for spirv64"
            hint = (
                "take gpu.dynamic_shared_memory in the kernel, and pass the memref to the function"
            )
            raise SourceError(msg, hint=hint)


def _internal_variable(line: str) -> str:
    head, _, rest = line.partition(" = ")
    if rest.startswith(("external ", "internal ", "private ")):
        return line
    return f"{head} = internal {rest}"


class NotInSpirvError(SourceError):
    """An operation that SPIR-V does not support. With debug information, the error has a line."""


def _unsupported(what: str, module: DeviceModule, line: str) -> NotInSpirvError:
    hint = "leave spirv64 out of --offload-arch, or rewrite the kernel without it"
    message, place = f"{what} is not supported for spirv64", location_of(module, line)
    return NotInSpirvError(message, hint=hint, location=place)
