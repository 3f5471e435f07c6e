"""Settings from files, the environment and the command line, and their priority."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from mlir_offload.driver import cli
from mlir_offload.driver.option.command_line import parse_arguments, take_message_options
from mlir_offload.driver.option.config import configured, find_files, load_config
from mlir_offload.driver.option.help import render_help
from mlir_offload.driver.option.row import Setting
from mlir_offload.driver.option.subcommand import SUBCOMMANDS, every_subcommand
from mlir_offload.driver.option.table import PROJECT_FILE, SETTINGS, are_set
from mlir_offload.toolchain.errors import InputOutputError, UsageError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a file of the user, next to a project with a file of its own."""
    (tmp_path / "config" / "mlir-offload").mkdir(parents=True)
    (tmp_path / "config" / "mlir-offload" / "config.toml").write_text("jobs = 1\nopt-level = 1\n")
    (tmp_path / "project" / "sub").mkdir(parents=True)
    (tmp_path / "project" / PROJECT_FILE).write_text('jobs = 2\noffload-arch = ["sm_90", "host"]\n')
    return tmp_path


def settled(home: Path, *arguments: str, **environment: str) -> tuple[str, ...] | None:
    variables = {"XDG_CONFIG_HOME": str(home / "config"), **environment}
    return configured(arguments, variables, home / "project" / "sub")


def test_the_command_line_goes_before_the_environment_and_that_before_the_files(
    home: Path,
) -> None:
    assert settled(home, "k.mlir") == ("--offload-arch=sm_90,host", "-O1", "-j2", "k.mlir")
    assert settled(home, "k.mlir", MLIR_OFFLOAD_JOBS="3") == (
        "--offload-arch=sm_90,host",
        "-O1",
        "-j3",
        "k.mlir",
    )
    given = ("-j", "4", "-O3", "--offload-arch=native", "k.mlir")
    assert settled(home, *given, MLIR_OFFLOAD_JOBS="3") == given


def test_what_a_file_says_is_what_the_options_say(home: Path) -> None:
    arguments = settled(home, "-c", "k.mlir")
    assert arguments is not None
    options = parse_arguments(arguments)
    assert (options.jobs, options.opt_level) == (2, 1)
    assert options.offload_archs == ("sm_90", "host")


def test_a_variable_that_is_read_elsewhere_keeps_the_file_silent(home: Path) -> None:
    (home / "project" / PROJECT_FILE).write_text('llvm = "19"\ncolor = "always"\n')
    assert settled(home, "k.o") == ("--llvm=19", "-O1", "-j1", "-fdiagnostics-color=always", "k.o")
    assert settled(home, "k.o", MLIR_OFFLOAD_LLVM="22", NO_COLOR="1") == ("-O1", "-j1", "k.o")


def test_a_subcommand_gets_what_it_knows(home: Path) -> None:
    (home / "project" / PROJECT_FILE).write_text('llvm = "22"\nquiet = true\n')
    assert settled(home, "inspect", "k.o") == ("inspect", "--llvm=22", "-q", "k.o")
    assert settled(home, "extract", "k.o") == ("extract", "-q", "k.o")
    assert settled(home, "run", "k.o", "--", "--no-config") == (
        *("run", "--llvm=22", "-O1", "-j1", "-q", "k.o", "--", "--no-config"),
    )
    # The process that starts a step passes it all settings.
    assert settled(home, "step", "split") == ("step", "split")
    assert settled(home, "--image-step", "x") == ("--image-step", "x")


VALUES = {tuple: ["sm_90"], int: 2, bool: True, str: "22"}


@pytest.mark.parametrize("source", ["file", "variable"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_setting_leaves_a_subcommand_a_subcommand(
    tmp_path: Path, name: str, setting: Setting, source: str
) -> None:
    value = setting.choices[-1] if setting.choices else VALUES[setting.kind]
    value = int(str(value)) if setting.kind is int else value
    variables = {}
    if source == "file":
        # The user names the file, so that it may choose programs.
        file = tmp_path / PROJECT_FILE
        file.write_text(f"{setting.key} = {json.dumps(value)}\n")
        variables = {"MLIR_OFFLOAD_CONFIG": str(file)}
    else:
        text = ",".join(value) if isinstance(value, list) else str(value)
        variables = dict.fromkeys(setting.variables, text)
    arguments = configured((name, "operand"), variables, tmp_path)
    assert arguments is not None
    subcommand, *added, operand = arguments
    assert (subcommand, operand) == (name, "operand")
    assert all(every_subcommand()[name].find(word) for word in added)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_command_line_runs_a_subcommand_in_a_configured_directory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLIR_OFFLOAD_ARCH", "sm_90")
    monkeypatch.setenv("MLIR_OFFLOAD_JOBS", "2")
    (tmp_path / PROJECT_FILE).write_text("opt-level = 1\n")
    assert cli._guarded((name, "--help")) == 0
    assert capsys.readouterr().out == render_help(every_subcommand()[name])


def test_a_rule_is_explained_in_a_configured_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / PROJECT_FILE).write_text('offload-arch = "sm_90"\njobs = 1\n')
    assert cli._guarded(("explain", "BC015")) == 0
    assert capsys.readouterr().out.startswith("BC015:")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_files_can_be_left_out(home: Path, how: str) -> None:
    if how == "option":
        assert settled(home, "--no-config", "k.o") == ("k.o",)
    else:
        assert settled(home, "k.o", MLIR_OFFLOAD_CONFIG="off") == ("k.o",)


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_named_file_takes_the_place_of_the_projects(home: Path, how: str) -> None:
    (home / "other.toml").write_text("jobs = 9\n")
    if how == "option":
        assert settled(home, f"--config={home}/other.toml", "k.o") == ("-O1", "-j9", "k.o")
    else:
        variables = {"MLIR_OFFLOAD_CONFIG": f"{home}/other.toml"}
        assert settled(home, "k.o", **variables) == ("-O1", "-j9", "k.o")


def test_a_named_file_must_be_there(home: Path) -> None:
    with pytest.raises(InputOutputError, match="cannot read gone"):
        settled(home, "--config=gone.toml", "k.o")


def test_a_search_does_not_leave_the_checkout(home: Path) -> None:
    (home / "project" / "sub" / ".git").mkdir()
    assert settled(home, "k.o") == ("-O1", "-j1", "k.o")


@pytest.mark.parametrize("way", ["directory", "pipe", "loop"])
def test_what_is_no_file_under_its_name_is_an_error(tmp_path: Path, way: str) -> None:
    place = tmp_path / PROJECT_FILE
    if way == "directory":
        place.mkdir()
    elif way == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(place.name)
    with pytest.raises(InputOutputError, match="is not a regular file"):
        find_files((), {}, tmp_path)
    assert find_files(("--no-config",), {}, tmp_path) == ()


def test_a_file_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = (home / "project" / PROJECT_FILE).stat().st_uid
    if owner == 0:
        # Files of root apply to all users; another owner must be simulated.
        (home / "project" / PROJECT_FILE).touch()
        import os

        os.chown(home / "project" / PROJECT_FILE, 12345, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(UsageError, match="another user"):
        settled(home, "k.o")


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        (
            "\nofload-arch = []\n",
            2,
            "unknown setting 'ofload-arch'",
            "did you mean 'offload-arch'?",
        ),
        ("jobs = 'x'\n", 1, "'jobs' is not a number", "write jobs = 4"),
        ("jobs = true\n", 1, "'jobs' is not a number", "write jobs = 4"),
        ("quiet = 1\n", 1, "'quiet' is not true or false", "write quiet = true"),
        (
            "offload-arch = [1]\n",
            1,
            "'offload-arch' is not a list of strings",
            'write offload-arch = ["text"]',
        ),
        ("opt-level = 7\n", 1, "'opt-level' is not one of 0, 1, 2, 3", "write opt-level = 0"),
        ("[tool]\n", 1, "unknown setting 'tool'", "use one of"),
        ("jobs = = 1\n", "1:8", "invalid TOML: Invalid value", "one setting per line"),
        ("\x00", "1:1", "invalid TOML", "one setting per line"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(
    tmp_path: Path, text: str, line: int | str, message: str, hint: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_config(path)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.location == f"{path}:{line}"


def test_a_file_that_is_no_text_and_one_without_end_are_errors(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="invalid TOML: 'utf-8' codec"):
        load_config(tmp_path / "c.toml")
    with pytest.raises(InputOutputError, match="more than"):
        load_config(Path("/dev/zero"))


def test_a_path_is_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('llvm = "../llvm"\ncuda-path = "/opt/cuda"\n')
    values = load_config(tmp_path / "c.toml").values
    assert values == {"llvm": f"{tmp_path}/../llvm", "cuda-path": "/opt/cuda"}
    (tmp_path / "c.toml").write_text('llvm = "22"\n')
    assert load_config(tmp_path / "c.toml").values == {"llvm": "22"}


def test_what_is_printed_says_who_decides_and_can_be_a_file(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert settled(home, "--print-config", "-O3", MLIR_OFFLOAD_JOBS="5") is None
    text = capsys.readouterr().out
    project = home / "project" / PROJECT_FILE
    assert f'offload-arch = ["sm_90", "host"]  # {project}' in text
    assert "jobs = 5  # environment: MLIR_OFFLOAD_JOBS" in text
    assert "# opt-level: -O3  (command line)" in text
    assert "# quiet: false  (default)" in text
    assert all(setting.key in text for setting in SETTINGS)
    (home / "again.toml").write_text(text)
    assert dict(load_config(home / "again.toml").values) == {
        "offload-arch": ("sm_90", "host"),
        "jobs": 5,
    }
    assert tomllib.loads(text)["jobs"] == 5


def test_without_a_home_there_is_no_file_of_a_user(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert find_files((), {}, tmp_path) == ()
    assert find_files((), {"HOME": "relative"}, tmp_path) == ()


def test_words_behind_two_dashes_are_not_for_messages() -> None:
    options, rest = take_message_options(("-q", "k.o", "--", "-q"))
    assert options.quiet
    assert rest == ("k.o", "--", "-q")


def test_a_wrong_form_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        take_message_options(("--message-format=jason",))
    assert caught.value.hint == "did you mean 'json'?"
    with pytest.raises(UsageError, match="expects a file name"):
        take_message_options(("--reproduce=",))


@pytest.mark.parametrize(
    "name",
    ["MLIR_OFFLOAD_CONFIG", *(name for setting in SETTINGS for name in setting.variables)],
)
def test_a_variable_is_read(tmp_path: Path, name: str) -> None:
    assert are_set({name: "1"}, tmp_path)
    assert not are_set({name: ""}, tmp_path)


@pytest.mark.parametrize("kind", ["file", "directory", "link to nothing"])
def test_what_has_the_name_of_a_projects_file_is_looked_at(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    place = tmp_path / PROJECT_FILE
    if kind == "file":
        place.write_text("")
    elif kind == "directory":
        place.mkdir()
    else:
        place.symlink_to("nothing")
    assert are_set({}, folder)
    (tmp_path / "a" / ".git").mkdir()
    assert not are_set({}, folder)


def test_the_file_of_a_user_is_read(home: Path) -> None:
    assert are_set({"XDG_CONFIG_HOME": str(home / "config")}, home)
    assert not are_set({"XDG_CONFIG_HOME": str(home)}, home)


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "k.mlir", "-o", "k.o"), ("run", "k.mlir", "--", "--no-config", "x"), ("build",), ("step", "split"),
        ("--image-step", "x"), ("inspect", "k.o"), ("--version",), ("help", "run"), (),
    ],
    ids=str,
)  # fmt: skip
def test_where_nothing_is_set_the_words_are_all(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert not are_set({}, tmp_path)
    assert configured(words, {}, tmp_path) == words


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--no-config", "missing.mlir"),
        ("--config=c.toml", "-j needs"),
        ("--print-config", "# jobs"),
    ],
)
def test_an_option_of_configuration_is_heeded_where_nothing_is_set(
    tmp_path: Path,
    word: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text("jobs = 0\n")
    cli._guarded(("-c", "missing.mlir", word))
    assert said in "".join(capfd.readouterr())
