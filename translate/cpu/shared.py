"""Workgroup memory: globals in address space 3 become offsets from a pointer in the thread context.

Each worker thread provides the workgroup memory of the block that it executes, therefore a global variable cannot
hold it. Thread-local storage could, but the calls that compute its address prevent vectorization.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.hoisted_address import place_addresses
from mlir_offload.translate.cpu.text import DeviceModule, Function, type_end

_SHARED_GLOBAL = ir_pattern("addrspace(3) `global|constant` `rest:rest`")
_ALIGN = ir_pattern(", align `bytes:number`")
_ADDRESS_SPACE = ir_pattern("` ?`addrspace(`number`)")
_POINTER_MANGLING = ir_pattern(".p`space:number``part_end`")
_INTRINSIC = ir_pattern("@llvm.`dotted`(")
# An instruction or a constant expression.
_CAST = ir_pattern("addrspacecast `type:ptr|<|(ptr|(<`")
_SCALAR_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_CACHE_LINE = 64
# The period in bytes of the swizzle pattern of tensor maps and wgmma, and the alignment of workgroup memory
# (SHARED_ALIGNMENT in offload/runtime/cpu_device.c).
_SWIZZLE = 1024


class SharedLayout(Struct, frozen=True):
    """The layout of workgroup memory, in bytes.

    `offsets` are those of the static globals, and `size_bytes` is their end. The `dynamic` globals follow.
    """

    offsets: tuple[tuple[str, int], ...]
    size_bytes: int
    dynamic: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all globals in workgroup memory."""
        return frozenset((*dict(self.offsets), *self.dynamic))


def lay_out_shared(module: DeviceModule) -> SharedLayout:
    """Assign an offset to each static global in workgroup memory; `[0 x T]` is dynamic workgroup memory.

    Raises SourceError for a global with a larger alignment than workgroup memory has.
    """
    offsets: list[tuple[str, int]] = []
    dynamic: list[str] = []
    end = 0
    for name, line in module.globals:
        match = _SHARED_GLOBAL.search(line)
        if match is None:
            continue
        type_ = match["rest"][: type_end(match["rest"])]
        size, natural = size_of(_ADDRESS_SPACE.sub("", type_))
        align = _ALIGN.search(match["rest"])
        aligned = int(align[1]) if align else min(natural, _SWIZZLE)
        if aligned > _SWIZZLE:
            msg = f"workgroup memory {name!r} is aligned to {aligned} bytes: the CPU aligns it to {_SWIZZLE} at most"
            raise SourceError(msg, hint=f"reduce its alignment to {_SWIZZLE}")
        if size == 0:
            dynamic.append(name)
            continue
        own = _SWIZZLE if size >= _SWIZZLE else _CACHE_LINE
        end = _round_up(end, max(own, aligned))
        offsets.append((name, end))
        end += size
    end = _round_up(end, _SWIZZLE if dynamic else _CACHE_LINE)
    return SharedLayout(tuple(offsets), end, tuple(dynamic))


def size_of(type_: str) -> tuple[int, int]:
    """Return size and alignment in bytes of a type on x86-64."""
    if type_[0] == "<" and type_[1] != "{":
        count, element = type_[1:-1].split(" x ", 1)
        bits = int(count) * (int(element[1:]) if element[0] == "i" else size_of(element)[0] * 8)
        size = 1 << max(0, (bits + 7) // 8 - 1).bit_length()
        return size, size
    if type_[0] == "[":
        count, element = type_[1:-1].split(" x ", 1)
        size, align = size_of(element)
        return int(count) * size, align
    if type_[0] in "{<":
        return _size_of_structure(type_)
    bits = _SCALAR_BITS.get(type_) or int(type_[1:])
    size = 1 << max(0, (bits + 7) // 8 - 1).bit_length()
    return size, min(size, 16)


def _size_of_structure(type_: str) -> tuple[int, int]:
    is_packed = type_[0] == "<"
    end, largest = 0, 1
    for member in LLVM_IR.split_list(type_[2:-2] if is_packed else type_[1:-1]):
        size, align = size_of(member)
        align = 1 if is_packed else align
        end, largest = _round_up(end, align) + size, max(largest, align)
    return _round_up(end, largest), largest


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def without_address_spaces(line: str) -> str:
    """Return the line with every pointer in address space 0, the only one of the CPU."""
    line = _ADDRESS_SPACE.sub("", line)
    line = _INTRINSIC.sub(lambda match: _POINTER_MANGLING.sub(".p0", match[0]), line)
    return _CAST.sub(r"bitcast \g<type>", line)


def place_shared(function: Function, layout: SharedLayout, context: str) -> Function:
    """Return the function with globals in workgroup memory replaced by addresses.

    The entry block computes the addresses, and the constant expressions and aggregates that contain them.
    """
    body = tuple(without_address_spaces(line) for line in function.body)
    head = without_address_spaces(function.head)
    offsets = dict(layout.offsets)

    def address(name: str) -> tuple[str, ...]:
        offset = offsets.get(name)
        if offset is None:
            return (f"call ptr @mo.dynamic_shared(ptr {context})",)
        return (
            f"call ptr @mo.static_shared(ptr {context})",
            f"getelementptr inbounds i8, ptr %0, i64 {offset}",
        )

    return place_addresses(replace(function, head=head, body=body), layout.names, address)
