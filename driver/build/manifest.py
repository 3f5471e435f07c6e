"""The manifest of a build: its inputs, parameters, tools and outputs.

An in-toto statement (v1) with SLSA provenance (v1): https://slsa.dev/spec/v1.0/provenance.
`data/manifest.schema.json` is its documented schema.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mlir_offload.driver import __version__
from mlir_offload.driver.compile.context import BuildContext, read_dependencies
from mlir_offload.driver.compile.kind_build import runtime_libraries
from mlir_offload.driver.compile.outputs import depfile_places
from mlir_offload.driver.link.runtime import host_runtime
from mlir_offload.driver.option.command_line import Mode, all_outputs, final_outputs
from mlir_offload.driver.system.workspace import publish
from mlir_offload.driver.tools.choose import build_environment
from mlir_offload.toolchain.tables import known_release

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
# A package URL, because the package has no permanent web address.
BUILD_TYPE = "pkg:pypi/mlir-offload#build/v1"
_CHUNK_BYTES = 1 << 20
# The tools of LLVM are small; most of their code is in these libraries.
_LLVM_LIBRARIES = ("libLLVM*.so*", "libclang-cpp.so*", "libMLIR*.so*")


class Resource(Struct, frozen=True):
    """A file of the build. `place` is the path of a tool or library, `version` the release of a tool."""

    name: str
    path: Path
    role: str
    place: str = ""
    version: str = ""


def write_manifest(context: BuildContext) -> None:
    """Write the file of `--manifest=`, after all outputs have been written."""
    if context.options.manifest is None or context.options.dry_run:
        return
    made = context.workspace / "manifest.json"
    made.write_text(render_manifest(context), encoding="utf-8")
    publish(made, context.options.manifest)


def render_manifest(context: BuildContext) -> str:
    """Return the manifest of a finished build as JSON. Equal builds give equal bytes."""
    options, digest = context.options, _Digests()
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [
            _descriptor(Resource(str(path), path, "output"), digest)
            for path in all_outputs(options)
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "arguments": [_printable(argument) for argument in options.arguments],
                    "environment": dict(build_environment()),
                },
                "internalParameters": _internal_parameters(context),
                "resolvedDependencies": [
                    _descriptor(resource, digest) for resource in _resolved(context)
                ],
            },
            "runDetails": {
                "builder": {
                    "id": f"pkg:pypi/mlir-offload@{__version__}",
                    "version": {"mlir-offload": __version__},
                },
                "byproducts": [
                    _descriptor(Resource(str(path), path, "dependency file"), digest)
                    for path in depfile_places(options)
                ],
            },
        },
    }
    return json.dumps(statement, indent=1) + "\n"


def _internal_parameters(context: BuildContext) -> Mapping[str, Any]:
    """Return the choices that the command line did not determine."""
    parameters: dict[str, Any] = {
        "llvm": str(context.llvm.version),
        "mode": context.options.mode.value,
        "deviceCode": context.options.device_code.value,
        "targets": [
            {"kind": str(target.kind), "triple": target.triple, "arch": target.arch}
            for target in context.targets
        ],
        "sourceTime": context.source_time,
    }
    if not context.releases.is_one:
        parameters["llvmThatLowers"] = str(context.mlir.version)
        parameters["llvmThatLinks"] = str(context.consumer)
    learned = known_release(context.consumer)
    if learned is not None:
        parameters["learnedRows"] = json.loads(learned.text)
    if context.cuda:
        parameters["cuda"] = str(context.cuda.version)
    return parameters


def _resolved(context: BuildContext) -> list[Resource]:
    """Return inputs, included files, libraries and tools: each file once, sorted by role and name."""
    found = [
        *(Resource(str(path), path, "input") for path in context.options.inputs),
        *(Resource(str(path), path, "dependency") for path in _pulled_in(context)),
        *_libraries(context),
        *_tools(context),
    ]
    unique = {os.path.realpath(resource.path): resource for resource in reversed(found)}
    return sorted(unique.values(), key=lambda resource: (resource.role, resource.name))


def _pulled_in(context: BuildContext) -> Iterator[Path]:
    for source, made in context.compiled.items():
        yield from read_dependencies(source, made, context.dependencies)
    if context.options.mode is Mode.LINK:
        for output in final_outputs(context.options):
            yield from (read.path for read in context.dependencies.of(output))


def _libraries(context: BuildContext) -> Iterator[Resource]:
    """Yield the libraries of the GPU runtimes that the output was linked against."""
    if context.options.mode is not Mode.LINK:
        return
    libraries = runtime_libraries(context, host_runtime(context).kinds)
    for path in libraries.values():
        if path is not None:
            yield Resource(path.name, path, "library", place=str(path))


def _tools(context: BuildContext) -> Iterator[Resource]:
    """Yield the programs that ran, the programs that clang runs, and LLVM's shared libraries."""
    programs = context.executor.programs
    for llvm in dict.fromkeys((context.llvm, context.mlir)):
        version = str(llvm.version)
        for name, path in llvm.tools:
            is_run_by_clang = name in {"clang-linker-wrapper", "ld.lld"} and llvm == context.llvm
            # Steps under a launcher report only the names of the programs that they run.
            if is_run_by_clang or not programs.isdisjoint((str(path), name)):
                yield _tool(name, path, version)
        for pattern in _LLVM_LIBRARIES:
            for path in sorted((llvm.prefix / "lib").glob(pattern)):
                yield _tool(path.name, path.resolve(), version)
    if context.cuda:
        for tool in (context.cuda.ptxas, context.cuda.nvlink, context.cuda.fatbinary):
            if tool is not None:
                yield _tool(tool.name, tool, str(context.cuda.version))


def _tool(name: str, path: Path, version: str) -> Resource:
    return Resource(name, path, "tool", place=str(path), version=version)


class _Digests(Struct):
    """A cache of file hashes, so that each file is read once."""

    known: dict[Path, str] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        """Return the SHA-256 of the content as hexadecimal digits."""
        if path not in self.known:
            digest = hashlib.sha256()
            with path.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
            self.known[path] = digest.hexdigest()
        return self.known[path]


def _descriptor(resource: Resource, digest: _Digests) -> Mapping[str, Any]:
    """Return an in-toto resource descriptor."""
    annotations = {"role": resource.role}
    if resource.version:
        annotations["version"] = resource.version
    place = {"uri": "file://" + urllib.parse.quote(resource.place)} if resource.place else {}
    return {
        "name": _printable(resource.name),
        **place,
        "digest": {"sha256": digest.of(resource.path)},
        "annotations": annotations,
    }


def _printable(text: str) -> str:
    """Return text that JSON can represent: bytes that are not UTF-8 are escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
