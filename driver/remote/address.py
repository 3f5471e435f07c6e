"""The address of a Remote Execution server, and the credentials for it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from mlir_offload.toolchain.errors import InputOutputError, UsageError

_SECURE, _PLAIN = "grpcs", "grpc"
_HINT = "write --remote=grpcs://HOST:PORT or grpcs://HOST:PORT/INSTANCE"


class RemoteOptions(Struct, frozen=True):
    """The options of `build` for the server.

    `platform` are properties of the workers, NAME=VALUE. `token` is a file, whose content may change during
    the build.
    """

    url: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None
    platform: tuple[str, ...] = ()


class RemoteAddress(Struct, frozen=True):
    """A server and an instance of it. `url` is the value of --remote=."""

    url: str
    target: str
    instance: str
    is_secure: bool


def parse_address(url: str) -> RemoteAddress:
    """Return the address in a URL. Raises UsageError for an invalid one, or one without TLS for another host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _wrong(url, str(error)) from error
    if parts.scheme not in {_SECURE, _PLAIN}:
        raise _wrong(url, "it begins neither with grpcs:// nor with grpc://")
    if not parts.hostname or port is None:
        raise _wrong(url, "it has no host and port")
    if parts.query or parts.fragment or parts.username is not None:
        raise _wrong(url, "a host, a port and an instance are all that it may name")
    is_secure = parts.scheme == _SECURE
    if not is_secure and not _is_loopback(parts):
        msg = f"{url}: without TLS, others can read and change the code in transit"
        raise UsageError(msg, hint="use grpcs://; grpc:// is for servers on this machine")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return RemoteAddress(url, f"{host}:{port}", parts.path.strip("/"), is_secure)


def _wrong(url: str, reason: str) -> UsageError:
    return UsageError(f"--remote={url} is not an address of a server: {reason}", hint=_HINT)


def _is_loopback(parts: SplitResult) -> bool:
    if parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def parse_platform(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the properties of workers, sorted as the API requires. Raises UsageError."""
    pairs = []
    for word in (part for listed in words for part in listed.split(",")):
        name, equals, value = word.partition("=")
        if not name or not equals:
            msg = f"--remote-platform={word} is not a property"
            raise UsageError(msg, hint="write NAME=VALUE, as in container-image=docker://host/name")
        pairs.append((name, value))
    return tuple(sorted(pairs))


def read_credential(file: Path | None, option: str) -> bytes | None:
    """Return a file's content, None without a file. Raises InputOutputError if it cannot be read."""
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise InputOutputError(msg, hint=f"check {option}=", location=str(file)) from error


def read_token(file: Path) -> str:
    """Return a bearer token. Raises InputOutputError, UsageError for an invalid one."""
    content = (read_credential(file, "--remote-token") or b"").strip()
    if not content or not content.isascii() or len(content.split()) != 1:
        msg = f"{file} does not contain a token"
        raise UsageError(msg, hint="a token is one word", location=str(file))
    return content.decode()
