"""The skew tables are complete and used, and invalid ones are rejected."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from foreign.derive import PROGRAMS
from foreign.intrinsics import known_names
from foreign.reader import Reader
from support.bitcode_corpus import assemble

from mlir_offload.driver.explain import render_rules
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.cuda_driver import load_drivers, parse_drivers
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.ptx import load_nvptx_table
from mlir_offload.toolchain.skew.limits import load_limits, parse_limits
from mlir_offload.toolchain.skew.rule import load_rules, parse_rules, rule_said
from mlir_offload.toolchain.skew.symbol import load_intrinsics, parse_intrinsics
from mlir_offload.toolchain.skew.text import load_constructs, parse_constructs
from mlir_offload.toolchain.tables import load_table

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("driver", "offload", "toolchain", "translate")
PROGRAM = re.compile(r"tests/foreign/\w+\.py")
NAME = re.compile(r'"([A-Z]{2,4}\d{3})"')

Table = dict[str, Any]


def table(name: str) -> Table:
    return copy.deepcopy(load_table("mlir_offload.toolchain", name))


def test_each_rule_is_used_and_each_name_in_the_code_is_a_rule() -> None:
    sources = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    named = {name for path in sources for name in NAME.findall(path.read_text(encoding="utf-8"))}
    said = {rule.name for rule in load_rules().values() if rule.said}
    assert named <= set(load_rules())
    assert named | said == set(load_rules())


def test_no_text_of_a_rule_but_its_message_has_places() -> None:
    for rule in load_rules().values():
        assert not any("{" in text for text in (rule.title, rule.reason, rule.hint))
        assert not rule.message.endswith(".")
        assert rule.title[0].islower() or rule.title.split()[0].isupper() or rule.title[0].isdigit()


# The tables that describe how a release reads files of others.
MEASURED = (
    *("reader_limits", "intrinsics", "intrinsic_signatures", "skew_limits", "ir_text"),
    *("ir_features", "bitcode"),
)


@pytest.mark.parametrize("name", MEASURED)
def test_each_table_names_a_program_that_measures_it_for_a_new_release(name: str) -> None:
    text = (ROOT / "toolchain" / "data" / f"{name}.yaml").read_text(encoding="utf-8")
    # Each row of skew_limits.yaml names its own program.
    parts = text.split("\n\n")[1:] if name == "skew_limits" else [text]
    programs = {f"tests/foreign/{program}.py" for program in PROGRAMS}
    assert [part for part in parts if programs.isdisjoint(PROGRAM.findall(part))] == []


# Messages of tools, verbatim, and the rule that each matches.
SAID = {
    "error: Unknown attribute kind (102) (Producer: 'LLVM22.1.8' Reader: 'LLVM 19.1.7')": "BC010",
    "error: Invalid attribute group entry (Producer: 'LLVM22.1.8' Reader: 'LLVM 16.0.6')": "BC011",
    "error: Invalid record (Producer: 'LLVM22.1.8' Reader: 'LLVM 19.1.7')": "BC002",
    "clang-linker-wrapper: error: Malformed block": "BC005",
    "Invalid summary version 12. Version should be in the range [1-10].": "BC006",
    "nvlink fatal   : Input file 'k.cubin' newer than toolkit: cubin not an elf?": "BC007",
    "ptxas k.s, line 9; fatal : Parsing error near '.nvvm': syntax error": "BC014",
    "clang-linker-wrapper: error: input module has no datalayout": "DL001",
    "ptxas k.s, line 1; error : PTX .version 7.0 does not support .target sm_90": "NV001",
    "LLVM ERROR: PTX version 8.8 does not support target 'sm_110'.": "NV001",
    "ptxas k.s, line 5; fatal : Unsupported .version 8.5; current version is '7.5'": "NV002",
    "'sm_120' is not a recognized processor for this target (ignoring processor)": "NV003",
    "clang: error: unsupported CUDA gpu architecture: sm_120": "NV003",
    "ptxas fatal   : Value 'sm_70' is not defined for option 'gpu-name'": "NV004",
    "fatbinary fatal   : Unknown option '-image'": "NV007",
    "error : Feature 'labels1 - labels2 expression in .section' requires PTX ISA .version 7.5": "NV008",
    "Conflicting directives: .maxntid and .reqntid cannot both be specified": "NV009",
    "nvlink error   : Undefined reference to '__nv_sqrtf' in 'k.cubin'": "NV012",
    "clang: error: cannot find ROCm device library for ABI version 6, which requires ROCm 6.3": "AM003",
    "error: linking module flags 'amdgpu_code_object_version': IDs have conflicting values": "AM005",
    "'gfx1250' is not a recognized processor for this target (ignoring processor)": "AM006",
    "LLVM ERROR: unsupported calling convention": "OF005",
    "invalid value for 'frame-pointer' attribute: non-leaf-no-reserve": "BC035",
    "Range types must match instruction type!": "BC036",
    "noundef applies only to load instructions": "BC030",
    "immarg operand has non-immediate parameter": "BC023",
}


@pytest.mark.parametrize("text", SAID)
def test_the_words_of_a_tool_tell_the_rule(text: str) -> None:
    found = rule_said(f"note: something else\n{text}\nclang: error: linker command failed")
    assert found is not None
    assert found.name == SAID[text]


def test_every_rule_that_words_tell_has_words_here_and_others_tell_none() -> None:
    assert {rule.name for rule in load_rules().values() if rule.said} == set(SAID.values())
    for text in ("k.c:1:2: error: expected ';'", "ld.lld: error: undefined symbol: f", ""):
        assert rule_said(text) is None


def broken(edit: Callable[[Table], object], name: str) -> Table:
    changed = table(name)
    edit(changed)
    return changed


BROKEN_RULES: dict[str, tuple[Callable[[Table], object], str]] = {
    "twice": (lambda t: t["rules"].append(t["rules"][0]), "BC001 is listed twice"),
    "name": (lambda t: t["rules"][0].update(id="first"), "'first' is not a name of a rule"),
    "no name": (lambda t: t["rules"][0].pop("id"), "'None' is not a name of a rule"),
    "severity": (lambda t: t["rules"][0].update(severity="fatal"), "the severity 'fatal'"),
    "no hint": (lambda t: t["rules"][0].pop("hint"), "BC001 lacks, or has without need, hint"),
    "more": (lambda t: t["rules"][0].update(why="x"), "BC001 lacks, or has without need, why"),
    "empty": (lambda t: t["rules"][0].update(reason=" "), "BC001 has an empty reason"),
    "message": (
        lambda t: t["rules"][0].update(message="{epoch"),
        "message of BC001 is not a format",
    ),
    "place": (lambda t: t["rules"][0].update(message="{0}"), "a place '0' that is not a name"),
    "pattern": (lambda t: t["rules"][0].update(said=["("]), "in `said` of BC001"),
}


@pytest.mark.parametrize("name", BROKEN_RULES)
def test_a_broken_table_of_rules_is_refused(name: str) -> None:
    edit, expected = BROKEN_RULES[name]
    with pytest.raises(ValueError, match=re.escape(expected)):
        parse_rules(broken(edit, "skew_rules"))


BROKEN_LIMITS: dict[str, tuple[Callable[[Table], object], str]] = {
    "a list less": (lambda t: t["newest"].pop("summaries"), "summaries"),
    "a list more": (lambda t: t["newest"].update(colours=[]), "colours"),
    "no flag": (lambda t: t["instruction_flags"].pop("cast"), "cast"),
    "releases": (lambda t: t["newest"]["summaries"].update({9: 9}), "releases of summaries do not"),
    "numbers": (
        lambda t: t["newest"]["summaries"].update({19: 1}),
        "numbers of summaries do not ascend",
    ),
    "empty": (
        lambda t: t.update(memory_locations={}),
        "releases of memory_locations do not ascend",
    ),
    "memory": (lambda t: t["memory_locations"][16].remove("other"), "lack 'other'"),
    "a place twice": (lambda t: t["memory_locations"][21].append("argmem"), "name one twice"),
}


@pytest.mark.parametrize("name", BROKEN_LIMITS)
def test_a_broken_table_of_limits_is_refused(name: str) -> None:
    edit, expected = BROKEN_LIMITS[name]
    changed = table("reader_limits") | table("skew_limits")
    edit(changed)
    with pytest.raises(ValueError, match=expected):
        parse_limits(changed)


BROKEN_TEXT: dict[str, tuple[Callable[[Table], object], str]] = {
    "twice": (lambda t: t["constructs"].append(t["constructs"][0]), "is listed twice"),
    "neither": (lambda t: t["constructs"][0].pop("since"), "needs one of since and gone"),
    "both": (lambda t: t["constructs"][0].update(gone=20), "needs one of since and gone"),
    "pattern": (lambda t: t["constructs"][0].update(pattern="["), "pattern of presplitcoroutine"),
    "group": (lambda t: t["constructs"][0].update(pattern="(x)"), "has a group"),
}


@pytest.mark.parametrize("name", BROKEN_TEXT)
def test_a_broken_table_of_text_is_refused(name: str) -> None:
    edit, expected = BROKEN_TEXT[name]
    with pytest.raises(ValueError, match=expected):
        parse_constructs(broken(edit, "ir_text"))


def test_broken_tables_of_intrinsics_are_refused() -> None:
    for first, expected in (
        ({15: "llvm.a", 16: "llvm.a"}, "llvm.a is listed twice"),
        ({15: "nvvm.a"}, "nvvm.a does not begin with llvm."),
    ):
        with pytest.raises(ValueError, match=re.escape(expected)):
            parse_intrinsics({"first": first, "overloaded": {}, "taken": {}})


def test_the_longest_name_up_to_a_dot_counts_as_in_llvm() -> None:
    known = parse_intrinsics(
        {
            "first": {14: "llvm.sum.old", 20: "llvm.nvvm.alloc llvm.exp9"},
            "overloaded": {14: "llvm.sum.old", 19: "llvm.lane llvm.sum", 20: "llvm.exp9"},
            "taken": {},
        }
    )
    expected = {
        "llvm.nvvm.alloc": 20,
        "llvm.nvvm.alloc.p0": None,
        "llvm.exp9.v4f32": 20,
        "llvm.exp90": None,
        "llvm.lane": None,
        "llvm.lane.i32": 19,
        "llvm.lane64": None,
        "llvm.sum.i32": 19,
        "llvm.sum.old": 14,
        "llvm.sum.old.i32": 14,
        "llvm.": None,
        "": None,
    }
    assert {name: known.first_release(name) for name in expected} == expected


# Intrinsics with which the readers of each release are tested again.
ASKED = (
    "llvm.va_start.p0", "llvm.va_end.p0", "llvm.va_copy.p0", "llvm.stacksave.p0", "llvm.thread.pointer.p0",
    "llvm.coro.await.suspend.void", "llvm.coro.end.results", "llvm.eh.typeid.for.p0", "llvm.umin.i32",
    "llvm.var.annotation.p0.p0", "llvm.vp.abs.v4i32", "llvm.nvvm.barrier.cta.sync.aligned.all",
)  # fmt: skip


@pytest.mark.parametrize("release", [15, 16, 19, 22])
def test_intrinsic_rows_match_the_verifier_of_each_release(release: int) -> None:
    opt = Path(f"/usr/lib/llvm-{release}/bin/opt")
    if not opt.exists():
        pytest.skip(f"no opt of LLVM {release}")
    reader = Reader(release, opt, opt)
    table = load_intrinsics()
    expected = {name for name in ASKED if (table.first_release(name) or 0) <= release}
    assert known_names(reader, ASKED) == expected


LIBRARIES = {
    16: ("libLLVM-16.so",),
    19: ("libLLVM-19.so", "libLLVM.so.19.1"),
    22: ("libLLVM-22.so", "libLLVM.so.22.1"),
}


@cache
def names_in(release: int) -> frozenset[str]:
    """Return the names of the intrinsics that LLVM itself has in its table, by its library."""
    folders = (f"/usr/lib/llvm-{release}/lib", "/usr/lib/x86_64-linux-gnu")
    paths = (Path(folder, name) for folder in folders for name in LIBRARIES[release])
    library = next((path for path in paths if path.exists()), None)
    if library is None:
        pytest.skip(f"no library of LLVM {release}")
    found = re.findall(rb"\0(llvm\.(?:nvvm|amdgcn)\.[\w.]+)(?=\0)", library.read_bytes())
    return frozenset(name.decode() for name in found)


@pytest.mark.parametrize("release", [16, 19, 22])
def test_the_releases_of_intrinsics_are_those_that_have_them(release: int) -> None:
    names = names_in(release)
    assert len(names) > 2000
    table = load_intrinsics()
    late = [name for name in names if (table.first_release(name) or 0) > release]
    assert late == []
    # AMDGPU's names for variables in workgroup memory look like intrinsics.
    newer = {name for name in names_in(22) - names if name.startswith("llvm.nvvm.")}
    unknown = [name for name in newer if (table.first_release(name) or 0) <= release]
    assert unknown == []


@pytest.mark.llvm(22)
def test_the_attributes_have_the_names_that_llvm_gives_them() -> None:
    spelled = {"range": "range(i32 0, 4)", "memory": "memory(none)", "nofpclass": "nofpclass(nan)"}
    spelled |= {"initializes": "initializes((0, 4))", "captures": "captures(none)"}
    spelled |= {"uwtable": "uwtable(sync)", "allockind": 'allockind("alloc")'}
    types = {"range": "i32", "nofpclass": "float", "noext": "i32"}
    parameters = {"writable", "dead_on_unwind", "initializes", "dead_on_return", "captures", *types}
    parameters |= {"allocalign", "allocptr"}
    types["allocalign"] = "i32"
    rows = load_limits().attributes.items()
    for kind, name in ((kind, row.name) for kind, row in rows if row.forms(22)):
        words = spelled.get(name, name + (" noinline" if name == "optdebug" else ""))
        is_parameter = name in parameters
        text = f"declare void @f({types.get(name, 'ptr')} {words})" if is_parameter else ""
        text = text or f"declare void @f() {words}"
        module = read_bitcode(memory_view(assemble(22, text + "\n")))
        groups = module.attributes.groups()
        assert kind in {one.kind for group in groups for one in group.attributes.values()}, name


def test_each_construct_of_text_and_each_rule_stands_in_the_documentation() -> None:
    page = render_rules()
    assert all(f"#### {name}: " in page for name in load_rules())
    assert len(load_constructs()) > 50


def test_a_driver_stands_for_the_cuda_release_of_its_branch() -> None:
    drivers = load_drivers()
    assert drivers.cuda_of("570.86.15") == (12, 8)
    assert drivers.cuda_of("570") == (12, 8)
    assert drivers.cuda_of("450.35") is None
    assert drivers.cuda_of("535.54.03") == (12, 2)
    assert (drivers.oldest_for(11), drivers.oldest_for(12), drivers.oldest_for(13)) == (
        "450",
        "525",
        "580",
    )
    known = {row.release for row in load_nvptx_table().cuda}
    assert {cuda for _, cuda in drivers.branches if cuda >= (11, 8)} <= known
    with pytest.raises(UsageError, match="'new' is not a version of a driver"):
        drivers.cuda_of("new")


def test_broken_tables_of_drivers_are_refused() -> None:
    good = table("cuda_driver")["branches"]
    for branches, expected in (
        ([*good, good[0]], "do not ascend"),
        ([{"driver": "x", "cuda": "12.0"}], "needs a driver"),
        ([], "needs a driver"),
    ):
        with pytest.raises(ValueError, match=expected):
            parse_drivers({"branches": branches})
