"""Read and check the lowering pipelines in `data/pipelines.yaml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct

from mlir_offload.toolchain import learned_row
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.pattern import pattern as lazy_pattern
from mlir_offload.toolchain.tables import converted, known_release, load_table, table_cache
from mlir_offload.translate.mlir.operation import Operation

_HOST_BITS = 64
# Options in braces, or the name of a pass: not an anchor as in func.func(...), not a $placeholder.
_PASS = lazy_pattern(r"\{[^}]*\}|(?<![\w$.-])([a-z][a-z0-9-]*)(?![\w.(-])")

_GIVEN = lazy_pattern(r"([a-z][a-z0-9-]*)\{([^}]*)\}")
_OPTION = lazy_pattern(r"([a-z][\w-]*)=")

Side = Literal["host", "device"]


class Recipe(Struct, frozen=True):
    """The passes of one release, in order."""

    common: tuple[str, ...]
    reductions: str
    nvgpu: str
    nvgpu_branches: str
    device: tuple[str, ...]
    device_amdgpu: tuple[str, ...]
    device_module: tuple[str, ...]
    subgroup_reduce: str
    sizes: str
    sizes_amdgpu: str
    bf16: str
    host: tuple[str, ...]
    async_runtime: tuple[str, ...]
    debug: str
    layouts: Mapping[str, str]
    failed: Mapping[str, str] = {}

    def common_passes(self, *, uses_nvgpu: bool, uses_reductions: bool = True) -> tuple[str, ...]:
        """Return the passes that every program runs before it is split."""
        values = {
            "$reductions": self.reductions if uses_reductions else "",
            "$nvgpu": self.nvgpu if uses_nvgpu else "",
        }
        return tuple(_filled(self.common, values))

    def device_pipeline(
        self,
        *,
        needs: frozenset[str],
        redux: bool,
        debug: bool,
        has_bf16: bool = True,
        index_bits: int = _HOST_BITS,
    ) -> str:
        """Return the pipeline for a module that contains one `gpu.module` with these needs.

        `has_bf16`: the device supports arithmetic of bf16. `index_bits`: the width of index.
        """
        values = {
            "$sizes": self.sizes if "sizes" in needs else "",
            "$bf16": self.bf16 if "bf16" in needs and not has_bf16 else "",
            "$redux": str(redux).lower(),
            "$nvgpu": self._nvgpu(needs),
        }
        self._check(needs - {"bf16"} if has_bf16 else needs)
        before = (self.subgroup_reduce,) if "subgroup_reduce" in needs and not redux else ()
        passes = (before, _filled(self.device, values), self.layouts["nvptx"])
        return self._device_pipeline(*passes, debug=debug, index_bits=index_bits)

    def amdgpu_pipeline(
        self, *, needs: frozenset[str], chip: str, debug: bool, index_bits: int = _HOST_BITS
    ) -> str:
        """Return the pipeline for a module that contains one `gpu.module`, for an AMD GPU."""
        self._check(needs)
        values = {
            "$sizes": self.sizes_amdgpu if "sizes" in needs else "",
            "$chip": chip,
        }
        passes = ((), _filled(self.device_amdgpu, values), self.layouts["amdgpu"])
        return self._device_pipeline(*passes, debug=debug, index_bits=index_bits)

    def _check(self, parts: Iterable[str]) -> None:
        """Raise CompatibilityError for a part that this build lowers wrongly, as its test programs showed."""
        for part in sorted(self.failed.keys() & set(parts)):
            msg = f"the lowering LLVM fails in a part that the program needs ({part}): {self.failed[part]}"
            raise CompatibilityError(msg, hint="lower with another release (--llvm=)")

    def _nvgpu(self, needs: frozenset[str]) -> str:
        if "nvgpu" not in needs:
            return ""
        return self.nvgpu_branches if "matrix" in needs else self.nvgpu

    def _device_pipeline(
        self,
        before: tuple[str, ...],
        passes: Sequence[str],
        layout: str,
        *,
        debug: bool,
        index_bits: int,
    ) -> str:
        behind = (*self.device_module, *((self.debug,) if debug else ()))
        whole = (*before, f"gpu.module({','.join(passes)})", *behind)
        option = "" if index_bits == _HOST_BITS else f"index-bitwidth={index_bits}"
        values = {
            "$bits": option and f"{{{option}}}",
            "$more_bits": option and f" {option}",
            "$layout": layout,
        }
        return _on_module(_filled(whole, values))

    def host_pipeline(self, *, uses_async: bool, debug: bool) -> str:
        """Return the pipeline for the host. `uses_async`: the host uses the async dialect."""
        self._check(["async"] if uses_async else [])
        values = {
            "$async": ",".join(self.async_runtime) if uses_async else "",
            "$layout": self.layouts["host"],
        }
        passes = _filled(self.host, values)
        return _on_module([*passes, self.debug] if debug else passes)


class UnsupportedOp(Struct, frozen=True, forbid_unknown_fields=True):
    """An operation that no pass of the pipeline lowers, and an alternative.

    Attributes and types are shell patterns; types are indexed by the operand or result. The row applies to
    operations that match all of `attributes`, `operands` and `results`, and none of `unless_attributes` and
    `unless_operands`. `assembly` is a regular expression for inline assembly.
    """

    where: Side
    operation: str
    message: str
    hint: str
    checked: tuple[int, ...]
    dialect: str = ""
    attributes: dict[str, tuple[str, ...]] = {}
    unless_attributes: dict[str, tuple[str, ...]] = {}
    operands: dict[int, tuple[str, ...]] = {}
    unless_operands: dict[int, tuple[str, ...]] = {}
    results: dict[int, tuple[str, ...]] = {}
    assembly: str = ""

    def is_for(self, name: str) -> bool:
        """Return whether the row is for operations of this name, or for its dialect."""
        is_dialect = self.operation.endswith(".")
        return name.startswith(self.operation) if is_dialect else name == self.operation

    def applies(self, operation: Operation) -> bool:
        """Return whether the row applies to an operation."""
        if not self.is_for(operation.name):
            return False
        if self.assembly:
            written = operation.attribute("asm_string").string
            return re.search(self.assembly, written) is not None
        given, made = operation.operand_types, operation.result_types
        wanted = (
            *(_is_like(_given(operation, name), like) for name, like in self.attributes.items()),
            *(_is_like(given[number:][:1], like) for number, like in self.operands.items()),
            *(_is_like(made[number:][:1], like) for number, like in self.results.items()),
        )
        excepted = (
            *(
                _is_like(_given(operation, name), like)
                for name, like in self.unless_attributes.items()
            ),
            *(_is_like(given[number:][:1], like) for number, like in self.unless_operands.items()),
        )
        return all(wanted) and not any(excepted)


def _given(operation: Operation, name: str) -> list[str]:
    """Return the attribute with a name as a list, which is empty if the operation does not have it."""
    return [operation.attribute(name)] if operation.has(name) else []


def _is_like(texts: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for text in texts for pattern in patterns)


@table_cache
def load_recipe(llvm_major: int) -> Recipe:
    """Return the pipelines of a release. Raises CompatibilityError if the release is older than all rows."""
    rows = sorted(_table()["recipes"], key=lambda row: int(row["since"]))
    known = [row for row in rows if int(row["since"]) <= llvm_major]
    if not known:
        oldest = rows[0]["since"]
        msg = (
            f"LLVM {llvm_major} cannot lower GPU programs here: releases from {oldest} on are known"
        )
        raise CompatibilityError(msg, hint=f"install mlir-{oldest}-tools or a later release")
    row = _without_missing(llvm_major, known[-1])
    return Recipe(
        common=tuple(row["common"]),
        reductions=str(row["reductions"]),
        nvgpu=str(row["nvgpu"]),
        nvgpu_branches=str(row["nvgpu_branches"]),
        device=tuple(row["device"]),
        device_amdgpu=tuple(row["device_amdgpu"]),
        device_module=tuple(row["device_module"]),
        subgroup_reduce=str(row["subgroup_reduce"]),
        sizes=str(row["sizes"]),
        sizes_amdgpu=str(row["sizes_amdgpu"]),
        bf16=str(row["bf16"]),
        host=tuple(row["host"]),
        async_runtime=tuple(row["async"]),
        debug=str(row["debug"]),
        layouts=_table()["layouts"],
        failed=_failed_parts(llvm_major),
    )


def _failed_parts(llvm_major: int) -> Mapping[str, str]:
    release = known_release(llvm_major)
    rows = release.rows_of("pipelines") if release else ()
    return {
        learned_row.list_of(row).rpartition(".")[2]: reason
        for row in rows
        if isinstance(row, learned_row.PartProgramRow)
        for reason in row.failed.values()
    }


def _without_missing(llvm_major: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove the passes that this build does not have from a row.

    Operations that they would lower stay, and are rejected later. Raises CompatibilityError for a pass
    whose absence would not be detected.
    """
    release = known_release(llvm_major)
    learned = release.rows_of("pipelines") if release else ()
    missing = {
        name
        for item in learned
        if isinstance(item, learned_row.MissingPassesRow)
        for name in item.passes
    }
    if release is None or not missing:
        return row
    needed = sorted(missing.intersection(_table()["needed_passes"]))
    if needed:
        msg = f"LLVM {release.version} has no pass {needed[0]}, which the recipe of LLVM {release.nearest} needs"
        raise CompatibilityError(
            msg, hint=f"lower with LLVM {release.nearest}: add --llvm={release.nearest}"
        )
    return {
        key: [step for step in value if not missing.intersection(pass_names(step))]
        if isinstance(value, list) and key != "checked"
        else value
        for key, value in row.items()
    }


def pass_names(text: str) -> tuple[str, ...]:
    """Return the names in a pass pipeline: a and d for `func.func(a{b=c}),d`."""
    return tuple(filter(None, _PASS.findall(text)))


def recipe_options(llvm_major: int) -> tuple[tuple[str, str], ...]:
    """Return the pass options in the pipelines of a release, as pairs of pass and option."""
    return tuple(
        dict.fromkeys(
            (name, option)
            for text in _recipe_texts(llvm_major)
            for name, options in _GIVEN.findall(text)
            for option in _OPTION.findall(options)
        )
    )


def recipe_passes(llvm_major: int) -> tuple[str, ...]:
    """Return the passes in the pipelines of a release, without duplicates."""
    texts = _recipe_texts(llvm_major)
    return tuple(dict.fromkeys(name for text in texts for name in pass_names(text)))


def _recipe_texts(llvm_major: int) -> list[str]:
    rows = [row for row in _table()["recipes"] if int(row["since"]) <= llvm_major]
    return [
        step
        for key, value in (rows or _table()["recipes"])[-1].items()
        if key not in {"since", "checked"}
        for step in ([value] if isinstance(value, str) else value)
    ]


@functools.cache
def load_call_options() -> tuple[str, ...]:
    """Return the options of every mlir-opt and mlir-translate command."""
    return tuple(_table()["calls"])


@functools.cache
def load_printing() -> tuple[str, ...]:
    """Return the options of every mlir-opt command."""
    return tuple(_table()["printing"])


@functools.cache
def load_faults(llvm_major: int) -> frozenset[str]:
    """Return the names of the bugs of a release that have a workaround."""
    return frozenset(row["name"] for row in _table()["faults"] if llvm_major <= int(row["until"]))


@functools.cache
def load_spirv_integers() -> tuple[int, ...]:
    """Return the widths of the integers that LLVM's back end for SPIR-V computes correctly, in bits."""
    return tuple(_table()["spirv_integers"])


@functools.cache
def load_refusals(where: Side) -> tuple[UnsupportedOp, ...]:
    """Return the unsupported operations of host code or of device modules."""
    return tuple(
        converted(row | {"operation": operation}, UnsupportedOp)
        for row in _table()["refusals"]
        if row["where"] == where
        for operation in _listed(row["operation"])
    )


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _filled(passes: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """Replace the placeholders. A pass that becomes empty is removed."""
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
