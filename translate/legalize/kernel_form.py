"""Rewrite the memref parameters of kernels: as memrefs or as parts of descriptors, with pointer attributes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import KernelKey, is_kernel
from mlir_offload.translate.host.launch import distinct_arguments, element_bytes
from mlir_offload.translate.kernel import (
    ALLOCATED,
    POINTER,
    WIDE,
    KernelParameters,
    Parameter,
    ParameterForm,
    Place,
    plan_parameters,
    position_of,
)
from mlir_offload.translate.legalize import unroll
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
    Attribute,
    parse_shaped,
    render_dictionary,
    render_symbol,
)

_CAST = "builtin.unrealized_conversion_cast"
# Dialects whose operations do not communicate between threads. With others, such as barriers and atomics, a thread
# may read values that another thread wrote, which contradicts `noalias`.
_ALONE = frozenset({"affine", "arith", "cf", "complex", "index", "math", "scf", "ub", "vector"})
_ALONE_OF_OTHERS = frozenset(
    {
        *(f"gpu.{name}" for name in ("block_dim", "block_id", "global_id", "grid_dim", "lane_id")),
        *("gpu.return", "gpu.thread_id", "memref.cast", "memref.dim", "memref.load"),
        *("memref.store", "memref.subview"),
    }
)
_MOST_ALIGNED = 16


class ParameterRewriter(Rewriter):
    """Rewrites the parameters of one kernel, and assembles memrefs from them in its entry block."""

    def __init__(self, function: Operation, bits: int) -> None:
        """Take a kernel, and its width of `index`."""
        super().__init__("%mo_parameter_")
        self.function, self.bits = function, bits
        self.location = function.location
        self.arguments: list[BlockArgument] = []
        self.attributes: list[str] = []

    def apply(self, plan: KernelParameters, distinct: Collection[int]) -> None:
        """Rewrite the kernel. The memory of the `distinct` parameters does not alias that of others."""
        function = self.function
        entry = function.regions[0].blocks[0]
        given, known = entry.arguments, function.attribute("arg_attrs").elements
        is_alone = all(map(_is_alone, function.walk_inside()))
        beginning: list[Operation] = []
        with self.insertion_point(beginning):
            for number, parameter in enumerate(plan):
                own = known[number].entries if known else {}
                if parameter is None:
                    self._keep(given[number], own)
                    continue
                if number in distinct and (is_alone or parameter.is_read_only):
                    own = {**own, "llvm.noalias": Attribute("")}
                self._take_apart(given[number], parameter, own)
        passed = self.arguments
        entry.operations[:0] = beginning
        entry.label = entry_label([*passed, *given[len(plan) :]])
        takes = ", ".join(one.type for one in passed)
        function.set_attribute("function_type", Attribute(f"({takes}) -> ()"))
        if any(text != "{}" for text in self.attributes):
            function.signature.properties["arg_attrs"] = Attribute(
                f"[{', '.join(self.attributes)}]"
            )

    def _keep(self, argument: BlockArgument, own: Mapping[str, Attribute]) -> None:
        if argument.type == "index" and self.bits != WIDE:
            wide = self._add("i64", argument, {})
            self.insert(_renamed("arith.index_cast", argument, wide, self.location))
            return
        self.arguments.append(argument)
        self.attributes.append(f"{{{render_dictionary(own)}}}")

    def _take_apart(
        self, argument: BlockArgument, parameter: Parameter, own: Mapping[str, Attribute]
    ) -> None:
        attributes = {**_alignment(parameter), **own}
        taken = {
            place: self._add(
                parameter.part_type(place), argument, attributes if place == POINTER else {}
            )
            for place in parameter.parts
        }
        struct = self._descriptor(parameter, taken)
        self.insert(_renamed(_CAST, argument, struct, self.location))

    def _add(
        self, kind: str, argument: BlockArgument, attributes: Mapping[str, Attribute]
    ) -> Value:
        name = self.fresh_name()
        self.arguments.append(BlockArgument(name, kind, argument.location))
        self.attributes.append(f"{{{render_dictionary(attributes)}}}")
        return Value(name, kind)

    def _descriptor(self, parameter: Parameter, taken: Mapping[Place, Value]) -> Value:
        kind = parameter.descriptor.struct_type(self.bits)
        struct = self.value("llvm.mlir.undef", (), kind)
        for place, value in self._numbers(parameter, taken):
            struct = self.value("llvm.insertvalue", (struct, value), kind, position_of(place))
        return struct

    def _numbers(
        self, parameter: Parameter, taken: Mapping[Place, Value]
    ) -> Iterator[tuple[Place, Value]]:
        """Yield the parts of the descriptor: those that are passed, and those that the type determines."""
        if POINTER in taken:
            yield ALLOCATED, taken.get(ALLOCATED, taken[POINTER])
            yield POINTER, taken[POINTER]
        narrow = f"i{self.bits}"
        for place, number in parameter.descriptor.places():
            if number is not None:
                value = {"value": f"{number} : {narrow}"}
                yield place, self.value("llvm.mlir.constant", (), narrow, value)
            elif place in taken:
                wide = taken[place]
                is_wide = self.bits == WIDE
                yield place, wide if is_wide else self.value("llvm.trunc", (wide,), narrow)


def _renamed(name: str, argument: BlockArgument, value: Value, location: str) -> Operation:
    head = f" : ({value.type}) -> {argument.type} {location}".rstrip()
    return Operation(name, argument.name, value.name, head)


def _is_alone(operation: Operation) -> bool:
    name = operation.name
    return name.partition(".")[0] in _ALONE or name in _ALONE_OF_OTHERS


def _alignment(parameter: Parameter) -> dict[str, Attribute]:
    """Return the alignment of a pointer as an attribute: that of an element. Return nothing if it is unknown."""
    kind = parameter.descriptor.element
    while Attribute(kind).name == "complex":
        kind = Attribute(kind).body
    size = element_bytes(kind)
    if size < 1 or (size > WIDE // 8 and parse_shaped(kind, "vector") is None):
        return {}
    return {"llvm.align": Attribute(f"{min(size & -size, _MOST_ALIGNED)} : i64")}


def check_narrow(function: Operation, plan: KernelParameters, locations: Locations) -> None:
    """Raise SourceError for a parameter whose form depends on the width of `index`."""
    for kind, parameter in zip(function_type(function)[0], plan, strict=True):
        element = parameter.descriptor.element if parameter else kind.partition("<")[2]
        # The sizes and strides of a memref are also of this type.
        has_indices = "index" in element or "memref<" in element
        if not has_indices and (parameter or "memref<" not in kind):
            continue
        what = (
            "elements with numbers of type index" if has_indices else "a layout that is not strided"
        )
        msg = f"kernel {render_symbol(function.symbol)} takes {kind}, which has {what}"
        hint = "use elements of type i64 and strided layouts, or leave --index-bits=32 out"
        raise SourceError(msg, hint=hint, location=locations.of(function))


class KernelForms(Struct, frozen=True):
    """The forms of kernel parameters. Kernels that are missing here keep their parameters.

    `own` are the kernels that no other file launches, `distinct` their parameters whose memory does not
    alias others. `index_bits` is the width of `index` in device code; that of the host is 64.
    """

    kernels: Mapping[KernelKey, KernelParameters] = field(default_factory=dict)
    own: Collection[KernelKey] = ()
    distinct: Mapping[KernelKey, Collection[int]] = field(default_factory=dict)
    index_bits: int = WIDE
    unrolls: bool = False

    @property
    def launches(self) -> dict[KernelKey, KernelParameters]:
        """Return the kernels whose launches pass parts of memrefs."""
        return {key: self.kernels[key] for key in self.own}

    @property
    def narrow(self) -> Collection[KernelKey]:
        """Return the kernels whose `index` is narrower than that of the host."""
        return self.kernels.keys() if self.index_bits != WIDE else ()

    def rewrite_module(self, module: Operation, locations: Locations) -> None:
        """Rewrite the kernels and loops of a `gpu.module`.

        Raises SourceError for a parameter whose form would change with a 32-bit `index`.
        """
        for function in module.operations:
            key = (module.symbol, function.symbol)
            if function.name != "gpu.func" or key not in self.kernels:
                continue
            plan = self.kernels[key]
            if self.index_bits != WIDE:
                check_narrow(function, plan, locations)
            distinct = self.distinct.get(key, ()) if key in self.own else ()
            ParameterRewriter(function, self.index_bits).apply(plan, distinct)
        if self.unrolls and any(one.name == "scf.for" for one in module.walk_inside()):
            unroll.unroll_loops(module, is_narrow=self.index_bits != WIDE)


def choose_kernel_forms(
    modules: Iterable[Operation],
    host: Iterable[Operation],
    *,
    renamed: Collection[KernelKey],
    form: ParameterForm,
    index_bits: int,
) -> KernelForms:
    """Return the forms of the kernel parameters of a program.

    The names of `renamed` kernels are unique to the file, so that no other file launches them.
    """
    if form is ParameterForm.WHOLE and index_bits == WIDE:
        return KernelForms()
    own = renamed if form is ParameterForm.NEEDED else frozenset[KernelKey]()
    kernels = {
        (module.symbol, one.symbol): plan_parameters(
            one, only_needed=(module.symbol, one.symbol) in own
        )
        for module in modules
        for one in module.operations
        if one.name == "gpu.func" and is_kernel(one) and not one.is_declaration
    }
    distinct = distinct_arguments(host) if own else {}
    unrolls = form is not ParameterForm.WHOLE
    return KernelForms(kernels, own & kernels.keys(), distinct, index_bits, unrolls)
