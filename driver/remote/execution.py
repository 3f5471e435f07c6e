"""Run an action on a server: take its result from the action cache, or let a worker run it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from mlir_offload.driver.remote.blob import BlobId, RemoteFiles
from mlir_offload.driver.remote.protocol import grpc, reapi
from mlir_offload.driver.remote.request import RemoteAction
from mlir_offload.driver.remote.server import Patience, RemoteServer
from mlir_offload.toolchain.errors import ToolFailedError, VerificationError

_FIRST_DELAY_S = 0.1
# The limit for sending an action again after the server has lost its files.
_MOST_ATTEMPTS = 3
_CODES = grpc.StatusCode
_OK, _LOST = _CODES.OK.value[0], _CODES.FAILED_PRECONDITION.value[0]
_PASSING = frozenset(code.value[0] for code in (_CODES.UNAVAILABLE, _CODES.ABORTED))


class RemoteResult(Struct, frozen=True):
    """The result of an action: its exit status, output, and output files by path if it succeeded."""

    exit_status: int
    said: str
    outputs: dict[str, bytes]
    worker: str


class _LostFilesError(Exception):
    """The server refers to a file that it no longer has."""


class Execution(Struct, frozen=True):
    """Runs actions. Thread-safe."""

    server: RemoteServer
    files: RemoteFiles

    def run(self, action: RemoteAction) -> RemoteResult:
        """Return the result of an action. Raises MlirOffloadError if there is none."""
        result = self._find(action)
        for _ in range(_MOST_ATTEMPTS):
            try:
                if result is None or result.exit_code:
                    # Some servers cache failures, whose cause may be a worker that no longer exists.
                    result = self._execute(action, skips_cache=result is not None)
                return self._collect(action, result)
            except (KeyError, _LostFilesError):
                self.files.forget()
                result = reapi.ActionResult(exit_code=1)
        msg = "the server loses the files of this step"
        hint = "is its storage large enough for the build?"
        raise ToolFailedError(msg, hint=hint, location=self.server.address.url)

    def _find(self, action: RemoteAction) -> Any:
        """Return the result in the action cache; None if there is none."""
        request = reapi.GetActionResultRequest(
            instance_name=self.server.instance,
            action_digest=action.name.id.message(),
            inline_stdout=True,
            inline_stderr=True,
            inline_output_files=action.outputs,
        )

        def find() -> Any:
            try:
                return self.server.once(self.server.connection().cache.GetActionResult, request)
            except grpc.RpcError as error:
                if error.code() is _CODES.NOT_FOUND:
                    return None
                raise

        return self.server.attempt(find)

    def _execute(self, action: RemoteAction, *, skips_cache: bool) -> Any:
        """Return the result of a worker. The server may restart meanwhile."""
        self.files.upload(action.blobs)
        request = reapi.ExecuteRequest(
            instance_name=self.server.instance,
            skip_cache_lookup=skips_cache,
            action_digest=action.name.id.message(),
            inline_stdout=True,
            inline_stderr=True,
            inline_output_files=action.outputs,
        )
        patience, name = Patience(self.server.stopped), ""
        while True:
            try:
                for operation in self._follow(request, name):
                    patience.renew()
                    name = operation.name
                    if operation.done:
                        return self._result(operation)
            except grpc.RpcError as error:
                if name and error.code() is _CODES.NOT_FOUND:
                    # The server restarted and lost the operation.
                    name = ""
                else:
                    self.server.wait(patience, error)
            if self.server.stopped.wait(_FIRST_DELAY_S):
                raise self.server.cancelled()

    def _follow(self, request: Any, name: str) -> Iterator[Any]:
        connection, metadata = self.server.connection(), self.server.metadata()
        if name:
            known = reapi.WaitExecutionRequest(name=name)
            stream = connection.execution.WaitExecution(known, metadata=metadata)
        else:
            stream = connection.execution.Execute(request, metadata=metadata)
        return self.server.follow(stream, connection)

    def _result(self, operation: Any) -> Any:
        """Return the result in an operation. Raises ToolFailedError if no worker ran the action."""
        response = reapi.ExecuteResponse()
        operation.response.Unpack(response)
        status = operation.error if operation.HasField("error") else response.status
        if status.code == _OK:
            return response.result
        if status.code == _LOST and "MISSING" in str(status):
            raise _LostFilesError
        reason = status.message or f"status {status.code}"
        msg = f"no worker could run it: {reason}"
        hint = f"the workers need {_NEEDED}, and the properties that --remote-platform= names"
        raise ToolFailedError(msg, hint=hint, location=self.server.address.url)

    def _collect(self, action: RemoteAction, result: Any) -> RemoteResult:
        """Return a result with its files. Raises KeyError if the server lost one of them."""
        worker = result.execution_metadata.worker or "a worker"
        files = {file.path: file for file in result.output_files}
        names = {path: BlobId.of(file.digest) for path, file in files.items()}
        given = {names[path]: file.contents for path, file in files.items() if file.contents}
        failed = bool(result.exit_code)
        missing = [path for path in action.outputs if path not in names]
        if missing and not failed:
            msg = f"{worker} did not write {missing[0]}"
            hint = "does the worker have the same release of mlir-offload?"
            raise VerificationError(msg, hint=hint, location=self.server.address.url)
        wanted = {} if failed else {path: names[path] for path in action.outputs}
        said = [BlobId.of(digest) for digest in (result.stdout_digest, result.stderr_digest)]
        found = self.files.fetch((*wanted.values(), *(key for key in said if key.hash)), given)
        text = b"".join(
            raw or found.get(key, b"")
            for raw, key in zip((result.stdout_raw, result.stderr_raw), said, strict=True)
        )
        self.files.note(wanted.values())
        outputs = {path: found.get(key, b"") for path, key in wanted.items()}
        return RemoteResult(
            result.exit_code, text.decode("utf-8", "surrogateescape"), outputs, worker
        )


_NEEDED = "mlir-offload on PATH, with the tools of this machine"
