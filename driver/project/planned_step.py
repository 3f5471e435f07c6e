"""A planned step of a project: an action and its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from msgspec import Struct

from mlir_offload.driver.step.action import Action

SPLIT, DEVICE, JOIN = "split", "device", "join"
MODULE = "module"
"""The kind of a step that does the split, the device steps and the join of a module in one process."""
SOURCE, LINK, ARCHIVE = "source", "link", "archive"
DECLARED = frozenset({MODULE, SPLIT, DEVICE, JOIN, ARCHIVE})
"""The kinds whose inputs are all declared. The others also read files such as headers and libraries of -l."""


class ProjectStep(Struct, frozen=True):
    """A step of a project. All paths are relative to the directory of the manifest.

    Outputs in `kept` may remain unchanged if inputs change. The first step of a module has the number of
    its `steps`, and `whole`, which returns one step that replaces all of them.
    """

    kind: str
    module: PurePosixPath
    variant: str
    action: Action
    arch: str = ""
    kept: tuple[PurePosixPath, ...] = ()
    steps: int = 1
    whole: Callable[[], ProjectStep] | None = None

    @property
    def label(self) -> str:
        """Return the name of the step in messages."""
        words = (self.kind, self.arch, str(self.module), f"[{self.variant}]")
        return " ".join(word for word in words if word)


def sibling(path: PurePosixPath, ending: str) -> PurePosixPath:
    """Return a path with an extension appended, so that `a.mlir` and `a.c` have different objects."""
    return path.with_name(path.name + ending)
