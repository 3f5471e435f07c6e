"""Run an action on a server: its result from the action cache, or by a worker."""

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
# How often an action is sent again whose files the server has lost.
_MOST_ATTEMPTS = 3
_CODES = grpc.StatusCode
_OK, _LOST = _CODES.OK.value[0], _CODES.FAILED_PRECONDITION.value[0]
_PASSING = frozenset(code.value[0] for code in (_CODES.UNAVAILABLE, _CODES.ABORTED))


class RemoteResult(Struct, frozen=True):
    """What came of an action: its outputs by their names, if it ended well."""

    exit_status: int
    said: str
    outputs: dict[str, bytes]
    worker: str


class _LostFilesError(Exception):
    """The server names a file that it does not have any more."""


class Execution(Struct, frozen=True):
    """Runs actions; several threads use it at the same time."""

    server: RemoteServer
    files: RemoteFiles

    def run(self, action: RemoteAction) -> RemoteResult:
        """Return the result of an action. Raises MlirOffloadError where the server has none."""
        result = self._find(action)
        for _ in range(_MOST_ATTEMPTS):
            try:
                if result is None or result.exit_code:
                    # Some servers keep failures, which may be of a worker that has gone.
                    result = self._execute(action, skips_cache=result is not None)
                return self._collect(action, result)
            except (KeyError, _LostFilesError):
                self.files.forget()
                result = reapi.ActionResult(exit_code=1)
        msg = "the server loses the files of this step"
        hint = "has its storage too little room for the build?"
        raise ToolFailedError(msg, hint=hint, location=self.server.address.url)

    def _find(self, action: RemoteAction) -> Any:
        """Return the result in the action cache, None where there is none."""
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
        """Return what a worker makes of an action; the server may be started again meanwhile."""
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
                    # The server was started again, and does not know what it was asked.
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
        """Return the result in an operation. Raises ToolFailedError where no worker made one."""
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
        """Return a result with all that it names. Raises KeyError if the server lost some of it."""
        worker = result.execution_metadata.worker or "a worker"
        files = {file.path: file for file in result.output_files}
        names = {path: BlobId.of(file.digest) for path, file in files.items()}
        given = {names[path]: file.contents for path, file in files.items() if file.contents}
        failed = bool(result.exit_code)
        missing = [path for path in action.outputs if path not in names]
        if missing and not failed:
            msg = f"{worker} left no {missing[0]}"
            hint = "are the mlir-offload there and this one of the same release?"
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
