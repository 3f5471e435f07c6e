"""What is between a linker wrapper that links programs only and an object: its linker, and names.

Source: clang/tools/clang-linker-wrapper/ClangLinkerWrapper.cpp (LLVM 15 and 16, 19 for the names).
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from mlir_offload.offload.abi import entry_layouts
from mlir_offload.offload.elf import read_elf
from mlir_offload.toolchain.byte_view import ByteView

_IMAGES, _FINISHED_IMAGES = ".llvm.offloading", ".llvm.offloading.relocatable"
# Of no size, in the section of the entries, so that there is one; the wrapper's.
_DUMMY = "__dummy."
# An image for the CPU is a shared library, which the wrapper of LLVM 15 has the same program link.
_SCRIPT = """\
#!/bin/sh
for word do
  case $word in -shared) exec {linker} "$@" ;; esac
done
left=$#
output=
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  if [ "$output" = next ]; then
    output=
    set -- "$@" -o "$word"
    continue
  fi
  case $word in
{replaced}    -o) output=next ;;
    *.o) set -- "$@" "$word" ;;
  esac
done
exec {linker} -r "$@"
"""


def write_relocatable_linker(
    path: Path, linker: str, replaced: Sequence[tuple[str, str]] = ()
) -> None:
    """Write a program that links the objects of a call of the linker to an object.

    Some of them are `replaced`: by such as lack the device code that the wrapper has linked.
    """
    rows = "".join(
        f'    {shlex.quote(old)}) set -- "$@" {shlex.quote(new)} ;;\n' for old, new in replaced
    )
    text = _SCRIPT.format(linker=shlex.quote(linker), replaced=rows)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def registration_names(view: ByteView) -> tuple[str, ...]:
    """Return what llvm-objcopy is told, so that the entries of an object are found by names of its own.

    Its device images, which are linked, go where a later run of the wrapper does not look.
    """
    digest = hashlib.sha256()
    for chunk in view.chunks():
        digest.update(chunk)
    suffix = digest.hexdigest()[:16]
    elf = read_elf(view)
    sections = {name for layout in entry_layouts() for _, name in layout.sections}
    words = [f"--rename-section={_IMAGES}={_FINISHED_IMAGES}"] if elf.named(_IMAGES) else []
    for name in sorted(sections):
        if elf.named(name):
            words += [f"--rename-section={name}={name}_{suffix}"]
        words += [
            f"--redefine-sym=__{end}_{name}=__{end}_{name}_{suffix}" for end in ("start", "stop")
        ]
    dummies = (symbol.name for symbol in elf.symbols(".symtab") if symbol.name.startswith(_DUMMY))
    words += [f"--localize-symbol={name}" for name in sorted(set(dummies))]
    return tuple(words)
