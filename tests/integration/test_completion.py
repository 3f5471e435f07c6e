"""What the shells offer, asked of the shells themselves."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import subprocess
from pathlib import Path

import pytest

from mlir_offload.driver.option.completion import render_completion
from mlir_offload.driver.option.subcommand import every_subcommand

# What is typed, what must be offered, and what must not.
CASES = {
    "an option": ("--off", ["--offload-arch="], ["--llvm="]),
    "an architecture": ("--offload-arch=sm_90", ["sm_90", "sm_90a"], ["sm_80"]),
    "a form": ("--message-format=s", ["sarif"], ["text"]),
    "a subcommand": ("ins", ["inspect"], ["extract"]),
    "an option of a subcommand": ("inspect --j", ["--json"], ["-j"]),
    "a release": ("run --llvm=1", ["15", "16", "19"], ["22"]),
    "a value that is a word of its own": ("extract --kind c", ["cuda"], ["hip"]),
}


def words(line: str) -> list[str]:
    """Split as bash does for completion: `=` is a word."""
    return ["mlir-offload", *line.replace("=", " = ").split(" ")]


def in_bash(line: str, place: Path) -> list[str]:
    script = (
        f"{render_completion('bash')}\n"
        f"COMP_WORDS=({' '.join(map(shlex.quote, words(line)))})\n"
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_mlir_offload\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    return run(["bash", "--norc"], script, place)


def in_fish(line: str, place: Path) -> list[str]:
    script = f"{render_completion('fish')}\ncomplete -C {shlex.quote(f'mlir-offload {line}')}\n"
    offered = [text.partition("\t")[0] for text in run(["fish", "--no-config"], script, place)]
    # fish repeats the option before the value, and leaves the sign to the next key.
    return [*offered, *(text.rpartition("=")[2] for text in offered), *(f"{o}=" for o in offered)]


def run(shell: list[str], script: str, place: Path) -> list[str]:
    result = subprocess.run(
        shell,
        input=script,
        cwd=place,
        env={**os.environ, "HOME": str(place), "XDG_CONFIG_HOME": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


@pytest.mark.parametrize("shell", [in_bash, in_fish], ids=["bash", "fish"])
@pytest.mark.parametrize(("line", "offered", "hidden"), CASES.values(), ids=CASES.keys())
def test_a_shell_offers_what_fits(
    shell: type, line: str, offered: list[str], hidden: list[str], tmp_path: Path
) -> None:
    found = shell(line, tmp_path)
    assert set(offered) <= set(found)
    assert not set(hidden) & set(found)


def test_bash_goes_on_behind_a_comma(tmp_path: Path) -> None:
    assert in_bash("--offload-arch=sm_80,sm_90", tmp_path) == ["sm_80,sm_90", "sm_80,sm_90a"]


def test_bash_offers_files_for_inputs_outputs_and_arguments_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "a b.mlir").touch()
    (tmp_path / "dir").mkdir()
    for line in ("a", "-o a", "--reproduce=a", "run k.mlir -- a"):
        assert in_bash(line, tmp_path) == ["a b.mlir"], line
    assert in_bash("-I ", tmp_path) == ["dir"]


def test_bash_offers_every_option_of_each_subcommand(tmp_path: Path) -> None:
    for subcommand in every_subcommand().values():
        names = {name for row in subcommand.rows for name in row.names}
        assert set(in_bash(f"{subcommand.name} -".strip(), tmp_path)) == names


def test_zsh_completes_in_its_own_line_editor(tmp_path: Path) -> None:
    (tmp_path / "_mlir-offload").write_text(render_completion("zsh"))
    subprocess.run(["zsh", "-n", tmp_path / "_mlir-offload"], check=True)
    typed = {
        "mlir-offload --offload-a\t": b"--offload-arch=",
        "mlir-offload --message-format=s\t": b"--message-format=sarif",
        "mlir-offload insp\t": b"inspect",
        "mlir-offload --offload-arch=sm_80,sm_11\t": b"sm_80,sm_110",
    }
    for keys, expected in typed.items():
        assert expected in typed_in_zsh(keys, tmp_path), keys


def typed_in_zsh(keys: str, place: Path) -> bytes:
    """Return what an interactive zsh shows when these keys are pressed."""
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "TERM": "dumb", "PS1": "> "}
    with subprocess.Popen(
        ["zsh", "-f", "-i"],
        cwd=place,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as shell:
        os.close(theirs)
        try:
            setup = "autoload -Uz compinit; compinit -u -D; source ./_mlir-offload; print rea''dy\n"
            os.write(ours, setup.encode())
            # Its line editor listens from here on; before, the terminal itself shows what is typed.
            read_until(ours, rb"ready.*\033\[\?2004h")
            # What is typed behind the key is shown when zsh is done with it.
            os.write(ours, f"{keys}END".encode())
            said = read_until(ours, rb"END")
        finally:
            shell.kill()
            os.close(ours)
    # It rings a bell and writes only what is new.
    return said.replace(b"\x07", b"")


def read_until(terminal: int, pattern: bytes) -> bytes:
    """Return what the terminal shows until it fits the pattern."""
    said = b""
    while not re.search(pattern, said, re.DOTALL):
        assert select.select([terminal], [], [], 600)[0], said
        said += os.read(terminal, 4096)
    return said
