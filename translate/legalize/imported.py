"""Device functions that mlir-translate has imported from LLVM IR: compiled for one device, used for any.

clang marks a kernel by its calling convention and compiles each function for the processor of one
GPU. An image is for the device that the command line names, whatever the text was made for.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.toolchain.amdgpu import wavefront_size
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import CONVENTION, is_kernel
from mlir_offload.translate.kind_lowering import DeviceForm
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute

_PLAIN = Attribute("#llvm.cconv<ccc>")
_WITH_CONVENTION = frozenset({"llvm.func", "llvm.call"})
# What ROCm's device libraries ask for the size of a wavefront.
_IS_64 = "__oclc_wavefrontsize64"
_PROCESSOR, _FEATURES, _WAVEFRONT = "target_cpu", "target_features", "+wavefrontsize"
# Of a device, or without a meaning in an image: nobody compares the addresses of its functions.
_DROPPED = frozenset({_PROCESSOR, _FEATURES, "tune_cpu", "unnamed_addr"})
_PROCESSOR_WORDS = ('["target-cpu"', '["target-features"', '["tune-cpu"')
_PASSTHROUGH = "passthrough"


def check_wavefronts(module: Operation, forms: Iterable[DeviceForm], locations: Locations) -> None:
    """Raise SourceError for code that was compiled for other wavefronts than those of an AMD GPU.

    Their size is in the code: in constants, masks and shuffles.
    """
    sizes = {form.subgroup_size for form in forms if form.is_amdgpu}
    for operation in module.operations if sizes else ():
        size = _wavefront_size(operation)
        if size and sizes != {size}:
            msg = f"{operation.symbol} was compiled for wavefronts of {size} threads, and a GPU of --offload-arch= has others"
            hint = "compile it for that GPU before mlir-translate --import-llvm"
            raise SourceError(msg, hint=hint, location=locations.of(operation))


def _wavefront_size(operation: Operation) -> int:
    """Return the threads of the wavefronts that a function or constant tells of; 0: nothing.

    Triton's functions name neither features nor a processor.
    """
    if operation.name == "llvm.mlir.global" and operation.symbol == _IS_64:
        value = operation.attribute("value").integer
        if value is None:
            return 0
        return 64 if value else 32
    for word in Attribute(operation.attribute(_FEATURES).body).elements:
        size = word.string.removeprefix(_WAVEFRONT)
        if size != word.string:
            return int(size)
    try:
        return wavefront_size(operation.attribute(_PROCESSOR).string)
    except ValueError:
        return 0


def use_any_device(function: Operation) -> None:
    """Take from a function what says for which device it is, and mark it if it is a kernel."""
    is_marked = is_kernel(function)
    for operation in (function, *function.walk_inside()):
        if operation.name in _WITH_CONVENTION and operation.has(CONVENTION):
            operation.set_attribute(CONVENTION, _PLAIN)
    signature = function.signature
    signature.properties = _without_processor(signature.properties)
    signature.attributes = _without_processor(signature.attributes)
    if is_marked and not is_kernel(function):
        function.set_attribute("gpu.kernel", Attribute(""))


def _without_processor(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    kept = {name: value for name, value in attributes.items() if name not in _DROPPED}
    if _PASSTHROUGH in kept:
        words = kept[_PASSTHROUGH].elements
        left = [word for word in words if not word.startswith(_PROCESSOR_WORDS)]
        kept[_PASSTHROUGH] = Attribute(f"[{', '.join(left)}]")
    return kept
