"""The page of `inspect --html` in a real browser: its map, its tables, and names that are attacks."""

from __future__ import annotations

import json
import re
import struct
import zlib
from html import escape, unescape
from pathlib import Path

import pytest
from support.browser import browse, console, needs_browser

from mlir_offload.driver.inspect.html import render_html
from mlir_offload.offload.container.contents import (
    Container,
    Entry,
    Image,
    Part,
    Problem,
    ProblemKind,
)
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter

ATTACK = "<script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">"
MEASURE = """<script>
const seen = [...document.querySelectorAll("#map .b")].map((node) => {
  const box = node.getBoundingClientRect();
  return [node.title.split("\\n")[0], box.width * box.height];
});
const map = document.getElementById("map").getBoundingClientRect();
const rows = () => [...document.querySelectorAll("table")[1].tBodies[0].rows].map((row) => row.cells[0].textContent);
const before = rows();
document.querySelectorAll("table")[1].tHead.rows[0].cells[0].firstChild.click();
const after = rows();
document.querySelector("#map .leaf.h0").click();
const zoomed = document.querySelector("#map .image.h0").getBoundingClientRect();
document.body.dataset.seen = JSON.stringify({
  seen, map: map.width * map.height, before, after, zoomed: zoomed.width * zoomed.height,
  wide: document.documentElement.scrollWidth, inner: window.innerWidth,
});
</script>"""

pytestmark = needs_browser


def page(kernels: int = 3) -> str:
    def image(index: int, arch: str, size: int) -> Image:
        code = DeviceCode(
            "cubin",
            "ptxas",
            kernels=tuple(
                DeviceKernel(
                    ATTACK if not n else f"kernel_{kernels - n}",
                    (KernelParameter(0, 8, "ptr", "x" if n else ATTACK),),
                    max_threads=256,
                    registers=n,
                    code_bytes=size // kernels // 2,
                )
                for n in range(kernels)
            ),
        )
        container = Container("fat binary", 1, 0, size)
        return Image(
            index, "cubin", size, offset=64, container=container, kind="cuda", arch=arch, code=code
        )

    images = (image(0, "sm_80", 600_000), image(1, "sm_90", 300_000))
    entry = Entry("cuda", ATTACK, "kernel", 0, (), "llvm_offload_entries", 9, 21, 23)
    problem = Problem(ProblemKind.DAMAGED, ATTACK, ATTACK)
    part = Part(
        ATTACK,
        "ELF executable, x86-64",
        1_000_000,
        images=images,
        entries=(entry,),
        problems=(problem,),
    )
    return render_html([part])


def pixels(png: bytes) -> tuple[int, int, set[bytes]]:
    """Return width, height and the different pixels of a picture of 8 bits a channel."""
    width, height, depth, colours = struct.unpack(">IIBB", png[16:26])
    assert (depth, colours) in {(8, 2), (8, 6)}
    channels = 3 if colours == 2 else 4
    data, offset = b"", 8
    while offset < len(png):
        size, kind = struct.unpack(">I4s", png[offset : offset + 8])
        data += png[offset + 8 : offset + 8 + size] if kind == b"IDAT" else b""
        offset += size + 12
    raw = zlib.decompress(data)
    stride = width * channels + 1
    previous = bytearray(stride - 1)
    found: set[bytes] = set()
    for row in range(height):
        line = raw[row * stride : (row + 1) * stride]
        current = unfiltered(line[0], line[1:], previous, channels)
        found.update(bytes(current[x : x + 3]) for x in range(0, len(current), channels * 7))
        previous = current
    return width, height, found


def unfiltered(kind: int, line: bytes, above: bytearray, step: int) -> bytearray:
    current = bytearray(line)
    if kind == 2:
        return bytearray((x + up) & 0xFF for x, up in zip(line, above, strict=True))
    if kind == 1:
        for x in range(step, len(current)):
            current[x] = (current[x] + current[x - step]) & 0xFF
    if kind in {3, 4}:
        guess = half if kind == 3 else paeth
        for x, up in enumerate(above):
            left, corner = (current[x - step], above[x - step]) if x >= step else (0, 0)
            current[x] = (current[x] + guess(left, up, corner)) & 0xFF
    return current


def half(left: int, up: int, _corner: int) -> int:
    return (left + up) // 2


def paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


def test_the_boxes_have_the_areas_of_the_bytes_and_the_page_works(tmp_path: Path) -> None:
    # The page's policy lets no other script run: this copy goes without.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page())
    done = browse(
        text.replace("</body>", MEASURE + "</body>"),
        tmp_path,
        "--dump-dom",
        "--window-size=1280,900",
    )
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    said = json.loads(unescape(found[1]))
    areas: dict[str, list[float]] = {}
    for label, area in said["seen"]:
        areas.setdefault(label, []).append(area / said["map"])
    assert areas["cuda sm_80"] == [pytest.approx(0.6, rel=0.01)]
    assert areas["cuda sm_90"] == [pytest.approx(0.3, rel=0.01)]
    assert areas["host code, data, headers"] == [pytest.approx(0.1, rel=0.01)]
    assert sorted(areas["kernel_1"]) == [
        pytest.approx(0.05, rel=0.02),
        pytest.approx(0.1, rel=0.02),
    ]
    assert said["before"] != said["after"]
    assert said["after"] == sorted(said["before"], key=str.casefold)
    assert said["zoomed"] == pytest.approx(said["map"], rel=0.01)
    assert console(done) == []


@pytest.mark.parametrize("size", ["800,700", "390,700"], ids=["desk", "phone"])
def test_the_page_as_it_is_shows_colours_and_no_error(size: str, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    done = browse(page(), tmp_path, f"--screenshot={picture}", f"--window-size={size}")
    assert console(done) == []
    width, height, found = pixels(picture.read_bytes())
    assert f"{width},{height}" == size
    # Paper, ink, and the hues of two architectures: blue where blue leads, green where green does.
    hues = {
        max(range(3), key=colour.__getitem__) for colour in found if max(colour) - min(colour) > 40
    }
    assert {1, 2} <= hues
    assert len(found) > 20


def test_names_that_are_attacks_stay_text(tmp_path: Path) -> None:
    text = page()
    assert ATTACK not in text
    assert text.count("<script") == 1
    done = browse(text, tmp_path, "--dump-dom")
    assert "<title>owned" not in done.stdout
    assert "<img" not in done.stdout
    assert console(done) == []


def test_the_page_needs_nothing_but_itself() -> None:
    text = page().replace(escape(ATTACK), "")
    assert re.findall(r'<[^>]*\b(?:src|href)="?([^" >]*)', text) == ["data:,"]
    assert re.findall(r"@import|url\(", text) == []
    assert "default-src 'none'" in text


def test_three_thousand_kernels_for_two_gpus_are_shown_in_a_page_under_a_megabyte(
    tmp_path: Path,
) -> None:
    text = page(3000)
    assert len(text) < 1_000_000
    done = browse(text, tmp_path, "--dump-dom")
    # One row for each kernel, however many images have it; boxes for the largest ones.
    assert 3000 < done.stdout.count("<tr>") < 3100
    assert ">kernel_2999<" in done.stdout
    assert ">2500 smaller kernels<" in done.stdout
    assert console(done) == []
