"""An action as the Remote Execution API describes it: a command, and the tree of its input files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from msgspec import Struct

from mlir_offload.driver.remote.blob import Blob, FileBlobs, blob_of
from mlir_offload.driver.remote.protocol import reapi
from mlir_offload.driver.step.action import Action
from mlir_offload.toolchain.errors import UsageError

PROGRAM = "mlir-offload"
# Workers set only the variables of the action, so that it must contain a PATH to find the driver.
_PATH = ("PATH", "/usr/local/bin:/usr/bin:/bin")
_Folder: TypeAlias = "dict[str, Blob | _Folder]"


class RemoteAction(Struct, frozen=True):
    """An action with all blobs that a worker needs; `name` is the blob of the Action message."""

    name: Blob
    blobs: tuple[Blob, ...]
    outputs: tuple[str, ...]


def check_paths(paths: Iterable[PurePosixPath], label: str, manifest: Path) -> None:
    """Raise UsageError for a file outside of the project, which a worker does not have."""
    for path in paths:
        if path.is_absolute() or ".." in path.parts:
            msg = f"step {label} reads {path}, which a worker does not have"
            hint = "copy it below the directory of the manifest, and name it from there"
            raise UsageError(msg, hint=hint, location=str(manifest))


def describe(
    action: Action,
    options: Sequence[str],
    root: Path,
    files: FileBlobs,
    platform: Sequence[tuple[str, str]],
) -> RemoteAction:
    """Return an action with further options of its command; its paths are relative to `root`.

    Raises InputOutputError for an unreadable input.
    """
    inputs = {path: files.find(root / path) for path in action.inputs}
    # Of these files, the step uses those that exist.
    there = (path for path in action.consulted if (root / path).is_file())
    inputs |= {path: files.find(root / path) for path in there}
    blobs = list(inputs.values())
    tree = _add_folder(_folders(inputs), blobs)
    # A module step lists some of its dependency files as outputs as well.
    depfile = (action.depfile,) if action.depfile else ()
    outputs = tuple(sorted({str(path) for path in (*action.outputs, *depfile)}))
    properties = [reapi.Platform.Property(name=name, value=value) for name, value in platform]
    command = reapi.Command(
        arguments=(PROGRAM, *action.arguments, *options),
        environment_variables=[
            reapi.Command.EnvironmentVariable(name=name, value=value)
            for name, value in sorted((_PATH, *action.environment))
        ],
        # Version 2.0 of the API has only output_files, later versions prefer output_paths.
        output_files=outputs,
        output_paths=outputs,
        platform=reapi.Platform(properties=properties),
    )
    line = _blob(command)
    name = _blob(
        reapi.Action(
            command_digest=line.id.message(),
            input_root_digest=tree.id.message(),
            platform=reapi.Platform(properties=properties),
        )
    )
    return RemoteAction(name, (*blobs, line, name), outputs)


def _blob(message: Any) -> Blob:
    return blob_of(message.SerializeToString(deterministic=True))


def _folders(files: Mapping[PurePosixPath, Blob]) -> _Folder:
    root: _Folder = {}
    for path, blob in files.items():
        folder = root
        for part in path.parts[:-1]:
            inner = folder.setdefault(part, {})
            assert isinstance(inner, dict)  # noqa: S101 (no file is a folder)
            folder = inner
        folder[path.name] = blob
    return root


def _add_folder(folder: _Folder, blobs: list[Blob]) -> Blob:
    """Return the Directory message of a directory; add it and its subdirectories to `blobs`."""
    message = reapi.Directory()
    for name, item in sorted(folder.items()):
        if isinstance(item, dict):
            digest = _add_folder(item, blobs).id.message()
            message.directories.append(reapi.DirectoryNode(name=name, digest=digest))
        else:
            message.files.append(reapi.FileNode(name=name, digest=item.id.message()))
    blob = _blob(message)
    blobs.append(blob)
    return blob
