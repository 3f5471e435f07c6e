"""The rows of docs/reference/gpu-ops.yaml as programs that are compiled."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "gpu-ops.yaml"
TARGETS = {"cuda": "sm_90", "hip": "gfx90a", "spirv": "spirv64", "cpu": "host"}
_TYPES = ("i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")
_BUFFERS = ", ".join(f"%{kind}: memref<?x{kind}>" for kind in _TYPES)
_KERNEL = (
    f"%i: index, %x: memref<?xindex>, {_BUFFERS}, %m16: memref<32x32xf16>, %m32: memref<32x32xf32>, "
    "%mi: memref<32x32xi32>, %one: i32, %w: i32"
)
_HOST = (
    "%p: memref<?xf32>, %q: memref<?xf32>, %h: memref<*xf32>, %v: f32, %n: index, %c1: index, %s: i32, "
    "%x: memref<?xindex>, %i32: memref<?xi32>, %e64: memref<?xf64>, %v64: f64, %stream: !llvm.ptr, "
    "%bytes: memref<?xi8>, %d16: memref<?x?xf16>"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One program of a row; `refused` contains targets that reject it, with the error."""

    name: str
    frame: str
    text: str
    refused: tuple[tuple[str, str], ...]

    @property
    def targets(self) -> frozenset[str]:
        """Return the targets for which it compiles."""
        return frozenset(TARGETS).difference(name for name, _ in self.refused)


def cases_of(release: int) -> list[Case]:
    """Return all cases for an LLVM release."""
    found: list[Case] = []
    for group in yaml.safe_load(TABLE.read_text(encoding="utf-8"))["groups"]:
        for row in group["rows"]:
            found.extend(cases_in(row, release))
    return found


def cases_in(row: Mapping[str, Any], release: int) -> list[Case]:
    """Return all cases of a row for an LLVM release."""
    is_known = row.get("since", 19) <= release <= row.get("until", release)
    return list(_cases(row, release)) if is_known else []


def _cases(row: Mapping[str, Any], release: int) -> Iterable[Case]:
    frame = next((name for name in ("device", "host", "module") if name in row), None)
    if frame is None:
        return
    text = str(row.get(f"{frame}{release}", row[frame]))
    each = dict(row.get("each") or {})
    refused = tuple((name, str(row[name])) for name in TARGETS if name in row)
    for words in itertools.product(*each.values()):
        chosen = text
        for name, word in zip(each, words, strict=True):
            chosen = chosen.replace(f"${name}", word)
        names = (*row["op"][:1], str(row.get("variant", "")), *words)
        yield Case(" ".join(filter(None, names)), frame, chosen.replace("$", ""), refused)


def program_of(cases: Iterable[Case]) -> str:
    """Return one program with several cases, each as a kernel or function."""
    kernels, functions, modules = [], [], []
    for number, case in enumerate(cases):
        match case.frame:
            case "device":
                head = f"  gpu.func @k{number}({_used(_KERNEL, case)}) kernel {{ // {case.name}"
                zero = "%o = arith.constant 0 : index"
                kernels += [head, zero, case.text, "gpu.return", "}"]
            case "host":
                head = f" func.func @h{number}({_used(_HOST, case)}) {{ // {case.name}"
                functions += [head, case.text, "return", "}"]
            case _:
                inner = case.text.strip().splitlines()[1:-1]
                modules += [line.replace("@m ", f"@m{number} ") for line in inner]
    launched = "  gpu.func @k(%p: memref<?xf32>) kernel { gpu.return }"
    device = [" gpu.module @m {", launched, *kernels, " }"]
    body = [*device, *functions, *modules]
    return "\n".join(("module attributes {gpu.container_module} {", *body, "}", ""))


def _used(parameters: str, case: Case) -> str:
    """Return the parameters that a case uses, because each memref is lowered to five."""
    names = set(re.findall(r"%\w+", case.text))
    return ", ".join(one for one in parameters.split(", ") if one.partition(":")[0] in names)
