"""The commands of mlir-opt and mlir-translate, and the changes of the text between them.

For a small program, starting mlir-opt and mlir-translate takes half of the time. Therefore the host module and the
device modules of a small program are joined to one program. Each part stays a separate module; device modules are in
a `gpu.module`, which selects their passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import SourceError, ToolFailedError
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, as_operand
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, NVPTX_TRIPLE, SPIRV_TRIPLE, kind_of_triple
from mlir_offload.translate import (
    barrier_place,
    fast_math,
    fused_product,
    gpu_module,
    narrow_address,
    narrow_cast,
    stepped_address,
    thread_range,
)
from mlir_offload.translate.input_pipeline import (
    InputPipeline,
    has_tensors,
    load_pipeline,
    needed_scripts,
    render_pipeline,
)
from mlir_offload.translate.kernel import WIDE
from mlir_offload.translate.kind_lowering import (
    CALLED_OPERATIONS,
    LOWERINGS,
    Contraction,
    DeviceLowering,
)
from mlir_offload.translate.mlir.module import Locations, Module, parse_module
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute, quoted
from mlir_offload.translate.pipelines import (
    load_call_options,
    load_faults,
    load_printing,
    load_recipe,
)

if TYPE_CHECKING:
    from mlir_offload.translate.gpu_module import GpuModule

_MODULE_BEGIN, _MODULE_END = '"builtin.module"(', "})"
# Without `loc(unknown)`, the locations of the added operations would contain a temporary file name.
_HEAD, _TAIL = '"builtin.module"() ({', "}) : () -> () loc(unknown)"
_DEVICES = '"gpu.module"() <{sym_name = "devices"}> ({'
_RESOURCES = "{-#"
_MARK = "; ModuleID = "
# The separator of two inputs for mlir-translate.
_BORDER = "\n// -----\n"
_NVGPU, _MATRIX = b"nvgpu", b"mma_matrix"
_REDUCTIONS = (b"multi_reduction", b"vector.mask")
_FOLDED_NAN = "folded_nan"
# The dialects of lowered code. The host may also contain nvvm, if another pipeline lowered the program.
_LOWERED = {
    NVPTX_TRIPLE: ("llvm", "nvvm"),
    AMDGPU_TRIPLE: ("llvm", "rocdl"),
    SPIRV_TRIPLE: ("llvm",),
}
_PLACES = {
    NVPTX_TRIPLE: "a kernel",
    AMDGPU_TRIPLE: "a kernel for AMD GPUs",
    SPIRV_TRIPLE: "a kernel for spirv64",
}
_PIPELINE = "--pass-pipeline="
_CAST = "builtin.unrealized_conversion_cast"
_EXTERNAL, _INTERNAL = (f"#llvm.linkage<{name}>" for name in ("external", "internal"))
_DEFAULT_VISIBILITY = "0 : i64"
_TRIPLE = "llvm.target_triple"
_ADDRESS, _NARROW_INDEX = "llvm.getelementptr", ", i32) -> !llvm.ptr"
_BRANCH = "llvm.br"


def join_program(host: str, devices: Sequence[str]) -> str | None:
    """Join the host module and the device modules to one program; return None if that is not possible.

    Resources and aliases are outside of the modules. Programs with resources or different aliases of one
    name cannot be joined.
    """
    parts = [_lines(text) for text in (host, *devices)]
    if any(_RESOURCES in tail for _, _, tail in parts) or not _agree(parts):
        return None
    head, tail = ([line for part in parts for line in part[side]] for side in (0, 2))
    (_, first, _), *others = parts
    body = (line for _, module, _ in others for line in module)
    program = (_HEAD, *first, _DEVICES, *body, _TAIL, _TAIL)
    return "\n".join((*dict.fromkeys(head), *program, *dict.fromkeys(tail), ""))


_Part = tuple[list[str], list[str], list[str]]


def _lines(text: str) -> _Part:
    """Return the lines before, of and after the module."""
    lines = [line for line in text.split("\n") if line]
    begin = next(i for i, line in enumerate(lines) if line.startswith(_MODULE_BEGIN))
    end = next(i for i in range(begin, len(lines)) if lines[i].startswith(_MODULE_END))
    return lines[:begin], lines[begin : end + 1], lines[end + 1 :]


def _agree(parts: Sequence[_Part]) -> bool:
    """Return whether each alias has the same definition in all parts."""
    lines = {line for head, _, tail in parts for line in (*head, *tail)}
    return len(lines) == len({line.partition(" = ")[0] for line in lines})


def joint_pipeline(host: str, device: str) -> str:
    """Return the pipeline of a joined program from the pipelines of the host and of a device module."""
    return f"builtin.module({host},gpu.module({device}))"


def separate_program(text: str) -> tuple[Module, tuple[Module, ...]]:
    """Split a lowered joined program into the host module and the device modules.

    Raises ToolFailedError if the text has another structure.
    """
    whole = parse_module(text)
    found = {operation.name: operation for operation in whole.operations}
    if found.keys() != {"builtin.module", "gpu.module"}:
        msg = f"unexpected output of mlir-opt for a joined program: {', '.join(found) or 'nothing'}"
        raise ToolFailedError(
            msg, hint="report this with the input and the output of 'mlir-opt --version'"
        )
    devices = (op for op in found["gpu.module"].operations if op.name == "builtin.module")
    host, *others = (
        Module(whole.head, operation, whole.tail)
        for operation in (found["builtin.module"], *devices)
    )
    return host, tuple(others)


def bordered(texts: Sequence[str]) -> str:
    """Concatenate modules for `mlir-translate --split-input-file`."""
    return _BORDER.join(texts)


def ir_modules(text: str) -> list[str]:
    """Split the output of mlir-translate into modules of LLVM IR."""
    # Line ends in strings are escaped, so that only a module begins with this line.
    _, *modules = f"\n{text}".split(f"\n{_MARK}")
    return [f"{_MARK}{module.rstrip()}\n" for module in modules]


def normalize_command(
    llvm: LlvmToolchain,
    source: Path,
    output: Path,
    *,
    content: bytes = b"",
    pipeline: InputPipeline | None = None,
) -> Command:
    """Return the command that outlines the kernels of a source, text or bytecode, and prints generic form.

    `content` is the content of the source. Passes that do not apply to it are omitted.
    """
    major, chosen = llvm.version.major, pipeline or InputPipeline()
    uses_nvgpu = _NVGPU in content and _MATRIX not in content
    named = load_pipeline(chosen.base, major)
    uses_reductions = (
        bool(chosen.passes or named.passes)
        or any(name in content for name in _REDUCTIONS)
        or _FOLDED_NAN not in load_faults(major)
    )
    common = load_recipe(major).common_passes(
        uses_nvgpu=uses_nvgpu, uses_reductions=uses_reductions
    )
    passes = render_pipeline(
        chosen,
        named,
        common,
        has_tensors=has_tensors(content),
        scripts=needed_scripts(content, chosen.base, major),
    )
    return _mlir_opt(
        llvm, passes, source, output, plugins=chosen.plugins, arguments=chosen.arguments
    )


_PLAIN = DeviceLowering()


def device_pipeline_command(  # noqa: PLR0913 (what decides the passes)
    llvm: LlvmToolchain,
    source: Path,
    output: Path,
    *,
    module: GpuModule,
    lowering: DeviceLowering = _PLAIN,
    debug: bool = False,
    index_bits: int = WIDE,
) -> Command:
    """Return the command that lowers a device module to the LLVM dialect and the dialect of the GPU."""
    recipe, needs = load_recipe(llvm.version.major), module.needs
    if lowering.chip:
        pipeline = recipe.amdgpu_pipeline(
            needs=needs, chip=lowering.chip, debug=debug, index_bits=index_bits
        )
    else:
        pipeline = recipe.device_pipeline(
            needs=needs,
            redux=lowering.redux,
            debug=debug,
            has_bf16=not lowering.spirv,
            index_bits=index_bits,
        )
    return _mlir_opt(llvm, pipeline, source, output)


def host_pipeline_command(
    llvm: LlvmToolchain,
    source: Path,
    output: Path,
    *,
    uses_async: bool = False,
    debug: bool = False,
) -> Command:
    """Return the command that lowers the host module to the LLVM dialect."""
    recipe = load_recipe(llvm.version.major)
    pipeline = recipe.host_pipeline(uses_async=uses_async, debug=debug)
    return _mlir_opt(llvm, pipeline, source, output)


def joint_pipeline_command(
    llvm: LlvmToolchain, source: Path, output: Path, *, host: str, device: str
) -> Command:
    """Return the command that lowers a joined program, with the pipelines of its parts."""
    return _mlir_opt(llvm, joint_pipeline(host, device), source, output)


def pipeline_of(command: Command) -> str:
    """Return the pass pipeline of an mlir-opt command."""
    return next(word.removeprefix(_PIPELINE) for word in command.argv if word.startswith(_PIPELINE))


def translate_command(
    llvm: LlvmToolchain, source: Path, output: Path, *, is_joint: bool = False
) -> Command:
    """Return the command that translates the LLVM dialect to LLVM IR; each part of a joined program."""
    parts = ("--split-input-file",) if is_joint else ()
    options = (*load_call_options(), "--mlir-to-llvmir", *parts)
    translate = str(llvm.tool("mlir-translate"))
    return Command((translate, *options, as_operand(str(source)), "-o", str(output)))


def _mlir_opt(
    llvm: LlvmToolchain,
    pipeline: str,
    source: Path,
    output: Path,
    plugins: Sequence[Path] = (),
    arguments: Sequence[str] = (),
) -> Command:
    loaded = (
        f"--load-{what}-plugin={plugin}" for plugin in plugins for what in ("dialect", "pass")
    )
    options = (
        *load_call_options(),
        *loaded,
        *arguments,
        *load_printing(),
        f"{_PIPELINE}{pipeline}",
    )
    return Command(
        (str(llvm.tool("mlir-opt")), *options, as_operand(str(source)), "-o", str(output))
    )


def unwrap_device(
    module: Module,
    triple: str,
    *,
    keeps_functions: bool = False,
    contraction: Contraction = Contraction.ON,
    marks_barriers: bool = False,
) -> str:
    """Extract a lowered `gpu.module` as a top-level module for mlir-translate.

    Only kernels stay external, so that equal names of helper functions in two modules do not collide;
    with `keeps_functions` public functions do too, for other files. `contraction` determines which products
    and sums may be fused. With `marks_barriers`, functions get an attribute with the locations of their
    barriers. (`mlir-translate --no-implicit-module` on a gpu.module crashes in LLVM 19 and 22 if the verifier
    of an operation queries the data layout.) Raises SourceError for operations that are not lowered.
    """
    locations = Locations(module.aliases)
    device = next((op for op in module.operations if op.name == "gpu.module"), None)
    if device is None:
        msg = "mlir-opt left no gpu.module in the lowered device module"
        raise ToolFailedError(
            msg, hint="report this with the input and the output of 'mlir-opt --version'"
        )
    # Passes add declarations, such as that of __assertfail, inside or outside of the gpu.module, or both.
    own = {op.symbol for op in device.operations}
    others = [op for op in module.operations if op is not device and op.symbol not in own]
    body = [op for op in (*others, *device.operations) if op.name != "gpu.module_end"]
    if _left_in(body, triple):
        narrow_cast.resolve_casts(body)
        check_lowered(body, locations, place=_PLACES[triple], triple=triple)
    for operation in body:
        if not (keeps_functions and _is_public(operation)):
            _internalize(operation)
    if contraction is not Contraction.ON:
        # Most invocations do not load this module.
        fast_math.set_contraction(body, contraction)
    if marks_barriers:
        barrier_place.mark_barriers(body, locations)
    _ease_indices(body, triple)
    if triple == NVPTX_TRIPLE:
        # With the triple of another target, the verifier of mlir-translate 22 would reject the llvm.alloca of memref.alloca.
        signature = module.operation.signature
        signature.attributes = {_TRIPLE: quoted(triple), **signature.attributes}
    return module.render_part(body)


def _ease_indices(body: Sequence[Operation], triple: str) -> None:
    """Rewrite indices and addresses to forms for which the back end emits fewer instructions."""
    is_amdgpu = triple == AMDGPU_TRIPLE
    inside = [inner for operation in body for inner in operation.walk_inside()]
    is_narrow = any(one.name == _ADDRESS and _NARROW_INDEX in one.head for one in inside)
    if is_amdgpu:
        narrow_cast.widen_dimensions(body)
    if is_narrow:
        narrow_address.split_addresses(body)
    # Loops have block arguments. Most modules have none and do not import stepped_address.
    if triple == NVPTX_TRIPLE and any(one.name == _BRANCH and one.operand_text for one in inside):
        stepped_address.step_addresses(body)
    # On NVIDIA GPUs with a 64-bit index, the block size lets LLVM add in 32 bits; the ranges are kept.
    if is_amdgpu or (is_narrow and triple == NVPTX_TRIPLE):
        thread_range.widen_ranges(body)
    if is_amdgpu:
        thread_range.bound_blocks(body)
        fused_product.fuse_products(body)


def _is_public(operation: Operation) -> bool:
    visibility = operation.attribute("sym_visibility").string
    return operation.name == "llvm.func" and visibility != "private"


def _internalize(operation: Operation) -> None:

    is_external = operation.attribute("linkage") == _EXTERNAL
    if is_external and _is_definition(operation) and not gpu_module.is_kernel(operation):
        operation.set_attribute("linkage", Attribute(_INTERNAL))
        # HIP kernels are protected, which LLVM accepts only for external symbols.
        operation.set_attribute("visibility_", Attribute(_DEFAULT_VISIBILITY))


def _is_definition(operation: Operation) -> bool:
    if operation.name == "llvm.mlir.global":
        return not operation.is_declaration or operation.has("value")
    return operation.name == "llvm.func" and not operation.is_declaration


def check_lowered(
    operations: Iterable[Operation],
    locations: Locations,
    *,
    place: str,
    triple: str = NVPTX_TRIPLE,
) -> None:
    """Raise SourceError if an operation is left that mlir-translate or the back end does not support.

    The error refers to the first operation that computes something, not to a cast or function around it.
    """
    left = _left_in(operations, triple)
    if left:
        first = min(left, key=_rank)
        raise _left_over(first, locations.of(first), place)


def _left_in(operations: Iterable[Operation], triple: str) -> list[Operation]:
    """Return the operations that are not lowered."""
    known = _LOWERED[triple]
    kind = kind_of_triple(triple)
    translated = LOWERINGS[kind].called_operations() if kind else CALLED_OPERATIONS
    return [
        inner
        for operation in operations
        for inner in (operation, *operation.walk_inside())
        if inner.name.partition(".")[0] not in known and inner.name not in translated
    ]


def _rank(operation: Operation) -> int:
    if operation.name == _CAST:
        return 1
    return 2 if operation.name.startswith("func.") else 0


def _left_over(operation: Operation, location: str, place: str) -> SourceError:
    """Return the error for an operation that no pass of the pipeline lowers."""
    name, given, wanted = operation.name, operation.operand_types, operation.result_types
    if any("tensor<" in kind for kind in (*given, *wanted, operation.attribute("function_type"))):
        msg = f"{name} on tensors is not supported in {place}"
        hint = "bufferize the program before, for example with mlir-opt -one-shot-bufferize"
    elif name == _CAST:
        msg = f"no lowering from {', '.join(given)} to {', '.join(wanted)} in {place}"
        hint = "an operation next to this place has none; rewrite it with other operations"
    else:
        msg = f"{name} is not supported in {place}"
        hint = "no stock pass lowers it there; rewrite it with other operations"
    return SourceError(msg, location=location, hint=hint)
