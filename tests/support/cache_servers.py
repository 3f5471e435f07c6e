"""Real servers for a compiler cache, on the loopback interface."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.loopback import free_port, running, wait_for_port

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


@dataclass(frozen=True)
class Store:
    """The URL of a store for ccache, and the ID of the process that serves it."""

    url: str
    pid: int | None = None


@contextlib.contextmanager
def redis(place: Path) -> Iterator[Store]:
    """Run a Redis server."""
    # Debian's redis-tools contains the server under the second name, without the service of redis-server.
    program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    assert program, "apt install redis-tools"
    link = place / "redis-server"
    link.symlink_to(program)
    port = free_port()
    words = (link, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", place)
    with running(words) as server:
        wait_for_port(port, server)
        yield Store(f"redis://127.0.0.1:{port}", server.process.pid)


@contextlib.contextmanager
def nginx(place: Path) -> Iterator[Store]:
    """Run nginx with WebDAV, as a store with Bazel's layout."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "apt install nginx"
    port = free_port()
    (place / "files").mkdir()
    # If nginx is started by root, its worker runs as another user.
    place.chmod(0o755)
    configuration = place / "nginx.conf"
    configuration.write_text(_NGINX.format(place=place, port=port))
    with running((program, "-e", "stderr", "-p", place, "-c", configuration)) as server:
        wait_for_port(port, server)
        yield Store(f"http://127.0.0.1:{port}/cache/|layout=bazel", server.process.pid)


@contextlib.contextmanager
def directory(place: Path) -> Iterator[Store]:
    """Use a directory that hosts share."""
    yield Store(f"file:{place}/shared")
