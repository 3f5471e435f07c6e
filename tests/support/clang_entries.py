"""The offload entries that clang emits: recorded for each release, and compared with installed releases.

As a program: `python -m support.clang_entries 17 CLANG...` records the output of a release's clang
(`CLANG...` may be several words, such as an interpreter and a module).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from mlir_offload.offload.host.mangling import stub_symbol
from mlir_offload.offload.ir_syntax import global_name
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.toolchain.target import Kind

GOLDEN = Path(__file__).parent.parent / "golden" / "entries"
RELEASES = tuple(range(15, 23))
_ELF = ("-triple", "x86_64-unknown-linux-gnu")
_COFF = ("-triple", "x86_64-pc-windows-msvc")
_RDC = ("-std=c++17", "--offload-new-driver", "-fgpu-rdc")
_CUDA = (*_RDC, "-aux-triple", "nvptx64-nvidia-cuda", "-x", "cuda", "program.cu")
_HIP = (
    *_RDC,
    "-aux-triple",
    "amdgcn-amd-amdhsa",
    "-fhip-new-launch-api",
    "-x",
    "hip",
    "program.cu",
)
_OPENMP = ("-fopenmp", "-fopenmp-targets=x86_64-unknown-linux-gnu", "-x", "c", "program.c")
PROGRAMS = {
    "cuda": (*_ELF, *_CUDA),
    "hip": (*_ELF, *_HIP),
    "openmp": (*_ELF, *_OPENMP),
    "cuda-coff": (*_COFF, *_CUDA),
    "openmp-coff": (*_COFF, *_OPENMP),
}

_TYPE = re.compile(r"^%struct\.__tgt_offload_entry = type (\{.*\})$", re.MULTILINE)
_STRING = re.compile(
    r'^@(\S*offloading\.entry_name\S*) = (.*) constant (\[\d+ x i8\]) c"(.*?)"(.*)$', re.MULTILINE
)
_ENTRY = re.compile(
    r"^@(\S*offloading\.entry\.\S+) = (.*) constant (%struct\.__tgt_offload_entry|\{[^}]*\}) "
    r"\{ (.*) \}(, .*)$",
    re.MULTILINE,
)
_HANDLE = re.compile(r"^@\S+ = constant ptr @__device_stub__.*$|^@\S+region_id = .*$", re.MULTILINE)
_LISTED = re.compile(r"^!llvm\.offloading\.symbols = !\{(.*)\}$", re.MULTILINE)
_NODE = re.compile(r"^(!\d+) = !\{ptr @(\S*offloading\.entry_name\S*)\}$", re.MULTILINE)
_KEPT = (_TYPE, _STRING, _ENTRY, _HANDLE, _LISTED, _NODE)


@dataclass(frozen=True, slots=True)
class Registered:
    """An entry in IR, except for the number of its name string, which is arbitrary."""

    linkage: str
    type: str
    members: tuple[str, ...]
    placement: str
    name: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registration:
    """The entries of a module and their registration, without an order."""

    entries: dict[str, Registered]
    handles: frozenset[str]
    listed_names: frozenset[str]


def parse_registration(text: str) -> Registration:
    """Parse the registration of a module, with its named struct type expanded."""
    named = _TYPE.search(text)
    strings = {match[1]: match.groups()[1:] for match in _STRING.finditer(text)}
    entries = {}
    for symbol, linkage, type_name, members, placement in _ENTRY.findall(text):
        values = tuple(members.split(", "))
        name = next(value for value in values if ".entry_name" in value)
        entries[symbol] = Registered(
            linkage,
            named[1] if named and type_name.startswith("%") else type_name,
            tuple("name" if value == name else value for value in values),
            placement,
            strings[name.removeprefix("ptr @")],
        )
    nodes = {number: strings[symbol][2] for number, symbol in _NODE.findall(text)}
    listed = _LISTED.search(text)
    names = [nodes[number] for number in listed[1].split(", ")] if listed else []
    return Registration(entries, frozenset(_HANDLE.findall(text)), frozenset(names))


def recorded(program: str, major: int) -> str:
    """Return the recorded lines about entries in the output of a release's clang."""
    return (GOLDEN / f"{program}.{major}.ll").read_text(encoding="utf-8")


def run_clang(program: str, *clang: str) -> str:
    """Return the lines about entries in the output of this clang."""
    arguments = ("-cc1", *PROGRAMS[program], "-emit-llvm", "-o", "-")
    output = run_checked(ProcessRunner(), Command((*clang, *arguments), cwd=GOLDEN)).stdout
    return "".join(
        f"{line}\n"
        for line in output.splitlines()
        if any(pattern.fullmatch(line) for pattern in _KEPT)
    )


def main() -> None:
    """Record the output of one release's clang."""
    major, *clang = sys.argv[1:]
    for program, arguments in PROGRAMS.items():
        command = " ".join((f"clang-{major} -cc1", *arguments, "-emit-llvm -o -"))
        text = f"; {command}\n{run_clang(program, *clang)}"
        (GOLDEN / f"{program}.{major}.ll").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()


def kernel_address(kind: Kind, kernel: str) -> str:
    """Return the host symbol that identifies a kernel of a kind in clang's output."""
    if kind is Kind.CUDA:
        return stub_symbol(kernel)
    return kernel if kind is Kind.HIP else f".{kernel}.region_id"


def render_kernel_handle(kind: Kind, kernel: str) -> str:
    """Return the IR of the kernel handle variable; empty if the stub identifies the kernel."""
    name = global_name(kernel_address(kind, kernel))
    handles = {
        Kind.HIP: f"{name} = constant ptr {global_name(stub_symbol(kernel))}, align 8\n",
        Kind.OPENMP: f"{name} = weak constant i8 0\n",
    }
    return handles.get(kind, "")
