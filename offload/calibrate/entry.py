"""Probe the offload entries that clang emits: their struct, values and sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.offload.abi import EntryLayout, entry_layouts, load_abi
from mlir_offload.offload.calibrate.probe import (
    CannotLearnError,
    ContradictionError,
    Learned,
    ProbeBench,
)
from mlir_offload.toolchain.learned_row import EntriesRow, EntryValuesRow, HostLayoutRow
from mlir_offload.toolchain.pattern import ir_line

_ENTRY = ir_line(
    "@`symbol:name` = weak `hidden ?`constant `struct:local` { `members:rest` }"
    ', section "`section:string`", align `align:number``end`'
)
_STRUCT = ir_line("`name:local` = type { `members:members` }`end`")
_NAME = ir_line(
    "@`symbol:name` = internal unnamed_addr constant [`number` x i8]"
    ' c"mo_global\\00"`(`, section "`section:string`"`)?`'
)
_LAYOUT = ir_line('target datalayout = "`layout:string`"')
_SYMBOLS = "!llvm.offloading.symbols = "
_FIELD_TYPES = frozenset(("i16", "i32", "i64", "ptr"))
_SIZES = {"mo_kernel": 0, "mo_global": 11, "mo_constant": 13}
_TYPES = {"mo_texture": 5, "mo_normal": 7, "mo_surface": 6}
_ENTRY_VERSION = 1
_GPU = """\
extern "C" int %(api)sLaunchKernel(const void *, ...);
extern "C" int __%(api)sPushCallConfiguration(...);
#define D __attribute__((device))
extern "C" __attribute__((global)) void mo_kernel() {}
D char mo_global[11];
__attribute__((constant)) char mo_constant[13];
template <class T, int N, int M> struct __attribute__((device_builtin_texture_type)) texture { char c[19]; };
template <class T, int N> struct __attribute__((device_builtin_surface_type)) surface { char c[23]; };
template <int N> struct __attribute__((device_builtin_surface_type)) surface<void, N> { char c[23]; };
texture<float, 5, 0> mo_texture;
texture<float, 7, 1> mo_normal;
surface<void, 6> mo_surface;
"""
_MANAGED = "__attribute__((managed)) char mo_managed[17];\n"
_OPENMP = """\
int mo_global, mo_link;
#pragma omp declare target to(mo_global)
#pragma omp declare target link(mo_link)
"""
_GPU_ARGUMENTS = ("-std=c++17", "--offload-new-driver", "-fgpu-rdc", "-emit-llvm")


class _Entry(Struct, frozen=True):
    """A parsed entry: its symbol prefix, and type and value of each field."""

    prefix: str
    members: tuple[tuple[str, str], ...]
    section: str
    align: int


class _Columns(Struct, frozen=True):
    """The entries by the kernel or variable that they register, and the names of their fields."""

    entries: Mapping[str, _Entry]
    names: tuple[str, ...]

    def value(self, entry: str, member: str) -> str:
        """Return the value of a field; `0` if the entry or the field does not exist."""
        if member not in self.names or entry not in self.entries:
            return "0"
        return self.entries[entry].members[self.names.index(member)][1]


def learn_entries(bench: ProbeBench) -> Learned:
    """Compile kernels and variables of each kind with clang, and parse the entries that it emits.

    Raises CannotLearnError if clang cannot be run, ContradictionError if the entries cannot be parsed.
    """
    texts = dict(_texts(bench))
    hip = _entries(texts["hip"])
    columns = _Columns(hip, _member_names(hip, bench.base))
    sections = {kind: _entry(text, kind).section for kind, text in texts.items()}
    found = Learned()
    found.rows.append(_entries_row(columns, texts["hip"], sections, bench.base))
    values = _values_row(columns, _entries(texts["openmp"]), bench.base)
    found.rows.append(replace(values, coff_suffix=_coff_suffix(bench, sections["cuda"])))
    layout = _LAYOUT.search(texts["hip"])
    if layout is not None and bench.host.startswith("x86_64"):
        found.rows.append(HostLayoutRow(layout[1]))
    return found


def _texts(bench: ProbeBench) -> Iterator[tuple[str, str]]:
    """Yield the host module that clang emits for a small program of each kind."""
    host = "x86_64-unknown-linux-gnu"
    targets = {"openmp": "", "cuda": "nvptx64-nvidia-cuda", "hip": "amdgcn-amd-amdhsa"}
    for kind, target in targets.items():
        if not target:
            arguments: tuple[str, ...] = ("-fopenmp", f"-fopenmp-targets={host}", "-emit-llvm")
            yield kind, bench.compile(host, (*arguments, "-x", "c"), _OPENMP)
            continue
        text = _GPU % {"api": kind} + (_MANAGED if kind == "hip" else "")
        arguments = ("-aux-triple", target, *_GPU_ARGUMENTS, "-x", kind)
        yield kind, bench.compile(host, arguments, text)


def _entry(text: str, kind: str) -> _Entry:
    entry = _entries(text).get("mo_global")
    if entry is None:
        msg = f"clang writes no offload entry for a variable of kind {kind}"
        raise CannotLearnError(msg)
    return entry


def _entries(text: str) -> dict[str, _Entry]:
    """Return the entries of a module by the name of the variable or kernel."""
    found = {}
    for match in _ENTRY.finditer(text):
        symbol = match["symbol"].strip('"')
        name = symbol[symbol.find("mo_") :] if "mo_" in symbol else ""
        if name:
            members = tuple(_member(member) for member in match["members"].split(", "))
            prefix = symbol.removesuffix(name)
            found[name] = _Entry(prefix, members, match["section"], int(match["align"]))
    if not found:
        msg = "clang writes offload entries in an unknown format"
        raise CannotLearnError(msg)
    return found


def _member(text: str) -> tuple[str, str]:
    type_name, _, value = text.partition(" ")
    return type_name, value


def _member_names(entries: Mapping[str, _Entry], base: int) -> tuple[str, ...]:
    """Return the name of each field, determined from its values. Raises ContradictionError for an unknown field."""
    types = [type_name for type_name, _ in entries["mo_global"].members]
    near = load_abi(base).entry
    alike = [
        one for one in (near, *reversed(entry_layouts())) if _types(one) == types[: len(one.fields)]
    ]
    known = (alike or [near])[0].fields
    names: list[str] = []
    for number, (type_name, _) in enumerate(entries["mo_global"].members):
        values = {name: entry.members[number][1] for name, entry in entries.items()}
        expected = known[number].name if number < len(known) else ""
        name = _told_by(type_name, values, expected)
        if not name or type_name not in _FIELD_TYPES:
            msg = (
                f"member {number} ({type_name}) of its offload entries is {values['mo_global']} "
                "for a variable, which is not understood"
            )
            raise ContradictionError(msg)
        names.append(name if name not in names else f"{name}{number}")
    missing = {"address", "name", "size", "flags"} - set(names)
    if missing:
        msg = f"no member of its offload entries is {', '.join(sorted(missing))}"
        raise ContradictionError(msg)
    return tuple(names)


def _types(layout: EntryLayout) -> list[str]:
    return [field.type for field in layout.fields]


def _told_by(type_name: str, values: Mapping[str, str], expected: str) -> str:
    """Return the name of a field, determined from its values in all entries; empty if it is ambiguous."""
    if type_name == "ptr":
        return _pointer(values)
    if not all(value.lstrip("-").isdecimal() for value in values.values()):
        return ""
    return _number({name: int(value) for name, value in values.items()}, expected)


def _number(numbers: Mapping[str, int], expected: str) -> str:
    if all(numbers.get(name) == size for name, size in _SIZES.items()):
        return "size"
    if all(numbers.get(name) == number for name, number in _TYPES.items()):
        return "data"
    kinds = ("mo_managed", "mo_surface", "mo_texture")
    if not numbers["mo_global"] and len({numbers.get(name) or 0 for name in kinds} - {0}) == 3:  # noqa: PLR2004
        return "flags"
    is_constant = len(set(numbers.values())) == 1
    return _constant(numbers["mo_global"], expected) if is_constant else ""


def _pointer(values: Mapping[str, str]) -> str:
    if values["mo_global"] == "@mo_global":
        return "address"
    if "name" in values["mo_global"]:
        return "name"
    return "auxiliary" if values["mo_global"] == "null" else ""


def _constant(number: int, expected: str) -> str:
    """Return the name of a field with the same value in all entries; a newer release may add zero fields."""
    if number == 0:
        return expected if expected in {"data", "reserved"} else "reserved"
    if expected == "version":
        return "version" if number == _ENTRY_VERSION else ""
    return expected if expected == "kind" else ""


def _entries_row(
    columns: _Columns, text: str, sections: Mapping[str, str], base: int
) -> EntriesRow:
    entry = columns.entries["mo_global"]
    name = _NAME.search(text)
    if name is None:
        msg = "clang writes no name for an offload entry"
        raise CannotLearnError(msg)
    types = [type_name for type_name, _ in entry.members]
    # Clang emits no entries of kind sycl; if all kinds share a section, sycl uses it too.
    is_shared = len(set(sections.values())) == 1
    has_sycl = "sycl" in dict(load_abi(base).kind_codes)
    sycl = {"sycl": entry.section} if is_shared and has_sycl else {}
    return EntriesRow(
        fields=tuple(
            f"{name}:{type_name}" for name, type_name in zip(columns.names, types, strict=True)
        ),
        symbol_prefix=entry.prefix,
        name_symbol=re.sub(r"\.\d+$", "", name[1].strip('"')),
        name_section=name[2] or "",
        sections={**sections, **sycl},
        align=entry.align,
        symbols_metadata=_SYMBOLS in text,
    )


def _values_row(columns: _Columns, openmp: Mapping[str, _Entry], base: int) -> EntryValuesRow:
    near = load_abi(base).entry_values
    flag = {
        name: int(columns.value(f"mo_{name}", "flags"))
        for name in ("managed", "surface", "texture", "constant")
    }
    flag["normalized"] = int(columns.value("mo_normal", "flags")) & ~flag["texture"]
    link = next((name for name in openmp if "link" in name), "")
    flag["link"] = int(_Columns(openmp, columns.names).value(link, "flags"))
    # Nothing that clang compiles here has this flag; it was introduced together with that of constants.
    flag["extern"] = near.flag("extern") if flag["constant"] else 0
    managed = _managed_members(columns)
    registered: dict[str, tuple[str, ...]] = {}
    for kind, name in sorted(near.registered):
        registered[kind] = (*registered.get(kind, ()), name)
    return EntryValuesRow(
        flags={name: bits for name, bits in sorted(flag.items()) if bits},
        has_type_in_data=columns.value("mo_texture", "data") != "0",
        managed=managed,
        registered=registered,
        coff_suffix=None,
    )


def _coff_suffix(bench: ProbeBench, section: str) -> str | None:
    """Return the suffix of the section name on COFF; None if the name is as on ELF."""
    arguments = ("-aux-triple", "nvptx64-nvidia-cuda", *_GPU_ARGUMENTS, "-x", "cuda")
    text = bench.compile("x86_64-pc-windows-msvc", arguments, _GPU % {"api": "cuda"})
    return _entry(text, "cuda").section.removeprefix(section) or None


def _managed_members(columns: _Columns) -> dict[str, str]:
    """Return the fields in the entry of a managed variable, and the meaning of each."""
    is_pointer = columns.value("mo_managed", "address") == "@mo_managed"
    managed = {"address": "auxiliary" if is_pointer else "address"}
    if columns.value("mo_managed", "data") != "0":
        managed["data"] = "data"
    if columns.value("mo_managed", "auxiliary") not in {"0", "null"}:
        managed["auxiliary"] = "auxiliary"
    return managed
