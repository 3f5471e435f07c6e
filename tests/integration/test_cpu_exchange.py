"""Loads and stores in which the lanes of a strip permute adjacent elements, as in `a[thread ^ distance]`."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
from support.cpu_build import Build, Program

from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.translate.cpu.module import cpu_device_ir

RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.fixture(scope="module", params=RELEASES)
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    return Build(request.param, tmp_path_factory.mktemp(f"exchange{request.param}"))


@pytest.fixture(scope="module")
def collapsed(build: Build) -> tuple[Program, str, Path]:
    """The kernels, their LLVM IR, and their image for a processor with AVX-512."""
    text, symbols = build.lower(build.input("cpu_exchange.mlir"))
    source = cpu_device_ir(text, kernels=tuple(symbols.values()), for_collapse=True)
    done = build.finish(source, "exchange")
    image = build.image(done, "v4", 2, march="x86-64-v4")
    return Program(build.load(build.image(done, "own", 2)), symbols, {}), done.text, image


def test_permutations_take_the_place_of_gathers(
    build: Build, collapsed: tuple[Program, str, Path]
) -> None:
    program, _, image = collapsed
    for kernel in ("order", "mirror"):
        listing = _listing(build, image, f"{program.symbols[kernel]}.run")
        assert re.search(r"\bvperm[dq]\b", listing), kernel
        assert "gather" not in listing, kernel
        assert "scatter" not in listing, kernel


def _listing(build: Build, image: Path, function: str) -> str:
    objdump = str(build.llvm.prefix / "bin" / "llvm-objdump")
    command = (objdump, "-d", f"--disassemble-symbols={function}", str(image))
    return run_checked(ProcessRunner(), Command(command)).stdout


def test_straight_code_has_one_mask(collapsed: tuple[Program, str, Path]) -> None:
    """A load, an exchange and a comparison follow each other for the lanes of the branch, without a test of the mask."""
    program, text, _ = collapsed
    name = program.symbols["order"]
    (body,) = re.findall(rf"^define .*@{re.escape(name)}\.run\((?s:.*?)^}}", text, re.MULTILINE)
    assert len(re.findall(r"^masked\d+\.run\d*:", body, re.MULTILINE)) == 2


@pytest.mark.parametrize("size", [32, 64, 256])
@pytest.mark.parametrize("distance", [1, 2, 3, 8, 16, 21, 31])
def test_pairs_are_ordered(collapsed: tuple[Program, str, Path], size: int, distance: int) -> None:
    _order(collapsed[0], size, distance)


@pytest.mark.parametrize("distance", [32, 37, 64, 128, 255])
def test_pairs_of_two_strips_are_ordered(
    collapsed: tuple[Program, str, Path], distance: int
) -> None:
    _order(collapsed[0], 256, distance)


def test_pairs_are_ordered_in_a_block_that_is_not_made_of_strips(
    collapsed: tuple[Program, str, Path],
) -> None:
    _order(collapsed[0], 40, 4)


def _order(program: Program, size: int, distance: int) -> None:
    values = [(37 * n + 11) % 101 - 50 for n in range(size)]
    data = (ctypes.c_int32 * size)(*values)
    program.launch("order", (1, 1, 1), (size, 1, 1), [data, ctypes.c_int32(distance)])
    pairs = {n: sorted((values[n], values[n ^ distance])) for n in range(size)}
    assert list(data) == [pairs[n][n > n ^ distance] for n in range(size)]


@pytest.mark.parametrize("size", [32, 64, 48])
@pytest.mark.parametrize("distance", [0, 1, 6, 16])
def test_an_index_contains_distances_and_an_offset(
    collapsed: tuple[Program, str, Path], size: int, distance: int
) -> None:
    count, offset = 2 * size, 5
    given = (ctypes.c_int64 * (count + offset))(*(2**40 + 7 * n for n in range(count + offset)))
    found = (ctypes.c_int64 * count)()
    arguments = [given, found, ctypes.c_int64(distance), ctypes.c_int64(offset)]
    collapsed[0].launch("mirror", (2, 1, 1), (size, 1, 1), arguments)
    assert list(found) == [given[(n ^ distance) + offset] for n in range(count)]
