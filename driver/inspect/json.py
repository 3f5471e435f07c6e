"""The output of `mlir-offload inspect --json`; `data/inspect.schema.json` is its schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mlir_offload.driver import __version__
from mlir_offload.driver.message.escape import harmless_json
from mlir_offload.offload.container.contents import (
    Container,
    Entry,
    Image,
    Part,
    Problem,
    SourceModule,
)
from mlir_offload.offload.device.kernel import DeviceKernel, KernelParameter
from mlir_offload.offload.interface.function import InterfaceFunction

SCHEMA_VERSION = 1
_SCHEMA = Path(__file__).parents[1] / "data" / "inspect.schema.json"


def schema_text() -> str:
    """Return the JSON schema of the document."""
    return _SCHEMA.read_text(encoding="utf-8")


def render_json(parts: Iterable[Part]) -> str:
    """Return the document, one line per file; equal files give equal text."""
    # Indentation would take four times as long, because Python's C encoder does not support it.
    head = json.dumps({"schema": SCHEMA_VERSION, "generator": f"mlir-offload {__version__}"})
    files = ",\n".join(harmless_json(json.dumps(_part(part))) for part in parts)
    return f'{head[:-1]}, "files": [\n{files}\n]}}\n'


def _part(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "format": str(part.form),
        "offset": part.offset,
        "size_bytes": part.size_bytes,
        "producers": list(part.producers),
        "llvm_major": part.llvm_major,
        "sections": [
            {
                "name": section.name,
                "type": section.type,
                "offset": section.offset,
                "size_bytes": section.size_bytes,
            }
            for section in part.sections
        ],
        "images": [_image(image) for image in part.images],
        "entries": [_entry(entry) for entry in part.entries],
        "modules": [_module(module) for module in part.modules],
        "functions": [_function(function) for function in part.functions],
        "members": [_part(member) for member in part.members],
        "problems": list(_problems(part.problems)),
    }


def _image(image: Image) -> dict[str, Any]:
    code = image.code
    return {
        "index": image.index,
        "container": _container(image.container),
        "kind": image.kind,
        "image_kind": image.image_kind,
        "format": str(image.form),
        "triple": image.triple,
        "arch": image.arch,
        "flags": image.flags,
        "strings": [{"key": key, "value": value} for key, value in image.strings],
        "offset": image.offset,
        "size_bytes": image.size_bytes,
        "compression": image.compression,
        "stored_bytes": image.stored_bytes,
        "sha256": image.sha256,
        "producer": code.producer if code else "",
        "llvm_major": code.llvm_major if code else None,
        "is_relocatable": code.is_relocatable if code else None,
        "kernels": [_kernel(kernel) for kernel in code.kernels] if code else None,
        "undefined_symbols": list(code.undefined) if code else None,
        "images": [_image(inner) for inner in image.images],
        "problems": list(_problems(image.problems)),
    }


def _container(container: Container | None) -> dict[str, Any] | None:
    if container is None:
        return None
    return {
        "format": container.form,
        "version": container.version,
        "offset": container.offset,
        "size_bytes": container.size_bytes,
        "compression": container.compression,
    }


def _kernel(kernel: DeviceKernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "parameters": _parameters(kernel.parameters),
        "max_threads": kernel.max_threads,
        "required_threads": kernel.required_threads and list(kernel.required_threads),
        "min_blocks": kernel.min_blocks,
        "registers": kernel.registers,
        "max_registers": kernel.max_registers,
        "scalar_registers": kernel.scalar_registers,
        "shared_bytes": kernel.shared_bytes,
        "local_bytes": kernel.local_bytes,
        "subgroup_size": kernel.subgroup_size,
        "code_bytes": kernel.code_bytes,
        "code_sha256": kernel.code_sha256,
    }


def _parameters(parameters: tuple[KernelParameter, ...] | None) -> list[dict[str, Any]] | None:
    if parameters is None:
        return None
    return [
        {
            "offset": parameter.offset,
            "size_bytes": parameter.size_bytes,
            "type": parameter.type,
            "name": parameter.name,
            "is_hidden": parameter.is_hidden,
        }
        for parameter in parameters
    ]


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "what": entry.what,
        "size_bytes": entry.size_bytes,
        "flags": list(entry.flags),
        "layout": {
            "section": entry.section,
            "members": entry.members,
            "first_llvm_release": entry.first_release,
            "last_llvm_release": entry.last_release,
        },
        "is_finished": entry.is_device_linked,
    }


def _function(function: InterfaceFunction) -> dict[str, Any]:
    return {
        "name": function.name,
        "symbol": function.symbol,
        "arguments": [
            {"name": item.name, "type": item.type.spelling} for item in function.arguments
        ],
        "results": [item.spelling for item in function.results],
    }


def _module(module: SourceModule) -> dict[str, Any]:
    return {
        "name": module.name,
        "targets": list(module.targets),
        "kernels": [
            {
                "name": kernel.name,
                "symbol": kernel.symbol,
                "parameter_types": list(kernel.parameter_types),
                "known_block_size": kernel.known_block_size and list(kernel.known_block_size),
            }
            for kernel in module.kernels
        ],
    }


def _problems(problems: Iterable[Problem]) -> Iterator[dict[str, Any]]:
    for problem in problems:
        yield {"kind": str(problem.kind), "message": problem.message, "hint": problem.hint}
