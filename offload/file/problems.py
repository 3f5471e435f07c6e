"""Collect the problems of a file while it is read, so that one does not hide the others."""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.offload.container.contents import Problem, ProblemKind
from mlir_offload.toolchain.errors import CompatibilityError, InputOutputError, MlirOffloadError

_MOST_PROBLEMS = 100


class Problems(Struct):
    """The problems of one part or image, in the order found; their number is limited."""

    found: list[Problem]
    left_out: int = 0

    def report(self, error: MlirOffloadError) -> None:
        """Add an error as a problem."""
        self.add(as_problem(error))

    def add(self, problem: Problem) -> None:
        """Add a problem, unless the limit is reached."""
        if len(self.found) < _MOST_PROBLEMS:
            self.found.append(problem)
        else:
            self.left_out += 1

    def finished(self) -> tuple[Problem, ...]:
        """Return the problems, and a last one with the number of those left out."""
        if not self.left_out:
            return tuple(self.found)
        more = Problem(ProblemKind.DAMAGED, f"{self.left_out} more problems are not shown")
        return (*self.found, more)


def as_problem(error: MlirOffloadError) -> Problem:
    """Return the problem for an error of a reader."""
    kind = ProblemKind.DAMAGED
    if isinstance(error, CompatibilityError):
        kind = ProblemKind.UNSUPPORTED
    elif isinstance(error, InputOutputError):
        kind = ProblemKind.UNREADABLE
    return Problem(kind, error.message, error.hint)
