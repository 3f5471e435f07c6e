"""Calls of a Remote Execution server, with authentication, retries and cancellation."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from mlir_offload.driver.remote.address import (
    RemoteAddress,
    RemoteOptions,
    parse_address,
    parse_platform,
    read_credential,
    read_token,
)
from mlir_offload.driver.remote.protocol import (
    bytestream_services,
    grpc,
    operations,
    operations_services,
    reapi,
    services,
)
from mlir_offload.toolchain.errors import MlirOffloadError, ToolFailedError, UsageError

# Transient errors: the server restarts or is overloaded.
_PASSING = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})
_FIRST_PATIENCE_S, _PATIENCE_S = 2.0, 120.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 5.0
_CALL_S = 120.0
# Servers reject more frequent pings; with these, a lost idle connection is detected.
_KEEPALIVE_MS = 300_000
# Many servers allow 100 streams per connection.
_STREAMS = 90
_LARGEST_MESSAGE = 64 << 20
_CHANNEL = (
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Otherwise all channels to a server share one connection.
    ("grpc.use_local_subchannel_pool", 1),
)
_BATCH_BYTES = 4 << 20
# Errors of servers for an unknown instance or service.
_UNKNOWN = frozenset(
    (
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)
_INSTANCE_HINT = "name an instance with an execution service: grpcs://HOST:PORT/INSTANCE"
_TLS_WORDS = ("handshake", "certificate", "ssl", "tls")


class Patience(Struct):
    """Waits between attempts, with increasing delays, up to a time limit (all in seconds)."""

    stopped: threading.Event
    longest_s: float = _PATIENCE_S
    _delay_s: float = _FIRST_DELAY_S
    _deadline: float = 0.0

    def wait(self, error: grpc.RpcError) -> None:
        """Wait before the next attempt. Raises the error if it is not transient, or at the time limit."""
        now = time.monotonic()
        self._deadline = self._deadline or now + self.longest_s
        if error.code() not in _PASSING or now > self._deadline:
            raise error
        # Random, so that a thousand clients do not reconnect at the same time.
        delay_s = self._delay_s * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
        if self.stopped.wait(delay_s):
            raise error
        self._delay_s = min(2 * self._delay_s, _LONGEST_DELAY_S)

    def renew(self) -> None:
        """Reset the delay and the time limit, after a response."""
        self._delay_s, self._deadline = _FIRST_DELAY_S, 0.0


class Connection:
    """One connection to a server, with the stubs of its services."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.cas = services.ContentAddressableStorageStub(channel)
        self.cache = services.ActionCacheStub(channel)
        self.execution = services.ExecutionStub(channel)
        self.capabilities = services.CapabilitiesStub(channel)
        self.operations = operations_services.OperationsStub(channel)
        self.bytes = bytestream_services.ByteStreamStub(channel)


class RemoteServer(Struct):
    """A server. Thread-safe.

    `batch_bytes` limits the total size of the files in one message.
    """

    address: RemoteAddress
    options: RemoteOptions
    platform: tuple[tuple[str, str], ...]
    connections: tuple[Connection, ...]
    batch_bytes: int = _BATCH_BYTES
    stopped: threading.Event = field(default_factory=threading.Event)
    _operations: dict[str, Connection] = field(default_factory=dict)
    _calls: set[Any] = field(default_factory=set)

    @property
    def instance(self) -> str:
        """Return the name of the instance."""
        return self.address.instance

    def connection(self) -> Connection:
        """Return a random connection."""
        return random.choice(self.connections)  # noqa: S311 (no secret)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call: the token, read each time because it may change."""
        token = self.options.token
        return (("authorization", f"Bearer {read_token(token)}"),) if token else ()

    def call(self, method: Callable[..., Any], request: object) -> Any:
        """Return the response to a request, with retries. Raises MlirOffloadError."""
        return self.attempt(lambda: self.once(method, request))

    def once(self, method: Callable[..., Any], request: object) -> Any:
        """Return the response to a request. Raises grpc.RpcError."""
        return method(request, timeout=_CALL_S, metadata=self.metadata())

    def attempt(self, work: Callable[[], Any], longest_s: float = _PATIENCE_S) -> Any:
        """Return the result of `work`, repeated on transient errors. Raises MlirOffloadError for others."""
        patience = Patience(self.stopped, longest_s)
        while True:
            try:
                return work()
            except grpc.RpcError as error:
                self.wait(patience, error)

    def wait(self, patience: Patience, error: grpc.RpcError) -> None:
        """Wait before the next attempt. Raises MlirOffloadError if there is none."""
        try:
            patience.wait(error)
        except grpc.RpcError:
            raise self.failure(error) from error

    def follow(self, stream: Iterable[Any], connection: Connection) -> Iterator[Any]:
        """Yield the progress of an operation, and register it for cancellation."""
        self._calls.add(stream)
        names = set()
        try:
            if self.stopped.is_set():
                raise self.cancelled()
            for operation in stream:
                names.add(operation.name)
                self._operations[operation.name] = connection
                yield operation
        finally:
            self._calls.discard(stream)
            if not self.stopped.is_set():
                for name in names:
                    self._operations.pop(name, None)

    def cancel(self) -> None:
        """Cancel all operations of this build, and all calls that wait for them."""
        self.stopped.set()
        for name, connection in list(self._operations.items()):
            request = operations.CancelOperationRequest(name=name)
            try:
                connection.operations.CancelOperation(
                    request, timeout=_FIRST_PATIENCE_S, metadata=self.metadata()
                )
            except (grpc.RpcError, MlirOffloadError):
                # The operation has ended, or the server is unreachable; its result is not needed.
                continue
        for call in list(self._calls):
            call.cancel()

    def close(self) -> None:
        """Close the connections."""
        for connection in self.connections:
            connection.channel.close()

    def cancelled(self) -> ToolFailedError:
        """Return the error of a step whose build is cancelled."""
        return ToolFailedError("cancelled", location=self.address.url)

    def failure(self, error: grpc.RpcError) -> MlirOffloadError:
        """Return the error for a failed call, with a hint."""
        if self.stopped.is_set():
            return self.cancelled()
        code, details = error.code(), " ".join((error.details() or "").split())
        at, codes = self.address.url, grpc.StatusCode
        if code is codes.UNAUTHENTICATED:
            msg = f"the server does not accept {'the' if self.options.token else 'a client without a'} token: {details}"
            return UsageError(
                msg, hint="name the file of a valid one: --remote-token=FILE", location=at
            )
        if code is codes.PERMISSION_DENIED:
            msg = f"the server refuses this client: {details}"
            return UsageError(msg, hint="check the token and the instance", location=at)
        if code is codes.UNAVAILABLE:
            return ToolFailedError(
                f"cannot reach the server: {details}", hint=self._reach_hint(details), location=at
            )
        msg = f"the server failed: {code.name}: {details}"
        return ToolFailedError(msg, hint="see its log", location=at)

    def _reach_hint(self, details: str) -> str:
        if not self.address.is_secure or not any(word in details.lower() for word in _TLS_WORDS):
            return "is it running, and is that its port? grpcs:// needs a server with TLS"
        wanted = "" if self.options.certificate else ", --remote-cert= and --remote-key= if it asks"
        return f"name the authority of its certificate by --remote-ca={wanted}"


def open_server(options: RemoteOptions, lanes: int) -> RemoteServer:
    """Return a server that runs actions, according to its capabilities.

    Raises UsageError for invalid options, MlirOffloadError if the server does not respond or runs no actions.
    """
    address = parse_address(options.url)
    platform = parse_platform(options.platform)
    credentials = _credentials(options) if address.is_secure else None
    count = -(-lanes // _STREAMS)
    server = RemoteServer(
        address,
        options,
        platform,
        tuple(Connection(_channel(address, credentials)) for _ in range(count)),
    )
    try:
        _check_capabilities(server)
    except BaseException:
        server.close()
        raise
    return server


def _credentials(options: RemoteOptions) -> grpc.ChannelCredentials:
    if (options.certificate is None) != (options.key is None):
        msg = "a certificate and its key belong together"
        raise UsageError(msg, hint="give both --remote-cert=FILE and --remote-key=FILE")
    return grpc.ssl_channel_credentials(
        read_credential(options.ca, "--remote-ca"),
        read_credential(options.key, "--remote-key"),
        read_credential(options.certificate, "--remote-cert"),
    )


def _channel(address: RemoteAddress, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    if credentials is None:
        return grpc.insecure_channel(address.target, _CHANNEL)
    return grpc.secure_channel(address.target, credentials, _CHANNEL)


def _check_capabilities(server: RemoteServer) -> None:
    """Query the capabilities of the server, which also shows early whether it is reachable."""
    found = server.attempt(lambda: _ask_capabilities(server), _FIRST_PATIENCE_S)
    functions = found.cache_capabilities.digest_functions
    if functions and reapi.DigestFunction.SHA256 not in functions:
        msg = "the server does not name files by SHA-256"
        raise UsageError(msg, hint="let it accept SHA256", location=server.address.url)
    if not found.execution_capabilities.exec_enabled:
        msg = f"the instance '{server.instance}' runs no actions"
        raise UsageError(msg, hint=_INSTANCE_HINT, location=server.address.url)
    most = found.cache_capabilities.max_batch_total_size_bytes
    # A message also contains the names of the files.
    server.batch_bytes = min(most or _BATCH_BYTES, _BATCH_BYTES) * 3 // 4


def _ask_capabilities(server: RemoteServer) -> Any:
    """Return the capabilities. Raises UsageError for an unknown instance or service."""
    request = reapi.GetCapabilitiesRequest(instance_name=server.instance)
    try:
        return server.once(server.connections[0].capabilities.GetCapabilities, request)
    except grpc.RpcError as error:
        if error.code() not in _UNKNOWN:
            raise
        msg = f"the server has no instance '{server.instance}' for remote execution: {error.details()}"
        raise UsageError(msg, hint=_INSTANCE_HINT, location=server.address.url) from error
