"""Completion scripts for bash, zsh and fish."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from mlir_offload.driver.option.row import Option, Subcommand, is_joined
from mlir_offload.driver.option.subcommand import every_subcommand
from mlir_offload.offload.device.amdgpu_processor import known_processors
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.tables import load_table

_COMMAND = "mlir-offload"
# Values that the shell completes itself, and a placeholder for architectures.
_FILES, _DIRECTORIES, _ARCHS = "files", "directories", "archs"

_BASH = """\
# bash completion of mlir-offload: eval "$(mlir-offload --completion=bash)"
_mlir_offload_files() {
    compopt -o filenames 2>/dev/null
    local IFS=$'\n'
    COMPREPLY=($(compgen "$1" -- "$cur"))
}
_mlir_offload() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="" subcommand="" words="" option="" i
    # bash makes words of its own of "--option=value".
    if [[ $cur == "=" ]]; then
        option="${COMP_WORDS[COMP_CWORD-1]}=" cur=""
    elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
        option="${COMP_WORDS[COMP_CWORD-2]}="
    else
        prev="${COMP_WORDS[COMP_CWORD-1]}"
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == "--" ]] && { _mlir_offload_files -f; return; }
    done
    ((COMP_CWORD > 1)) && case "${COMP_WORDS[1]}" in @SUBCOMMANDS@) subcommand="${COMP_WORDS[1]}" ;; esac
    case "$subcommand|${option:-$prev}" in
@VALUES@
    esac
    if [[ -n $option || -n $words ]]; then
        case "$words" in
        @files) _mlir_offload_files -f ;;
        @directories) _mlir_offload_files -d ;;
        *)
            # The last of a list with commas.
            local list=""
            [[ $cur == *,* ]] && list="${cur%,*},"
            COMPREPLY=($(compgen -P "$list" -W "$words" -- "${cur##*,}"))
            ;;
        esac
        return
    fi
    if [[ $cur == -* ]]; then
        case "$subcommand" in
@OPTIONS@
        esac
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
        return
    fi
    _mlir_offload_files -f
    ((COMP_CWORD == 1)) && COMPREPLY+=($(compgen -W "@SUBCOMMAND_LIST@" -- "$cur"))
    return 0
}
complete -F _mlir_offload mlir-offload
"""

_ZSH = """\
#compdef mlir-offload
# zsh completion of mlir-offload: put it into a file _mlir-offload in $fpath, or source it.
_mlir-offload() {
    local cur="${words[CURRENT]}" prev="${words[CURRENT-1]}" subcommand="" option="" list=""
    local -a found
    if (( ${words[(Ie)--]} && ${words[(Ie)--]} < CURRENT )); then
        _files
        return
    fi
    (( CURRENT > 2 )) && case "${words[2]}" in (@SUBCOMMANDS@) subcommand="${words[2]}" ;; esac
    if [[ $cur == -*=* ]]; then
        option="${cur%%=*}="
    else
        option="$prev"
    fi
    case "$subcommand|$option" in
@VALUES@
    esac
    if (( $#found )); then
        if [[ $cur == -*=* ]]; then
            compset -P '*='
        fi
        case "${found[1]}" in
        (@files) _files ;;
        (@directories) _files -/ ;;
        (*)
            # The last of a list with commas.
            compset -P '*,'
            compadd -- $found
            ;;
        esac
        return
    fi
    if [[ $cur == -* ]]; then
        case "$subcommand" in
@OPTIONS@
        esac
        compadd -S '' -- ${(M)found:#*=}
        compadd -- ${found:#*=}
        return
    fi
    (( CURRENT == 2 )) && compadd -- @SUBCOMMAND_LIST@
    _files
}
compdef _mlir-offload mlir-offload
"""


def render_completion(shell: str) -> str:
    """Return the script for a shell. Raises UsageError for an unsupported one."""
    scripts = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if shell not in scripts:
        msg = f"--completion={shell}: no script for this shell"
        raise UsageError(msg, hint=f"use one of {', '.join(scripts)}")
    return scripts[shell]()


def _bash() -> str:
    values = [
        f"    {_pattern(subcommand, names)}) words={shlex.quote(_mark(row))} ;;"
        for subcommand in every_subcommand().values()
        for row in subcommand.rows
        if row.values and (names := _with_values(row))
    ]
    options = [
        f"        {subcommand.name or _QUOTED}) words={shlex.quote(' '.join(_spellings(subcommand)))} ;;"
        for subcommand in every_subcommand().values()
    ]
    return _filled(_BASH, values, options)


def _zsh() -> str:
    values = [
        f"    ({_pattern(subcommand, names)}) found=({_quoted(_mark(row).split())}) ;;"
        for subcommand in every_subcommand().values()
        for row in subcommand.rows
        if row.values and (names := _with_values(row))
    ]
    options = [
        f"        ({subcommand.name or _QUOTED}) found=({_quoted(_spellings(subcommand))}) ;;"
        for subcommand in every_subcommand().values()
    ]
    return _filled(_ZSH, values, options)


_QUOTED = "''"


def _filled(script: str, values: Iterable[str], options: Iterable[str]) -> str:
    names = [name for name in every_subcommand() if name]
    parts = {
        "@VALUES@": "\n".join(values),
        "@OPTIONS@": "\n".join(options),
        "@SUBCOMMANDS@": "|".join(names),
        "@SUBCOMMAND_LIST@": " ".join(names),
    }
    for place, text in parts.items():
        script = script.replace(place, text)
    return script


def _pattern(subcommand: Subcommand, names: Iterable[str]) -> str:
    return "|".join(shlex.quote(f"{subcommand.name}|{name}") for name in names)


def _mark(row: Option) -> str:
    """Return the values to choose from; `@files` or `@directories` if the shell completes them."""
    words = _words(row)
    return f"@{words}" if isinstance(words, str) else " ".join(words)


def _words(row: Option) -> tuple[str, ...] | str:
    if row.values == _ARCHS:
        return _archs()
    return _releases() if row.values == "releases" else row.values


def _with_values(row: Option) -> list[str]:
    """Return the spellings that take a value; subcommands accept both `--kind=x` and `--kind x`."""
    names = [name for name in row.names if row.takes_value(name)]
    joined = [f"{name}=" for name in names if name.startswith("--") and not is_joined(name)]
    return [*names, *joined]


def _spellings(subcommand: Subcommand) -> list[str]:
    return [name for row in subcommand.rows for name in row.names]


def _quoted(words: Iterable[str]) -> str:
    return " ".join(map(shlex.quote, words))


def _archs() -> tuple[str, ...]:
    """Return the architectures that at least one LLVM release supports, and the special values."""
    rows = load_table("mlir_offload.toolchain", "nvptx")["llvm"]
    nvidia = dict.fromkeys(arch for row in rows for arch in row.get("arch", ()))
    newest = max(map(int, _releases()))
    return ("host", "native", "spirv64", *nvidia, *known_processors(newest))


def _releases() -> tuple[str, ...]:
    """Return the LLVM releases that link."""
    roles = load_table("mlir_offload.toolchain", "llvm_tools")["roles"]
    return tuple(map(str, roles["link"]["checked"]))


def _fish() -> str:
    lines = [
        "# fish completion of mlir-offload: mlir-offload --completion=fish | source",
        *_fish_subcommands(),
    ]
    for subcommand in every_subcommand().values():
        names = " ".join(name for name in every_subcommand() if name)
        condition = (
            f"__fish_seen_subcommand_from {subcommand.name}"
            if subcommand.name
            else f"not __fish_seen_subcommand_from {names}"
        )
        lines += [
            f"complete -c {_COMMAND} -n {shlex.quote(condition)} {spelled}"
            for row in subcommand.rows
            for spelled in _fish_options(row)
        ]
    return "\n".join(lines) + "\n"


def _fish_subcommands() -> Iterator[str]:
    for subcommand in every_subcommand().values():
        if subcommand.name:
            summary = shlex.quote(subcommand.summary)
            yield f"complete -c {_COMMAND} -n __fish_is_first_arg -a {subcommand.name} -d {summary}"


def _fish_options(row: Option) -> Iterator[str]:
    """Yield the arguments of `complete` for each spelling of an option."""
    for name in row.names:
        plain = name.rstrip("=,")
        kind = "-l" if plain.startswith("--") else "-s" if len(plain) == len("-x") else "-o"
        value = ""
        if row.takes_value(name) and row.values == _FILES:
            value = " -r -F"
        elif row.takes_value(name) and row.values == _DIRECTORIES:
            value = " -x -a '(__fish_complete_directories)'"
        elif row.takes_value(name) and row.values == _ARCHS:
            value = f" -x -a {shlex.quote(f'(__fish_append , {_mark(row)})')}"
        elif row.takes_value(name) and row.values:
            value = f" -x -a {shlex.quote(_mark(row))}"
        elif row.takes_value(name):
            value = " -x"
        yield f"{kind} {shlex.quote(plain.lstrip('-'))}{value} -d {shlex.quote(row.help)}"
