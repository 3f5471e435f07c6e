"""An action: one call of this driver, with all that decides what it makes.

Every place that runs, emits, stores or explains a step uses this one description of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from mlir_offload.driver.step.compiler_step import CompilerStep
from mlir_offload.toolchain.process import Environment

_FORMAT = "mlir-offload action 1"


class Action(Struct, frozen=True):
    """One call of this driver; its paths are relative to the directory in which it runs.

    `arguments` follow the driver's own command. `inputs` are the files that it reads. It also reads
    those of `consulted` that its code calls, and names these in `depfile`, with what clang or the
    linker found by itself, in `folders` among others. `environment` are the variables that decide what it makes. `step` is what
    the arguments say, unless they are those of a whole call.
    """

    arguments: tuple[str, ...]
    inputs: tuple[PurePosixPath, ...]
    outputs: tuple[PurePosixPath, ...]
    toolchain_id: str
    consulted: tuple[PurePosixPath, ...] = ()
    environment: Environment = ()
    depfile: PurePosixPath | None = None
    step: CompilerStep | None = None
    folders: tuple[PurePosixPath, ...] = ()

    @property
    def reads(self) -> tuple[PurePosixPath, ...]:
        """Return all files that it may read."""
        return (*self.inputs, *self.consulted)

    @property
    def written(self) -> tuple[PurePosixPath, ...]:
        """Return all files that it writes."""
        return (*self.outputs, *((self.depfile,) if self.depfile else ()))

    @property
    def signature(self) -> str:
        """Return what differs if the action is another one, whatever its files contain."""
        return self._digest(())

    def key(self, digests: Sequence[str]) -> str:
        """Return the name of what it makes of files with these digests, in the order of `reads`."""
        return self._digest(digests)

    def _digest(self, digests: Sequence[str]) -> str:
        files = [list(map(str, paths)) for paths in (self.inputs, self.consulted, self.outputs)]
        rest = (self.environment, self.toolchain_id, digests)
        text = json.dumps([_FORMAT, self.arguments, files, *rest])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def action_of(
    step: CompilerStep,
    inputs: Sequence[PurePosixPath],
    outputs: Sequence[PurePosixPath],
    *,
    consulted: Sequence[PurePosixPath] = (),
    environment: Environment = (),
    depfile: PurePosixPath | None = None,
) -> Action:
    """Return the action that does a step."""
    return Action(
        step.argv,
        tuple(inputs),
        tuple(outputs),
        step.toolchain_id,
        tuple(consulted),
        environment,
        depfile,
        step,
    )
