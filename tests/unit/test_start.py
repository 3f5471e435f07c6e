"""The modules that an invocation imports, and when: each delays every start of the compiler."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.device_image import DeviceImage
from support.link_inputs import LinkInputs, target_of

from mlir_offload.driver.build import subcommand
from mlir_offload.offload.image import ImageKind
from mlir_offload.toolchain.target import Kind, all_kinds

SAXPY = Path(__file__).resolve().parents[2] / "docs" / "examples" / "saxpy.mlir"
# Runs the driver, and records the loaded modules when its first program starts and at the end.
OBSERVED = """\
import os, sys
from mlir_offload.driver.cli import main
from mlir_offload.toolchain.process import ProcessRunner
loaded, run, leave = [], ProcessRunner.run, os._exit
def noting(self, *given, **named):
    loaded.append(sorted(sys.modules))
    return run(self, *given, **named)
def noting_end(status):
    loaded.append(sorted(sys.modules))
    import json
    with open(os.environ["LOADED"], "w") as file:
        json.dump([loaded[0], loaded[-1]], file)
    leave(status)
ProcessRunner.run, os._exit = noting, noting_end
main()
"""
# Modules for files of users, for pages and messages, for other subcommands.
NEVER = {
    *(
        "click",
        "yaml",
        "rich",
        "llvmlite",
        "msgpack",
        "zstandard",
        "lz4",
        "tomllib",
        "ctypes",
        "asyncio",
    ),
    *("concurrent.futures", "importlib.metadata", "importlib.resources", "json", "shutil", "lzma"),
    *("mlir_offload.driver.message.diagnostic", "mlir_offload.driver.option.pipeline_file"),
    *("mlir_offload.driver.option.subcommand", "mlir_offload.driver.message.text"),
    *("mlir_offload.driver.compile.guard", "mlir_offload.toolchain.amdgpu"),
}
# Modules that read and check files which the invocation did not make.
READERS = frozenset(
    f"mlir_offload.{name}"
    for name in (
        "toolchain.bitcode.bitstream",
        "toolchain.skew.rule",
        "offload.container.contents",
        "offload.skew.check",
        "offload.interface.function",
        "driver.link.error",
    )
)
# A link loads hashlib (OpenSSL, which is slow to load) to hash device code of libraries.
LINKING = frozenset(
    ("hashlib", "mlir_offload.driver.link.program", "mlir_offload.offload.link.coverage")
)
# A link uses these only for duplicate kernel names, AMD GPUs, and other formats.
SELDOM_LINKED = frozenset(
    f"mlir_offload.{name}"
    for name in (
        "driver.link.relocatable",
        "driver.link.to_object",
        "driver.step.object_file",
        "offload.host.embed",
        "offload.container.bundle",
        "offload.container.mob_archive",
        "offload.container.scan",
        "offload.device.spirv",
        "offload.foreign_object",
        "offload.link.folded",
        "toolchain.bitcode.constant",
        "toolchain.bitcode.metadata",
        "toolchain.bitcode.reference",
        "translate.cpu.replacement",
        "translate.device_ir",
        "translate.kind.cuda",
        "translate.mlir.operation",
    )
)
DEVICE_IR = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
define ptx_kernel void @k(ptr addrspace(1) %p) #0 { ret void }
attributes #0 = { "target-cpu"="sm_80" }
"""
OTHER_KINDS = frozenset(
    f"mlir_offload.{name}"
    for name in (
        "toolchain.rocm",
        "toolchain.kind.hip",
        "toolchain.kind.spirv",
        "driver.kind.hip",
        "driver.kind.cpu",
        "translate.cpu.module",
    )
)
# A compilation uses these while its first programs run.
LATER = {
    "mlir_offload.driver.build.source",
    "mlir_offload.driver.step.split_file",
}


@dataclass(frozen=True)
class Loaded:
    """The modules that were loaded when the first program started, and at the end."""

    at_first: frozenset[str]
    at_last: frozenset[str]


def loaded_by(arguments: Sequence[str], directory: Path) -> Loaded:
    notes = directory / "loaded.json"
    # -S omits the import hooks of an editable install, which load further modules.
    path = os.pathsep.join((os.environ["PYTHONPATH"], sysconfig.get_path("purelib")))
    environment = {**os.environ, "LOADED": str(notes), "PYTHONPATH": path}
    call = [sys.executable, "-S", "-c", OBSERVED, *arguments]
    # The first of two invocations reads the YAML tables and caches them.
    for number in range(2):
        # A fresh cache, so that the versions of programs are queried, which starts the first programs.
        environment["XDG_CACHE_HOME"] = str(directory / f"cache{number}")
        subprocess.run(call, cwd=directory, env=environment, check=True, capture_output=True)
    first, last = json.loads(notes.read_text())
    return Loaded(frozenset(first), frozenset(last))


@pytest.mark.llvm(22)
@pytest.mark.parametrize("ends_at", ["-c", "link"])
def test_a_compilation_loads_what_it_needs_and_no_more(ends_at: str, tmp_path: Path) -> None:
    architecture = "sm_90" if ends_at == "-c" else "host"
    words = ("-c",) if ends_at == "-c" else ()
    loaded = loaded_by(
        ("--llvm=22", f"--offload-arch={architecture}", str(SAXPY), "-o", "k", *words), tmp_path
    )

    others = OTHER_KINDS | LINKING if ends_at == "-c" else {"mlir_offload.toolchain.rocm"}
    assert (NEVER | READERS | others) & loaded.at_last == set()
    assert LATER & loaded.at_first == set()
    assert loaded.at_last >= LATER


@pytest.mark.llvm(22)
def test_a_link_of_objects_loads_what_it_needs_and_no_more(tmp_path: Path) -> None:
    inputs = LinkInputs(22, tmp_path)
    source, module = tmp_path / "k.device.ll", tmp_path / "k.bc"
    source.write_text(DEVICE_IR)
    inputs.run(inputs.llvm.prefix / "bin" / "llvm-as", source, "-o", module)
    image = DeviceImage(target_of(Kind.CUDA), module.read_bytes(), ImageKind.BITCODE)
    linked = inputs.host_object("k", [Kind.CUDA], ["k"], [image])
    main = inputs.c_object("main", "int main(void) { return 0; }\n")
    loaded = loaded_by(("--for-clang=22", str(main), str(linked), "-o", "k"), tmp_path)

    assert SELDOM_LINKED & loaded.at_last == set()
    assert "mlir_offload.toolchain.bitcode.skew" in loaded.at_last


@pytest.mark.parametrize(
    "arguments", [("--help",), ("build", "--help"), ("--cmake-dir",)], ids=" ".join
)
def test_what_compiles_nothing_loads_no_compiler(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    loaded = loaded_by(arguments, tmp_path)

    compiler = {"mlir_offload.driver.build.subcommand", "mlir_offload.driver.build.source"}
    assert (compiler | {"click", "yaml", "rich"}) & loaded.at_last == set()


def test_what_is_not_loaded_exists() -> None:
    own = {
        name
        for name in READERS | LINKING | SELDOM_LINKED | OTHER_KINDS | NEVER | LATER
        if "mlir_offload" in name
    }
    assert [name for name in sorted(own) if importlib.util.find_spec(name) is None] == []


def test_what_is_loaded_early_exists() -> None:
    kinds = frozenset(all_kinds())
    for name in (
        *subcommand.modules_for(kinds, links=True),
        *subcommand.modules_for(kinds, launched=True),
    ):
        importlib.import_module(name)
