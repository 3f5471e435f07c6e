"""Make a linker wrapper that only links programs write an object: replace its linker, rename symbols.

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
# The wrapper's symbol of size 0, which makes the section of the entries exist.
_DUMMY = "__dummy."
# A CPU image is a shared library; the wrapper of LLVM 15 links it with the same program.
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
    """Write a program that links the objects of a linker command into an object.

    The objects in `replaced` are replaced by copies without the device code, which the wrapper has linked.
    """
    rows = "".join(
        f'    {shlex.quote(old)}) set -- "$@" {shlex.quote(new)} ;;\n' for old, new in replaced
    )
    text = _SCRIPT.format(linker=shlex.quote(linker), replaced=rows)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def registration_names(view: ByteView) -> tuple[str, ...]:
    """Return llvm-objcopy arguments that make the names of an object's entry sections unique.

    Its device images, which are linked, move to a section that a later run of the wrapper ignores.
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
