"""A script in front of ptxas that keeps the times of source files out of the code that it makes."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCRIPT = """\
#!/bin/sh
# Where PTX names a file without its time and size, ptxas looks for the file and writes down what it
# finds. The PTX is a temporary file of the clang that calls this.
for argument do
  case $argument in
    *.s)
      sed 's/^[[:blank:]]*\\.file[[:blank:]][[:blank:]]*[0-9][0-9]*[[:blank:]][[:blank:]]*"[^"]*"[[:blank:]]*$/&, {seconds}, 1/' \\
        "$argument" >"$argument.timed" && mv "$argument.timed" "$argument" || exit 1
      ;;
  esac
done
exec {program} "$@"
"""


def ptxas_script(program: Sequence[str], seconds: int) -> str:
    """Return the text of the adapter, a plain `sh` script that ends in the real program.

    `program` is that, with the arguments that each call gets.
    """
    return _SCRIPT.format(program=shlex.join(program), seconds=max(seconds, 1))
