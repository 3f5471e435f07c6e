"""Kernel parameters whose form in memory differs between the host and a device: widen them, or reject them.

The back ends disagree on the bits of a vector of i1 or i24. That of NVIDIA GPUs reads an element of a vector at a
multiple of its own size, which for `vector<8xi1>` is beyond the parameter; LLVM's x86-64 packs the bits. PTX has no
integers of other than 8, 16, 32, 64 and 128 bits either. Such values are therefore passed with the next wider
elements. mgpuLaunchKernel takes dimensions of 64 bits, to which gpu-to-llvm does not extend those of 32 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import (
    KernelKey,
    argument_types,
    arguments_of,
    is_kernel,
    launches_in,
    replace_arguments,
    replace_dimensions,
)
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import (
    BlockArgument,
    Operation,
    Value,
    entry_label,
    function_type,
)
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import (
    MLIR,
    Attribute,
    float_width,
    integer_width,
    is_layout,
    parse_shaped,
    render_symbol,
)

_HALVES = frozenset({"f16", "bf16"})
_SMALL, _USUAL_FLOATS = ("f4", "f6", "f8"), frozenset({"f64", "f80"})
_BYTE, _PAIR, _WORD, _LARGEST_ALIGNED, _LARGEST_ELEMENT = 8, 16, 32, 64, 128
# Scalars have PTX types; i1 is passed as a byte.
_SCALARS = frozenset({1, 8, 16, 32, 64, 128})
_ELEMENTS = _SCALARS - {1}
_HOST_SPACES = frozenset({"0", "1", "0 : i64", "1 : i64", "1 : i32", "#gpu.address_space<global>"})
_OF_A_BLOCK = frozenset({"3", "5", "#gpu.address_space<workgroup>", "#gpu.address_space<private>"})
_LAYOUTS = ("strided<", "affine_map<", "#map")
_WIDE_FLOATS = frozenset({"f80", "f128", "ppc_fp128"})
_OPAQUE = frozenset({"!llvm.target", "!llvm.x86_amx", "!llvm.token", "!llvm.metadata", "none"})
_AGGREGATES = frozenset({"!llvm.struct", "!llvm.array", "struct", "array"})


class Fault(NamedTuple):
    """Why a launch cannot pass a type, as a clause that follows the type, and what to do."""

    reason: str
    hint: str


_OPAQUE_FAULT = Fault("has no form in memory", "pass a number, a pointer or a memref")
_UNEVEN_HINT = "pass it as a parameter of its own, or as elements of 8, 16, 32 or 64 bits"
# By the name of a type, without its parameters.
_FAULTS = {
    **dict.fromkeys(_OPAQUE, _OPAQUE_FAULT),
    "tuple": Fault("has no form in memory", "pass its elements one by one"),
    "()": Fault("is a function", "call a function of the gpu.module"),
    "i0": Fault("has no bytes", "leave the parameter out"),
    "tf32": Fault("has no form in memory", "pass f32"),
    "!gpu.async.token": Fault(
        "is for the host only", "write it before the kernel: gpu.launch_func async [%token] @..."
    ),
    "!gpu.mma_matrix": Fault(
        "is distributed among the threads of a subgroup",
        "pass a memref, and load it in the kernel with gpu.subgroup_mma_load_matrix",
    ),
}


def check_parameters(
    modules: Iterable[Operation], host: Iterable[Operation], locations: Locations
) -> None:
    """Raise SourceError for a kernel parameter, or an operand of a launch, that cannot be passed."""
    for function in (one for module in modules for one in module.operations if is_kernel(one)):
        arguments = _arguments(function)
        for kind, argument in zip(function_type(function)[0], arguments, strict=False):
            fault = fault_of(kind, locations.aliases)
            if fault is None and widened(kind) != kind and not _has_body(function):
                fault = Fault("has another form in memory on a GPU", _UNEVEN_HINT)
            if fault is not None:
                name = render_symbol(function.symbol)
                msg = f"kernel {name} takes a value of type {kind}, which {fault.reason}"
                place = locations.resolve(argument.location) or locations.of(function)
                raise SourceError(msg, hint=fault.hint, location=place)
    for launch in (one for operation in host for one, _ in launches_in(operation)):
        for kind in argument_types(launch):
            space = _space(kind)
            if space not in _HOST_SPACES:
                msg = f"a launch passes {kind}, but the host has no memory of this space"
                hint = (
                    "use gpu.dynamic_shared_memory, or a workgroup or private attribution of gpu.func"
                    if space in _OF_A_BLOCK
                    else "pass memory of the default space, and cast it in the kernel"
                )
                raise SourceError(msg, hint=hint, location=locations.of(launch))


def fault_of(kind: str, aliases: Mapping[str, str]) -> Fault | None:
    """Return why a launch cannot pass a type to a kernel, None if it can or if that is unknown."""
    name = Attribute(kind).name
    if name in _AGGREGATES:
        return _aggregate_fault(kind) if _members(Attribute(kind)) else _FAULTS["i0"]
    if name == "vector":
        return _vector_fault(kind)
    if name == "memref":
        return _memref_fault(kind, aliases)
    return _FAULTS["()"] if kind.startswith("(") else _FAULTS.get(name)


def _vector_fault(kind: str) -> Fault | None:
    if "[" in kind:
        return Fault("has a size that only the host knows", "use a vector of a fixed size")
    vector = parse_shaped(kind, "vector")
    if vector and integer_width(vector.element) > _LARGEST_ALIGNED and widened(kind) == kind:
        return Fault("LLVM 19 does not pass to NVIDIA GPUs", "use a vector of i64")
    return None


def _memref_fault(kind: str, aliases: Mapping[str, str]) -> Fault | None:
    memref = parse_shaped(kind, "memref")
    if memref is None:
        return None
    bits = integer_width(memref.element)
    if bits > _LARGEST_ELEMENT and bits & (bits - 1):
        return Fault(
            "has elements whose distance differs between targets", "use integers of 128 or 256 bits"
        )
    layouts = [aliases.get(one, one) for one in memref.parameters if is_layout(one)]
    if any(one.startswith("affine_map<") and ", " in one.rpartition("->")[2] for one in layouts):
        return Fault("has a layout that is not strided", "use a layout such as strided<[1, 4]>")
    return None


def _aggregate_fault(kind: str) -> Fault | None:
    """Return why a struct or an array cannot be passed."""
    for member in _members(Attribute(kind)):
        vector = parse_shaped(member, "vector")
        element = vector.element if vector else member
        if member in _WIDE_FLOATS:
            return Fault(f"contains {member}, which GPUs do not have", "pass f64")
        if integer_width(member) > _LARGEST_ALIGNED:
            reason = f"contains {member}, whose alignment differs between targets"
            return Fault(reason, "pass it as numbers of type i64")
        if vector and widened(member) != member:
            return Fault(f"contains {member}, which has another form on a GPU", _UNEVEN_HINT)
        if Attribute(element).name == "ptr" and element not in {"ptr", "ptr<1>"}:
            return Fault(f"contains {element}, a pointer that the host does not have", "pass ptr")
        fault = _aggregate_fault(member) if Attribute(member).name in _AGGREGATES else None
        if fault is not None:
            return fault
    return None


def _members(kind: Attribute) -> list[str]:
    """Return the types of the members of a struct, or of the elements of an array."""
    body = kind.body
    if kind.name.endswith("array"):
        count, _, element = body.partition(" x ")
        return [element] if int(count) else []
    # The name of a struct may contain brackets.
    *_, last = MLIR.split_list(body) or [""]
    start = last.find("(")
    return MLIR.split_list(MLIR.inside(last, start)) if start >= 0 else []


def _space(kind: str) -> str:
    """Return the memory space of a memref or pointer, "0" for the default and for other types."""
    name = Attribute(kind).name
    if name == "!llvm.ptr":
        return Attribute(kind).body or "0"
    if name != "memref" or "," not in kind:
        return "0"
    _, *parameters = MLIR.split_list(Attribute(kind).body)
    last = parameters[-1] if parameters else "0"
    return "0" if last.startswith(_LAYOUTS) else last


def widened(kind: str) -> str:
    """Return the type with which a value is passed."""
    vector = parse_shaped(kind, "vector")
    element = vector.element if vector else kind
    bits = _bits(element)
    if bits and vector and _is_misread(vector.sizes, bits):
        return _with_element(kind, element, f"i{_WORD}")
    if not bits or element in _HALVES or bits in (_ELEMENTS if vector else _SCALARS):
        return kind
    return _with_element(kind, element, f"i{max(_BYTE, 1 << (bits - 1).bit_length())}")


def _is_misread(sizes: tuple[int | None, ...], bits: int) -> bool:
    """Return whether LLVM 19 for NVIDIA GPUs reads four bytes of a vector of two, or crashes on 6, 10, 12, ... elements."""
    count = (sizes[-1] if sizes else 1) or 1
    is_pair = count * max(bits, _BYTE) == _PAIR
    return bits < _WORD and (is_pair if count & (count - 1) == 0 else count % 2 == 0)


def _bits(kind: str) -> int:
    """Return the width of an integer, or of a number of at most 16 bits that has no PTX type; 0 for another type."""
    if kind in _HALVES or (kind.startswith(_SMALL) and kind not in _USUAL_FLOATS):
        return float_width(kind)
    return integer_width(kind) if kind.startswith("i") else 0


def _integer(kind: str) -> str:
    """Return the integer type with the bits of a type."""
    vector = parse_shaped(kind, "vector")
    element = vector.element if vector else kind
    return _with_element(kind, element, f"i{_bits(element)}")


def _with_element(kind: str, element: str, other: str) -> str:
    """Return a scalar type, or a vector type, with another element type."""
    return other if kind == element else f"{kind.removesuffix(f'{element}>')}{other}>"


def widen_kernels(modules: Iterable[Operation]) -> None:
    """Make the kernels that gpu.func defines take wider values, from which they take the bits."""
    for function in (one for module in modules for one in module.operations):
        if is_kernel(function) and _has_body(function):
            takes = function_type(function)[0]
            if any(widened(kind) != kind for kind in takes):
                _KernelRewriter("%mo_operand_").widen(function, takes)


def _has_body(function: Operation) -> bool:
    return function.name == "gpu.func" and not function.is_declaration


def _arguments(function: Operation) -> tuple[BlockArgument, ...]:
    if function.is_declaration:
        return (BlockArgument("", ""),) * len(function_type(function)[0])
    return function.regions[0].blocks[0].arguments


class _KernelRewriter(Rewriter):
    """Rewrites the parameters of one kernel."""

    def widen(self, function: Operation, takes: list[str]) -> None:
        """Rewrite the entry block and the type. `takes` are the parameter types."""
        self.location = function.location
        entry = function.regions[0].blocks[0]
        beginning: list[Operation] = []
        arguments = list(entry.arguments)
        with self.insertion_point(beginning):
            for index, kind in enumerate(takes):
                if widened(kind) != kind:
                    arguments[index] = self._narrowed(arguments[index])
        entry.operations[:0] = beginning
        entry.label = entry_label(arguments)
        types = ", ".join(map(widened, takes))
        function.set_attribute("function_type", Attribute(f"({types}) -> ()"))

    def _narrowed(self, argument: BlockArgument) -> BlockArgument:
        kind = argument.type
        wide = BlockArgument(self.fresh_name(), widened(kind), argument.location)
        value = Value(wide.name, wide.type)
        steps = []
        if wide.type != _integer(kind):
            steps.append(("arith.trunci", _integer(kind)))
        if _integer(kind) != kind:
            steps.append(("arith.bitcast", kind))
        for name, made in steps:
            result = argument.name if made == kind else self.fresh_name()
            head = f" : ({value.type}) -> {made} {self.location}".rstrip()
            self.insert(Operation(name, result, value.name, head))
            value = Value(result, made)
        return wide


class LaunchRewriter(Rewriter):
    """Rewrites the operands of launches: the arguments of widened kernels, and dimensions of 32 bits."""

    def __init__(self, kernels: Collection[KernelKey]) -> None:
        """Take the kernels that the program defines."""
        super().__init__("%mo_operand_")
        self._kernels = kernels

    def rewrite_function(self, function: Operation) -> None:
        """Rewrite the launches in a host operation."""
        launched = {id(launch): key for launch, key in launches_in(function)}
        self.rewrite_chosen(function, launched, self._rewrite_launch)

    def _rewrite_launch(self, launch: Operation, key: KernelKey) -> None:
        replace_dimensions(launch, self._extended)
        given = arguments_of(launch)
        if key in self._kernels and any(widened(one.type) != one.type for one in given):
            replace_arguments(launch, [self._passed(one) for one in given])
        self.insert(launch)

    def _extended(self, value: Value) -> Value:
        return self.value("arith.extsi", (value,), "i64") if value.type == "i32" else value

    def _passed(self, value: Value) -> Value:
        wide = widened(value.type)
        if wide == value.type:
            return value
        if value.type != (integer := _integer(value.type)):
            value = self.value("arith.bitcast", (value,), integer)
        return value if value.type == wide else self.value("arith.extui", (value,), wide)
