"""The result of one program for one target, and the definition of a regression."""

from __future__ import annotations

from dataclasses import dataclass, fields

YES, NO, NONE = "yes", "no", "-"


@dataclass(frozen=True, slots=True)
class Result:
    """A row of the table.

    `linked` includes the driver's verification of the linked file; `verified` is whether `inspect` finds it
    complete. `ran` is no if the program hangs. `checked` is whether FileCheck accepts the program's output.
    `status` is its exit status. `-` if there is no such step.
    """

    program: str
    target: str
    linked: str = NO
    verified: str = NONE
    ran: str = NONE
    checked: str = NONE
    status: str = NONE
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Return the key of the row in the table."""
        return self.program, self.target

    @property
    def is_good(self) -> bool:
        """Return whether it is linked and verified."""
        return (self.linked, self.verified) == (YES, YES)

    @property
    def is_correct(self) -> bool:
        """Return whether it ran, exited as expected and printed the text that upstream expects."""
        return self.ran == YES and self.ends_well and self.checked != NO

    @property
    def ends_well(self) -> bool:
        """Return whether its exit status is 0, or nonzero for a program that is expected to fail."""
        return self.status == "0" or self.status.endswith("(expected)")


def regressions(recorded: Result, found: Result) -> list[str]:
    """Return the steps that succeeded before and no longer do."""
    lost = [
        name
        for name in ("linked", "verified", "ran", "checked")
        if getattr(recorded, name) == YES and getattr(found, name) != YES
    ]
    if recorded.ends_well and not found.ends_well:
        lost.append("status")
    return lost


def render_row(result: Result) -> str:
    """Return the row in Markdown."""
    cells = [str(getattr(result, item.name)) for item in fields(result)]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def parse_row(line: str) -> Result | None:
    """Return the result in a line of the table; None for any other line."""
    cells = [cell.strip().replace("&#124;", "|") for cell in line.strip().strip("|").split(" | ")]
    if not line.startswith("| ") or not cells[0].endswith(".mlir"):
        return None
    return Result(*cells)
