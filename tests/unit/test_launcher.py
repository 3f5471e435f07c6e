from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.driver.step.launcher import Launcher, choose_launcher
from mlir_offload.toolchain.errors import ToolchainError, UsageError

CCACHE = Launcher(("ccache",), uses_ccache=True)


@pytest.fixture(autouse=True)
def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ccache", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        ([], {}, None),
        (["--launcher=srun -n 1"], {}, Launcher(("srun", "-n", "1"))),
        ([], {"MLIR_OFFLOAD_LAUNCHER": "srun"}, Launcher(("srun",))),
        (["--launcher="], {"MLIR_OFFLOAD_LAUNCHER": "srun"}, None),
        (["--launcher=ccache"], {}, Launcher(("ccache",))),
        (["--cache"], {}, CCACHE),
        ([], {"MLIR_OFFLOAD_CACHE": "on"}, CCACHE),
        (["--no-cache"], {"MLIR_OFFLOAD_CACHE": "on"}, None),
        (["--cache"], {"MLIR_OFFLOAD_CACHE": "off"}, CCACHE),
        (["--no-cache"], {"MLIR_OFFLOAD_LAUNCHER": "ccache"}, None),
        ([], {"MLIR_OFFLOAD_LAUNCHER": "ccache", "MLIR_OFFLOAD_CACHE": "off"}, None),
        (["--no-cache"], {"MLIR_OFFLOAD_LAUNCHER": "srun"}, Launcher(("srun",))),
        (
            ["--cache", "--launcher=srun -n1"],
            {},
            Launcher(("ccache",), ("srun", "-n1"), uses_ccache=True),
        ),
        (["--cache", "--launcher=ccache"], {}, CCACHE),
    ],
)
def test_options_come_before_the_environment(
    words: list[str], environment: Mapping[str, str], expected: Launcher | None
) -> None:
    options = parse_arguments([*words, "-c", "k.mlir"])

    assert choose_launcher(options, environment) == expected


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        ([], {"MLIR_OFFLOAD_CACHE": "maybe"}, "MLIR_OFFLOAD_CACHE=maybe: neither 'on' nor 'off'"),
        (["--launcher=srun 'x"], {}, "--launcher=srun 'x: No closing quotation"),
        (["--launcher=distcc"], {}, "--launcher: no program 'distcc'"),
    ],
)
def test_what_cannot_be_used_is_refused(
    words: list[str], environment: Mapping[str, str], message: str
) -> None:
    with pytest.raises((ToolchainError, UsageError)) as error:
        choose_launcher(parse_arguments([*words, "-c", "k.mlir"]), environment)

    assert error.value.message == message


def test_the_user_sets_up_ccache_except_where_results_would_be_wrong() -> None:
    given = {"CCACHE_COMPILERCHECK": "content", "CCACHE_COMPILERTYPE": "gcc", "CCACHE_DIR": "/x"}

    assert dict(CCACHE.environment("id", given)) == {
        "CCACHE_COMPILERTYPE": "other",
        "CCACHE_COMPILER": "",
        "CCACHE_IGNOREOPTIONS": "",
        "CCACHE_NOHASHDIR": "1",
    }
    assert dict(CCACHE.environment("id", {}))["CCACHE_COMPILERCHECK"] == "string:id"
    assert Launcher(("srun",)).environment("id", {}) == ()
