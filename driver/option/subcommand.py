"""The subcommands: the one list that the dispatch, the configuration and the option table follow."""

from __future__ import annotations

from collections.abc import Mapping

SUBCOMMANDS: Mapping[str, str] = {
    "build": "project.verb:build_project",
    "bundle": "bundle.verb:bundle",
    "check": "check:run_check",
    "doctor": "doctor.verb:run_doctor",
    "explain": "explain:explain",
    "extract": "extract:run_extract",
    "inspect": "inspect.verb:run_inspect",
    "link": "bundle.link:link_bundles",
    "package": "package.verb:package",
    "run": "run:run_program",
    "toolchains": "toolchains:show_toolchains",
    "trust": "trust:run_trust",
}
"""Name of each subcommand, and the module and function of mlir_offload.driver that run it."""
