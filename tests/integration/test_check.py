"""`check`, `explain`, and the guard of the compiler, with the real tools."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.bitcode_corpus import assemble, tool
from support.sarif import SARIF_SUBSET
from support.skew_cases import CASES, NVPTX, function

from mlir_offload.driver import cli
from mlir_offload.driver.message.json import schema_text
from mlir_offload.toolchain.skew.rule import load_rules

pytestmark = [pytest.mark.llvm(16), pytest.mark.llvm(22)]

LAYOUT = 'target datalayout = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"\n'
KERNEL = """\
module attributes {gpu.container_module} {
  gpu.module @m {
    gpu.func @k(%n: i32, %p: !llvm.ptr) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
      gpu.barrier
      llvm.store %n, %p : i32, !llvm.ptr
      gpu.return
    }
  }
}
"""


@dataclass(frozen=True)
class Said:
    stdout: str
    stderr: str


Run = Callable[..., Said]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return the command line, called in this process: most of what is tested is quick."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, status: int) -> Said:
        result = cli._guarded((*arguments, "--no-config"))
        said = Said(*capfd.readouterr())
        assert result == status, said.stderr
        return said

    return call


def json_of(stderr: str) -> list[dict[str, Any]]:
    schema = json.loads(schema_text())
    messages = [json.loads(line) for line in stderr.splitlines()]
    for message in messages:
        jsonschema.validate(message, schema)
    return messages


def write_bitcode(folder: Path, case: str, name: str = "k.bc") -> None:
    (folder / name).write_bytes(assemble(22, CASES[case].text))


def test_all_findings_of_all_files_are_said_and_give_the_status(run: Run, tmp_path: Path) -> None:
    write_bitcode(tmp_path, "getelementptr nuw", "a.bc")
    write_bitcode(tmp_path, "getelementptr constant", "b.bc")
    said = run("check", "--for-clang=16", "a.bc", "b.bc", status=4).stderr
    assert said.splitlines() == [
        "a.bc: error: 'f': a getelementptr has nuw or nusw without inbounds; LLVM 16 reads inbounds, which promises more [BC020]",
        "  hint: hand over text in place of bitcode, or name the linking LLVM with --for-clang=",
        "b.bc: error: a constant (getelementptr, record 32) is undef to LLVM 16, which says nothing of it [BC012]",
        "  hint: hand over text in place of bitcode, or name the linking LLVM with --for-clang=",
    ]
    assert run("check", "--llvm=22", "a.bc", "b.bc", status=0).stderr == ""
    assert run("check", "--llvm=16", "a.bc", "b.bc", status=4).stderr == said


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["-Wno-BC020"], 0, ""),
        (["-Wno-BC012"], 4, "[BC020]"),
        (["-Wno-XX999"], 2, "-Wno-XX999: there is no such rule"),
        (["--driver=new"], 2, "'new' is not a version of a driver"),
        (["--for-clang=new"], 2, "not a release of LLVM"),
        (["--for-clang="], 2, "not a release of LLVM"),
        (["nofile.bc"], 7, "No such file"),
    ],
)
def test_options_and_status(
    run: Run, tmp_path: Path, options: list[str], status: int, words: str
) -> None:
    write_bitcode(tmp_path, "getelementptr nuw")
    said = run("check", "--for-clang=16", *options, "k.bc", status=status).stderr
    assert (words in said) if words else (said == "")


def test_notes_and_warnings_are_no_errors_unless_asked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "k.bc").write_bytes(assemble(22, function(" ret void")))
    assert ": note: LLVM22" in run("check", "--for-clang=19", "k.bc", status=0).stderr
    run("check", "--for-clang=19", "-Werror", "k.bc", status=0)
    assert "error" in run("check", "--for-clang=19", "-Werror=BC002", "k.bc", status=4).stderr
    ptx = ".version 8.7\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n"
    (tmp_path / "k.ptx").write_text(ptx)
    driver = ("--for-clang=22", "--driver=535.54")
    assert "[NV010]" in run("check", *driver, "k.ptx", status=0).stderr
    assert "error" in run("check", *driver, "-Werror", "k.ptx", status=4).stderr


def test_a_damaged_file_has_a_status_of_its_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "k.bc").write_bytes(b"BC\xc0\xde" + bytes(30) + b"x")
    assert "[BC005]" in run("check", "--for-clang=22", "k.bc", status=6).stderr
    assert "check needs a file" in run("check", status=2).stderr


def test_machines_get_the_rule_image_and_kernel(run: Run, tmp_path: Path) -> None:
    (tmp_path / "k.mlir").write_text(KERNEL)
    run("-c", "k.mlir", "--llvm=22", "--offload-arch=sm_80", "--device-code=bitcode", status=0)
    form = "--message-format=json"
    messages = json_of(run("check", form, "--for-clang=19", "k.o", status=4).stderr)
    rules = {message["rule"]: message for message in messages}
    assert {"BC014", "BC015", "OF002"} <= set(rules)
    assert rules["BC015"]["image"] == "cuda nvptx64-nvidia-cuda sm_80"
    assert rules["BC015"]["kernel"] == "k"
    run("check", "--for-clang=22", "k.o", status=0)
    document = json.loads(
        run("check", "--message-format=sarif", "--for-clang=19", "k.o", status=4).stderr
    )
    jsonschema.validate(document, SARIF_SUBSET)
    (sarif,) = document["runs"]
    described = {rule["id"]: rule for rule in sarif["tool"]["driver"]["rules"]}
    assert described["BC015"]["fullDescription"]["text"] == load_rules()["BC015"].reason
    assert "Hint: " in described["BC015"]["help"]["text"]
    assert {result["ruleId"] for result in sarif["results"]} == set(rules)
    said = run("check", "--message-format=github", "--for-clang=19", "k.o", status=4).stderr
    assert "::error file=k.o,title=BC015::" in said


@pytest.mark.llvm(19)
def test_the_compiler_and_the_linker_refuse_what_would_be_misread(run: Run, tmp_path: Path) -> None:
    write_bitcode(tmp_path, "getelementptr nuw")
    assert "[BC020]" in run("-c", "k.bc", "--llvm=16", status=4).stderr
    assert not (tmp_path / "k.o").exists()
    run("-c", "k.bc", "--llvm=16", "-Wno-BC020", status=0)
    (tmp_path / "t.ll").write_text(CASES["icmp samesign"].text)
    (message,) = json_of(run("-c", "t.ll", "--llvm=16", "--message-format=json", status=4).stderr)
    assert (message["rule"], message["file"], message["line"]) == ("LL001", "t.ll", 2)
    assert (message["class"], message["status"]) == ("compatibility", 4)
    (tmp_path / "k.mlir").write_text(KERNEL)
    run("-c", "k.mlir", "--llvm=22", "--offload-arch=sm_80", "--device-code=bitcode", status=0)
    said = run("k.o", "--llvm=19", "-o", "program", status=4).stderr
    assert "k.o: error: image cuda nvptx64-nvidia-cuda sm_80" in said
    assert {"BC014", "BC015"} <= {word.strip("[]") for word in said.split()}


def test_what_a_tool_says_that_stops_has_the_rule_and_the_file(run: Run, tmp_path: Path) -> None:
    write_bitcode(tmp_path, "captures")
    said = run("-c", "k.bc", "--llvm=16", "-Wno-BC010", status=5).stderr
    assert said.startswith("k.bc: error: clang failed")
    assert "Unknown attribute kind (102)" in said
    assert "[BC010]" in said
    assert f"hint: {load_rules()['BC010'].hint}" in said


@pytest.mark.llvm(19)
def test_the_image_that_a_link_stopped_at_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "k.mlir").write_text(KERNEL)
    run("-c", "k.mlir", "--llvm=19", "--offload-arch=sm_80", "--device-code=bitcode", status=0)
    # In its place an image with an attribute that LLVM 19 has no name for.
    text = (
        NVPTX
        + LAYOUT
        + "define ptx_kernel void @k(i32 %n, ptr captures(none) %p) {\n ret void\n}\n"
    )
    (tmp_path / "new.bc").write_bytes(assemble(22, text))
    image = "--image=file=new.bc,triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda"
    run("package", image, "--for-clang=19", "-o", "new.offload", status=0)
    update = ["--update-section", ".llvm.offloading=new.offload", "k.o"]
    subprocess.run([tool(22, "llvm-objcopy"), *update], check=True, cwd=tmp_path)
    said = run("k.o", "--llvm=19", "-Wno-BC010", "-o", "program", status=5).stderr
    assert said.startswith("k.o: error: image cuda nvptx64-nvidia-cuda sm_80: clang failed")
    assert "[BC010]" in said


def test_explain_lists_rules_and_tells_one_of_them(run: Run) -> None:
    listed = run("explain", status=0).stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(load_rules())
    told = run("explain", "bc012", "NV002", status=0).stdout
    assert told.startswith("BC012: constant that an older LLVM reads as undef (error)\n")
    assert "\nNV002: PTX newer than ptxas (error)\n" in told
    assert "did you mean BC" in run("explain", "BC01", status=2).stderr


@pytest.mark.parametrize(
    ("options", "section"),
    [(["-flto", "-ffat-lto-objects"], ".llvm.lto"), (["-fembed-bitcode=all"], ".llvmbc")],
    ids=["fat-lto", "embedded"],
)
def test_check_reads_host_bitcode_in_objects(
    options: list[str], section: str, run: Run, tmp_path: Path
) -> None:
    source = tmp_path / "f.c"
    source.write_text(
        "void f(int n, ...) { __builtin_va_list a; __builtin_va_start(a, n); __builtin_va_end(a); }\n"
    )
    subprocess.run([tool(22, "clang"), *options, "-c", source, "-o", tmp_path / "f.o"], check=True)
    said = run("check", "--for-clang=16", "f.o", status=4)
    assert f"f.o({section}): error: it declares llvm.va_start.p0" in said.stderr
    run("check", "--for-clang=22", "f.o", status=0)


@pytest.mark.parametrize("release", ["0", "13"])
def test_check_rejects_releases_that_no_rule_is_about(
    release: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "k.bc").write_bytes(assemble(22, ""))
    said = run("check", f"--for-clang={release}", "k.bc", status=2)
    assert f"--for-clang={release}: the rules were measured with LLVM 14 to 23" in said.stderr


def test_check_warns_of_releases_newer_than_the_rules(run: Run, tmp_path: Path) -> None:
    (tmp_path / "k.bc").write_bytes(assemble(22, ""))
    said = run("check", "--for-clang=24", "k.bc", status=0)
    assert "warning: the rules were measured with LLVM 14 to 23; LLVM 24" in said.stderr


@pytest.mark.parametrize(("text", "form"), [("int main(void);\n", "text"), ("module {}\n", "MLIR")])
def test_check_tells_of_files_without_anything_to_check(
    run: Run, tmp_path: Path, text: str, form: str
) -> None:
    (tmp_path / "file").write_text(text)
    said = run("check", "file", "--for-clang=22", status=0)
    assert f"note: file: not checked: {form}, without LLVM IR and device code" in said.stderr


def test_check_reports_empty_and_unknown_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.bc").write_bytes(b"")
    (tmp_path / "odd.bc").write_bytes(b"\1\0\2")
    assert (
        "empty.bc: error: it cannot be read: it is empty"
        in run("check", "empty.bc", status=6).stderr
    )
    odd = run("check", "odd.bc", status=6).stderr
    assert "not inspected: its format is not known" in odd
    assert "hint: name an object, library, program or device image" in odd
