"""Values of --pipeline=, and the pipeline detected for a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.option.pipeline_file import read_pipeline
from mlir_offload.toolchain.errors import MlirOffloadError, UsageError
from mlir_offload.translate.input_pipeline import (
    InputPipeline,
    detect_pipeline,
    load_pipeline,
    needed_scripts,
    parse_pipeline,
    pipeline_names,
    render_pipeline,
)


@pytest.mark.parametrize(
    ("text", "pipeline"),
    [
        ("linalg", InputPipeline("linalg")),
        ("cse,none", InputPipeline("none", ("cse",))),
        (
            "builtin.module(cse,func.func(a{b=1,2}))",
            InputPipeline("gpu", ("cse", "func.func(a{b=1,2})")),
        ),
    ],
)
def test_a_value_is_a_name_or_passes_with_a_name_behind(text: str, pipeline: InputPipeline) -> None:
    assert parse_pipeline(text) == pipeline


@pytest.mark.parametrize(
    "text", ["", " ", "linalg,cse", "a(b", "a)b(", "func.func(a}{)", "a b", "-x"]
)
def test_what_is_no_list_of_passes_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_pipeline(text)


@pytest.mark.parametrize("major", [19, 22])
@pytest.mark.parametrize("name", pipeline_names())
@pytest.mark.parametrize("has_tensors", [False, True])
def test_no_placeholder_is_left(name: str, major: int, *, has_tensors: bool) -> None:
    named = load_pipeline(name, major)
    text = render_pipeline(InputPipeline(name), named, ["last"], has_tensors=has_tensors)

    assert "$" not in text
    assert text.endswith("last)") is not named.is_final
    assert ("one-shot-bufferize" in text) is (has_tensors and name == "linalg")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"func.func @f(%a: tensor<4xf32>)", "linalg"),
        (b"// tensor<4xf32>\nfunc.func @f()", "gpu"),
        (b"gpu.launch ... tensor<4xf32>", "gpu"),
        (b"linalg.add ins(%a : memref<4xf32>)", "gpu"),
    ],
)
def test_only_tensors_without_gpu_code_choose_a_pipeline(content: bytes, name: str) -> None:
    assert detect_pipeline(content) == name


@pytest.mark.parametrize(
    "text",
    [
        "[a]",
        "passes: cse",
        "passes: ['(']",
        "then: no",
        "then: [gpu]",
        "more: 1",
        "plugins: [x.so]",
        "a: [",
        "&a [*a]",
    ],
)
def test_a_file_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(MlirOffloadError):
        read_pipeline(str(file))


CONTRACT = b"""%r = vector.contract {kind = #vector.kind<add>} %x, %y, %z
    : vector<4x4xf16>, vector<4x4xf16> into """


@pytest.mark.parametrize(
    ("content", "name", "major", "scripts"),
    [
        (b"%s = linalg.softmax dimension(1)", "linalg", 19, ("__mo_decompose_softmax",)),
        (b"%s = linalg.softmax dimension(1)", "gpu", 22, ()),
        (b"// linalg.softmax", "linalg", 22, ()),
        (CONTRACT + b"vector<4x4xf32>", "gpu", 22, ("__mo_lower_mixed_contract",)),
        (CONTRACT + b"f32", "linalg", 19, ("__mo_lower_mixed_contract",)),
        (CONTRACT + b"vector<4x4xf16>", "linalg", 22, ()),
        (CONTRACT + b"f16", "linalg", 22, ()),
        (b"scf.reduce(%f : f32) {", "linalg", 22, ("__mo_keep_reductions_on_host",)),
        (b"scf.reduce(%f : f32) {", "linalg", 19, ()),
        (b"scf.reduce(%f : f32) { gpu.launch", "linalg", 22, ()),
        (b"scf.reduce\n}", "linalg", 22, ()),
    ],
)
def test_scripts_run_for_what_no_pass_lowers(
    content: bytes, name: str, major: int, scripts: tuple[str, ...]
) -> None:
    found = needed_scripts(content, name, major)
    assert tuple(script.entry for script in found) == scripts
