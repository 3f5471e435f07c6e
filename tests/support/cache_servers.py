"""Real servers for a compiler cache on free ports of the loopback interface, as plain processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_NGINX = """\
daemon off;
master_process off;
pid {place}/nginx.pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {place}/body;
  proxy_temp_path {place}/proxy;
  fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi;
  scgi_temp_path {place}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location /cache/ {{
      alias {place}/files/;
      dav_methods PUT DELETE;
      create_full_put_path on;
      client_max_body_size 0;
    }}
  }}
}}
"""


@contextlib.contextmanager
def redis(place: Path) -> Iterator[str]:
    """Run a Redis server; yield its URL."""
    # Debian's redis-tools has the server under this name, without the service of redis-server.
    program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    assert program, "apt install redis-tools"
    link = place / "redis-server"
    link.symlink_to(program)
    port = _free_port()
    words = (
        str(link),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(place),
    )
    with _running(words, port):
        yield f"redis://127.0.0.1:{port}"


@contextlib.contextmanager
def nginx(place: Path) -> Iterator[str]:
    """Run nginx with WebDAV; yield the URL of a store in the layout of Bazel."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "apt install nginx"
    port = _free_port()
    (place / "files").mkdir()
    # Its worker would be another user than root.
    place.chmod(0o755)
    configuration = place / "nginx.conf"
    configuration.write_text(_NGINX.format(place=place, port=port))
    with _running((program, "-e", "stderr", "-p", str(place), "-c", str(configuration)), port):
        yield f"http://127.0.0.1:{port}/cache/|layout=bazel"


@contextlib.contextmanager
def directory(place: Path) -> Iterator[str]:
    """Yield the URL of a directory that machines share."""
    yield f"file:{place}/shared"


@contextlib.contextmanager
def silent(place: Path) -> Iterator[str]:  # noqa: ARG001 (as the others)
    """Yield the URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/cache/"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def _running(words: Sequence[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _wait_for(port, process)
        yield
    finally:
        process.kill()
        process.communicate()


def _wait_for(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)
        else:
            return
