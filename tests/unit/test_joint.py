"""A program's host text and device modules, joined for one run of mlir-opt and separated afterwards."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.translate.lower import (
    bordered,
    ir_modules,
    join_program,
    joint_pipeline,
    separate_program,
)

HOST = """\
#loc1 = loc("a.mlir":1:1)
"builtin.module"() <{sym_name = "h"}> ({
  "func.func"() <{sym_name = "main"}> ({
    "func.return"() : () -> () loc(#loc1)
  }) : () -> () loc(#loc1)
}) {gpu.container_module} : () -> () loc(#loc)
#loc = loc(unknown)
"""
DEVICE = """\
#loc1 = loc("a.mlir":1:1)
"builtin.module"() ({
  "gpu.module"() <{sym_name = "k"}> ({
    "gpu.func"() <{sym_name = "f"}> ({
      "gpu.return"() : () -> () loc(#loc2)
    }) : () -> () loc(#loc2)
  }) : () -> () loc(#loc)
}) : () -> () loc(#loc)
#loc = loc(unknown)
#loc2 = loc("a.mlir":2:1)
"""


def joined(*devices: str) -> str:
    text = join_program(HOST, devices)
    assert text is not None
    return text


def printed(text: str) -> str:
    """Return a joined program as mlir-opt prints it: indented."""
    lines, depth = [], 0
    for line in map(str.strip, text.splitlines()):
        depth -= line.startswith("})")
        lines.append("  " * depth + line)
        depth += line.endswith("({")
    return "\n".join(lines) + "\n"


def test_a_program_that_no_pass_changes_is_separated_into_what_was_joined() -> None:
    other = DEVICE.replace('"k"', '"l"')
    host, devices = separate_program(printed(joined(DEVICE, other)))

    used = DEVICE.removeprefix('#loc1 = loc("a.mlir":1:1)\n')
    assert host.render_part(host.operations) == HOST
    assert [device.render_part(device.operations) for device in devices] == [
        used,
        used.replace('"k"', '"l"'),
    ]


def test_an_alias_is_defined_once() -> None:
    assert joined(DEVICE, DEVICE).count("#loc1 = ") == 1


@pytest.mark.parametrize(
    "device",
    [
        DEVICE.replace('"a.mlir":1:1', '"b.mlir":1:1'),
        DEVICE + "{-#\n  dialect_resources: {\n  }\n#-}\n",
    ],
    ids=["an alias of another meaning", "resources"],
)
def test_what_stands_outside_of_modules_and_disagrees_is_not_joined(device: str) -> None:
    assert join_program(HOST, [device]) is None


def test_each_part_gets_its_own_passes() -> None:
    pipeline = joint_pipeline("builtin.module(a,b)", "builtin.module(gpu.module(c),d)")
    assert pipeline == (
        "builtin.module(builtin.module(a,b),gpu.module(builtin.module(gpu.module(c),d)))"
    )


@pytest.mark.parametrize("text", [HOST, DEVICE], ids=["host", "device"])
def test_a_text_that_is_not_joined_is_not_separated(text: str) -> None:
    with pytest.raises(ToolFailedError, match="mlir-opt for a joined program"):
        separate_program(text)


def test_modules_of_llvm_ir_are_told_apart_by_their_heads() -> None:
    first = "; ModuleID = 'LLVMDialectModule'\n@a = constant [3 x i8] c\"; M\"\n"
    second = "; ModuleID = 'LLVMDialectModule'\ndeclare void @f()\n"
    assert ir_modules(f"{first}\n{second}") == [first, second]
    assert ir_modules("") == []


def test_parts_have_the_border_that_mlir_translate_looks_for() -> None:
    assert bordered(["a\n", "b\n"]) == "a\n\n// -----\nb\n"
