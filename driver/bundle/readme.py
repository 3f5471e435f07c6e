"""The `README.md` in a bundle: what it is, what it needs, and how clang alone links it."""

from __future__ import annotations

from mlir_offload.driver.bundle.recipe import Recipe, plain_cuda_limit, plain_library_limit
from mlir_offload.offload.container.mob_manifest import MobManifest
from mlir_offload.offload.runtime import loads_hip
from mlir_offload.toolchain.target import Kind

_README = """\
# {name}

A program for {targets}, lowered from MLIR to LLVM IR by mlir-offload {version} with LLVM {llvm}.
It is to be compiled and linked on the machine that has clang. It is code: treat it as you treat source
of the same origin.

## Link it

With mlir-offload, which checks first what is missing, and the result afterwards:

    mlir-offload link {name}.mob -o {name}

With clang alone, in the directory of this file:

    {line}

The same as a script, for any directory, with objects and libraries of your own:

    sh {name}/link.sh -o {name}

## What it needs

{needs}

## What it holds

{files}
"""
_FILES = (
    ("host/", "host modules, as LLVM IR: kernels registered, launches resolved"),
    (
        "device/",
        "device modules, as LLVM IR; `.nvptx.ll` for NVIDIA GPUs, `.amdgpu.ll` for AMD GPUs, `.cpu.ll` for the CPU",
    ),
    ("runtime/", "the runtime, in C; `mlir_offload.h` is for your own code"),
    ("lib/", "NVIDIA's libdevice, under NVIDIA's licence"),
)
_ALWAYS = (
    ("manifest.json", "what is in it, with hashes, and the kernels with their arguments"),
    ("link.sh", "links it with clang alone"),
)
_IMAGES = (
    "images.s",
    "has the assembler put the device images where clang-linker-wrapper looks for them",
)


def render_readme(recipe: Recipe) -> str:
    """Return the text; equal bundles have equal ones."""
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
    if manifest.cuda is not None:
        needs += _cuda_needs(manifest)
    if manifest.needs_libdevice:
        needs.append("libdevice, which is part of CUDA: kernels call its math functions")
    if Kind.HIP in recipe.kinds:
        needs += _rocm_needs(recipe)
    if Kind.OPENMP in recipe.kinds:
        needs.append(
            "for the CPU nothing else: the code is made for the CPU of the machine that links"
            " (`-march=native`)"
        )
    library = plain_library_limit(manifest)
    if library is not None:
        needs.append(f"with clang alone LLVM {library} or newer: older ones do not link libdevice")
    return needs


def _rocm_needs(recipe: Recipe) -> list[str]:
    when = "to run on an AMD GPU" if loads_hip(recipe.kinds) else "to link"
    needs = [f"the HIP runtime, libamdhip64.so, {when}; `ROCM_PATH` names ROCm"]
    if recipe.manifest.needs_rocm_libraries:
        needs.append(
            "ROCm's device libraries, with clang alone those of ROCm 5 or 6: kernels call them;"
            " `HIP_DEVICE_LIB_PATH` names their directory"
        )
    return needs


def _cuda_needs(manifest: MobManifest) -> list[str]:
    major, minor = manifest.cuda or (0, 0)
    parts = "ptxas, nvlink, fatbinary, libcudart_static.a"
    needs = [f"CUDA {major}.{minor} or newer: {parts}; `CUDA_PATH` names it"]
    limit = plain_cuda_limit(manifest)
    if limit is not None:
        llvm, (cuda_major, cuda_minor) = limit
        needs.append(
            f"with clang alone, and older than LLVM {llvm}: a CUDA before {cuda_major}.{cuda_minor},"
            " whose fatbinary takes what that clang-linker-wrapper gives it; `mlir-offload link`"
            " takes any"
        )
    return needs
