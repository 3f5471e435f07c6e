"""Compare kernel attributes in skew_limits.yaml with the backend of each release; exit status 1 if they differ.

usage: python tests/foreign/launch_attributes.py [--releases=14,...,22] [--root=N=DIR]

The names are those in the binary of the newest release. A release supports an attribute, or the annotation
that preceded it, if it changes the PTX of a kernel. The same applies to a parameter whose address the kernel
passes on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.reader import Reader, print_differences  # noqa: E402

from mlir_offload.toolchain.skew.limits import ParameterRow, load_limits  # noqa: E402

_TRIPLE = "nvptx64-nvidia-cuda"
# Up to LLVM 14 pointers have types; up to LLVM 17 only an annotation marks a kernel.
_TYPED = 14
_NAME = re.compile(rb"(?<=\0)nvvm\.[a-z_]+(?=\0)")
_VALUES = ("2", "2,2,2", "")
# Cluster directives require this architecture and a cluster size.
_ARCH = "sm_90"
_CLUSTER = {"nvvm.maxclusterrank": "", "nvvm.blocksareclusters": '"nvvm.cluster_dim"="2,2,2" '}
# The mark of a kernel in a release without a calling convention for kernels.
_MARK = '!{ptr @k, !"kernel", i32 1}'
# A parameter in constant memory requires this PTX ISA version.
_COPY = """\
target triple = "nvptx64-nvidia-cuda"
declare void @use(ptr)
define void @k(ptr byval([4 x i32]) align 64 ATTRIBUTE %c) #0 {
  call void @use(ptr %c)
  ret void
}
attributes #0 = { "target-features"="+ptx77" }
"""


def names_in(reader: Reader) -> frozenset[str]:
    """Return the strings in a binary that are spelled like an NVPTX attribute or named node."""
    return frozenset(name.decode() for name in _NAME.findall(reader.binary.read_bytes()))


def reads_attribute(reader: Reader, name: str) -> bool:
    """Return whether an attribute changes the PTX that a backend generates for a kernel."""
    others = _CLUSTER.get(name, "")
    # Blocks are clusters only if the block size is known too.
    others += '"nvvm.reqntid"="8,8,8" ' if others else ""
    without = _ptx(reader, others, "")
    return any(_ptx(reader, f'{others}"{name}"="{value}"', "") != without for value in _VALUES)


def reads_annotation(reader: Reader, name: str) -> bool:
    """Return whether an annotation changes the PTX that a backend generates for a kernel."""
    node = f', !{{ptr @k, !"{name}", i32 2}}'
    return _ptx(reader, "", node) != _ptx(reader, "", "")


def reads_parameter(reader: Reader, row: ParameterRow) -> tuple[bool, bool]:
    """Return whether the attribute, and whether the annotation, prevents the copy of a parameter."""
    kernel = f"!nvvm.annotations = !{{!0NODES}}\n!0 = {_MARK}\n"
    plain = _COPY.replace("ATTRIBUTE ", "") + kernel
    marked = _COPY.replace("ATTRIBUTE", f'"{row.attribute}"') + kernel
    node = f'!1 = !{{ptr @k, !"{row.annotation}", !2}}\n!2 = !{{i32 1}}\n'
    without, by_attribute, by_annotation = (
        reader.compile(text.encode(), _TRIPLE, _ARCH).output
        for text in (
            plain.replace("NODES", ""),
            marked.replace("NODES", ""),
            plain.replace("NODES", ", !1") + node,
        )
    )
    # A backend that crashes has no output.
    return by_attribute not in {without, b""}, by_annotation not in {without, b""}


def _ptx(reader: Reader, attributes: str, annotation: str) -> bytes:
    nodes = [_MARK, *([annotation.removeprefix(", ")] if annotation else [])]
    listed = ", ".join(f"!{number}" for number in range(len(nodes)))
    text = (
        f'target triple = "{_TRIPLE}"\ndefine void @k() {attributes}{{\n  ret void\n}}\n'
        f"!nvvm.annotations = !{{{listed}}}\n"
        + "".join(f"!{number} = {node}\n" for number, node in enumerate(nodes))
    )
    if reader.release <= _TYPED:
        text = text.replace("{ptr @k", "{void ()* @k")
    return reader.compile(text.encode(), _TRIPLE, _ARCH).output


def mistakes(readers: tuple[Reader, ...]) -> Iterator[str]:
    """Yield the differences between the table and the backends of the releases."""
    newest, known = readers[-1], load_limits().launch
    read = {name for name in names_in(newest) | known.keys() if reads_attribute(newest, name)}
    if read != known.keys():
        yield f"LLVM {newest.release} reads {', '.join(sorted(read ^ known.keys()))}: not as the table says"
    for reader in readers:
        for row in known.values():
            is_read = reads_attribute(reader, row.attribute)
            if is_read != (reader.release >= row.since):
                yield f"LLVM {reader.release}: {row.attribute} is {'' if is_read else 'not '}read"
            if row.annotation:
                is_read = reads_annotation(reader, row.annotation)
                if is_read != (reader.release >= row.annotation_since):
                    yield f"LLVM {reader.release}: {row.annotation} is {'' if is_read else 'not '}read"
        for one in load_limits().parameters if reader.release > _TYPED else ():
            expected = tuple(reader.release >= since for since in (one.since, one.annotation_since))
            if reads_parameter(reader, one) != expected:
                yield f"LLVM {reader.release} reads {one.attribute}, {one.annotation}: not {expected}"


if __name__ == "__main__":
    raise SystemExit(print_differences(__doc__, mistakes))
