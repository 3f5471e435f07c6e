from __future__ import annotations

import pytest

from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.translate.kind.cuda import with_file_times
from mlir_offload.translate.prefix_map import (
    PrefixMap,
    map_locations,
    map_path,
    parse_prefix_map,
    unmap_location,
)

HOME = PrefixMap("/home/ada", "/src")


@pytest.mark.parametrize(
    ("maps", "path", "mapped"),
    [
        ([HOME], "/home/ada/k.mlir", "/src/k.mlir"),
        ([HOME], "/home/adam/k.mlir", "/srcm/k.mlir"),
        ([HOME], "k.mlir", "k.mlir"),
        ([PrefixMap("/a/", "")], "/a/k.mlir", "k.mlir"),
        ([PrefixMap("/a", "1"), PrefixMap("/a/b", "2")], "/a/b/k", "2/k"),
        ([PrefixMap("/a/b", "2"), PrefixMap("/a", "1")], "/a/b/k", "1/b/k"),
        ([PrefixMap("", "/src/")], "k.mlir", "/src/k.mlir"),
    ],
)
def test_the_last_map_that_fits_replaces_the_beginning_as_in_clang(
    maps: list[PrefixMap], path: str, mapped: str
) -> None:
    assert map_path(path, maps) == mapped


def test_the_option_is_for_mlir_and_for_clang() -> None:
    options = parse_arguments(["-ffile-prefix-map=/a=b=c", "-fdebug-prefix-map=/d=", "k.mlir"])
    assert options.prefix_maps == (PrefixMap("/a", "b=c"), PrefixMap("/d", ""))
    assert options.compiler_arguments == ("-ffile-prefix-map=/a=b=c", "-fdebug-prefix-map=/d=")
    with pytest.raises(UsageError, match="not of the form OLD=NEW"):
        parse_prefix_map("/a", "-ffile-prefix-map")


@pytest.mark.parametrize(
    ("text", "mapped"),
    [
        ('#loc1 = loc("/home/ada/k.mlir":1:2)', '#loc1 = loc("/src/k.mlir":1:2)'),
        ('#l = loc("/home/ada/k.mlir":1:2 to 3:4)', '#l = loc("/src/k.mlir":1:2 to 3:4)'),
        (
            'loc(fused["/home/ada/a":1:2, callsite("n"("/home/ada/b":3:4) at "/home/ada/c":5:6)])',
            'loc(fused["/src/a":1:2, callsite("n"("/src/b":3:4) at "/src/c":5:6)])',
        ),
        (r'loc("/home/ada/\C3\A9\22.mlir":1:2)', r'loc("/src/\C3\A9\22.mlir":1:2)'),
        (r'loc("/home/ada/\FF.mlir":1:2)', None),
        ('value = "/home/ada/k.mlir"', 'value = "/home/ada/k.mlir"'),
        ('loc("/home/ada/name"(#loc1))', 'loc("/home/ada/name"(#loc1))'),
        (
            '#llvm.di_file<"k.mlir" in "/home/ada">',
            '#llvm.di_file<"k.mlir" in "/src">',
        ),
        (r'x = "ends in loc(", y = ":1 \FF"', r'x = "ends in loc(", y = ":1 \FF"'),
    ],
    ids=str,
)
def test_file_names_are_mapped_where_a_program_has_them(text: str, mapped: str | None) -> None:
    got = map_locations(text, [HOME])
    assert got == mapped if mapped is not None else got.startswith('loc("/src/')
    assert map_locations(text, []) == text
    assert map_locations(text, [PrefixMap("/elsewhere", "/src")]) == text


def test_an_error_is_placed_in_the_file_of_the_user() -> None:
    sources = ["/home/ada/k.mlir", "/home/ada/k.mlir.mlir"]
    assert unmap_location("/src/k.mlir:1:2", sources, [HOME]) == "/home/ada/k.mlir:1:2"
    assert unmap_location("/src/k.mlir.mlir", sources, [HOME]) == "/home/ada/k.mlir.mlir"
    assert unmap_location("/src/other.mlir:1", sources, [HOME]) == "/src/other.mlir:1"


@pytest.mark.parametrize(("seconds", "written"), [(0, 1), (1, 1), (253402300799, 253402300799)])
def test_ptx_tells_the_time_of_files_so_that_nobody_looks(seconds: int, written: int) -> None:
    ptx = '\t.file\t1 "k \\"x.mlir"\n.file 2 "b", 7, 8\n// .file 3 "c"\n.loc 1 2 3\n'
    assert with_file_times(ptx, seconds) == ptx.replace('mlir"', f'mlir", {written}, 1')
