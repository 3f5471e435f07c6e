"""Assumptions about a release whose tools were never probed, and the note about them."""

from __future__ import annotations

from mlir_offload.offload.unmeasured import unmeasured_lists, unmeasured_note


def test_all_parts_of_a_release_that_was_asked_are_measured() -> None:
    for major in (15, 16, 17, 18, 19, 21, 22, 23):
        assert unmeasured_lists(major) == ()
        assert unmeasured_note(major) == ""


def test_of_a_release_whose_compiler_alone_was_asked_the_inferred_parts_are_named() -> None:
    assert "linked_images.nvptx" in unmeasured_lists(20)
    assert "entries" not in unmeasured_lists(20)
    assert unmeasured_note(20).startswith(
        "LLVM 20 is not installed here, and of its offloading ABI"
    )
    assert unmeasured_note(20).endswith("linked_images.nvptx and more")
