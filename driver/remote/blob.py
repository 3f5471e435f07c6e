"""Upload and download files of actions, which the server stores by content hash."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mlir_offload.driver.remote.protocol import bytestream, grpc, reapi
from mlir_offload.driver.remote.server import RemoteServer
from mlir_offload.driver.system.tool_watch import file_stamp
from mlir_offload.toolchain.errors import (
    InputOutputError,
    ToolFailedError,
    VerificationError,
)

_CHUNK_BYTES = 1 << 20


class BlobId(Struct, frozen=True):
    """The identity of a file's content: its SHA-256 in hexadecimal and its size."""

    hash: str
    size_bytes: int

    def message(self) -> Any:
        """Return it as a Digest message of the API."""
        return reapi.Digest(hash=self.hash, size_bytes=self.size_bytes)

    @classmethod
    def of(cls, message: Any) -> BlobId:
        """Return the identity in a Digest message of the API."""
        return cls(message.hash, message.size_bytes)


class Blob(Struct, frozen=True):
    """Content to upload: that of a file, or bytes."""

    id: BlobId
    data: bytes = b""
    file: Path | None = None

    def chunks(self) -> Iterator[bytes]:
        """Yield the content. Raises InputOutputError if the file has changed."""
        if self.file is None:
            yield self.data
            return
        digest = hashlib.sha256()
        try:
            with self.file.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    yield chunk
        except OSError as error:
            raise _unreadable(self.file, error) from error
        if digest.hexdigest() != self.id.hash:
            msg = f"{self.file} was changed while the build read it"
            raise InputOutputError(msg, hint="build again", location=str(self.file))


def blob_of(data: bytes) -> Blob:
    """Return bytes as a blob."""
    return Blob(BlobId(hashlib.sha256(data).hexdigest(), len(data)), data)


class FileBlobs(Struct):
    """A cache of the project's files as blobs; a file is hashed again only if its stamp changes."""

    _known: dict[Path, tuple[str, Blob]] = field(default_factory=dict)

    def find(self, file: Path) -> Blob:
        """Return a file as a blob. Raises InputOutputError if it cannot be read."""
        try:
            stamp = file_stamp(file.stat())
            known = self._known.get(file)
            if known is None or known[0] != stamp:
                with file.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                    size = os.fstat(stream.fileno()).st_size
                known = self._known[file] = stamp, Blob(BlobId(digest, size), file=file)
        except OSError as error:
            raise _unreadable(file, error) from error
        return known[1]


def _unreadable(file: Path, error: OSError) -> InputOutputError:
    msg = f"cannot read {file}: {error.strerror}"
    return InputOutputError(msg, hint="check its permissions", location=str(file))


class RemoteFiles(Struct):
    """The server's storage; it is queried once for each file."""

    server: RemoteServer
    _there: set[BlobId] = field(default_factory=set)

    def upload(self, blobs: Iterable[Blob]) -> None:
        """Upload the blobs that the server does not have."""
        unknown = {blob.id: blob for blob in blobs if blob.id not in self._there}
        if not unknown:
            return
        request = reapi.FindMissingBlobsRequest(
            instance_name=self.server.instance, blob_digests=[key.message() for key in unknown]
        )
        answer = self.server.call(self.server.connection().cas.FindMissingBlobs, request)
        missing = [unknown[BlobId.of(digest)] for digest in answer.missing_blob_digests]
        for batch in _batches(missing, lambda blob: blob.id.size_bytes, self.server.batch_bytes):
            if len(batch) == 1 and batch[0].id.size_bytes > self.server.batch_bytes:
                self._write(batch[0])
            else:
                self._update(batch)
        self._there.update(unknown)

    def note(self, blobs: Iterable[BlobId]) -> None:
        """Record that the server has these blobs, because it named them in a result."""
        self._there.update(blobs)

    def forget(self) -> None:
        """Query each file again, because the server has deleted some."""
        self._there.clear()

    def _update(self, batch: Sequence[Blob]) -> None:
        requests = [
            reapi.BatchUpdateBlobsRequest.Request(
                digest=blob.id.message(), data=b"".join(blob.chunks())
            )
            for blob in batch
        ]
        request = reapi.BatchUpdateBlobsRequest(
            instance_name=self.server.instance, requests=requests
        )
        answer = self.server.call(self.server.connection().cas.BatchUpdateBlobs, request)
        for response in answer.responses:
            self._check(response.status, "take")

    def _check(self, status: Any, what: str) -> None:
        if status.code != grpc.StatusCode.OK.value[0]:
            msg = f"the server does not {what} a file: {status.message or status.code}"
            hint = "is its storage full?"
            raise ToolFailedError(msg, hint=hint, location=self.server.address.url)

    def _write(self, blob: Blob) -> None:
        """Upload a blob that is too large for one message."""

        def requests() -> Iterator[Any]:
            place = f"uploads/{uuid.uuid4()}/blobs/{blob.id.hash}/{blob.id.size_bytes}"
            name, offset = self._name(place), 0
            for chunk in blob.chunks():
                is_last = offset + len(chunk) == blob.id.size_bytes
                yield bytestream.WriteRequest(
                    resource_name=name, write_offset=offset, data=chunk, finish_write=is_last
                )
                name, offset = "", offset + len(chunk)

        method = self.server.connection().bytes.Write
        answer = self.server.attempt(lambda: method(requests(), metadata=self.server.metadata()))
        # Less is committed if another client uploaded the same blob first; for compressed blobs it is -1.
        if answer.committed_size not in {blob.id.size_bytes, -1}:
            msg = f"the server took {answer.committed_size} of {blob.id.size_bytes} bytes of a file"
            raise ToolFailedError(msg, hint="see its log", location=self.server.address.url)

    def _name(self, place: str) -> str:
        return f"{self.server.instance}/{place}" if self.server.instance else place

    def fetch(self, blobs: Iterable[BlobId], given: Mapping[BlobId, bytes]) -> dict[BlobId, bytes]:
        """Return contents, including those that were `given` in a result.

        Raises KeyError for a blob that the server does not have, VerificationError if a content does not match
        its hash.
        """
        found = {key: data for key, data in given.items() if len(data) == key.size_bytes}
        wanted = [key for key in dict.fromkeys(blobs) if key not in found and key.size_bytes]
        limit = self.server.batch_bytes
        for batch in _batches(wanted, lambda key: key.size_bytes, limit):
            if len(batch) == 1 and batch[0].size_bytes > limit:
                found[batch[0]] = self._read(batch[0])
            else:
                found.update(self._read_batch(batch))
        for key, data in found.items():
            if hashlib.sha256(data).hexdigest() != key.hash:
                msg = f"the server sent other content for the file {key.hash}"
                hint = "delete it from the server's storage"
                raise VerificationError(msg, hint=hint, location=self.server.address.url)
        return found

    def _read_batch(self, batch: Sequence[BlobId]) -> Iterator[tuple[BlobId, bytes]]:
        request = reapi.BatchReadBlobsRequest(
            instance_name=self.server.instance, digests=[key.message() for key in batch]
        )
        answer = self.server.call(self.server.connection().cas.BatchReadBlobs, request)
        for response in answer.responses:
            if response.status.code == grpc.StatusCode.NOT_FOUND.value[0]:
                raise KeyError(response.digest.hash)
            self._check(response.status, "send")
            yield BlobId.of(response.digest), response.data

    def _read(self, key: BlobId) -> bytes:
        """Return a blob that is too large for one message."""
        name = self._name(f"blobs/{key.hash}/{key.size_bytes}")
        method = self.server.connection().bytes.Read

        def read() -> bytes:
            request = bytestream.ReadRequest(resource_name=name)
            try:
                answers = method(request, metadata=self.server.metadata())
                return b"".join(answer.data for answer in answers)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    raise KeyError(key.hash) from error
                raise

        return bytes(self.server.attempt(read))


def _batches(items: Sequence[Any], size: Callable[[Any], int], limit: int) -> Iterator[list[Any]]:
    """Yield the items in batches of at most `limit` bytes; a larger item has its own batch."""
    batch: list[Any] = []
    total = 0
    for item in items:
        if batch and total + size(item) > limit:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
