"""Filter skew findings by the options that disable rules or make them errors, and convert them to diagnostics."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from mlir_offload.driver.message import diagnostic
from mlir_offload.driver.message.report import MessageOptions
from mlir_offload.offload.skew.check import SkewFinding
from mlir_offload.toolchain.errors import parse_source_location
from mlir_offload.toolchain.skew.identity import Severity as RuleSeverity
from mlir_offload.translate import tool_message


def counted(findings: Iterable[SkewFinding], options: MessageOptions) -> tuple[SkewFinding, ...]:
    """Return the findings that are not disabled, with the severity that the command line requests."""
    return tuple(
        replace(one, severity=_severity(one, options))
        for one in findings
        if one.rule not in options.hidden_rules
    )


def is_error(finding: SkewFinding) -> bool:
    """Return whether a finding is an error."""
    return finding.severity is RuleSeverity.ERROR


def is_note(finding: SkewFinding) -> bool:
    """Return whether a finding is a note, which only verbose compilations print."""
    return finding.severity is RuleSeverity.NOTE


def message_of(finding: SkewFinding) -> diagnostic.Diagnostic:
    """Return the diagnostic for a finding."""
    return diagnostic.Diagnostic(
        tool_message.Severity(finding.severity),
        finding.text,
        parse_source_location(finding.location),
        hint=finding.hint,
        rule=finding.rule,
        image=finding.image,
        kernel=finding.kernel,
    )


def _severity(finding: SkewFinding, options: MessageOptions) -> RuleSeverity:
    is_raised = finding.rule in options.error_rules or (
        options.warnings_are_errors and finding.severity is RuleSeverity.WARNING
    )
    return RuleSeverity.ERROR if is_raised else finding.severity
