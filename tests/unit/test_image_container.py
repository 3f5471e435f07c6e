from __future__ import annotations

from pathlib import Path

import pytest
from support.hostile import survives, truncations

from mlir_offload.driver.step.image_container import (
    StepImage,
    image_libraries,
    unpack_image,
    write_image,
)
from mlir_offload.offload.container.binary import read_binary
from mlir_offload.offload.ir_syntax import kernel_signatures, render_kernel_heads
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.target import parse_offload_arch

IMAGE = b"BC\xc0\xde an image"
SIGNATURES = {
    "plain": ("ptr", "i64", "float"),
    "by value": ("ptr byval({ i32, [2 x float] }) align 8", "<4 x i32>"),
    "none": (),
}


@pytest.fixture
def container(tmp_path: Path) -> Path:
    output = tmp_path / "k.offload"
    image = StepImage(memory_view(IMAGE), render_kernel_heads(SIGNATURES), ("libdevice.10.bc",))
    write_image(image, parse_offload_arch("sm_90"), 22, output)
    return output


def test_an_image_and_its_kernels_come_out_as_they_went_in(container: Path, tmp_path: Path) -> None:
    unpack_image(container, tmp_path / "k.bc", tmp_path / "k.ll")

    assert (tmp_path / "k.bc").read_bytes() == IMAGE
    assert kernel_signatures((tmp_path / "k.ll").read_text()) == SIGNATURES
    assert image_libraries(container) == ("libdevice.10.bc",)


def test_it_is_an_offload_binary(container: Path) -> None:
    (image,) = read_binary(memory_view(container.read_bytes()))

    assert (image.kind, image.arch, image.data) == ("cuda", "sm_90", IMAGE)


def test_what_is_cut_off_or_is_another_container_is_refused(
    container: Path, tmp_path: Path
) -> None:
    content = container.read_bytes()
    damaged = tmp_path / "damaged"

    def read(data: bytes) -> None:
        damaged.write_bytes(data)
        unpack_image(damaged, tmp_path / "k.bc", tmp_path / "k.ll")

    # The last bytes are padding.
    assert survives(read, truncations(content)) > len(content) - 16
    with pytest.raises(VerificationError, match="no image of one step"):
        read(content + content)
    with pytest.raises(VerificationError, match="no image of one step"):
        read(content.replace(b"mlir-offload-kernels", b"mlir-offload-nothing"))
