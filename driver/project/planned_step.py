"""A step of a project as it is planned: an action, and what people call it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from msgspec import Struct

from mlir_offload.driver.step.action import Action

SPLIT, DEVICE, JOIN = "split", "device", "join"
MODULE = "module"
"""What does the work of a split, its device steps and its join in one process."""
SOURCE, LINK, ARCHIVE = "source", "link", "archive"
DECLARED = frozenset({MODULE, SPLIT, DEVICE, JOIN, ARCHIVE})
"""The others read files that are known only when they have run: headers, libraries behind -l."""


class ProjectStep(Struct, frozen=True):
    """An action of a project; all paths are relative to the directory of the manifest.

    Of its outputs those in `kept` may stay as they are, whatever the inputs. The first of the
    `steps` of a module tells by `whole` the step that does all of them.
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
        """Return what the step is called in messages."""
        words = (self.kind, self.arch, str(self.module), f"[{self.variant}]")
        return " ".join(word for word in words if word)


def sibling(path: PurePosixPath, ending: str) -> PurePosixPath:
    """Return a file whose name goes on: `a.mlir` and `a.c` have objects of their own."""
    return path.with_name(path.name + ending)
