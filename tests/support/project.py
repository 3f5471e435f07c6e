"""A small project to build: programs with device code, and the driver as a process."""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_LONGEST_S = 600

PROGRAM = """\
func.func @run{number}(%n: index) attributes {{llvm.emit_c_interface}} {{
  %one = arith.constant 1 : index
  gpu.launch blocks(%a, %b, %c) in (%d = %n, %e = %one, %f = %one)
             threads(%g, %h, %i) in (%j = %one, %k = %one, %l = %one) {{
    %value = arith.constant {number} : i32
    gpu.printf "%d\\n", %value : i32
    gpu.terminator
  }}
  return
}}
"""
MAIN = """\
#include "count.h"
void _mlir_ciface_run0(long n);
int main(void) { _mlir_ciface_run0(COUNT); return 0; }
"""


def write_project(folder: Path, manifest: str, modules: int = 2) -> Path:
    """Write the modules m0.mlir and following, main.c with count.h, and the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(modules):
        text = PROGRAM.format(number=number)
        (folder / f"m{number}.mlir").write_text(text, encoding="utf-8")
    (folder / "main.c").write_text(MAIN, encoding="utf-8")
    (folder / "count.h").write_text("#define COUNT 2\n", encoding="utf-8")
    (folder / "offload.yaml").write_text(manifest, encoding="utf-8")
    return folder


def run_in(
    folder: Path, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program in the directory; its exit status is not checked."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def call_by(command: Sequence[str], file: Path) -> None:
    """Replace the compiler in an exported build file by this command, which starts faster."""
    text = file.read_text(encoding="utf-8")
    own = shlex.join((sys.executable, "-m", "mlir_offload.driver"))
    assert text.count(own) == 1
    file.write_text(text.replace(own, shlex.join(command)), encoding="utf-8")


def digests(folder: Path, *endings: str) -> dict[str, str]:
    """Return the hash of every file in the directory with one of the extensions."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name.endswith(endings or ("",))
    }


def counting_launcher(folder: Path, victim: Path, fatal: int) -> Path:
    """Write a launcher that logs each device image in `log`; the one of number `fatal` kills a process.

    It kills, once and with SIGKILL, the process whose ID is in the file `victim`.
    """
    script = folder / "launcher"
    script.write_text(
        f"""#!/bin/sh
case " $* " in *" --image-step "*)
  echo "$*" >> '{folder}/log'
  if [ "$(wc -l < '{folder}/log')" -ge {fatal} ] && mkdir '{folder}/killed' 2>/dev/null; then
    kill -9 "$(cat '{victim}')"
  fi;;
esac
exec "$@"
""",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def started(folder: Path) -> list[str]:
    """Return the log of the launcher."""
    return (folder / "log").read_text(encoding="utf-8").splitlines()


def open_once_read(pipe: Path) -> int:
    """Open a named pipe for writing as soon as another process reads it."""
    deadline = time.monotonic() + _LONGEST_S
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
