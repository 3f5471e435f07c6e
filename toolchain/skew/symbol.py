"""Functions of LLVM and of its OpenMP runtime that another release lacks, or has otherwise."""

from __future__ import annotations

from mlir_offload.toolchain.skew.fact import Consumer, Skew
from mlir_offload.toolchain.skew.intrinsics import load_intrinsics
from mlir_offload.toolchain.skew.limits import load_limits

_MINIMUM = ("llvm.minimum.", "llvm.maximum.")


def check_openmp(name: str, parameters: int, consumer: Consumer) -> Skew | None:
    """Return what is wrong with a declared function of OpenMP's device runtime, if it is another's."""
    table = load_limits()
    steps = table.openmp_parameters.get(name)
    expected = steps.at(consumer.llvm) if steps else 0
    is_new = table.openmp_first.get(name, 0) > consumer.llvm
    if is_new or (expected and expected != parameters):
        return Skew("OF005", {"name": name, "consumer": consumer.llvm}, name)
    return None


def check_intrinsic(
    name: str, parameters: int, consumer: Consumer, triple: str = "", result: str = ""
) -> Skew | None:
    """Return what the consumer makes of a declared intrinsic, None where it knows it as it is.

    `result` is the type that it returns; empty if that is not known.
    """
    if name.startswith(_MINIMUM):
        since = load_limits().back_end_since(triple, "minimum")
        if consumer.llvm < since:
            values = {"construct": name, "needed": since, "consumer": consumer.llvm}
            return Skew("BC025", values)
    intrinsics = load_intrinsics()
    first = intrinsics.first_release(name)
    if first is not None and first > consumer.llvm:
        values = {"name": name, "needed": first, "consumer": consumer.llvm}
        taken = intrinsics.taken_for(name, consumer.llvm)
        if not taken:
            return Skew("BC014", values)
        if not name.startswith(load_limits().taken_rightly):
            return Skew("BC028", values | {"taken": taken})
    changed = load_limits().intrinsic_results.get(name)
    if changed is not None and consumer.llvm < changed[0] and result not in {"", changed[1]}:
        values = {"name": name, "parameters": f"{result} as result and {parameters}"}
        values |= {"expected": f"{changed[1]} as result"}
        return Skew("BC023", values | {"consumer": consumer.llvm})
    for known, steps in load_limits().intrinsic_parameters.items():
        if name == known or name.startswith(f"{known}."):
            expected = steps.at(consumer.llvm)
            if parameters < expected:
                values = {"name": name, "parameters": parameters, "expected": expected}
                return Skew("BC023", values | {"consumer": consumer.llvm})
    return None
