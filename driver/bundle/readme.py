"""The `README.md` of a bundle: contents, requirements, and how to link it with clang alone."""

from __future__ import annotations

from mlir_offload.driver.bundle.recipe import Recipe, plain_library_limit
from mlir_offload.driver.compile.kind_build import builds_of
from mlir_offload.offload.container.mob_manifest import MobManifest

_README = """\
# {name}

A program for {targets}, lowered from MLIR to LLVM IR by mlir-offload {version} with LLVM {llvm}.
Compile and link it on a machine with clang. It is code: treat it like source code of the same origin.

## Link it

With mlir-offload, which checks the requirements before the link and the result after it:

    mlir-offload link {name}.mob -o {name}

With clang alone, in the directory of this file:

    {line}

With a script that runs the same command, from any directory, with your own objects and libraries:

    sh {name}/link.sh -o {name}

## Requirements

{needs}

## Contents

{files}
"""
_FILES = (
    ("host/", "host modules, as LLVM IR, with registered kernels and launches bound to stubs"),
    (
        "device/",
        "device modules, as LLVM IR; `.nvptx.ll` for NVIDIA GPUs, `.amdgpu.ll` for AMD GPUs, `.cpu.ll` for the CPU",
    ),
    ("runtime/", "the runtime, in C; `mlir_offload.h` is for your own code"),
    ("lib/", "NVIDIA's libdevice, under NVIDIA's licence"),
)
_ALWAYS = (
    ("manifest.json", "the files with their hashes, and the kernels with their arguments"),
    ("link.sh", "links it with clang alone"),
)
_IMAGES = (
    "images.s",
    "assembly that places the device images in the section that clang-linker-wrapper reads",
)


def render_readme(recipe: Recipe) -> str:
    """Return the text. Equal bundles give equal texts."""
    manifest, producers = recipe.manifest, dict(recipe.manifest.producers)
    targets = [str(target) for target in manifest.targets]
    shown = ["the CPU" if word == "host" else word for word in targets]
    return _README.format(
        name=manifest.name,
        targets=" and ".join(shown) if shown else "the host alone",
        version=producers["mlir-offload"],
        llvm=producers["llvm"],
        line=recipe.render_line(),
        needs="\n".join(f"* {need}" for need in _needs(recipe)),
        files="\n".join(f"* `{name}`: {what}" for name, what in _listed(manifest)),
    )


def _listed(manifest: MobManifest) -> list[tuple[str, str]]:
    names = [name for name, _ in manifest.files]
    present = [row for row in _FILES if any(name.startswith(row[0]) for name in names)]
    return [*present, *((_IMAGES,) if manifest.targets else ()), *_ALWAYS]


def _needs(recipe: Recipe) -> list[str]:
    manifest = recipe.manifest
    needs = [
        f"Linux on {manifest.host_triple.partition('-')[0]}, with the C library's headers",
        f"clang, clang-linker-wrapper and lld of LLVM {manifest.llvm}, on PATH",
    ]
    for build in builds_of(recipe.kinds):
        needs += build.bundle_needs(manifest)
    library = plain_library_limit(manifest)
    if library is not None:
        needs.append(f"with clang alone LLVM {library} or newer: older ones do not link libdevice")
    return needs
