"""BuildGrid, a server of the Remote Execution API, with its database and workers on this host."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import jwt
from support.loopback import Server, attempts, free_port, running, wait_for_port

ROOT = Path(__file__).resolve().parents[2]
INSTANCE = "main"
PROPERTY = "toolchain"
_CONFIGURATION = """\
server:
  - !channel
    address: "127.0.0.1:{port}"
    insecure-mode: true
  - !channel
    address: "127.0.0.1:{tls_port}"
    insecure-mode: false
    credentials:
      tls-server-key: {place}/key.pem
      tls-server-cert: {place}/certificate.pem
      tls-client-certs: {place}/certificate.pem
authorization:
  method: jwt
  secret: {place}/secret
  algorithm: hs256
connections:
  - !sql-connection &sql
    connection-string: {database}
storages:
  - !disk-storage &cas
    path: {place}/cas
caches:
  - !lru-action-cache &ac
    storage: *cas
    max-cached-refs: 100000
    allow-updates: true
    cache-failed-actions: false
schedulers:
  - !sql-scheduler &state
    sql: *sql
    storage: *cas
    action-cache: *ac
    bot-session-keepalive-timeout: 8
    session-expiry-timer-interval: 1
    poll-interval: 0.1
    property-set: !dynamic-property-set
      match-property-keys: [{key}]
    assigners:
      - !priority-age-assigner
        count: 1
        interval: 0.05
instances:
  - name: {instance}
    services:
      - !action-cache
        cache: *ac
      - !execution
        scheduler: *state
      - !cas
        storage: *cas
      - !bytestream
        storage: *cas
thread-pool-size: 200
"""
_BGD = Path(sys.executable).with_name("bgd")
_CERTIFICATE = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    *("-nodes", "-subj", "/CN=tests", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"),
)


def _postgres_bin() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    assert found, "apt install postgresql"
    return found[-1]


def _as_user(place: Path) -> tuple[str | Path, ...]:
    """Return the command prefix for running PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    user = pwd.getpwnam("postgres")
    os.chown(place, user.pw_uid, user.pw_gid)
    return ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")


@contextlib.contextmanager
def _database() -> Iterator[str]:
    """Run PostgreSQL on a socket, with BuildGrid's tables; yield the connection string."""
    # Not in the directory of a test, which other users such as PostgreSQL's cannot read.
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        user, programs, data = _as_user(place), _postgres_bin(), place / "data"
        words = (programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N")
        subprocess.run([*user, *words], check=True, stdout=subprocess.DEVNULL)
        options = ("-c", "listen_addresses=", "-c", "fsync=off")
        with running((*user, programs / "postgres", "-D", data, "-k", place, *options)) as server:
            for _ in attempts(server):
                if "ready to accept connections" in server.said():
                    break
            # From BuildGrid 0.9 on, psycopg; it is required and installed then.
            driver = "psycopg" if find_spec("psycopg") else "psycopg2"
            address = f"postgresql+{driver}:///postgres?host={place}&user=postgres"
            subprocess.run([_BGD, "migrate", "apply", address], check=True, capture_output=True)
            yield address


@dataclass(frozen=True)
class BuildGrid:
    """A server with an instance `main`; its storage remains if it is restarted.

    Clients and workers need the token; one port accepts plain connections, the other requires TLS.
    """

    place: Path
    port: int
    tls_port: int
    servers: contextlib.ExitStack

    @property
    def url(self) -> str:
        """Return the value for `--remote=`."""
        return f"grpc://127.0.0.1:{self.port}/{INSTANCE}"

    @property
    def token(self) -> Path:
        """Return the file with the token."""
        return self.place / "token"

    @property
    def storage(self) -> Path:
        """Return the directory with the files of actions and results."""
        return self.place / "cas"

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of a client."""
        return (f"--remote={self.url}", f"--remote-token={self.token}")

    @property
    def tls_options(self) -> tuple[str, ...]:
        """Return the options of a client with TLS, without the token."""
        certificate = self.place / "certificate.pem"
        return (
            f"--remote=grpcs://127.0.0.1:{self.tls_port}/{INSTANCE}",
            f"--remote-ca={certificate}",
            f"--remote-cert={certificate}",
            f"--remote-key={self.place / 'key.pem'}",
        )

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        words = (_BGD, "server", "start", self.place / "server.yml")
        wait_for_port(self.port, self.servers.enter_context(running(words)))

    def stop(self) -> None:
        """Kill the server."""
        self.servers.close()

    @contextlib.contextmanager
    def worker(self, name: str, command: Path, *properties: str) -> Iterator[Server]:
        """Run a worker whose sandboxes have this command as mlir-offload."""
        program = Path(__file__).with_name("remote_worker.py")
        target = f"127.0.0.1:{self.tls_port}"
        words: list[str | Path] = [sys.executable, program, target, INSTANCE, name, self.place]
        # Files that a killed worker leaves in its sandboxes are removed with the directory.
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary,
            running([*words, command, *properties], {"TMPDIR": temporary}) as server,
        ):
            yield server


@contextlib.contextmanager
def build_grid(place: Path) -> Iterator[BuildGrid]:
    """Run a server with a separate database."""
    with _database() as database, contextlib.ExitStack() as servers:
        grid = BuildGrid(place, free_port(), free_port(), servers)
        files = ("-keyout", place / "key.pem", "-out", place / "certificate.pem")
        subprocess.run((*_CERTIFICATE, *files), check=True, capture_output=True)
        expires, secret = int(time.time()) + 24 * 3600, secrets.token_hex(32)
        (place / "secret").write_text(secret)
        grid.token.write_text(jwt.encode({"exp": expires}, secret, algorithm="HS256") + "\n")
        (place / "server.yml").write_text(
            _CONFIGURATION.format(
                port=grid.port,
                tls_port=grid.tls_port,
                place=place,
                database=database,
                key=PROPERTY,
                instance=INSTANCE,
            )
        )
        grid.start()
        yield grid


def write_command(file: Path, **environment: str) -> Path:
    """Write the mlir-offload of a worker: that of this checkout, with additional variables."""
    values = {
        "PYTHONPATH": str(ROOT / ".importroot"),
        "PYTHONDONTWRITEBYTECODE": "1",
        # The bytecode of the other tests, because an installed package contains bytecode too.
        "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", ""),
        **environment,
    }
    words = [f"{name}='{value}'" for name, value in values.items()]
    line = f"exec env {' '.join(words)} '{sys.executable}' -m mlir_offload.driver \"$@\""
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)
    return file
