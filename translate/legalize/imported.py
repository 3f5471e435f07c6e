"""Make device functions that mlir-translate imported from LLVM IR independent of the device.

clang marks kernels by their calling convention, and compiles each function for the processor of one
GPU. An image is for the device on the command line, whatever the device of the imported code.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.toolchain.amdgpu import DEFAULT_LIMIT, GIVEN_LIMIT, wavefront_size
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import CONVENTION, is_kernel
from mlir_offload.translate.kind_lowering import DeviceForm
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute

_PLAIN = Attribute("#llvm.cconv<ccc>")
_WITH_CONVENTION = frozenset({"llvm.func", "llvm.call"})
# The constant in ROCm's device libraries for the wavefront size.
_IS_64 = "__oclc_wavefrontsize64"
_PROCESSOR, _FEATURES, _WAVEFRONT = "target_cpu", "target_features", "+wavefrontsize"
# Attributes that depend on the device, or have no effect in an image, where function addresses are not compared.
_DROPPED = frozenset({_PROCESSOR, _FEATURES, "tune_cpu", "unnamed_addr"})
_PROCESSOR_WORDS = ('["target-cpu"', '["target-features"', '["tune-cpu"')
_PASSTHROUGH = "passthrough"
# The limit of threads per block, as a range or as its end.
_LIMIT, _LARGEST = "rocdl.flat_work_group_size", "rocdl.max_flat_work_group_size"
_DEFAULT_THREADS = 256
_NONE = Attribute("")
_LIMIT_WORD = '["amdgpu-flat-work-group-size", "{}"]'


def check_wavefronts(module: Operation, forms: Iterable[DeviceForm], locations: Locations) -> None:
    """Raise SourceError for code that was compiled for another wavefront size than that of an AMD GPU.

    Constants, masks and shuffles in the code depend on the size.
    """
    sizes = {form.subgroup_size for form in forms if form.is_amdgpu}
    for operation in module.operations if sizes else ():
        size = _wavefront_size(operation)
        if size and sizes != {size}:
            msg = f"{operation.symbol} was compiled for wavefronts of {size} threads, and a GPU of --offload-arch= has others"
            hint = "compile it for that GPU before mlir-translate --import-llvm"
            raise SourceError(msg, hint=hint, location=locations.of(operation))


def _wavefront_size(operation: Operation) -> int:
    """Return the wavefront size that a function or constant implies, 0 for none.

    Triton's functions have neither features nor a processor.
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
    """Remove the target attributes of a function, and mark it if it is a kernel."""
    is_marked = is_kernel(function)
    for operation in (function, *function.walk_inside()):
        if operation.name in _WITH_CONVENTION and operation.has(CONVENTION):
            operation.set_attribute(CONVENTION, _PLAIN)
    signature = function.signature
    signature.properties = _without_processor(signature.properties)
    signature.attributes = _without_processor(signature.attributes)
    mark_given_limit(function)
    if is_marked and not is_kernel(function):
        function.set_attribute("gpu.kernel", Attribute(""))


def mark_given_limit(function: Operation) -> None:
    """Spell a limit of 256 threads per block differently from the one that mlir-translate adds to kernels."""
    signature = function.signature
    signature.properties = _with_marked_limit(signature.properties)
    signature.attributes = _with_marked_limit(signature.attributes)


def _with_marked_limit(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    kept = dict(attributes)
    if kept.get(_LARGEST, _NONE).integer == _DEFAULT_THREADS:
        kept[_LIMIT] = Attribute(f'"{DEFAULT_LIMIT}"')
        del kept[_LARGEST]
    if kept.get(_LIMIT, _NONE).string == DEFAULT_LIMIT:
        kept[_LIMIT] = Attribute(f'"{GIVEN_LIMIT}"')
    if _PASSTHROUGH in kept:
        given, marked = (_LIMIT_WORD.format(limit) for limit in (DEFAULT_LIMIT, GIVEN_LIMIT))
        words = (marked if word == given else word for word in kept[_PASSTHROUGH].elements)
        kept[_PASSTHROUGH] = Attribute(f"[{', '.join(words)}]")
    return kept


def _without_processor(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    kept = {name: value for name, value in attributes.items() if name not in _DROPPED}
    if _PASSTHROUGH in kept:
        words = kept[_PASSTHROUGH].elements
        left = [word for word in words if not word.startswith(_PROCESSOR_WORDS)]
        kept[_PASSTHROUGH] = Attribute(f"[{', '.join(left)}]")
    return kept
