"""Findings about a link, which are reported together in one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.toolchain.errors import MlirOffloadError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHOWN = 20
_LISTED = 8


class Finding(Struct, frozen=True):
    """A finding: the message, the file, the hint, and the class of the error."""

    message: str
    location: str
    hint: str
    error: type[MlirOffloadError] = VerificationError


def raise_findings(findings: Iterable[Finding]) -> None:
    """Raise one error for all findings, of the class of the first; do nothing if there are none."""
    found = tuple(dict.fromkeys(findings))
    if not found:
        return
    first = found[0]
    if len(found) == 1:
        raise first.error(first.message, hint=first.hint, location=first.location)
    shown = "".join(_render(finding) for finding in found[:_SHOWN])
    more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    msg = f"{len(found)} errors in the link inputs:{shown}{more}"
    raise first.error(msg)


def listed(names: Sequence[object]) -> str:
    """Return the names separated by commas; a long list is truncated."""
    text = ", ".join(str(name) for name in names[:_LISTED])
    return f"{text} and {len(names) - _LISTED} more" if len(names) > _LISTED else text


def _render(finding: Finding) -> str:
    """Return the lines of a finding. Equal hints are repeated, because each names its file."""
    parts = (finding.location, finding.message, finding.hint)
    location, message, hint = (part.replace("\n", "\\n") for part in parts)
    return f"\n  {location}: {message}\n    hint: {hint}"
