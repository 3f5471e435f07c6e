"""A test follows each hint that a link can print."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "offload" / "link", ROOT / "driver" / "link")
# These package images, or change options of a tool; no link uses them.
OTHERS = frozenset({"dropped_image.py", "fatbinary_adapter.py"})
# A part of each hint, and the test that follows it.
EXECUTED = {
    "compile it again with LLVM ": "test_an_object_is_compiled_again_or_linked_with_its_own_release",
    "make it with LLVM 19 or newer": "test_a_half_linked_object_is_made_with_a_newer_release",
    "link these objects to one": "test_objects_with_kernels_of_one_name_are_linked_to_one",
    "link it again with mlir-offload": "test_a_shared_library_is_linked_again",
    "compile all that is in it": "test_a_linked_file_is_made_of_parts_for_the_same_architectures",
    "name the object that has the device code too": "test_the_object_with_the_device_code_is_named",
    "compile all objects with the same -march=": "test_objects_for_the_cpu_are_compiled_for_one",
    "compile all objects with --for-clang=": "test_objects_for_the_cpu_are_compiled_for_one",
    " once": "test_an_object_is_named_once",
    " too": "test_an_object_is_compiled_for_the_other_architecture_too",
    "with --device-code=object, as": "test_an_object_in_bitcode_is_compiled_to_the_form_of_the_others",
    "its image for ": "test_an_object_whose_image_lost_its_kernel_is_compiled_again",
    "name the object that defines the kernel on the link line": "test_the_object_that_defines_a_kernel",
    "its --device-lib=": "test_kernels_call_functions_of_other_files_and_of_libraries",
    "or make it private": "test_one_of_two_kernels_of_one_name_is_renamed",
    "rename the kernel": "test_a_kernel_is_not_called_for_a_c_function_of_another_file",
    "rename one of the kernels": "test_one_of_two_kernels_of_one_name_is_renamed",
    "compile both files with the same --offload-arch=": "test_kernels_of_one_name_are_compiled_for",
    "or define in this file all that": "test_an_object_that_cannot_be_linked_apart_is_named",
    "pass only integers, float, double and pointers": "test_a_declared_kernel_that_no_file_defines",
    "rename these where other files call": "test_where_cpp_launches_a_kernel_of_such_a_file",
    "with -mcode-object-version=": "test_a_line_is_linked_to_a_program_that_does_what_its_parts_do",
    "defines it as a public func.func": "test_a_device_function_is_called_from_mlir_and_from_cuda",
    "has to be declared 'convergent'": "test_on_the_cpu_a_function_elsewhere_may_wait",
    "link with mlir-offload, or leave ": "test_a_linked_object_for_spirv_is_refused",
    "name the objects that the library is made of": "test_an_older_release_links_objects_to_one",
    "compile it with -ffat-lto-objects": "test_an_object_of_gccs_lto_is_compiled_with_machine_code",
    "libclang-rt-": "test_the_package_that_the_hint_names_has_the_library",
    "compile the file that defines it again": "test_an_image_is_packaged_and_takes_its_arguments_as",
    "llvm.emit_c_interface": "test_a_function_that_a_library_has_only_for_the_c_interface_is_said_to_be_there",
    "leave out --gc-sections": "test_clangs_openmp_object_links_and_runs_beside_mlir",
    "--icf=safe": "test_stubs_that_the_linker_folded_are_an_error",
    "name its folder with -L": "test_a_library_is_found_by_what_objects_leave_undefined",
}


def _hints() -> Iterator[tuple[str, str]]:
    """Yield each text in the code of a link that is a hint, with its file."""
    for path in sorted(path for folder in FOLDERS for path in folder.glob("*.py")):
        if path.name not in OTHERS:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                for value in _values(node):
                    text = _text(value)
                    if text:
                        yield path.name, text


def _values(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        yield from (word.value for word in node.keywords if word.arg == "hint")
        if isinstance(node.func, ast.Name) and node.func.id == "Finding":
            yield from node.args[2:3]
    elif isinstance(node, ast.Assign):
        names = [ast.unparse(target) for target in node.targets]
        if any(name.endswith(("hint", "_HINT")) for name in names):
            yield node.value
    elif isinstance(node, ast.FunctionDef) and node.name in {"_hint", "compile_too"}:
        returns = (one for one in ast.walk(node) if isinstance(one, ast.Return))
        yield from (one.value for one in returns if one.value is not None)


def _text(value: ast.expr) -> str:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(str(one.value) for one in value.values if isinstance(one, ast.Constant))
    return ""


def test_every_hint_of_a_link_has_a_test_that_carries_it_out() -> None:
    found = list(_hints())
    assert len(found) > 20
    unknown = [(name, text) for name, text in found if not any(key in text for key in EXECUTED)]
    assert unknown == []


@pytest.mark.parametrize("piece", EXECUTED)
def test_the_test_of_a_hint_is_there(piece: str) -> None:
    name = EXECUTED[piece]
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/test_*.py"))
    assert any(f"def {name}" in text for text in texts)
