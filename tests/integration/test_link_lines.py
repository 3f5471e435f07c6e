"""Link lines with objects of clang and of the driver, by both: what clang links rightly, the driver does.

`tests/foreign/links.py` tries many; these are some that were wrong once, or are of each kind and release.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.link_inputs import CUDA
from support.link_lines import DEVICE_LIBRARIES, make_lines

OBJECT, LIBRARY, THIN = "{}", "lib{}.a", "libthin{}.a"
WHOLE = "-Wl,--whole-archive lib{}.a -Wl,--no-whole-archive"
LINES = {
    (16, "cuda"): [[(15, LIBRARY), (11, OBJECT)]],
    (19, "host"): [[(91, LIBRARY), (3, OBJECT), (4, THIN)]],
    (22, "hip"): [[(13, WHOLE), (16, WHOLE)]],
}


@pytest.mark.skipif(not CUDA.exists(), reason="CUDA 13.0 is not installed")
@pytest.mark.skipif(not DEVICE_LIBRARIES.is_dir(), reason="no rocm-device-libs")
@pytest.mark.parametrize(
    ("major", "kind"), [pytest.param(*key, marks=pytest.mark.llvm(key[0])) for key in LINES]
)
def test_a_line_is_linked_to_a_program_that_does_what_its_parts_do(
    major: int, kind: str, tmp_path: Path, mlir_offload: list[str]
) -> None:
    numbers = {number for line in LINES[major, kind] for number, _ in line}
    made = make_lines(
        major, kind, tmp_path, has_openmp=91 in numbers, only=numbers, driver=mlir_offload
    )
    for line in LINES[major, kind]:
        outcome = made.outcome(line)
        assert outcome.ours == "", outcome
