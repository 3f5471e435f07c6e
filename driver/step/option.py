"""The options of the steps: a row for each field of a step, whichever steps have it."""

from __future__ import annotations

from collections.abc import Mapping

from mlir_offload.driver.option.row import Option

_PATH = "FILE"
_IMAGE = "file=FILE,triple=TRIPLE,arch=ARCH,kind=KIND"


def _flag(name: str, text: str) -> Option:
    return Option((name,), text)


def _value(name: str, text: str, value: str = _PATH) -> Option:
    return Option((f"{name}=",), text, value=value)


STEP_OPTIONS: Mapping[str, Option] = {
    "source": Option((), "the input", value=_PATH),
    "sources": Option((), "the inputs", value=_PATH),
    "assembly": Option((), "what was made of it", value=_PATH),
    "output": Option(("-o",), "the output", value=_PATH),
    "flags": Option((), "words of the compiler", value="OPTION"),
    "toolchain_id": _value("--toolchain-id", "what the tools have to be", "ID"),
    "needs": _value("--needs", "what the device module needs of its lowering", "WORD"),
    "library_id": _value("--library-id", "what the device libraries have to be", "ID"),
    "uses_async": _flag("--async", "the host module has asynchronous operations"),
    "depfiles": _value("--depfile", "a rule for Make that is to be written"),
    "program": _value("--program", "the file that the user wrote"),
    "device": _value("--device", "the device modules of a program"),
    "image_files": _value("--images", "the images of all device modules for an architecture"),
    "members": _value("--member", "a further member of the library"),
    "arch": _value("--arch", "the architecture", "ARCH"),
    "binary": _value("--binary", "the offload binary to embed"),
    "code_object": _value("--code-object", "its version: 4, 5, 6", "N"),
    "collapse": _flag("--collapse", "prepare kernels for the collapse over subgroups"),
    "cubins": _value("--cubin", "a linked cubin", "arch=sm_NN,file=FILE"),
    "cuda_version": _value("--cuda-version", "the release of CUDA", "VERSION"),
    "declared": _value("--declared", "a kernel that another file defines", "NAME"),
    "describe_memory": _flag("--describe-memory", "for launches on the host's own memory"),
    "devices": _value("--device", "LLVM IR of a device module"),
    "device_libraries": _value("--device-lib", "bitcode that kernels may call"),
    "fast_math": _flag("--fast-math", "let floating-point operations be inexact"),
    "fatbinary": _value("--fatbinary", "fatbinary of CUDA"),
    "fibers": _flag("--fibers", "a stack for each work-item, so that nothing is to do"),
    "finished": _value(
        "--finished",
        "linked device code, as the runtime of the kind loads it, and its kernels",
        "kind=KIND,file=FILE,kernel=NAME,...",
    ),
    "for_clang": _value("--for-clang", "the release of LLVM that links", "RELEASE|any"),
    "forms": _value("--form", "of a device module: nvvm32, rocdl64, ...", "FORM"),
    "fp_contract": _value("--fp-contract", "where products and sums are fused", "WHERE"),
    "ftz": _flag("--ftz", "take subnormal numbers for zero"),
    "images": _value("--image", "a device image", _IMAGE),
    "index_bits": _value("--index-bits", "the width of index in device code", "N"),
    "interface": _value("--interface", "the functions for callers in C and Python"),
    "ir": _value("--ir", "the LLVM IR that it is made of"),
    "is_program": _flag("--program", "main is what starts a program"),
    "kernel_heads": _value("--kernels", "where the heads of kernels go, as LLVM IR"),
    "kernels": _value("--kernel", "a kernel of the module", "NAME"),
    "kinds": _value("--kind", "an offload kind", "KIND"),
    "libraries": _value("--library", "a device library that it was compiled with"),
    "linker": _value("--linker", "the linker that it calls"),
    "llvm": _value("--llvm", "the release of LLVM", "N"),
    "location": _value("--location", "the file that errors name"),
    "made_from": _value("--from", "what the input was made from"),
    "nvlink": _value("--nvlink", "nvlink of CUDA"),
    "others": _value("--other", "what was read besides the sources"),
    "parameters": _value("--parameters", "how kernels take memrefs: whole, parts, needed", "FORM"),
    "parts": _value("--part", "where a module goes, for each in their order"),
    "phony": _flag("--phony", "give each of these a rule of its own, as -MP"),
    "programs": _value("--from", "what the user wrote, for each input"),
    "prefix_maps": _value("--prefix-map", "NEW stands for OLD in locations", "OLD=NEW"),
    "ptx": _value("--ptx", "PTX that fat binaries get", "arch=sm_NN,file=FILE"),
    "ptxas": _value("--ptxas", "ptxas of CUDA"),
    "ptxas_arguments": _value("--ptxas-arg", "an argument for each call of ptxas", "ARGUMENT"),
    "rdc": _flag("--rdc", "keep functions that other files may call"),
    "reader": _value("--reader", "the release of LLVM that reads the output", "N"),
    "replaced": _value("--replace", "an object, and one for it", "file=FILE,by=FILE"),
    "rules": _value("--from-clang", "a rule with more of it"),
    "sanitizer": _value("--sanitize", "the sanitizer that the code is marked for", "NAME"),
    "targets": _value("--arch", "a target, whose limits are checked", "ARCH"),
    "made": _value("--target", "a target as it stands in the rule", "TARGET"),
    "time": _value("--time", "what is written for a time: seconds since 1970", "SECONDS"),
    "transformed": _flag("--transformed", "a pass has run the transform scripts"),
    "triple": _value("--triple", "the target of the module", "TRIPLE"),
    "unit_id": _value("--unit-id", "the name of the program", "NAME"),
    "value_names": _value("--variables", "the module in MLIR: name values as it does, for gdb"),
    "variables": _value(
        "--variable",
        "a device global with its shadow; also type=, extern, constant, normalized, data=, auxiliary=",
        "kind=KIND,name=NAME,address=SHADOW,size=BYTES",
    ),
    "weak": _value("--weak", "where the names of public symbols go"),
}
