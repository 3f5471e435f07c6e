"""Compare our bitcode reader with the tools of each LLVM release on the same files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.bitcode_census import read_bitcode_census
from support.bitcode_corpus import CASES, RELEASES, analyze, compile_bitcode, disassemble
from support.cuda_tools import cuda_root
from support.llvm_text import TextModule, read_text

from mlir_offload.toolchain.bitcode.body import function_bodies
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.global_value import BitcodeFunction
from mlir_offload.toolchain.bitcode.module import BitcodeModule, read_bitcode
from mlir_offload.toolchain.bitcode.reference import ReferenceGraph
from mlir_offload.toolchain.byte_view import ByteView, memory_view

LLVM = [pytest.param(release, marks=pytest.mark.llvm(release)) for release in RELEASES]
LIBRARIES = [
    str(cuda_root() / "nvvm" / "libdevice" / "libdevice.10.bc"),
    *(f"/usr/lib/x86_64-linux-gnu/amdgcn/bitcode/{name}.bc" for name in ("ocml", "ockl")),
]
_BLOCK = re.compile(r"^  Block ID #(\d+)\b.*?(?=^  Block ID|\Z)", re.MULTILINE | re.DOTALL)
_COUNT = re.compile(r"^\t\t +(\d+) .*$", re.MULTILINE)


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.mark.parametrize("release", LLVM)
@pytest.mark.parametrize("case", CASES)
def test_a_module_is_read_as_llvm_prints_it(release: int, case: str, session: Path) -> None:
    path = compile_bitcode(release, case, session)
    assert differences(path, release) == []


@pytest.mark.llvm(22)
@pytest.mark.parametrize("path", LIBRARIES, ids=lambda path: Path(path).name)
def test_a_library_of_another_release_is_read_as_llvm_prints_it(path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"{path} is not installed")
    module = read_bitcode(view_of(Path(path)))
    text = read_text(disassemble(22, Path(path)))
    assert identity_differences(module, text) == []
    # LLVM upgrades intrinsics and attributes of an old release when it reads them.
    ours = {one.name: one for one in module.functions if one.name and not one.is_intrinsic}
    theirs = {name: one for name, one in text.functions.items() if not name.startswith("llvm.")}
    assert ours.keys() == theirs.keys()
    for name, one in theirs.items():
        assert (ours[name].linkage, ours[name].convention) == (one.linkage, one.convention)
        assert ours[name].is_declaration == one.is_declaration
    assert census_of(view_of(Path(path))) == analyzed(analyze(22, Path(path)))


def view_of(path: Path) -> ByteView:
    return memory_view(path.read_bytes(), location=str(path))


def differences(path: Path, release: int) -> list[str]:
    """Return where our reader and the tools of LLVM disagree."""
    view = view_of(path)
    module, text = read_bitcode(view), read_text(disassemble(release, path))
    found = identity_differences(module, text)
    if not module.producer.startswith(f"LLVM{release}."):
        found.append(f"producer {module.producer}")
    if module.data_layout != text.data_layout:
        found.append(f"data layout {module.data_layout}")
    found += function_differences(module, text)
    found += variable_differences(module, text)
    found += reference_differences(module, text)
    if census_of(view) != analyzed(analyze(release, path)):
        found.append("numbers of blocks and records")
    return found


def identity_differences(module: BitcodeModule, text: TextModule) -> list[str]:
    pairs = {
        "triple": (module.triple, text.triple),
        # LLVM 3.8 does not write the source file.
        "source file": (module.source_file or text.source_file, text.source_file),
    }
    return [
        f"{name}: {ours} / {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs
    ]


def function_differences(module: BitcodeModule, text: TextModule) -> list[str]:
    ours = {
        one.name: (
            *(one.is_declaration, one.linkage, one.visibility, one.convention),
            module.parameter_types(one),
            string_attributes(module, one),
        )
        for one in module.functions
    }
    theirs = {
        one.name: (
            *(one.is_declaration, one.linkage, one.visibility, one.convention),
            one.parameters,
            one.strings,
        )
        for one in text.functions.values()
    }
    return _disagreements(ours, theirs)


def string_attributes(module: BitcodeModule, function: BitcodeFunction) -> dict[str, str]:
    group = module.attributes[function.attributes].groups.get(0xFFFFFFFF)
    found = group.attributes if group else {}
    return {kind: str(one.value or "") for kind, one in found.items() if isinstance(kind, str)}


def variable_differences(module: BitcodeModule, text: TextModule) -> list[str]:
    ours = {
        one.name: (
            *(one.linkage, one.visibility, one.section, module.types.spell(one.type)),
            *(one.address_space, one.is_constant, one.align_bytes),
        )
        for one in module.variables
    }
    theirs = {
        one.name: (
            *(one.linkage, one.visibility, one.section, one.type),
            *(one.address_space, one.is_constant, one.align_bytes),
        )
        for one in text.variables.values()
    }
    return _disagreements(ours, theirs)


def reference_differences(module: BitcodeModule, text: TextModule) -> list[str]:
    """Compare what each function names, itself or through constants."""
    graph = ReferenceGraph(module, ConstantTable(module))
    count = len(module.symbols)

    def named(number: int) -> set[str]:
        found: set[str] = set()
        waiting = list(graph._targets(number))
        while waiting:
            target = waiting.pop()
            if target < count:
                found.add(module.symbols[target].name or "0")
            else:
                waiting += graph._targets(target)
        return found

    ours = {module.symbols[number].name: named(number) for number, _ in function_bodies(module)}
    theirs = {
        one.name: {"0" if name.isdecimal() else name for name in one.references}
        for one in text.functions.values()
        if not one.is_declaration
    }
    return _disagreements(ours, theirs)


def _disagreements(ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
    # Unnamed values have numbers in textual IR.
    return [
        f"{name}: {ours.get(name)} / {theirs.get(name)}"
        for name in sorted(ours.keys() | theirs.keys())
        if name and not name.isdecimal() and ours.get(name) != theirs.get(name)
    ]


def census_of(view: ByteView) -> dict[int, tuple[int, list[int]]]:
    """Return for each kind of block how many there are, and how often each kind of record occurs."""
    census = read_bitcode_census(view)
    counts: dict[int, list[int]] = {number: [] for number in census.blocks}
    for (block, _), count in census.records.items():
        counts[block].append(count)
    return {number: (count, sorted(counts[number])) for number, count in census.blocks.items()}


def analyzed(text: str) -> dict[int, tuple[int, list[int]]]:
    """Return the same from the output of llvm-bcanalyzer, which names few codes by number."""
    found = {}
    for match in _BLOCK.finditer(text):
        instances = re.search(r"Num Instances: (\d+)", match[0])
        assert instances
        counts = Counter(int(count) for count in _COUNT.findall(match[0]))
        found[int(match[1])] = (int(instances[1]), sorted(counts.elements()))
    return found
