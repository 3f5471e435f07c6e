"""Kernels for the CPU in which LLVM may move a load above a store before it.

The loop over the threads of a block is marked as parallel (`llvm.loop.parallel_accesses`): its turns do not depend
on each other. The vectorizer of LLVM 15 to 22 joins strided accesses of such a loop to groups, and moves the loads
of a group to its first and the stores to its last, without a look at what one turn does in between: it asks for
dependences (`canReorderMemAccessesForInterleavedGroups`, llvm/Analysis/VectorUtils.h) that
`LoopAccessInfo::analyzeLoop` does not compute there.
"""

from __future__ import annotations

WITHOUT_GROUPS = ("-mllvm", "-enable-interleaved-mem-accesses=false")
"""What makes clang join no accesses."""

_FUNCTION, _OF_RUNTIME = "define ", " @mo"
_PARTS = tuple(f".{part}{end}(" for part in ("item", "rest", "run") for end in ("", '"'))
# What the rewriting for the CPU adds belongs to one thread, and is no array.
_VARIABLE = ", ptr %mo."


def has_load_behind_store(text: str) -> bool:
    """Return whether a kernel loads, in the order of its text, after it has stored.

    A function that takes a pointer may do both.
    """
    has_stored = is_runtime = False
    for line in text.splitlines():
        if line.startswith(_FUNCTION):
            has_stored, is_runtime = False, _OF_RUNTIME in line
        elif is_runtime:
            continue
        elif " call " in line and "ptr " in line:
            if has_stored and not _is_known(line):
                return True
            has_stored |= not _is_known(line)
        elif _VARIABLE not in line:
            if has_stored and " = load " in line:
                return True
            has_stored |= line.startswith("  store ")
    return False


def _is_known(call: str) -> bool:
    # The parts of a kernel are functions of the module, too.
    return any(word in call for word in (_OF_RUNTIME, " @llvm.", *_PARTS))
