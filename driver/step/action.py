"""An action: one command of this driver, with everything that its outputs depend on.

All code that runs, exports, stores or explains a project step uses this description.
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
    """One command of this driver. Its paths are relative to the directory in which it runs.

    `arguments` follow the driver's own command. `inputs` are the files that it reads. It may also read the
    libraries in `consulted`, if its code calls them, and files that clang or the linker finds, for example in
    `folders`; it lists these in `depfile`. `environment` are the variables that affect the outputs. `step` is the
    step that the arguments spell, or None if they are a compiler command line.
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
        """Return all declared files that it may read."""
        return (*self.inputs, *self.consulted)

    @property
    def written(self) -> tuple[PurePosixPath, ...]:
        """Return all files that it writes."""
        return (*self.outputs, *((self.depfile,) if self.depfile else ()))

    @property
    def signature(self) -> str:
        """Return a hash of the action that does not depend on the contents of its files."""
        return self._digest(())

    def key(self, digests: Sequence[str]) -> str:
        """Return the cache key of its outputs for inputs with these digests, in the order of `reads`."""
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
    """Return the action that runs a step."""
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
