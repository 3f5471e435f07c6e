"""Parse the output of tools into messages: severity, location, text, and the tool that issued it.

clang prints the output of the linker wrapper, which prints the output of nvlink. Therefore each line
is attributed to a tool separately.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path, PurePath

from msgspec import Struct

from mlir_offload.toolchain.process import Completed


class Severity(StrEnum):
    """The severity of a message, in clang's terms."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    REMARK = "remark"


class ToolMessage(Struct, frozen=True):
    """A message of a tool. Without a location, `file` is empty and the numbers are 0.

    `details` are the lines after it, such as the source line with its caret or references to a symbol.
    """

    severity: Severity
    text: str
    tool: str
    file: str = ""
    line: int = 0
    column: int = 0
    details: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """Return `file:line:column`, an empty string without a file."""
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}" if self.file and self.line else self.file


_WORDS = r"(?P<severity>fatal error|error|warning|note|remark)"
_NVIDIA = r"(?P<severity>error|warning|fatal|info)\s*: (?P<text>.*)"
# GNU ld prints no severity: FILE:(SECTION+OFFSET) or FILE:LINE, and an error about a symbol.
_LINKED = r"(?P<file>[^\s:]+):(?:\([^)]*\)|(?P<line>\d+))"
_OF_SYMBOL = (
    "(?:undefined reference to|multiple definition of|cannot find"
    "|unrecognized option|cannot open linker script file) .*"
)
# The first form that matches a line applies.
_FORMS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?P<tool>ptxas|nvlink|fatbinary)\s+(?:(?P<file>.+), line (?P<line>\d+); )?{_NVIDIA}",
        r'loc\("(?P<file>[^"]*)":(?P<line>\d+):(?P<column>\d+)\): ' + _WORDS + ": (?P<text>.*)",
        rf"(?P<file>.+?):(?P<line>\d+):(?:(?P<column>\d+):)? {_WORDS}: (?P<text>.*)",
        rf"(?:(?P<tool>(?:\S*/)?ld[\w.]*): )?(?:{_LINKED}: )?(?P<text>{_OF_SYMBOL})",
        rf"(?P<tool>[^\s:]+): {_WORDS}: (?P<text>.*)",
        rf"{_WORDS}: (?P<text>.*)",
        r"(?P<severity>LLVM ERROR): (?P<text>.*)",
    )
)
_SEVERITIES = {"info": Severity.REMARK, **{str(severity): severity for severity in Severity}}
_NO_FILE = frozenset({"<stdin>", "<unknown>", "-", ""})
# A word in the position of the tool with one of these extensions is a file.
_FILE_SUFFIXES = frozenset({".o", ".a", ".so", ".ll", ".bc", ".mlir", ".ptx"})
_COUNT = re.compile(r"\d+ (?:warning|error)s?(?: and \d+ errors?)? generated")
_INTERNAL = re.compile(
    r"PLEASE submit a (?:full )?bug report|internal compiler error|"
    r"unable to execute command: (?:Segmentation fault|Aborted|Illegal instruction|Bus error)",
    re.IGNORECASE,
)
# Errors of the SPIR-V back end for unsupported code, after which it exits as after a crash.
_REFUSED = re.compile(
    r"error in backend: (?:.*requires the following SPIR-V extension|unable to legalize|"
    r"Unable to meet SPIR-V requirements)"
)
# A shell returns 128 plus the number of the signal that ended a program. ptxas exits with 255 for
# ordinary errors.
_SIGNALLED = range(129, 160)
# These signals terminate the whole build: SIGHUP, SIGINT, SIGPIPE, SIGTERM.
_ASKED_TO_STOP = frozenset({-1, -2, -13, -15})
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"')


def parse_messages(program: str, stderr: str) -> tuple[ToolMessage, ...]:
    """Parse the output of `program`. Lines without a known form belong to the message before them."""
    messages: list[ToolMessage] = []
    details: list[list[str]] = []
    for line in stderr.split("\n"):
        found = _message(program, line)
        if found is not None:
            messages.append(found)
            details.append([])
        elif details and line.strip() and not _COUNT.match(line):
            details[-1].append(line)
    return tuple(
        ToolMessage(m.severity, m.text, m.tool, m.file, m.line, m.column, tuple(lines))
        for m, lines in zip(messages, details, strict=True)
    )


def _message(program: str, line: str) -> ToolMessage | None:
    line = line.removesuffix("\r")
    match = next(filter(None, (form.fullmatch(line) for form in _FORMS)), None)
    if match is None:
        return None
    parts = {name: value or "" for name, value in match.groupdict().items()}
    tool, file = PurePath(parts.get("tool", "")).name, parts.get("file", "")
    if PurePath(tool).suffix in _FILE_SUFFIXES:
        tool, file = "", parts["tool"]
    return ToolMessage(
        _SEVERITIES.get(parts.get("severity", ""), Severity.ERROR),
        parts["text"],
        tool or program,
        "" if file in _NO_FILE else file,
        int(parts.get("line") or 0),
        int(parts.get("column") or 0),
    )


def has_crashed(completed: Completed) -> bool:
    """Return whether the tool, or a tool that it ran, crashed or had an internal error."""
    status = completed.returncode
    if status in _ASKED_TO_STOP or _REFUSED.search(completed.stderr):
        return False
    return status < 0 or status in _SIGNALLED or _INTERNAL.search(completed.stderr) is not None


def source_of_ptx(assembly: Path, line: int) -> tuple[str, int, int] | None:
    """Return the source location (file, line, column) of a line of PTX, None without line tables."""
    try:
        lines = assembly.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    near = next(filter(None, (_LOC.match(text) for text in reversed(lines[:line]))), None)
    if near is None:
        return None
    files = {found[1]: found for text in lines if (found := _FILE.match(text))}
    if near[1] not in files:
        return None
    _, folder, name = files[near[1]].groups()
    return str(PurePath(folder or "", name)), int(near[2]), int(near[3])
