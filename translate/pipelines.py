"""The lowering recipes of `data/pipelines.yaml`, read and checked."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import string_attribute

Side = Literal["host", "device"]


class Recipe(Struct, frozen=True):
    """The passes of one release, in their order."""

    common: tuple[str, ...]
    nvgpu: str
    nvgpu_branches: str
    device: tuple[str, ...]
    device_amdgpu: tuple[str, ...]
    device_module: tuple[str, ...]
    subgroup_reduce: str
    division: str
    bf16: str
    host: tuple[str, ...]
    async_runtime: tuple[str, ...]
    debug: str

    def common_passes(self, *, uses_nvgpu: bool) -> tuple[str, ...]:
        """Return the passes that bring every form of input to one."""
        return tuple(_filled(self.common, {"$nvgpu": self.nvgpu if uses_nvgpu else ""}))

    def device_pipeline(
        self, *, needs: frozenset[str], redux: bool, debug: bool, has_bf16: bool = True
    ) -> str:
        """Return the pipeline for a module that holds one `gpu.module` with these needs.

        `has_bf16`: the device computes with numbers of that type.
        """
        values = {
            "$division": self.division if "division" in needs else "",
            "$bf16": self.bf16 if "bf16" in needs and not has_bf16 else "",
            "$redux": str(redux).lower(),
            "$nvgpu": self._nvgpu(needs),
        }
        before = (self.subgroup_reduce,) if "subgroup_reduce" in needs and not redux else ()
        return self._device_pipeline(before, _filled(self.device, values), debug=debug)

    def amdgpu_pipeline(self, *, needs: frozenset[str], chip: str, debug: bool) -> str:
        """Return the pipeline for a module that holds one `gpu.module`, for an AMD GPU."""
        values = {"$division": self.division if "division" in needs else "", "$chip": chip}
        return self._device_pipeline((), _filled(self.device_amdgpu, values), debug=debug)

    def _nvgpu(self, needs: frozenset[str]) -> str:
        if "nvgpu" not in needs:
            return ""
        return self.nvgpu_branches if "matrix" in needs else self.nvgpu

    def _device_pipeline(
        self, before: tuple[str, ...], passes: Sequence[str], *, debug: bool
    ) -> str:
        behind = (*self.device_module, *((self.debug,) if debug else ()))
        return _on_module((*before, f"gpu.module({','.join(passes)})", *behind))

    def host_pipeline(self, *, uses_async: bool, debug: bool) -> str:
        """Return the pipeline for the host; `uses_async`: it has operations of the async dialect."""
        values = {"$async": ",".join(self.async_runtime) if uses_async else ""}
        passes = _filled(self.host, values)
        return _on_module([*passes, self.debug] if debug else passes)


class Refusal(Struct, frozen=True):
    """An operation that no pass of the recipe lowers, and what to write instead.

    The patterns are compiled, by `re`, when such an operation is met: few programs have any.
    """

    where: Side
    operation: str
    dialect: str
    pattern: str
    unless: str
    assembly: str
    message: str
    hint: str

    @property
    def needle(self) -> str:
        """Return what a line with the operation, or with one of the dialect, contains."""
        return f'"{self.operation}' if self.operation.endswith(".") else f'"{self.operation}"('

    def is_for(self, name: str) -> bool:
        """Say whether it is about an operation of this name."""
        return name == self.operation or (
            self.operation.endswith(".") and name.startswith(self.operation)
        )

    def applies(self, text: str) -> bool:
        """Say whether the operation with this generic text is meant."""
        if self.assembly:
            written = string_attribute(text, "asm_string") or ""
            return re.search(self.assembly, written) is not None
        code = MLIR.blanked(text)
        if self.unless and re.search(self.unless, code):
            return False
        return not self.pattern or re.search(self.pattern, code) is not None


@functools.cache
def load_recipe(llvm_major: int) -> Recipe:
    """Return the recipe of a release. Raises CompatibilityError for one older than every row."""
    rows = sorted(_table()["recipes"], key=lambda row: int(row["since"]))
    known = [row for row in rows if int(row["since"]) <= llvm_major]
    if not known:
        oldest = rows[0]["since"]
        msg = (
            f"LLVM {llvm_major} cannot lower GPU programs here: releases from {oldest} on are known"
        )
        raise CompatibilityError(msg, hint=f"install mlir-{oldest}-tools or a later release")
    row = known[-1]
    return Recipe(
        common=tuple(row["common"]),
        nvgpu=str(row["nvgpu"]),
        nvgpu_branches=str(row["nvgpu_branches"]),
        device=tuple(row["device"]),
        device_amdgpu=tuple(row["device_amdgpu"]),
        device_module=tuple(row["device_module"]),
        subgroup_reduce=str(row["subgroup_reduce"]),
        division=str(row["division"]),
        bf16=str(row["bf16"]),
        host=tuple(row["host"]),
        async_runtime=tuple(row["async"]),
        debug=str(row["debug"]),
    )


@functools.cache
def load_printing() -> tuple[str, ...]:
    """Return the options that every call of mlir-opt takes."""
    return tuple(_table()["printing"])


@functools.cache
def load_faults(llvm_major: int) -> frozenset[str]:
    """Return the names of the faults that the release has."""
    return frozenset(row["name"] for row in _table()["faults"] if llvm_major <= int(row["until"]))


@functools.cache
def load_refusals(where: Side) -> tuple[Refusal, ...]:
    """Return what cannot be lowered on the host or in a device module."""
    return tuple(
        Refusal(
            where=where,
            operation=operation,
            dialect=str(row.get("dialect", "")),
            pattern=row.get("pattern", ""),
            unless=row.get("unless", ""),
            assembly=row.get("assembly", ""),
            message=str(row["message"]),
            hint=str(row["hint"]),
        )
        for row in _table()["refusals"]
        if row["where"] == where
        for operation in _listed(row["operation"])
    )


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _filled(passes: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """Put in the values; a pass that is empty then is left out."""
    filled = []
    for step in passes:
        text = step
        for name, value in values.items():
            text = text.replace(name, value)
        if text:
            filled.append(text)
    return filled


def _on_module(passes: Iterable[str]) -> str:
    return f"builtin.module({','.join(passes)})"


@functools.cache
def _table() -> dict[str, Any]:
    return load_table("mlir_offload.translate", "pipelines")
