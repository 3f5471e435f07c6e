"""What the host's text shows of its launches: blocks that no GPU runs, and memory that no GPU reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from msgspec import Struct, field

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.workgroup_memory import WorkgroupLimit
from mlir_offload.translate.gpu_module import KernelKey, launched_kernel
from mlir_offload.translate.host.gpu_operation import GpuOperation, parse_gpu_operation
from mlir_offload.translate.mlir_text import Locations, parse_operation, render_symbol

MOST_THREADS = 1024
_CONSTANT = re.compile(
    r'"(?:arith|llvm\.mlir)\.constant"\(\) <\{value = (-?\d+) : (?:index|i\d+)\}>'
)
_BLOCK, _DYNAMIC = 4, 10
_ALLOCATIONS = frozenset({"memref.alloc", "memref.alloca"})
_VIEWS = frozenset(
    f"memref.{name}"
    for name in ("cast", "subview", "view", "reinterpret_cast", "collapse_shape", "expand_shape")
)
# What may hand the memory to a function that registers it.
_ESCAPES = re.compile(r"func\.call|llvm\.call|func\.call_indirect|gpu\.host_register")


class SourceWarning(Struct, frozen=True):
    """Something in a program that is likely wrong, and where it is."""

    message: str
    location: str


class LaunchCheck(Struct, frozen=True):
    """Checks the launches of host functions; `used` are the bytes that each kernel has already."""

    locations: Locations
    limits: Sequence[WorkgroupLimit] = ()
    used: Mapping[KernelKey, int] = field(default_factory=dict)

    def check(self, lines: Sequence[str]) -> None:
        """Raise SourceError for a launch whose constants are beyond a limit."""
        known: dict[str, int] = {}
        for line in lines:
            _note_constant(line, known)
            launch = parse_gpu_operation(line) if '"gpu.launch_func"(' in line else None
            if launch is not None:
                self._check_threads(launch, known)
                self._check_memory(launch, known, launched_kernel(line))

    def _check_threads(self, launch: GpuOperation, known: Mapping[str, int]) -> None:
        sizes = [known.get(name, 1) for name in launch.segment(_BLOCK, 3)]
        threads = prod(max(1, size) for size in sizes)
        if threads > MOST_THREADS:
            msg = f"a launch with blocks of {threads} threads"
            hint = f"a block has at most {MOST_THREADS} threads"
            raise SourceError(msg, hint=hint, location=self.locations.of(f" {launch.location}"))

    def _check_memory(
        self, launch: GpuOperation, known: Mapping[str, int], kernel: KernelKey | None
    ) -> None:
        asked = sum(known.get(name, 0) for name in launch.segment(_DYNAMIC))
        size = asked + self.used.get(kernel or ("", ""), 0)
        limit = next((one for one in self.limits if asked and size > one.all_bytes), None)
        if limit is not None and kernel is not None:
            msg = (
                f"a launch of {render_symbol(kernel[1])} with {size} bytes of workgroup memory, "
                f"and {limit.arch} takes {limit.all_bytes}"
            )
            hint = f"use less memory in a block, or leave {limit.arch} out of --offload-arch"
            raise SourceError(msg, hint=hint, location=self.locations.of(f" {launch.location}"))

    def unreachable(self, lines: Sequence[str]) -> Iterator[SourceWarning]:
        """Yield a warning for each allocation of the host that a launch gets and that is not registered."""
        roots: dict[str, str] = {}
        launched: dict[str, str] = {}
        escaped: set[str] = set()
        for line in lines:
            operation = parse_operation(line)
            if operation is None:
                continue
            operands = [roots[name] for name in operation.operands if name in roots]
            if operation.name in _ALLOCATIONS:
                roots[operation.results] = operation.results
            elif operation.name in _VIEWS and operands:
                roots[operation.results] = operands[0]
            elif operation.name == "gpu.launch_func":
                launched |= {root: line for root in operands if root not in launched}
            elif _ESCAPES.fullmatch(operation.name):
                escaped.update(operands)
            elif operation.results in roots:
                # Regions that stand beside each other may give values the same name.
                del roots[operation.results]
        for root, line in launched.items():
            if root not in escaped:
                text = "a launch gets memory of the host, which GPUs reach only after gpu.host_register"
                yield SourceWarning(text, self.locations.of(line))


def _note_constant(line: str, known: dict[str, int]) -> None:
    operation = parse_operation(line) if " = " in line else None
    if operation is None:
        return
    constant = _CONSTANT.search(line)
    if constant is not None:
        known[operation.results] = int(constant[1])
    else:
        known.pop(operation.results, None)
