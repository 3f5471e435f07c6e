"""Count instructions in the loops of GPU machine code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

# nvdisasm -c: `.text.NAME:` begins a kernel, `.L_x_1:` is a label, `/*0040*/ @P0 BRA `(.L_x_1) ;` code.
_SASS = (
    re.compile(r"^\.text\.([\w$.]+):$"),
    re.compile(r"^(\.L_\w+):$"),
    re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ +)?(?P<opcode>[A-Z][\w.]*)(?P<rest>[^;]*);"),
    re.compile(r"`\((\.L_\w+)\)"),
)
# clang -S for AMD GPUs.
_AMD = (
    re.compile(r"^(\w+):\s*; @"),
    re.compile(r"^(\.LBB\w+):"),
    re.compile(r"^\t(?P<opcode>[a-z]\w+)(?P<rest>[^;]*)"),
    re.compile(r"(\.LBB\w+)"),
)
# gfx11 can encode two operations in one instruction.
_SECOND = re.compile(r":: (\w+)")
# Instructions that only wait.
_WAITS = frozenset(
    {"NOP", "s_nop", "s_delay_alu", "s_set_inst_prefetch_distance", "s_waitcnt", "s_clause"}
)
_WIDTH = re.compile(r"\.(?P<bits>64|128)\b|(?:dword|_b)(?:x(?P<words>\d)|(?P<size>64|96|128))$")
_WORD = 32


class Instruction(Struct, frozen=True):
    """An instruction: its operations (two for a dual instruction), and its branch target, if any."""

    operations: tuple[str, ...]
    target: str = ""


class Code(Struct, frozen=True):
    """Instructions in order, and the positions of labels."""

    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int] = {}

    @property
    def size(self) -> int:
        """Return the number of instructions."""
        return len(self.instructions)

    def operations(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the operations that match a pattern."""
        return [name for one in self.instructions for name in one.operations if pattern.match(name)]

    def elements(self, pattern: re.Pattern[str]) -> int:
        """Return the number of 32-bit elements that the matching operations process."""
        return sum(map(_lanes, self.operations(pattern)))

    def loops(self) -> list[Code]:
        """Return the bodies of the innermost loops."""
        found = {
            (self.labels[one.target], index + 1)
            for index, one in enumerate(self.instructions)
            if self.labels.get(one.target, index + 1) <= index
        }
        return [
            Code(self.instructions[start:end])
            for start, end in sorted(found)
            if not any(start <= s and e <= end and (s, e) != (start, end) for s, e in found)
        ]


def read_sass(text: str) -> dict[str, Code]:
    """Return the kernels in the output of `nvdisasm -c`."""
    return dict(_kernels(text.splitlines(), *_SASS))


def read_amd(text: str) -> dict[str, Code]:
    """Return the kernels in assembly for AMD GPUs."""
    return dict(_kernels(text.splitlines(), *_AMD))


def _lanes(operation: str) -> int:
    if operation.startswith("v_pk_"):
        return 2
    width = _WIDTH.search(operation)
    if width is None:
        return 1
    return int(width["words"] or 0) or int(width["bits"] or width["size"]) // _WORD


def _kernels(
    lines: Iterable[str],
    kernel: re.Pattern[str],
    label: re.Pattern[str],
    code: re.Pattern[str],
    target: re.Pattern[str],
) -> Iterator[tuple[str, Code]]:
    name, instructions, labels = "", list[Instruction](), dict[str, int]()
    for line in lines:
        if begun := kernel.match(line):
            if name:
                yield name, Code(tuple(instructions), labels)
            name, instructions, labels = begun[1], [], {}
        elif marked := label.match(line):
            labels[marked[1]] = len(instructions)
        elif (found := code.match(line)) and found["opcode"] not in _WAITS:
            jump = target.search(found["rest"])
            both = (found["opcode"], *_SECOND.findall(found["rest"]))
            instructions.append(Instruction(both, jump[1] if jump else ""))
    if name:
        yield name, Code(tuple(instructions), labels)
