"""The table of constructs in textual LLVM IR that older releases of LLVM do not read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from msgspec import Struct, field

from mlir_offload.toolchain.tables import load_table

_ACTIONS = frozenset({"strip", "rewrite", "rename", "refuse"})
FORMS = frozenset(
    (
        *(
            "atomic",
            "attribute",
            "flag",
            "opcode",
            "operation",
            "word",
            "global",
            "layout",
            "intrinsic",
            "extremum",
            "undeclared",
            "attachment",
        ),
        *(
            "bound",
            "parameter",
            "feature",
            "flag-name",
            "record",
            "field",
            "node",
            "node-word",
            "expression",
            "retained",
            "value",
            "number",
        ),
    )
)


class DowngradeRow(Struct, frozen=True):
    """One construct. The head of the table describes the fields."""

    what: str
    form: str
    names: tuple[str, ...]
    since: int
    action: str
    reason: str
    opcodes: frozenset[str] = frozenset()
    argument: str | None = None
    operands: int = 0
    when: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    declare: str = ""
    to: str = ""
    names_to: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_refused(self) -> bool:
        """Return whether the construct has no older form."""
        return self.action == "refuse"

    def names_callee(self, name: str) -> bool:
        """Return whether the row applies to calls of this intrinsic."""
        if self.names_to:
            return name in self.names_to
        return any(name.startswith(own) if own.endswith(".") else name == own for own in self.names)


@cache
def rows_for(reader: int) -> tuple[DowngradeRow, ...]:
    """Return the rows of the constructs that a release does not read, in the order of the table."""
    return tuple(row for row in load_rows() if row.since > reader)


@cache
def load_rows() -> tuple[DowngradeRow, ...]:
    """Return all rows. Raises ValueError if the table is wrong, which is a bug."""
    table = load_table("mlir_offload.translate", "downgrade")
    return tuple(_row(entry, table["newest"]) for entry in table["rows"])


def _row(entry: Mapping[str, object], newest: object) -> DowngradeRow:
    values = dict(entry)
    to = values.pop("to", "")
    for name in ("names", "when", "lines"):
        values[name] = tuple(_strings(values.get(name, ())))
    values["opcodes"] = frozenset(_strings(values.get("opcodes", ())))
    row = DowngradeRow(
        **values,  # type: ignore[arg-type]  # names and types of a table; tests check it
        to=to if isinstance(to, str) else "",
        names_to=to if isinstance(to, dict) else {},
    )
    if row.form not in FORMS or row.action not in _ACTIONS or not row.names:
        msg = f"downgrade.yaml: row {row.what}: unknown form or action, or no names"
        raise ValueError(msg)
    if not isinstance(newest, int) or row.since > newest:
        msg = f"downgrade.yaml: row {row.what}: since {row.since} is newer than the table"
        raise ValueError(msg)
    return row


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else []
