"""Split a program into its host module and its device modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.toolchain.target import Target
from mlir_offload.translate import gpu_binary, target_attribute
from mlir_offload.translate.gpu_module import (
    DeclaredKernel,
    GpuModule,
    KernelKey,
    check_declared_launches,
    check_launches,
    has_unusual_operands,
    kernel_names,
    named_modules,
    read_declared,
    rename_launches,
)
from mlir_offload.translate.host import divergent_barrier, unsigned
from mlir_offload.translate.host import interface as host_interface
from mlir_offload.translate.host import memory as host_memory
from mlir_offload.translate.host.async_chain import AsyncRewriter
from mlir_offload.translate.host.launch import (
    ArgumentRewriter,
    LaunchCheck,
    SourceWarning,
    describe_launches,
)
from mlir_offload.translate.host.module import check_main, find_other_types
from mlir_offload.translate.input_pipeline import drop_scripts
from mlir_offload.translate.kernel import (
    WIDE,
    ParameterForm,
    assign_symbols,
    host_symbols,
    owner_of,
    unit_of,
)
from mlir_offload.translate.kind_lowering import NVVM_FORM, DeviceForm, TargetAttribute
from mlir_offload.translate.legalize import host_operations, operand, unrolled
from mlir_offload.translate.legalize.device_module import (
    DeviceRules,
    device_module,
    limits_of,
    use_default_space,
    use_gpu_functions,
)
from mlir_offload.translate.legalize.kernel_form import choose_kernel_forms
from mlir_offload.translate.legalize.unsupported_ops import (
    check_complex_functions,
    check_operations,
    check_top_level,
    check_variadic_calls,
    workgroup_bytes,
)
from mlir_offload.translate.mlir.module import Locations, Module, parse_module
from mlir_offload.translate.mlir.operation import CustomOperation, Operation
from mlir_offload.translate.mlir.syntax import has_layout
from mlir_offload.translate.pipelines import load_faults

if TYPE_CHECKING:
    from mlir_offload.translate.gpu_binary import GpuBinary

# Faults of releases in the lowering of host code.
_OF_HOST = frozenset({"divisions", "atomic_extrema", "folded_nan"})
# Parts of the names of operations that every release lowers wrongly in host code.
_ALWAYS_EXPANDED = (
    *("index.ceildivs", "index.floordivs", "math.expm1", "math.fpowi", "math.log1p"),
    *('"vector.', '"affine.vector_'),
)
_NO_FLAGS = "#llvm.fastmath<none>"
_UNSIGNED = ("ui8", "ui16")
_COMPLEX = "complex<f32>"
_VARIADIC = "var_callee_type"
_C_INTERFACE = "llvm.emit_c_interface"


class SplitProgram(Struct, frozen=True):
    """The parts of a program, each ready for its pass pipeline.

    `host_text` is the host module. It has an empty `gpu.binary` in place of each `gpu.module` and of each
    `gpu.binary` with code; its object is its own name, which is thus the argument of `mgpuModuleLoad`.
    `declared` are the kernels that the host launches and that other files define. `interface` is JSON of the
    functions for callers in C and Python. `binaries` contain precompiled device code.
    """

    host_text: str
    modules: tuple[GpuModule, ...]
    declared: tuple[str, ...]
    uses_async: bool
    interface: str
    binaries: tuple[GpuBinary, ...] = ()
    warnings: tuple[SourceWarning, ...] = ()

    @property
    def has_gpu(self) -> bool:
        """Return whether there is device code to build."""
        return bool(self.modules or self.binaries)


class SplitOptions(Struct, frozen=True, kw_only=True):
    """Options of the split.

    `source_text` is the content of the source file (bytecode decoded as latin-1). `unit_id` is its
    name without the directory, so that the output does not depend on the directory. The first form
    determines the text of each device module. `keeps_functions`: also emit modules without kernels, for
    other files. `describes_memory`: launches describe their host memory to the runtime. `is_program`:
    check `main`. `is_transformed`: the transform scripts have been run. `parameters` is the form of
    memref parameters, `index_bits` the width of `index` in kernels.
    """

    source_text: str
    unit_id: str
    llvm_major: int
    forms: Sequence[DeviceForm] = (NVVM_FORM,)
    keeps_functions: bool = False
    describes_memory: bool = False
    is_program: bool = False
    is_transformed: bool = False
    targets: Sequence[Target] = ()
    parameters: ParameterForm = ParameterForm.WHOLE
    index_bits: int = WIDE


def split_program(text: str, options: SplitOptions) -> SplitProgram:
    """Split an outlined program into its host module and its device modules.

    Raises SourceError for code that exceeds the limits of the targets, and for code that would be dropped
    or lowered wrongly.
    """
    module = parse_module(text)
    locations = Locations(module.aliases)
    drop_scripts(module, locations, are_run=options.is_transformed)
    check_top_level(module.operations, locations)
    device = _device_modules(module)
    host = [one for one in module.operations if one.name != "gpu.module"]
    kernels = {name: kernel_names(operation) for name, operation in device.items()}
    declared = _declared_kernels(device.values(), locations)
    binaries = _gpu_binaries(host, locations)
    attached = _read_attached(device, locations)
    variants: frozenset[str] = frozenset()
    if attached:
        variants = target_attribute.find_variants(device, kernels, attached, locations)
    known = (*declared, *_precompiled_kernels(binaries))
    symbols = _assign_symbols(module, options, kernels, known, variants)
    has_unusual = any(map(has_unusual_operands, (*device.values(), *host)))
    if has_unusual:
        operand.check_parameters(device.values(), host, locations)
        operand.widen_kernels(device.values())
    # These must run before device code is rewritten below.
    used = _workgroup_memory(device)
    divergent = _divergent_barriers(device, host, locations) if "gpu.barrier" in text else ()
    large = _large_products(module, locations, options) if '"vector.contract"' in text else ()
    others = _library_calls(host, locations)
    _legalize_c_functions(text, host, locations)
    rules = _device_rules(module, locations, options, symbols, variants)
    leaves = target_attribute.kinds_left(variants, attached) if variants else {}
    modules = tuple(
        device_module(operation, attached.get(name, ()), leaves.get(name, frozenset()), rules)
        for name, operation in device.items()
        if kernels[name] or (options.keeps_functions and _has_functions(operation))
    )
    _check_host(host, declared, binaries, locations, is_program=options.is_program)
    launches = LaunchCheck(locations, limits_of(options.targets), used)
    # Before host code is rewritten below, because warnings refer to the original code.
    warnings = _check_launches(launches, host, options)
    needs_layouts = any(map(_needs_layouts, host))
    if needs_layouts:
        _allocate_layouts(module, host, locations)
    interface = _interface(module, options.source_text) if _C_INTERFACE in text else ""
    defined = {(name, kernel) for name in device for kernel in kernels[name]}
    operands = (operand.LaunchRewriter(defined),) if has_unusual else ()
    expands = any(name in text for name in _ALWAYS_EXPANDED)
    host_text = _host(rules, options, operands, needs_layouts=needs_layouts, expands=expands)
    return SplitProgram(
        host_text=host_text,
        modules=modules,
        declared=tuple(dict.fromkeys(item.name for item in declared.values())),
        uses_async='"async.' in host_text,
        interface=interface,
        binaries=tuple(binaries.values()),
        warnings=(*divergent, *large, *others, *warnings),
    )


def _device_modules(module: Module) -> dict[str, Operation]:
    """Return the `gpu.module`s of a program by name, with kernels as gpu.func or llvm.func."""
    device = {one.symbol: one for one in module.operations if one.name == "gpu.module"}
    for operation in device.values():
        use_gpu_functions(operation)
    return device


def _assign_symbols(
    module: Module,
    options: SplitOptions,
    kernels: Mapping[str, tuple[str, ...]],
    declared: Sequence[KernelKey],
    variants: frozenset[str],
) -> dict[KernelKey, str]:
    device = {one.symbol: one for one in module.operations if one.name == "gpu.module"}
    owner = owner_of(module, options.source_text)
    return assign_symbols(
        kernels,
        named=named_modules(kernels, options.source_text),
        unit_of=cache(
            lambda name: unit_of(module, device[name], file=options.unit_id, owner=owner)
        ),
        declared=declared,
        variants=variants,
    )


def _device_rules(
    module: Module,
    locations: Locations,
    options: SplitOptions,
    symbols: Mapping[KernelKey, str],
    variants: frozenset[str],
) -> DeviceRules:
    kernels = choose_kernel_forms(
        [one for one in module.operations if one.name == "gpu.module"],
        [one for one in module.operations if one.name != "gpu.module"],
        # Not for variants of a kernel, because they may read different parts.
        renamed={key for key in symbols if symbols[key] != key[1] and key[0] not in variants},
        form=options.parameters,
        index_bits=options.index_bits,
    )
    forms, targets = tuple(options.forms), tuple(options.targets)
    faults = load_faults(options.llvm_major)
    return DeviceRules(module, locations, forms, targets, faults, symbols, kernels)


def _check_launches(
    launches: LaunchCheck, host: Sequence[Operation], options: SplitOptions
) -> tuple[SourceWarning, ...]:
    """Check the launches in host code, and return warnings. Raises SourceError for a launch that cannot run."""
    launches.check(host)
    has_gpu = any(not target.is_cpu for target in options.targets)
    is_told = has_gpu and not options.describes_memory
    return tuple(launches.unreachable(host)) if is_told else ()


def _divergent_barriers(
    device: Mapping[str, Operation], host: Sequence[Operation], locations: Locations
) -> tuple[SourceWarning, ...]:
    return tuple(divergent_barrier.find_divergent_barriers(device, host, locations))


def _legalize_c_functions(text: str, host: Sequence[Operation], locations: Locations) -> None:
    """Extend arguments as C requires. Raises SourceError for types that MLIR and C pass in different ways."""
    if any(kind in text for kind in _UNSIGNED):
        unsigned.extend_unsigned(host)
    if _COMPLEX in text:
        check_complex_functions(host, locations)
    if _VARIADIC in text:
        check_variadic_calls(host, locations)


def _library_calls(host: Sequence[Operation], locations: Locations) -> tuple[SourceWarning, ...]:
    declared = [one for one in host if one.regions and one.is_declaration]
    return tuple(find_other_types(declared, locations)) if declared else ()


def _large_products(
    module: Module, locations: Locations, options: SplitOptions
) -> tuple[SourceWarning, ...]:
    if not any(target.is_cpu for target in options.targets):
        return ()
    device = (one for one in module.operations if one.name == "gpu.module")
    return tuple(unrolled.find_large_products(device, module.aliases, locations))


def _workgroup_memory(device: Mapping[str, Operation]) -> dict[KernelKey, int]:
    return {
        (name, function): size
        for name, operation in device.items()
        for function, size in workgroup_bytes(operation).items()
    }


def _read_attached(
    device: Mapping[str, Operation], locations: Locations
) -> dict[str, tuple[TargetAttribute, ...]]:
    """Return the target attributes of the device modules that have them."""
    return {
        name: target_attribute.read_targets(operation.attribute("targets"), locations.of(operation))
        for name, operation in device.items()
        if operation.has("targets")
    }


def _precompiled_kernels(binaries: Mapping[str, GpuBinary]) -> list[KernelKey]:
    return [(one.name, kernel.name) for one in binaries.values() for kernel in one.kernels]


def _check_host(
    host: Sequence[Operation],
    declared: Mapping[KernelKey, DeclaredKernel],
    binaries: Mapping[str, GpuBinary],
    locations: Locations,
    *,
    is_program: bool,
) -> None:
    if is_program:
        check_main(host, locations)
    for operation in host:
        check_declared_launches(operation, declared, locations)
        if binaries:
            gpu_binary.check_precompiled_launches(operation, binaries, locations)


def _needs_layouts(operation: Operation) -> bool:
    """Return whether an operation has transfers or allocations that gpu-to-llvm does not lower correctly."""
    return any(
        inner.name == "gpu.memset"
        or (inner.name == "gpu.memcpy" and any(map(has_layout, inner.operand_types)))
        or (inner.name == "gpu.alloc" and has_layout(inner.result_types[0]))
        for inner in operation.walk_inside()
    )


def _allocate_layouts(module: Module, host: Iterable[Operation], locations: Locations) -> None:
    rewriter = host_memory.AllocationRewriter(module.aliases, locations)
    for operation in host:
        rewriter.rewrite_function(operation)


def _interface(module: Module, source_text: str) -> str:
    """Return the interface for C. The module is loaded on demand, because few programs have one."""
    return host_interface.interface_of(module, source_text)


# The module is loaded on demand, because few programs contain precompiled device code.
def _gpu_binaries(host: Iterable[Operation], locations: Locations) -> dict[str, GpuBinary]:
    if all(operation.name != "gpu.binary" for operation in host):
        return {}

    return {one.name: one for one in gpu_binary.read_binaries(host, locations)}


def _declared_kernels(
    device: Iterable[Operation], locations: Locations
) -> dict[tuple[str, str], DeclaredKernel]:
    return {
        (item.module, item.name): item
        for operation in device
        for item in read_declared(operation, locations)
    }


def _has_functions(module: Operation) -> bool:
    return any(
        operation.name in {"func.func", "llvm.func"} and not operation.is_declaration
        for operation in module.operations
    )


def _host(
    rules: DeviceRules,
    options: SplitOptions,
    operands: Sequence[operand.LaunchRewriter],
    *,
    needs_layouts: bool,
    expands: bool,
) -> str:
    module, symbols, locations = rules.module, rules.symbols, rules.locations
    faults = rules.faults
    makers = [AsyncRewriter(), *([host_memory.TransferRewriter()] if needs_layouts else ())]
    arguments = ArgumentRewriter(rules.kernels.launches, rules.kernels.narrow)
    body: list[Operation] = []
    launched = host_symbols(dict.fromkeys(owner for owner, _ in symbols))
    declared = {one.symbol for one in module.operations if one.name == "llvm.func"}
    for operation in module.operations:
        if operation.name in {"gpu.module", "gpu.binary"}:
            if operation.symbol in launched:
                body.append(_placeholder(launched[operation.symbol], operation))
            continue
        check_operations(operation, "host", locations)
        check_launches(operation, symbols, locations)
        use_default_space(operation)
        for maker in (*operands, *makers):
            maker.rewrite_function(operation)
        arguments.rewrite_function(operation)
        rename_launches(operation, launched, symbols)
        if "equal_attribute_text" in faults:
            _drop_default_flags(operation)
        body.append(operation)
    if faults & _OF_HOST or expands:
        made = host_operations.expand_host_operations(body, faults, locations)
        known = {one.symbol for one in body}
        body += [one for name, one in made.items() if name not in known]
    if options.describes_memory:
        body += describe_launches(body)
    calls = [one for maker in makers for one in maker.declarations(declared)]
    return module.render_part([*body, *calls])


def _drop_default_flags(function: Operation) -> None:
    """Remove default fast-math flags of the llvm dialect."""
    for operation in function.walk_inside():
        if operation.name.startswith("llvm.") and operation.attribute("fastmathFlags") == _NO_FLAGS:
            del operation.signature.properties["fastmathFlags"]


def _placeholder(symbol: str, operation: Operation) -> Operation:
    # With the nvvm dialect in the program, convert-gpu-to-rocdl of LLVM 22 lowers math to intrinsics that AMD GPUs lack.
    text = f'gpu.binary @{symbol} [#gpu.object<#rocdl.target, "{symbol}">]'
    return CustomOperation("", head=text, end=operation.location)
