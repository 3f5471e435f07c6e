"""Find, probe and choose LLVM: paths first, at most one program started, no unverified version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.llvm import (
    LlvmToolchain,
    UnusableLlvm,
    choose_llvm,
    inspect_llvm,
    llvm_probe,
    probe_llvm,
)
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.toolchain.search import SearchPlaces, find_llvm, search_places
from mlir_offload.toolchain.tool import (
    Role,
    ToolchainRequest,
    ToolVersion,
    load_llvm_table,
    paths_like,
)

LOWER = ("mlir-opt", "mlir-translate")
LINK = ("clang", "clang-linker-wrapper", "clang-nvlink-wrapper")
ELSEWHERE = (
    "; or link with another release (--for-clang=), or on another machine (mlir-offload bundle)"
)


@dataclass(frozen=True)
class FakeTools:
    """Answers `--version` from a mapping of resolved programs, and remembers who was asked."""

    answers: Mapping[Path, str | int]
    asked: list[Path] = field(default_factory=list)

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        assert input_text is None
        program = Path(command.argv[0])
        self.asked.append(program)
        answer = self.answers.get(program.resolve())
        if answer is None:
            msg = f"cannot start {program}: Exec format error"
            raise ToolchainError(msg)
        if isinstance(answer, int):
            return Completed(command, answer, "", "")
        return Completed(command, 0, answer, "")


def install(prefix: Path, names: Iterable[str] = (*LOWER, *LINK), *, suffix: str = "") -> Path:
    folder = prefix / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        program = folder / f"{name}{suffix}"
        program.touch()
        program.chmod(0o755)
    return prefix


def says(
    prefix: Path, version: str, names: Iterable[str] = ("clang", "mlir-opt")
) -> dict[Path, str | int]:
    return {
        prefix / "bin" / name: f"Debian clang version {version} (1)\nTarget: x\n" for name in names
    }


def choose(
    tools: FakeTools, places: SearchPlaces, roles: Iterable[Role] | None = None
) -> LlvmToolchain:
    found = find_llvm(places)
    if roles is None:
        return choose_llvm(found, places.llvm, llvm_probe(tools))
    return choose_llvm(found, places.llvm, llvm_probe(tools), roles=tuple(roles))


def usual(root: Path, name: str) -> Path:
    return root / "usr" / "lib" / name


def test_the_usual_places_are_searched_and_the_newest_complete_release_is_chosen(
    tmp_path: Path,
) -> None:
    old, new = install(usual(tmp_path, "llvm-19")), install(usual(tmp_path, "llvm-22"))
    tools = FakeTools({**says(old, "19.1.7"), **says(new, "22.1.8")})
    chosen = choose(tools, SearchPlaces(root=tmp_path))
    assert chosen.prefix == new
    assert chosen.version == ToolVersion(22, 1, 8)
    assert chosen.can_lower
    assert chosen.can(Role.LINK)
    assert chosen.is_complete


def test_finding_starts_no_program_and_choosing_starts_one(tmp_path: Path) -> None:
    prefixes = [install(usual(tmp_path, f"llvm-{major}")) for major in (16, 19, 22)]
    tools = FakeTools({k: v for p in prefixes for k, v in says(p, f"{p.name[5:]}.1.0").items()})
    places = SearchPlaces(root=tmp_path)
    assert len(find_llvm(places)) == 3
    assert tools.asked == []
    choose(tools, places)
    assert tools.asked == [prefixes[2] / "bin" / "clang"]


def test_a_newer_release_that_lacks_a_program_is_passed_over(tmp_path: Path) -> None:
    old = install(usual(tmp_path, "llvm-19"))
    new = install(usual(tmp_path, "llvm-22"), ("clang", "mlir-opt"))
    tools = FakeTools({**says(old, "19.1.7"), **says(new, "22.1.8")})
    assert choose(tools, SearchPlaces(root=tmp_path)).prefix == old


def test_a_versioned_link_on_path_leads_to_the_real_prefix(tmp_path: Path) -> None:
    prefix = install(tmp_path / "somewhere" / "llvm-22")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "mlir-opt-22").symlink_to(prefix / "bin" / "mlir-opt")
    found = find_llvm(SearchPlaces(path=(bin_folder,), root=tmp_path / "empty"))
    assert [(i.prefix, i.expected_major, i.source) for i in found] == [(prefix, 22, "PATH")]


def test_programs_with_a_suffix_of_their_own_are_one_installation_for_each_suffix(
    tmp_path: Path,
) -> None:
    install(tmp_path, suffix="-19")
    install(tmp_path, suffix="-22")
    found = find_llvm(SearchPlaces(path=(tmp_path / "bin",), root=tmp_path / "empty"))
    assert sorted(i.expected_major or 0 for i in found) == [19, 22]
    assert {i.path("clang") for i in found} == {
        tmp_path / "bin" / "clang-19",
        tmp_path / "bin" / "clang-22",
    }


def test_the_plain_name_that_links_to_the_versioned_file_is_the_same_installation(
    tmp_path: Path,
) -> None:
    install(tmp_path, ("mlir-opt", "mlir-translate", "clang-22"))
    (tmp_path / "bin" / "clang").symlink_to("clang-22")
    (found,) = find_llvm(SearchPlaces(path=(tmp_path / "bin",), root=tmp_path / "empty"))
    assert found.path("clang") == tmp_path / "bin" / "clang"
    assert found.path("mlir-opt") is not None


def test_a_link_to_a_compiler_cache_is_not_followed_to_it(tmp_path: Path) -> None:
    install(tmp_path / "usr", ("ccache",))
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "clang").symlink_to(tmp_path / "usr" / "bin" / "ccache")
    (found,) = find_llvm(SearchPlaces(path=(folder,), root=tmp_path / "empty"))
    assert found.path("clang") == folder / "clang"


def test_an_unreadable_or_absent_folder_on_path_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = SearchPlaces(path=(tmp_path / "absent", tmp_path / "file"), root=tmp_path)
    assert find_llvm(places) == ()


def test_a_folder_with_the_name_of_a_program_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "share" / "clang").mkdir(parents=True)
    assert inspect_llvm(tmp_path / "share") is None


@pytest.mark.parametrize(
    "spelling", ["", "bin", "bin/mlir-opt"], ids=["prefix", "bin folder", "program"]
)
def test_a_path_may_be_a_prefix_its_bin_folder_or_a_program(tmp_path: Path, spelling: str) -> None:
    prefix = install(tmp_path / "my llvm 'é'")
    other = install(usual(tmp_path, "llvm-22"))
    places = SearchPlaces(llvm=ToolchainRequest(str(prefix / spelling), "--llvm=x"), root=tmp_path)
    tools = FakeTools({**says(prefix, "19.1.7"), **says(other, "22.1.8")})
    assert choose(tools, places).prefix == prefix


@pytest.mark.parametrize("value", ["19", "19.1", "19.1.7"])
def test_a_release_number_chooses_among_what_is_found(tmp_path: Path, value: str) -> None:
    old, new = install(usual(tmp_path, "llvm-19")), install(usual(tmp_path, "llvm-22"))
    tools = FakeTools({**says(old, "19.1.7"), **says(new, "22.1.8")})
    places = SearchPlaces(llvm=ToolchainRequest(value, f"--llvm={value}"), root=tmp_path)
    assert choose(tools, places).prefix == old
    assert tools.asked == [old / "bin" / "clang"]


def test_the_option_goes_before_the_variable() -> None:
    environment = {"MLIR_OFFLOAD_LLVM": "19", "PATH": "/a::/b"}
    both = search_places(environment, ["", "/site"], llvm="22")
    assert both.llvm == ToolchainRequest("22", "--llvm=22")
    assert both.path == (Path("/a"), Path("/b"))
    assert both.site_packages == (Path("/site"),)
    assert search_places(environment, []).llvm == ToolchainRequest("19", "MLIR_OFFLOAD_LLVM=19")
    assert search_places({}, []).llvm is None


def test_a_folder_whose_name_lies_is_found_out(tmp_path: Path) -> None:
    liar, honest = install(usual(tmp_path, "llvm-99")), install(usual(tmp_path, "llvm-22"))
    tools = FakeTools({**says(liar, "19.1.7"), **says(honest, "22.1.8")})
    assert choose(tools, SearchPlaces(root=tmp_path)).prefix == honest


def test_the_order_of_path_does_not_decide_between_releases(tmp_path: Path) -> None:
    prefixes = [install(tmp_path / f"llvm-{major}") for major in (19, 22)]
    tools = FakeTools({**says(prefixes[0], "19.1.7"), **says(prefixes[1], "22.1.8")})
    path = tuple(prefix / "bin" for prefix in prefixes)
    assert choose(tools, SearchPlaces(path=path, root=tmp_path / "empty")).prefix == prefixes[1]
    assert tools.asked == [prefixes[1] / "bin" / "clang"]


def test_a_release_asked_for_is_found_where_no_name_promises_it(tmp_path: Path) -> None:
    liar = install(usual(tmp_path, "llvm-22"))
    real = install(tmp_path / "usr" / "local")
    tools = FakeTools({**says(liar, "19.1.7"), **says(real, "22.1.8")})
    places = SearchPlaces(llvm=ToolchainRequest("22", "--llvm=22"), root=tmp_path)
    assert choose(tools, places).prefix == real


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("\x00\x01 no release 9.9\n", "printed no version"),
        ("", "printed no version"),
        (-11, "killed by SIGSEGV"),
        (3, "exit status 3"),
        (None, "Exec format error"),
    ],
    ids=["garbage", "silence", "crash", "failure", "no program"],
)
def test_a_broken_program_makes_its_installation_unusable_with_the_reason(
    tmp_path: Path, answer: str | int | None, reason: str
) -> None:
    broken = install(usual(tmp_path, "llvm-22"))
    good = install(usual(tmp_path, "llvm-19"))
    answers = {broken / "bin" / "clang": answer} if answer is not None else {}
    tools = FakeTools({**answers, **says(good, "19.1.7")})
    installation = next(i for i in find_llvm(SearchPlaces(root=tmp_path)) if i.prefix == broken)
    probed = probe_llvm(tools, installation)
    assert isinstance(probed, UnusableLlvm)
    assert reason in probed.reason
    assert choose(tools, SearchPlaces(root=tmp_path)).prefix == good


@pytest.mark.parametrize(
    "said",
    [
        "Apple clang version 22.0.0 (clang-2200.0.1)",
        "Intel(R) oneAPI DPC++/C++ Compiler version 2025.0.4 (2025.0.4.20241205)",
    ],
)
def test_a_fork_with_numbers_of_its_own_is_not_taken_for_a_release(
    tmp_path: Path, said: str
) -> None:
    prefix = install(tmp_path / "usr" / "local")
    tools = FakeTools(dict.fromkeys(says(prefix, ""), f"{said}\n"))
    with pytest.raises(ToolchainError, match="fork"):
        choose(tools, SearchPlaces(root=tmp_path))


@pytest.mark.parametrize(
    ("said", "spelled", "is_measured"),
    [
        ("Debian clang version 22.1.8 (++20261001)", "22.1.8", True),
        ("clang version 19.1.7 (Fedora 19.1.7-1.fc41)", "19.1.7", True),
        ("clang version 24.0.0git (https://github.com/llvm/llvm-project 0123abcd)", "24.0.0git", False),
        ("Ubuntu clang version 22.0.0 (++20251115082030+abc-1~exp1)", "22.0.0", False),
        ("clang version 22.1.0-rc2", "22.1.0-rc2", False),
        ("clang version 20.1.8", "20.1.8", False),
        ("AMD clang version 19.0.0git (https://github.com/RadeonOpenCompute/llvm-project roc-6.4.1)", "19.0.0git", False),
        ("AMD clang version 22.1.8 (CLANG: AOCC_6.0.0-Build#1)", "22.1.8", False),
        ("AMD clang version 22.0.0git (https://github.com/ROCm/llvm-project.git 27682a1636+PATCHED:0) roc-7.1.0", "22.0.0git", False),
        ("clang version 22.1.8 (https://github.com/intel/llvm 2b1c0e4)", "22.1.8", False),
        ("Homebrew clang version 22.1.8", "22.1.8", True),
        ("clang version 22.1.8 (openSUSE)", "22.1.8", True),
        ("clang version 24.0.0git\nTarget: x\nBuild config: +unoptimized, +assertions", "24.0.0git", False),
        ("Android (12345678, based on r522817) clang version 22.1.8", "22.1.8", False),
    ],
)  # fmt: skip
def test_only_a_release_that_the_tables_hold_is_measured(
    *, tmp_path: Path, said: str, spelled: str, is_measured: bool
) -> None:
    prefix = install(tmp_path / "usr" / "local")
    tools = FakeTools(dict.fromkeys(says(prefix, ""), f"{said}\n"))
    llvm = choose(tools, SearchPlaces(root=tmp_path))
    assert (llvm.spelled, llvm.is_measured) == (spelled, is_measured)


def test_programs_of_two_releases_in_one_folder_are_refused(tmp_path: Path) -> None:
    prefix = install(tmp_path / "usr" / "local")
    answers = {**says(prefix, "22.1.8", ["clang"]), **says(prefix, "19.1.7", ["mlir-opt"])}
    with pytest.raises(ToolchainError, match=r"two releases: clang 22\.1\.8, mlir-opt 19\.1\.7"):
        choose(FakeTools(answers), SearchPlaces(root=tmp_path))


def test_what_an_explicit_choice_lacks_is_named_with_the_package(tmp_path: Path) -> None:
    prefix = install(
        usual(tmp_path, "llvm-22"), ("clang", "clang-linker-wrapper", "clang-nvlink-wrapper")
    )
    complete = install(usual(tmp_path, "llvm-19"))
    tools = FakeTools({**says(prefix, "22.1.8"), **says(complete, "19.1.7")})
    places = SearchPlaces(llvm=ToolchainRequest("22", "--llvm=22"), root=tmp_path)
    with pytest.raises(ToolchainError) as caught:
        choose(tools, places)
    assert (
        caught.value.message
        == f"--llvm=22: LLVM 22.1.8 in {prefix} has no mlir-opt and no mlir-translate"
    )
    assert caught.value.hint == "apt install mlir-22-tools"
    assert choose(tools, places, [Role.LINK]).prefix == prefix


def test_an_explicit_choice_that_is_too_old_for_the_role_says_so(tmp_path: Path) -> None:
    prefix = install(usual(tmp_path, "llvm-16"))
    tools = FakeTools(says(prefix, "16.0.6"))
    places = SearchPlaces(llvm=ToolchainRequest("16", "--llvm=16"), root=tmp_path)
    with pytest.raises(CompatibilityError, match="too old to lower: releases from 19 on can"):
        choose(tools, places)
    assert choose(tools, places, [Role.LINK]).version.major == 16


@pytest.mark.parametrize(
    ("requested", "message", "package"),
    [
        (None, "no LLVM installation found", "mlir-22-tools"),
        (
            ToolchainRequest("23", "--llvm=23"),
            "--llvm=23: LLVM 23 is not installed",
            "mlir-23-tools",
        ),
        (
            ToolchainRequest("/no/such", "MLIR_OFFLOAD_LLVM=/no/such"),
            "MLIR_OFFLOAD_LLVM=/no/such: no LLVM",
            "clang-22",
        ),
    ],
    ids=["nothing", "release", "path"],
)
def test_where_nothing_is_found_the_packages_are_named(
    tmp_path: Path, requested: ToolchainRequest | None, message: str, package: str
) -> None:
    with pytest.raises(ToolchainError, match=message) as caught:
        choose(FakeTools({}), SearchPlaces(llvm=requested, root=tmp_path))
    assert package in caught.value.hint


def test_a_missing_tool_is_an_error_that_names_its_package(tmp_path: Path) -> None:
    prefix = install(usual(tmp_path, "llvm-22"))
    toolchain = choose(FakeTools(says(prefix, "22.1.8")), SearchPlaces(root=tmp_path))
    assert toolchain.tool("mlir-opt") == prefix / "bin" / "mlir-opt"
    assert not toolchain.has("opt")
    with pytest.raises(ToolchainError) as caught:
        toolchain.tool("opt")
    assert caught.value.hint == "install it: apt install llvm-22"


def test_a_file_that_may_not_be_started_is_no_tool(tmp_path: Path) -> None:
    prefix = install(usual(tmp_path, "llvm-22"))
    (prefix / "bin" / "mlir-opt").chmod(0o644)
    tools = FakeTools(says(prefix, "22.1.8"))
    toolchain = choose(tools, SearchPlaces(root=tmp_path), [Role.LINK])
    assert not toolchain.can_lower
    with pytest.raises(ToolchainError, match="mlir-opt is not executable"):
        toolchain.tool("mlir-opt")


def test_a_toolchain_can_be_a_key(tmp_path: Path) -> None:
    prefix = install(usual(tmp_path, "llvm-22"))
    tools = FakeTools(says(prefix, "22.1.8"))
    one, two = (choose(tools, SearchPlaces(root=tmp_path)) for _ in range(2))
    assert len({one, two}) == 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["libomptarget.so.22.1"], "libomptarget.so.22.1"),
        (["libomptarget.so.19.1"], None),
        (["libomptarget.so"], "libomptarget.so"),
        (["libomptarget-nvptx.bc"], None),
        ([], None),
    ],
    ids=["versioned", "of another release", "without a version", "device library", "none"],
)
def test_libomptarget_is_that_of_the_release(
    tmp_path: Path, files: list[str], expected: str | None
) -> None:
    prefix = install(usual(tmp_path, "llvm-22"))
    library_folder = prefix / "lib"
    library_folder.mkdir()
    for name in files:
        (library_folder / name).touch()
    toolchain = choose(FakeTools(says(prefix, "22.1.8")), SearchPlaces(root=tmp_path))
    assert toolchain.libomptarget == (library_folder / expected if expected else None)


def test_the_resource_folder_of_clang_tells_the_release_of_a_shared_prefix(tmp_path: Path) -> None:
    prefix = install(tmp_path / "usr" / "local")
    (prefix / "lib" / "clang" / "22").mkdir(parents=True)
    (found,) = find_llvm(SearchPlaces(root=tmp_path))
    assert found.expected_major == 22
    (prefix / "lib" / "clang" / "19").mkdir()
    (found,) = find_llvm(SearchPlaces(root=tmp_path))
    assert found.expected_major is None


def test_the_packages_of_a_release_are_named_once_each() -> None:
    packages = load_llvm_table().packages(22)
    assert set(packages) == {"mlir-22-tools", "clang-22", "clang-tools-22", "llvm-22", "lld-22"}
    assert len(packages) == len(set(packages))
    assert load_llvm_table().libomptarget_package(22) == "liboffload-22"
    assert load_llvm_table().libomptarget_package(19) == "libomp-19-dev"
    assert load_llvm_table().libomptarget_package(15) == ""


def _build_tree(folder: Path, projects: str, tools: Iterable[str]) -> Path:
    prefix = install(folder / "llvm-project" / "build", tools)
    cache = f"CMAKE_BUILD_TYPE:STRING=Release\nLLVM_ENABLE_PROJECTS:STRING={projects}\n"
    (prefix / "CMakeCache.txt").write_text(cache, encoding="utf-8")
    (prefix / "lib" / "clang" / "24").mkdir(parents=True)
    return prefix


def test_a_build_tree_is_an_installation(tmp_path: Path) -> None:
    prefix = _build_tree(tmp_path, "mlir;clang;lld", (*LOWER, *LINK))
    tools = FakeTools(says(prefix, "24.0.0git"))
    requested = ToolchainRequest(str(prefix), "--llvm")
    chosen = choose(tools, SearchPlaces(llvm=requested, root=tmp_path))
    assert (chosen.prefix, chosen.version.major, chosen.is_complete) == (prefix, 24, True)


@pytest.mark.parametrize(
    ("projects", "tools", "lacks", "hint"),
    [
        (
            "mlir",
            LOWER,
            "has no clang and no clang-linker-wrapper",
            'build it: cmake -DLLVM_ENABLE_PROJECTS="mlir;clang" {prefix}, and build again'
            + ELSEWHERE,
        ),
        (
            "clang;lld",
            LINK,
            "has no mlir-opt and no mlir-translate",
            'build it: cmake -DLLVM_ENABLE_PROJECTS="clang;lld;mlir" {prefix}, and build again',
        ),
        (
            "mlir;clang",
            (*LOWER, "clang", "clang-nvlink-wrapper"),
            "has no clang-linker-wrapper",
            "build it: cmake --build {prefix} --target clang-linker-wrapper" + ELSEWHERE,
        ),
    ],
    ids=["mlir only", "no mlir", "not built"],
)
def test_what_a_build_tree_lacks_is_named_with_the_option_that_builds_it(
    tmp_path: Path, projects: str, tools: tuple[str, ...], lacks: str, hint: str
) -> None:
    prefix = _build_tree(tmp_path, projects, tools)
    answers = FakeTools(
        says(prefix, "24.0.0git", [name for name in ("clang", "mlir-opt") if name in tools])
    )
    with pytest.raises(ToolchainError, match=lacks) as caught:
        choose(answers, SearchPlaces(llvm=ToolchainRequest(str(prefix), "--llvm"), root=tmp_path))
    assert caught.value.hint == hint.format(prefix=prefix)


def test_a_prefix_without_clang_tells_how_to_build_it(tmp_path: Path) -> None:
    prefix = install(tmp_path / "opt" / "mlir", LOWER)
    tools = FakeTools(says(prefix, "22.1.8", ["mlir-opt"]))
    with pytest.raises(ToolchainError, match="has no clang") as caught:
        choose(tools, SearchPlaces(llvm=ToolchainRequest(str(prefix), "--llvm"), root=tmp_path))
    assert (
        f'build LLVM 22 with -DLLVM_ENABLE_PROJECTS="clang", and install it into {prefix}'
        in caught.value.hint
    )


@pytest.mark.parametrize(
    "place",
    [
        "opt/homebrew/opt/llvm",
        "home/linuxbrew/.linuxbrew/opt/llvm@22",
        "usr/lib/llvm/22",
        "usr/lib64/llvm22",
    ],
)
def test_other_distributions_are_searched(tmp_path: Path, place: str) -> None:
    prefix = install(tmp_path / place)
    assert choose(FakeTools(says(prefix, "22.1.8")), SearchPlaces(root=tmp_path)).prefix == prefix


def test_a_profile_brings_programs_of_several_packages_together(tmp_path: Path) -> None:
    store = tmp_path / "nix" / "store"
    mlir, clang = install(store / "a-mlir", LOWER), install(store / "b-clang", LINK)
    profile = tmp_path / "profile" / "bin"
    profile.mkdir(parents=True)
    for prefix, names in ((mlir, LOWER), (clang, LINK)):
        for name in names:
            (profile / name).symlink_to(prefix / "bin" / name)
    tools = FakeTools({**says(mlir, "22.1.8", ["mlir-opt"]), **says(clang, "22.1.8", ["clang"])})
    chosen = choose(tools, SearchPlaces(path=(profile,), root=tmp_path / "empty"))
    assert (chosen.prefix, chosen.is_complete) == (profile.parent, True)


def test_a_conda_environment_with_a_suffix_at_clang_alone_is_one_installation(
    tmp_path: Path,
) -> None:
    conda = install(tmp_path / "conda", LOWER)
    install(conda, LINK, suffix="-22")
    tools = FakeTools(
        {**says(conda, "22.1.8", ["mlir-opt"]), **says(conda, "22.1.8", ["clang-22"])}
    )
    places = search_places({"CONDA_PREFIX": str(conda), "PATH": "/nothing"}, ())
    for request in (None, ToolchainRequest(str(conda), "--llvm")):
        chosen = choose(
            tools, SearchPlaces(llvm=request, path=places.path, root=tmp_path / "empty")
        )
        assert chosen.is_complete
        assert chosen.tool("clang") == conda / "bin" / "clang-22"
        assert chosen.tool("mlir-opt") == conda / "bin" / "mlir-opt"


def test_programs_of_two_releases_are_not_filled_up_to_one(tmp_path: Path) -> None:
    conda = install(tmp_path / "conda", LOWER)
    install(conda, LINK, suffix="-22")
    tools = FakeTools(
        {**says(conda, "19.1.7", ["mlir-opt"]), **says(conda, "22.1.8", ["clang-22"])}
    )
    with pytest.raises(ToolchainError, match=r"LLVM 19\.1\.7 in .* has no clang"):
        choose(tools, SearchPlaces(llvm=ToolchainRequest(str(conda), "--llvm"), root=tmp_path))


@pytest.mark.parametrize(
    ("prefix", "is_of_system"),
    [
        ("/usr", True),
        ("/usr/lib/llvm-22", True),
        ("/usr/lib64/llvm22", True),
        ("/usr/lib/llvm/22", True),
        ("/usr/local", False),
        ("/opt/rocm/llvm", False),
        ("/home/me/llvm-project/build", False),
        ("/nix/store/a-llvm-22.1.8", False),
    ],
)
def test_the_library_of_the_system_is_not_that_of_a_static_build_elsewhere(
    *, prefix: str, is_of_system: bool
) -> None:
    directories = load_llvm_table().library_directories_of(Path(prefix))
    assert ("/usr/lib64" in directories) == is_of_system
    assert "lib" in directories


@pytest.mark.parametrize(
    "form",
    ["usr/lib/llvm-*", "usr/*/llvm*", "usr/lib", "usr/none", "usr/none/*", "u[a-s]r/lib/?lvm"],
)
def test_places_are_found_as_a_glob_finds_them(tmp_path: Path, form: str) -> None:
    for name in ("lib/llvm-19", "lib/llvm-22", "lib/llvm", "lib64/llvm22", "share"):
        (tmp_path / "usr" / name).mkdir(parents=True)
    (tmp_path / "usr" / "lib" / "llvm-file").touch()
    assert sorted(paths_like(tmp_path, form)) == sorted(tmp_path.glob(form))
