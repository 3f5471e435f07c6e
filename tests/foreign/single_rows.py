"""Compare table rows for single releases with the behavior of the releases; exit status 1 if they differ.

usage: python tests/foreign/single_rows.py [--releases=14,...,22] [--root=N=DIR]

These are the rows of toolchain/data/skew_limits.yaml that no other program compares (flags of instructions,
wide integers, attributes in text, backends, intrinsics that are correctly treated as others),
ir_features.yaml, and the calling conventions of bitcode.yaml. For each row there is a module that releases
accept, or print differently, from that release on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign import probe_module as probe  # noqa: E402
from foreign.limits import conventions  # noqa: E402
from foreign.reader import Reader, print_differences  # noqa: E402

from mlir_offload.toolchain.bitcode.global_value import load_conventions  # noqa: E402
from mlir_offload.toolchain.skew.ir_feature import load_ir_features  # noqa: E402
from mlir_offload.toolchain.skew.limits import load_limits  # noqa: E402
from mlir_offload.toolchain.skew.symbol import load_intrinsics  # noqa: E402

_X86 = "x86_64-unknown-linux-gnu"
_NVPTX, _AMDGPU = "nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa"
# The PTX of this architecture supports all of the constructs.
_CPU = "sm_90"
# This release cannot read text of other releases that has pointers.
_TYPED = 14
_ALLOCA = """\
define void @f(i32 %n) {
  %p = alloca i8, i32 %n
  store volatile i8 0, ptr %p
  ret void
}
"""
_MINIMUM = """\
declare float @llvm.minimum.f32(float, float)
define float @f(float %x) {
  %y = call float @llvm.minimum.f32(float %x, float %x)
  ret float %y
}
"""
# The input of each backend, by the names in the table: the target, a supported processor, and a module.
_BACK_ENDS = {
    ("nvptx", "fence"): (_NVPTX, _CPU, "define void @f() {\n  fence acquire\n  ret void\n}\n"),
    ("nvptx", "alloca"): (_NVPTX, _CPU, _ALLOCA),
    ("nvptx", "bfloat"): (
        *(_NVPTX, _CPU),
        "define bfloat @f(bfloat %a) {\n  %r = fadd bfloat %a, %a\n  ret bfloat %r\n}\n",
    ),
    ("amdgcn", "minimum"): (_AMDGPU, "gfx90a", _MINIMUM),
}
_NOUNDEF = """\
declare i32 @g()
define i32 @f() {
  %r = call i32 @g(), !noundef !0
  ret i32 %r
}
!0 = !{}
"""
_SPLICE = """\
declare <4 x i32> @{name}.v4i32(<4 x i32>, <4 x i32>, i32)
define <4 x i32> @f(<4 x i32> %a, <4 x i32> %b) {{
  %r = call <4 x i32> @{name}.v4i32(<4 x i32> %a, <4 x i32> %b, i32 1)
  ret <4 x i32> %r
}}
"""
_WIDE_STRUCT = "@g = global { i8, i128 } zeroinitializer\n"
_VECTOR_RANGE = """\
declare <2 x i32> @g()
define <2 x i32> @f() {
  %r = call <2 x i32> @g(), !range !0
  ret <2 x i32> %r
}
!0 = !{i32 0, i32 5}
"""
_ATTRIBUTE = re.compile(rb"(?<=\0)[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?=\0)")
_PRINTED = re.compile(r'"([^"\n]+)"="')
_WORD = re.compile(rb"(?<=\0)[a-z]+(?:-[a-z]+)*(?=\0)")
_WRONG = re.compile(r"invalid value for '[^'\n]+' attribute: (\S+)")
# Attributes that only affect speed in releases that ignore them.
_SLOWER = {"amdgpu-unsafe-fp-atomics": 20}
# The verifier identifies an attribute with an invalid value by the function, or by the attribute name.
_QUOTED = re.compile(r"'([^'\n]+)' attribute")
_PLACE = re.compile(r"@f(\d+)")
# A value that most attributes accept, and one that floating-point attributes accept.
_VALUES = ("true", "preserve-sign,preserve-sign")

Known = Callable[[Reader], bool]


def single_rows() -> Mapping[str, tuple[int, Known]]:
    """Return the rows by name: the release, and a function that tests a reader for the new behavior."""
    limits = load_limits()
    flags = limits.instruction_flags
    return {
        "instruction_flags, cast": (flags["cast"], _reads(probe.cast_flag_module())),
        "instruction_flags, compare": (flags["compare"], _reads(probe.compare_flag_module())),
        "instruction_flags, getelementptr": (flags["getelementptr"], _keeps_element_flag),
        "sign_extended_since": (limits.sign_extended_since, _extends_by_sign),
        "noundef_of_loads_since": (
            limits.noundef_of_loads_since,
            lambda reader: not reader.print(_NOUNDEF.encode()).is_read,
        ),
        "vector_range_since": (limits.vector_range_since, _reads(_VECTOR_RANGE.encode())),
        **{
            f"rounded_decimals_since, {kind}": (
                limits.rounded_decimals_since,
                _reads(f"@g = global {kind} 1.0e-1\n".encode()),
            )
            for kind in ("half", "bfloat", "float")
        },
        "wide_integer_since": (limits.wide_integer_since, _aligns_wide_integers),
        **{
            f"ir_features, {one.name}": (one.since, _reads(f"{one.text}\n".encode()))
            for one in load_ir_features()
        },
    }


def _reads(module: bytes) -> Known:
    return lambda reader: reader.print(module).is_read


def _keeps_element_flag(reader: Reader) -> bool:
    """Return whether a reader distinguishes another flag of getelementptr from inbounds."""
    printed = reader.print(probe.element_flag_module()).output
    return b"getelementptr" in printed and b"inbounds" not in printed


def _extends_by_sign(reader: Reader) -> bool:
    return b"i80 -1" in reader.spell(probe.wide_integer_module(80, 3)).output


def _aligns_wide_integers(reader: Reader) -> bool:
    return b"\t32\n" in reader.compile(_WIDE_STRUCT.encode(), _X86, "").output


def _row_mistakes(reader: Reader) -> Iterator[str]:
    for name, (since, is_known) in single_rows().items():
        if is_known(reader) != (reader.release >= since):
            yield f"LLVM {reader.release}: {name} is not as the table says ({since})"


def _back_end_mistakes(reader: Reader) -> Iterator[str]:
    for (target, name), (triple, cpu, text) in _BACK_ENDS.items():
        since = load_limits().back_ends[target][name]
        if reader.compile(text.encode(), triple, cpu).is_read != (reader.release >= since):
            yield f"LLVM {reader.release}: the back end {target}, {name}: not as the table says ({since})"


def _convention_mistakes(reader: Reader) -> Iterator[str]:
    names = load_conventions().names
    for number, name in conventions(reader).items():
        if names.get(number, name) != name:
            yield f"LLVM {reader.release}: calling convention {number} is {name}: not {names[number]}"


def attributes_gone(readers: tuple[Reader, ...]) -> dict[str, int]:
    """Return the attributes that are replaced in bitcode from a release on, but not in text.

    The names are those in the binaries of the older releases. Attributes that the oldest release replaces are
    omitted.
    """
    names = frozenset().union(
        *(_ATTRIBUTE.findall(one.binary.read_bytes()) for one in readers[:-1])
    )
    own = sorted(name.decode() for name in names)
    gone: dict[str, int] = {}
    for reader, value in product(readers, _VALUES):
        in_text, in_bitcode = (
            frozenset(_PRINTED.findall(reader.print(one).output.decode()))
            for one in _attributed(readers[0], reader, own, value)
        )
        for name in in_text - in_bitcode:
            gone.setdefault(name, reader.release)
    return {name: since for name, since in gone.items() if since > readers[0].release}


def attribute_values(readers: tuple[Reader, ...], name: str) -> dict[tuple[str, str], int]:
    """Return the words that a verifier accepts as the value of an attribute, with the first such release.

    The words are those in the binary of the newest release. Those that the oldest release accepts are
    omitted.
    """
    words = sorted({word.decode() for word in _WORD.findall(readers[-1].binary.read_bytes())})
    text = "".join(
        f'define void @f{place}() "{name}"="{word}" {{\n  ret void\n}}\n'
        for place, word in enumerate(words)
    )
    since: dict[tuple[str, str], int] = {}
    for reader in readers:
        wrong = set(_WRONG.findall(reader.print(text.encode()).message))
        for word in words:
            if word not in wrong:
                since.setdefault((name, word), reader.release)
    return {row: first for row, first in since.items() if first > readers[0].release}


def _attributed(
    oldest: Reader, reader: Reader, names: Sequence[str], value: str
) -> tuple[bytes, bytes]:
    """Return text and bitcode with a function per attribute with this value; both releases accept them."""
    text = "".join(
        f'define void @f{place}() "{name}"="{value}" {{\n  ret void\n}}\n'
        for place, name in enumerate(names)
    ).encode()
    written = oldest.write(text)
    message = written.message or reader.print(text).message
    if not message:
        return text, written.output
    wrong = {names[int(place)] for place in _PLACE.findall(message)} | set(_QUOTED.findall(message))
    if wrong.isdisjoint(names):
        raise RuntimeError(message)
    return _attributed(oldest, reader, [name for name in names if name not in wrong], value)


def _is_taken_rightly(older: Reader, newest: Reader, name: str) -> bool:
    """Return whether the newest backend generates equal code for an intrinsic and its misreading by an older reader."""
    text = _SPLICE.format(name=name).encode()
    own, other = (newest.compile(one, _X86, "").output for one in (text, older.print(text).output))
    return bool(own) and own == other


def mistakes(readers: tuple[Reader, ...]) -> Iterator[str]:
    """Yield the differences between the tables and the releases."""
    limits, intrinsics = load_limits(), load_intrinsics()
    for reader in readers:
        yield from _row_mistakes(reader)
        yield from _convention_mistakes(reader)
        if reader.release > _TYPED:
            yield from _back_end_mistakes(reader)
        for name in limits.taken_rightly:
            is_older = reader.release < (intrinsics.first_release(name) or 0)
            is_taken = is_older and bool(intrinsics.taken_for(name, reader.release))
            if is_taken and not _is_taken_rightly(reader, readers[-1], name):
                yield f"LLVM {reader.release} does something else for {name}"
    tried = {(target, name) for target, rows in limits.back_ends.items() for name in rows}
    if tried != _BACK_ENDS.keys():
        yield f"back ends: {sorted(tried ^ _BACK_ENDS.keys())} have no module"
    values = limits.attribute_values
    for name in sorted({attribute for attribute, _ in values}):
        own = {row: since for row, since in values.items() if row[0] == name}
        if (words := attribute_values(readers, name)) != own:
            yield f"attribute_values: {own}; found {words}"
    gone = {name: row.gone for name, row in limits.text_attributes_gone.items()}
    found = attributes_gone(readers)
    if found != gone | _SLOWER:
        yield f"text_attributes_gone: {gone}; found {found}"


if __name__ == "__main__":
    raise SystemExit(print_differences(__doc__, mistakes))
