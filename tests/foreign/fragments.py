"""Compare the matrix fragments that the tests expect with the layouts in CUTLASS.

It covers mma.sync, the accumulators of wgmma, and ldmatrix. The headers of CUTLASS are downloaded from PyPI
into a cache. Exit status 1 if an element is at another position.

usage: python tests/foreign/fragments.py
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from foreign.cute import Layout, read_aliases, read_traits  # noqa: E402
from foreign.source_package import default_cache  # noqa: E402
from foreign.wheel import download_wheel  # noqa: E402
from support.tensor_fragments import FORMS, Mma, accumulator, matrix_place, places  # noqa: E402

_PACKAGE = "nvidia-cutlass==3.5.1.0"
_HEADERS = "include/cute/atom/"
_NAME = re.compile(r"SM\d+_(\d+)x(\d+)x(\d+)_([A-Z\d]+)_([TN]{2})")
# CUTLASS has no traits for 4-bit types, and those for 1-bit types assign only rows 0 and 8 to lanes.
_TYPE = re.compile(r"BF16|TF32|F16|F32|F64|S32|S8|U8")
_LAYOUTS = ("ALayout", "BLayout", "CLayout")
_WARPS = 4


def main() -> int:
    """Return the exit status."""
    headers = _fetch_headers(default_cache())
    traits = {name: one for text in headers.values() for name, one in read_traits(text).items()}
    checked = list(_check_products(traits))
    checked += _check_accumulators(headers["mma_traits_sm90_gmma.hpp"])
    checked += _check_moves(traits)
    for name, wrong in checked:
        print(f"{name}: {wrong or 'same'}")  # noqa: T201
    wrong_ones = sum(bool(wrong) for _, wrong in checked)
    print(f"{len(checked)} layouts, {wrong_ones} different")  # noqa: T201
    return 1 if wrong_ones else 0


def _fetch_headers(cache: Path) -> Mapping[str, str]:
    """Return the headers with layouts by name."""
    folder = cache / "cutlass"
    if not list(folder.glob("*.whl")):
        download_wheel(_PACKAGE, folder)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {
            Path(name).name: archive.read(name).decode()
            for name in archive.namelist()
            if _HEADERS in name and "_traits" in name
        }


def _check_products(traits: Mapping[str, Mapping[str, Layout]]) -> Iterator[tuple[str, str]]:
    for name, layouts in traits.items():
        match = _NAME.fullmatch(name)
        if match is None or len(set(_LAYOUTS) & layouts.keys()) < len(_LAYOUTS):
            continue
        form = next((one for one in FORMS if _is_form(one, match)), None)
        if form is not None:
            yield f"{name} ({form.name})", _difference(form, layouts)


def _is_form(form: Mma, match: re.Match[str]) -> bool:
    """Return whether it is the same operation; types of the same size have the same layout."""
    types = [name.lower().replace("u", "s") for name in _TYPE.findall(match[4])]
    operands = tuple(name.replace("u", "s") for name in form.elements)
    order = f"{'row' if match[5][0] == 'T' else 'col'}.{'col' if match[5][1] == 'N' else 'row'}"
    return (
        form.shape == tuple(int(match[axis]) for axis in (1, 2, 3))
        and [operands[3], *operands[:3]] == types
        and order in form.name
    )


def _difference(form: Mma, layouts: Mapping[str, Layout]) -> str:
    m, n, _ = form.shape
    for operand, (name, rows) in enumerate(zip(_LAYOUTS, (m, n, m), strict=True)):
        layout = layouts[name]
        threads, values = layout.sizes
        lanes = layouts["ThrID"] if form.groups > 1 else None
        for thread in range(threads):
            lane = lanes.index(thread % 4, thread // 4) if lanes else thread
            own = [place for _, place in places(form, operand, lane)]
            for value in range(values):
                row, column = own[value]
                major, minor = (column, row) if name == "BLayout" else (row, column)
                if major + rows * minor != layout.index(thread, value):
                    return f"element {value} of lane {lane} of {name[0].lower()}"
    return ""


def _check_accumulators(header: str) -> Iterator[tuple[str, str]]:
    """Each of four warps has 16 rows, in the layout of mma.sync for every 8 columns."""
    for name, layout in read_aliases(header, r"CLayout_64x\d+").items():
        wrong = ""
        for thread in range(32 * _WARPS):
            warp, lane = divmod(thread, 32)
            for value in range(layout.sizes[1]):
                row, column = accumulator(lane // 4, lane % 4, value % 4)
                index = row + 16 * warp + 64 * (column + 8 * (value // 4))
                if layout.index(thread, value) != index:
                    wrong = wrong or f"element {value} of thread {thread}"
        yield f"wgmma m64n{name.partition('x')[2]}", wrong


def _check_moves(traits: Mapping[str, Mapping[str, Layout]]) -> Iterator[tuple[str, str]]:
    """A row of 8 16-bit elements has 128 bits, a matrix 1024."""
    for name, layouts in traits.items():
        match = re.fullmatch(r"SM75_U(?:32|16)x(\d)_LDSM_([NT])", name)
        if match is None:
            continue
        is_transposed = match[2] == "T"
        count = int(match[1]) // (2 if is_transposed else 1)
        wrong = ""
        for lane in range(32):
            for bit in range(32 * count):
                matrix, element = bit // 32, bit % 32 // 16
                row, column = matrix_place(lane, element, is_transposed=is_transposed)
                index = 1024 * matrix + 128 * row + 16 * column + bit % 16
                if layouts["DstLayout"].index(lane, bit) != index:
                    wrong = wrong or f"bit {bit} of lane {lane}"
        yield f"ldmatrix x{count}{'.trans' if is_transposed else ''}", wrong


if __name__ == "__main__":
    sys.exit(main())
