"""How each kernel of a program takes its parameters, and what its launches pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from mlir_offload.translate.fixup.parameter import ParameterRewriter, check_narrow
from mlir_offload.translate.fixup.unroll import unroll_loops
from mlir_offload.translate.gpu_module import KernelKey, is_kernel
from mlir_offload.translate.host.argument import distinct_arguments
from mlir_offload.translate.kernel_parameter import (
    WIDE,
    KernelParameters,
    ParameterForm,
    plan_parameters,
)
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation


class KernelForms(Struct, frozen=True):
    """How kernels take their parameters, those that are missing as they are written.

    `own` are those that only launches of the program launch; of those `distinct` are the parameters that
    are memory of their own. `index_bits` is the width of `index` in device code; the host's is 64.
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
        """Return the kernels whose indices are narrower than those of the host."""
        return self.kernels.keys() if self.index_bits != WIDE else ()

    def rewrite_module(self, module: Operation, locations: Locations) -> None:
        """Rewrite the kernels and loops of a `gpu.module`.

        Raises SourceError for what 32 bits would change.
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
        if self.unrolls:
            unroll_loops(module, is_narrow=self.index_bits != WIDE)


def choose_kernel_forms(
    modules: Iterable[Operation],
    host: Iterable[Operation],
    *,
    renamed: Collection[KernelKey],
    form: ParameterForm,
    index_bits: int,
) -> KernelForms:
    """Return how the kernels of a program take their parameters.

    The `renamed` kernels are named after the program, so that no other one launches them.
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
