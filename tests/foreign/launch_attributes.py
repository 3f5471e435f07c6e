"""Compare the attributes of kernels in toolchain/data/skew_limits.yaml with what each back end reads; exit status 1 if they differ.

usage: python tests/foreign/launch_attributes.py [--releases=15,...,22] [--root=N=DIR]

The names are those in the binary of the newest release. A release reads an attribute, or the annotation that preceded
it, if the PTX of a kernel that has it is another one than that of a kernel without.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.reader import Reader, add_reader_options, chosen_readers  # noqa: E402

from mlir_offload.toolchain.skew.limits import load_limits  # noqa: E402

_TRIPLE = "nvptx64-nvidia-cuda"
_OLDEST = 15
_NAME = re.compile(rb"(?<=\0)nvvm\.[a-z_]+(?=\0)")
_VALUES = ("2", "2,2,2", "")
# Directives of clusters need this architecture, and a size of the cluster.
_ARCH = "sm_90"
_CLUSTER = {"nvvm.maxclusterrank": "", "nvvm.blocksareclusters": '"nvvm.cluster_dim"="2,2,2" '}
# How a kernel is marked, by a release that has no calling convention for it.
_MARK = '!{ptr @k, !"kernel", i32 1}'


def names_in(reader: Reader) -> frozenset[str]:
    """Return what a binary contains that is spelled as an attribute or a named node of NVPTX."""
    return frozenset(name.decode() for name in _NAME.findall(reader.binary.read_bytes()))


def reads_attribute(reader: Reader, name: str) -> bool:
    """Return whether a back end makes other PTX of a kernel with an attribute."""
    others = _CLUSTER.get(name, "")
    # Blocks are clusters only if their size is known too.
    others += '"nvvm.reqntid"="8,8,8" ' if others else ""
    without = _ptx(reader, others, "")
    return any(_ptx(reader, f'{others}"{name}"="{value}"', "") != without for value in _VALUES)


def reads_annotation(reader: Reader, name: str) -> bool:
    """Return whether a back end makes other PTX of a kernel with an annotation."""
    node = f', !{{ptr @k, !"{name}", i32 2}}'
    return _ptx(reader, "", node) != _ptx(reader, "", "")


def _ptx(reader: Reader, attributes: str, annotation: str) -> bytes:
    nodes = [_MARK, *([annotation.removeprefix(", ")] if annotation else [])]
    listed = ", ".join(f"!{number}" for number in range(len(nodes)))
    text = (
        f'target triple = "{_TRIPLE}"\ndefine void @k() {attributes}{{\n  ret void\n}}\n'
        f"!nvvm.annotations = !{{{listed}}}\n"
        + "".join(f"!{number} = {node}\n" for number, node in enumerate(nodes))
    )
    return reader.compile(text.encode(), _TRIPLE, _ARCH).output


def mistakes(readers: tuple[Reader, ...]) -> Iterator[str]:
    """Return where the table differs from what the releases read."""
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


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    readers = tuple(one for one in chosen_readers(parser.parse_args()) if one.release >= _OLDEST)
    found = list(mistakes(readers))
    print("\n".join((*found, f"{len(readers)} releases, {len(found)} differences")))  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
