"""Properties of AMD GPUs in LLVM: target IDs, wavefront sizes, data layouts, code object versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.errors import CompatibilityError, UsageError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.tables import load_table, table_cache, with_learned

DEFAULT_LIMIT = "1,256"
"""The threads per block for which mlir-translate compiles a kernel without an own limit."""
GIVEN_LIMIT = "1, 256"
"""The same limit where the program states it; LLVM trims the numbers."""

_GENERATION = pattern(r"gfx(\d+)(?:-[\d-]*generic|[0-9a-f]{2})")
# A feature in LLVM's spelling or as an option of clang.
_FEATURE = pattern(r"(-m(?:no-)?|[+-])(wavefrontsize(?:32|64)|xnack|sramecc)")


class CodeObjects(Struct, frozen=True):
    """The code object versions that a release writes, oldest first, and the module flag for them.

    `reads` maps each module flag that its back end obeys to the versions that the flag can select.
    """

    versions: tuple[int, ...]
    flag: str
    reads: Mapping[str, tuple[int, ...]]

    def made(self, flag: str, wanted: int) -> int:
        """Return the version of the code object if the module flag `flag` requests version `wanted`."""
        obeyed = self.reads.get(flag, ())
        return wanted if wanted in obeyed else self.versions[-1]


def normalize_target_id(name: str) -> str:
    """Return the target ID with sorted features, as clang and the HIP runtime write it."""
    processor, *features = name.split(":")
    return ":".join((processor, *sorted(dict.fromkeys(features))))


def processor_of(target_id: str) -> str:
    """Return the processor of a target ID, without the features."""
    return target_id.partition(":")[0]


def lowering_chip(target_id: str) -> str:
    """Return the chip to lower for in MLIR; for a generic processor, one of its family."""
    processor = processor_of(target_id)
    return str(_table()["generic"]["chips"].get(processor, processor))


def oldest_code_object(target_id: str) -> int:
    """Return the oldest code object version that supports the processor, 0 for any."""
    generic = _table()["generic"]
    return int(generic["code_object"]) if processor_of(target_id) in generic["chips"] else 0


def wavefront_size(target_id: str) -> int:
    """Return the number of threads in a wavefront. Raises ValueError if the name is not an AMD GPU."""
    match = _GENERATION.fullmatch(processor_of(target_id))
    if match is None:
        msg = f"not an AMD GPU: {target_id!r}"
        raise ValueError(msg)
    return int(_newest(_table()["wavefronts"], int(match.group(1)))["threads"])


def check_features(target_id: str, words: Iterable[str]) -> None:
    """Raise CompatibilityError for a feature that contradicts the target: `+xnack`, `-mwavefrontsize64`.

    Such code would be loaded on a GPU that cannot run it, or run with another wavefront size than
    it was lowered for.
    """
    size, own = wavefront_size(target_id), target_id.split(":")
    for word in words:
        match = _FEATURE.fullmatch(word)
        if match is None:
            continue
        is_on, name = match[1] in {"-m", "+"}, match[2]
        if name.startswith("wavefrontsize"):
            if (name == f"wavefrontsize{size}") != is_on:
                msg = f"{word}: code for {target_id} is compiled for wavefronts of {size} threads"
                raise CompatibilityError(msg, hint=f"leave {word} out")
        elif f"{name}{'+' if is_on else '-'}" not in own:
            msg = f"{word} contradicts the target {target_id}"
            wanted = f"{processor_of(target_id)}:{name}{'+' if is_on else '-'}"
            raise CompatibilityError(msg, hint=f"use --offload-arch={wanted}")


def check_target_ids(target_ids: Iterable[str]) -> None:
    """Raise UsageError if two target IDs of one processor specify different features.

    A GPU could match both. clang rejects such a combination as well.
    """
    first: dict[str, str] = {}
    for target_id in target_ids:
        other = first.setdefault(processor_of(target_id), target_id)
        if _feature_names(other) != _feature_names(target_id):
            msg = (
                f"{other} and {target_id} cannot be combined in one program: a GPU could match both"
            )
            hint = (
                f"set the same features for each, as {target_id} and its opposite, or leave one out"
            )
            raise UsageError(msg, hint=hint)


def _feature_names(target_id: str) -> list[str]:
    return [feature.rstrip("+-") for feature in target_id.split(":")[1:]]


def amdgpu_layout(llvm_major: int) -> str:
    """Return the data layout of amdgcn in a release of LLVM."""
    return str(_newest(_table()["layouts"], llvm_major)["layout"])


def load_code_objects(llvm_major: int) -> CodeObjects:
    """Return the code object versions of a release of LLVM."""
    row = _newest(_table()["code_objects"], llvm_major)
    obeyed = _newest(_table()["code_object_flags"], llvm_major)["reads"]
    reads = {str(flag): tuple(versions) for flag, versions in obeyed.items()}
    return CodeObjects(tuple(row["versions"]), str(row["flag"]), reads)


def first_hidden_argument(version: int) -> str:
    """Return the name of the first hidden kernel argument in a code object version."""
    return str(_newest(_table()["hidden_arguments"], version)["first"])


def hidden_layout(version: int) -> int:
    """Return the oldest code object version with the same layout of hidden arguments."""
    return int(_newest(_table()["hidden_arguments"], version)["since"])


def _newest(rows: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    known = [row for row in rows if row["since"] <= number]
    return max(known or rows[:1], key=lambda row: int(row["since"]))


@table_cache
def _table() -> Mapping[str, Any]:
    return with_learned("amdgpu", load_table("mlir_offload.toolchain", "amdgpu"))
