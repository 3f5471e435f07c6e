"""Functions of LLVM and of its OpenMP runtime that another release lacks, or has otherwise."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mlir_offload.toolchain.skew.fact import Consumer, Skew
from mlir_offload.toolchain.skew.intrinsics import load_intrinsics
from mlir_offload.toolchain.skew.limits import LaunchRow, ParameterRow, load_limits
from mlir_offload.toolchain.skew.signature import load_signatures, split_signature

_MINIMUM = ("llvm.minimum.", "llvm.maximum.")


def lost_values(
    lost: Sequence[LaunchRow], given: Collection[str], consumer: Consumer
) -> dict[str, object]:
    """Return what the message of lost launch bounds says."""
    names = [row.attribute if row.attribute in given else row.annotation for row in lost]
    needed = max(row.since if row.attribute in given else row.annotation_since for row in lost)
    return {"names": ", ".join(names), "consumer": consumer.llvm, "needed": needed}


def annotation_values(row: ParameterRow, consumer: Consumer) -> dict[str, object]:
    """Return what the message of an annotation that a back end crashes at says."""
    construct = f"the annotation {row.annotation}"
    return {"construct": construct, "needed": row.annotation_since, "consumer": consumer.llvm}


def check_openmp(name: str, parameters: int, consumer: Consumer) -> Skew | None:
    """Return what is wrong with a declared function of OpenMP's device runtime, if it is another's."""
    table = load_limits()
    steps = table.openmp_parameters.get(name)
    expected = steps.at(consumer.llvm) if steps else 0
    is_new = table.openmp_first.get(name, 0) > consumer.llvm
    if is_new or (expected and expected != parameters):
        return Skew("OF005", {"name": name, "consumer": consumer.llvm}, name)
    return None


def check_openmp_structure(name: str, members: int, consumer: Consumer) -> Skew | None:
    """Return what is wrong with a structure that host code passes to libomptarget, if it is another release's."""
    steps = load_limits().openmp_structures.get(name.removeprefix("struct."))
    if steps is None or steps.at(consumer.llvm) == members:
        return None
    return Skew("OF005", {"name": name, "consumer": consumer.llvm})


def check_intrinsic(name: str, signature: str, consumer: Consumer, triple: str = "") -> Skew | None:
    """Return what the consumer makes of a declared intrinsic, None where it knows it as it is.

    `signature` is its type, as LLVM writes it; empty if it is not known.
    """
    values: dict[str, object] = {"name": name, "consumer": consumer.llvm}
    if name.startswith(_MINIMUM):
        since = load_limits().back_end_since(triple, "minimum")
        if consumer.llvm < since:
            return Skew("BC025", values | {"construct": name, "needed": since})
    intrinsics = load_intrinsics()
    first = intrinsics.first_release(name)
    if first is not None and first > consumer.llvm:
        taken = intrinsics.taken_for(name, consumer.llvm)
        if not taken:
            return Skew("BC014", values | {"needed": first})
        if not name.startswith(load_limits().taken_rightly):
            return Skew("BC028", values | {"needed": first, "taken": taken})
    return _check_signature(name, signature, consumer)


def _check_signature(name: str, signature: str, consumer: Consumer) -> Skew | None:
    table = load_signatures()
    base = table.base_name(name)
    values: dict[str, object] = {"name": name, "consumer": consumer.llvm}
    gone = table.gone.get(base, consumer.llvm + 1)
    if gone <= consumer.llvm:
        return Skew("BC031", values | {"gone": gone})
    if not base or not signature:
        return None
    if table.is_unknown(base, signature, consumer.llvm):
        return Skew("BC032", values | {"type": signature})
    expected = table.expected(base, consumer.llvm)
    if expected is None or table.is_read(base, signature, consumer.llvm, name):
        return None
    if expected.fits(*split_signature(signature)):
        # The type is right, and the suffix is not: it is an overload no longer.
        return Skew("BC031", values | {"gone": expected.since})
    return Skew("BC023", values | {"type": signature, "expected": str(expected)})
