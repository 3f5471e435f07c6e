"""One program, cut into its host part and its device modules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Target
from mlir_offload.toolchain.workgroup_memory import WorkgroupLimit, find_workgroup_limit
from mlir_offload.translate.declared import (
    DeclaredKernel,
    check_declared_launches,
    read_declared,
)
from mlir_offload.translate.fixup.device_form import NVVM_FORM, DeviceForm
from mlir_offload.translate.fixup.documented import with_documented_forms, without_global_space
from mlir_offload.translate.fixup.fast_math import with_fast_math
from mlir_offload.translate.fixup.hazard import (
    check_device_functions,
    check_launch_bounds,
    check_operations,
    check_top_level,
)
from mlir_offload.translate.fixup.limit import (
    check_printed,
    check_workgroup_memory,
    workgroup_bytes,
)
from mlir_offload.translate.fixup.lowered_kernel import mark_lowered_kernels
from mlir_offload.translate.fixup.text import expand_device_operations
from mlir_offload.translate.fixup.transform_script import without_scripts
from mlir_offload.translate.gpu_module import (
    GpuModule,
    Kernel,
    KernelKey,
    assign_symbols,
    check_launches,
    host_symbols,
    kernel_names,
    named_modules,
    rename_kernels,
    rename_launches,
)
from mlir_offload.translate.host.async_chain import AsyncRewriter
from mlir_offload.translate.host.launch_check import LaunchCheck, SourceWarning
from mlir_offload.translate.host.main_function import check_main
from mlir_offload.translate.host.memory import describe_launches
from mlir_offload.translate.host.transfer import TransferRewriter
from mlir_offload.translate.mlir_text import (
    Locations,
    ModuleText,
    OperationText,
    parse_module,
    read_locations,
    symbol_name,
)
from mlir_offload.translate.pipelines import load_faults
from mlir_offload.translate.target_attribute import (
    TargetAttribute,
    read_targets,
    served_targets,
)
from mlir_offload.translate.unit import owner_of, unit_of
from mlir_offload.translate.variant import find_variants, kinds_left

if TYPE_CHECKING:
    from mlir_offload.translate.given_binary import GivenBinary

_C_INTERFACE = "llvm.emit_c_interface"
_DIVISION = re.compile(r'"arith\.(?:ceildiv[us]i|floordivsi)"\(')
# What a module needs for the words that are in its lines.
_NEEDLES = {"bf16": "bf16", "nvgpu": "nvgpu.", "matrix": "!gpu.mma_matrix<"}


class SplitProgram(Struct, frozen=True):
    """The parts of a program, each ready for its pipeline.

    `host_text` has a `gpu.binary` in place of each `gpu.module` and of each `gpu.binary` with code,
    whose object is its own name: the bytes that `mgpuModuleLoad` gets. `uses_runtime` says whether
    the host calls the GPU runtime at all, which it may do without a kernel. `declared` are the
    kernels that it launches and that other files define. `interface` is the JSON of the functions
    for callers in C and Python. `binaries` hold device code that is made already.
    """

    host_text: str
    modules: tuple[GpuModule, ...]
    declared: tuple[str, ...]
    uses_async: bool
    uses_runtime: bool
    interface: str
    binaries: tuple[GivenBinary, ...] = ()
    warnings: tuple[SourceWarning, ...] = ()

    @property
    def has_gpu(self) -> bool:
        """Say whether there is device code to build."""
        return bool(self.modules or self.binaries)


def split_program(  # noqa: PLR0913 (what the program is, and how it is compiled)
    text: str,
    *,
    source_text: str,
    unit_id: str,
    llvm_major: int,
    forms: Sequence[DeviceForm] = (NVVM_FORM,),
    keeps_functions: bool = False,
    describes_memory: bool = False,
    is_program: bool = False,
    is_transformed: bool = False,
    targets: Sequence[Target] = (),
) -> SplitProgram:
    """Cut the normalised program in two.

    `source_text` is the file as its author wrote it (bytecode decoded as latin-1); `unit_id` is
    the name of that file, without its directory: a checkout elsewhere gives the same bytes. The
    first of the forms gives each device module its text. A module without kernels counts where it
    `keeps_functions` for other files. Launches tell of host memory where the program
    `describes_memory`; if it `is_program`, its `main` must be one; if it `is_transformed`, its transform
    scripts have been run. What exceeds the limits of the `targets` is rejected. Raises SourceError for
    what the lowering would drop or get wrong.
    """
    module = parse_module(text)
    locations = read_locations((*module.aliases, *module.tail))
    module = without_scripts(module, locations, are_run=is_transformed)
    check_top_level(module.operations, locations)
    device = _device_modules(module)
    kernels = {name: kernel_names(operation) for name, operation in device.items()}
    declared = _declared_kernels(device.values(), locations)
    binaries = _given_binaries(module, locations)
    owner = owner_of(module, source_text)
    unit = cache(lambda name: unit_of(module, device[name], file=unit_id, owner=owner))
    attached = _read_attached(device, locations)
    variants = find_variants(device, kernels, attached, locations)
    leaves = kinds_left(variants, attached)
    symbols = assign_symbols(
        kernels,
        named=named_modules(kernels, source_text),
        unit_of=unit,
        declared=(*declared, *_given_kernels(binaries)),
        variants=variants,
    )
    rules = _DeviceRules(locations, load_faults(llvm_major), tuple(forms))
    modules = tuple(
        replace(
            _attached(
                _gpu_module(
                    module,
                    device[name],
                    symbols,
                    replace(rules, limits=_limits(served_targets(attached[name], targets))),
                ),
                attached[name],
                locations.of(device[name].lines[-1]),
            ),
            leaves=leaves.get(name, frozenset()),
        )
        for name in device
        if kernels[name] or (keeps_functions and _has_functions(device[name]))
    )
    _check_host(module, declared, binaries, locations)
    if is_program:
        check_main(module.operations, locations)
    used = _workgroup_memory(device)
    host = [line for op in module.operations if op.name != "gpu.module" for line in op.lines]
    launches = LaunchCheck(locations, _limits(targets), used)
    launches.check(host)
    has_gpu = not all(target.is_cpu for target in targets)
    host_text, uses_runtime = _host(module, symbols, locations, describes_memory=describes_memory)
    return SplitProgram(
        host_text=host_text,
        modules=modules,
        declared=tuple(dict.fromkeys(item.name for item in declared.values())),
        uses_async='"async.' in host_text,
        uses_runtime=uses_runtime,
        interface=_interface(module, source_text) if _C_INTERFACE in text else "",
        binaries=tuple(binaries.values()),
        warnings=tuple(launches.unreachable(host)) if has_gpu and not describes_memory else (),
    )


def _limits(targets: Iterable[Target]) -> tuple[WorkgroupLimit, ...]:
    found = (find_workgroup_limit(target.arch) for target in targets)
    return tuple(limit for limit in found if limit is not None)


def _workgroup_memory(device: Mapping[str, OperationText]) -> dict[KernelKey, int]:
    return {
        (name, function): size
        for name, operation in device.items()
        for function, size in workgroup_bytes(operation).items()
    }


def _read_attached(
    device: Mapping[str, OperationText], locations: Locations
) -> dict[str, tuple[TargetAttribute, ...]]:
    return {
        name: read_targets(operation.attributes, locations.of(operation.lines[-1]))
        for name, operation in device.items()
    }


def _given_kernels(binaries: Mapping[str, GivenBinary]) -> list[KernelKey]:
    return [(one.name, kernel.name) for one in binaries.values() for kernel in one.kernels]


def _check_host(
    module: ModuleText,
    declared: Mapping[KernelKey, DeclaredKernel],
    binaries: Mapping[str, GivenBinary],
    locations: Locations,
) -> None:
    for operation in module.operations:
        if operation.name != "gpu.module":
            check_declared_launches(operation.lines, declared, locations)
            _check_given_launches(operation, binaries, locations)


def _interface(module: ModuleText, source_text: str) -> str:
    """Return the functions for callers in C; few programs have them, and the others wait for less."""
    from mlir_offload.translate.host.interface import interface_of

    return interface_of(module, source_text)


# Few programs bring device code along.
def _given_binaries(module: ModuleText, locations: Locations) -> dict[str, GivenBinary]:
    if all(operation.name != "gpu.binary" for operation in module.operations):
        return {}
    from mlir_offload.translate.given_binary import read_binaries

    return {one.name: one for one in read_binaries(module.operations, locations)}


def _check_given_launches(
    operation: OperationText, binaries: Mapping[str, GivenBinary], locations: Locations
) -> None:
    if binaries:
        from mlir_offload.translate.given_binary import check_given_launches

        check_given_launches(operation.lines, binaries, locations)


def _device_modules(module: ModuleText) -> dict[str, OperationText]:
    return {
        symbol_name(operation): operation
        for operation in module.operations
        if operation.name == "gpu.module"
    }


def _declared_kernels(
    device: Iterable[OperationText], locations: Locations
) -> dict[tuple[str, str], DeclaredKernel]:
    return {
        (item.module, item.name): item
        for operation in device
        for item in read_declared(operation, locations)
    }


class _DeviceRules(Struct, frozen=True):
    """What holds for every device module of a program."""

    locations: Locations
    faults: frozenset[str]
    forms: tuple[DeviceForm, ...]
    limits: tuple[WorkgroupLimit, ...] = ()

    def expanded(self, lines: tuple[str, ...], form: DeviceForm) -> tuple[str, ...]:
        """Return the lines of a module in one of the forms."""
        marked = mark_lowered_kernels(lines, form)
        return expand_device_operations(
            marked, locations=self.locations, faults=self.faults, form=form
        )


def _gpu_module(
    module: ModuleText,
    operation: OperationText,
    symbols: dict[KernelKey, str],
    rules: _DeviceRules,
) -> GpuModule:
    operation = replace(operation, lines=with_documented_forms(operation.lines))
    check_device_functions(operation, rules.locations)
    check_launch_bounds(operation, rules.locations, rules.faults)
    check_workgroup_memory(operation, rules.limits, rules.locations)
    check_printed(operation.lines, rules.locations)
    for dialect in dict.fromkeys(form.dialect for form in rules.forms):
        check_operations(operation.lines, "device", rules.locations, dialect=dialect)
    name = symbol_name(operation)
    defined = kernel_names(operation)
    own = {kernel: symbols[name, kernel] for kernel in defined}
    lines = rename_kernels(operation, own)
    expanded = {form.name: rules.expanded(lines, form) for form in rules.forms}
    (_, text), *others = ((name, module.render(body)) for name, body in expanded.items())
    return GpuModule(
        name=name,
        kernels=tuple(Kernel(kernel, symbol) for kernel, symbol in own.items()),
        text=text,
        needs=frozenset().union(*map(_needs, expanded.values())),
        texts=tuple(others),
    )


def _attached(module: GpuModule, targets: tuple[TargetAttribute, ...], location: str) -> GpuModule:
    """Return the module with what the program attaches to it; `fast` holds for its whole text."""
    fast = {"fast" in target.flags for target in targets}
    if len(fast) > 1:
        msg = f"gpu.module @{module.name} is fast for some of its targets only"
        hint = "write a module for each, or the same flags"
        raise SourceError(msg, hint=hint, location=location)
    if True in fast:
        texts = tuple((name, with_fast_math(text)) for name, text in module.texts)
        module = replace(module, text=with_fast_math(module.text), texts=texts)
    return replace(module, targets=targets)


def _has_functions(module: OperationText) -> bool:
    return any(
        operation.name in {"func.func", "llvm.func"} and not operation.is_declaration
        for operation in module.body
    )


def _needs(lines: tuple[str, ...]) -> frozenset[str]:
    needs = {"division"} if any(map(_DIVISION.search, lines)) else set()
    needs.update(name for name, words in _NEEDLES.items() if any(words in line for line in lines))
    # The others were expanded.
    if any('"gpu.subgroup_reduce"(' in line for line in lines):
        needs |= {"subgroup_reduce", "redux"}
    return frozenset(needs)


def _host(
    module: ModuleText,
    symbols: dict[KernelKey, str],
    locations: Locations,
    *,
    describes_memory: bool,
) -> tuple[str, bool]:
    rewriter, transfers = AsyncRewriter(), TransferRewriter()
    lines: list[str] = []
    uses_runtime = False
    launched = host_symbols(dict.fromkeys(owner for owner, _ in symbols))
    for operation in module.operations:
        if operation.name in {"gpu.module", "gpu.binary"}:
            name = symbol_name(operation)
            if name in launched:
                lines.append(_placeholder(launched[name], operation))
            continue
        check_operations(operation.lines, "host", locations)
        uses_runtime = uses_runtime or any('"gpu.' in line for line in operation.lines)
        check_launches(operation.lines, symbols, locations)
        written = rewriter.rewrite(without_global_space(operation.lines))
        lines.extend(rename_launches(transfers.rewrite(written), launched, symbols))
    if describes_memory:
        lines = describe_launches(lines)
    declared = {
        symbol_name(operation) for operation in module.operations if operation.name == "llvm.func"
    }
    for maker in (rewriter, transfers):
        lines.extend(f"  {declaration}" for declaration in maker.declarations(declared))
    return module.render(lines), uses_runtime


def _placeholder(symbol: str, operation: OperationText) -> str:
    start = operation.lines[-1].rfind(" loc(")
    location = operation.lines[-1][start:] if start >= 0 else ""
    return f'  gpu.binary @{symbol} [#gpu.object<#nvvm.target, "{symbol}">]{location}'
