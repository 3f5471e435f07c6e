"""Read the metadata of AMD code objects: MessagePack, from code object version 3 on.

The keys are those of "Code Object V3 Metadata" and its successors in LLVM's AMDGPUUsage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
from msgspec import Struct

from mlir_offload.offload.device.kernel import DeviceKernel, KernelParameter
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.errors import VerificationError

# The metadata of 10,000 kernels takes about 30 MB.
_LARGEST = 64 << 20
_LARGEST_NUMBER = (1 << 64) - 1


class AmdgpuMetadata(Struct, frozen=True):
    """The target (`amdgcn-amd-amdhsa--gfx90a:xnack-`), and the kernels by the name of the descriptor."""

    target: str
    kernels: tuple[tuple[str, DeviceKernel], ...]


class _Fields(Struct, frozen=True):
    """A map in the metadata. A value of another type than the format specifies raises VerificationError."""

    view: ByteView
    name: str
    values: Mapping[Any, Any]

    def number(self, key: str) -> int | None:
        """Return an unsigned integer of up to 64 bits; None if the key is absent."""
        value = self.values.get(key)
        if value is None or (type(value) is int and 0 <= value <= _LARGEST_NUMBER):
            return value
        raise self._mistyped(key, "a number")

    def required_number(self, key: str) -> int:
        """Return an unsigned integer. Raises VerificationError if the key is absent."""
        value = self.number(key)
        if value is None:
            raise self._mistyped(key, "a number")
        return value

    def text(self, key: str, default: str = "") -> str:
        """Return a string."""
        value = self.values.get(key, default)
        if isinstance(value, str):
            return value
        raise self._mistyped(key, "a string")

    def maps(self, key: str) -> list[_Fields]:
        """Return a list of maps; empty if the key is absent."""
        rows = self.values.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._mistyped(key, "a list of maps")
        return [_Fields(self.view, f"{self.name}{key}[{i}]", row) for i, row in enumerate(rows)]

    def dimensions(self, key: str) -> tuple[int, int, int] | None:
        """Return three numbers; None if the key is absent."""
        values = self.values.get(key)
        if values is None:
            return None
        if not isinstance(values, list) or [type(value) for value in values] != [int] * 3:
            raise self._mistyped(key, "three numbers")
        return values[0], values[1], values[2]

    def _mistyped(self, key: str, expected: str) -> VerificationError:
        return self.view.malformed(0, f"metadata {self.name}{key}", f"it is not {expected}")


def parse_metadata(view: ByteView) -> AmdgpuMetadata:
    """Read the note NT_AMDGPU_METADATA.

    Raises VerificationError if it is not MessagePack, or if a value has the wrong type. It uses up to 100
    bytes of memory per byte of the note.
    """
    fields = _Fields(view, "", _decode(view))
    kernels = tuple(_kernel(kernel) for kernel in fields.maps("amdhsa.kernels"))
    return AmdgpuMetadata(fields.text("amdhsa.target"), kernels)


def _decode(view: ByteView) -> dict[Any, Any]:
    if view.size > _LARGEST:
        raise view.malformed(0, "metadata", f"it is {view.size} bytes long")
    data = view.whole()
    unpacker = msgpack.Unpacker(max_buffer_size=len(data), unicode_errors="replace")
    unpacker.feed(data)
    try:
        # The decoder allocates a list when it reads its length. Skipping the whole first ensures that all
        # elements exist, so nested lists cannot allocate more than the file contains.
        unpacker.skip()
        value = msgpack.unpackb(data, unicode_errors="replace")
    except (ValueError, msgpack.UnpackException) as error:
        reason = f"invalid MessagePack: {error or type(error).__name__}"
        raise view.malformed(unpacker.tell(), "metadata", reason) from error
    if not isinstance(value, dict):
        raise view.malformed(0, "metadata", "it is not a map")
    return value


def _kernel(fields: _Fields) -> tuple[str, DeviceKernel]:
    name = fields.text(".name")
    kernel = DeviceKernel(
        name=name,
        parameters=tuple(_parameter(argument) for argument in fields.maps(".args")),
        max_threads=fields.number(".max_flat_workgroup_size"),
        required_threads=fields.dimensions(".reqd_workgroup_size"),
        registers=fields.number(".vgpr_count"),
        scalar_registers=fields.number(".sgpr_count"),
        shared_bytes=fields.number(".group_segment_fixed_size"),
        local_bytes=fields.number(".private_segment_fixed_size"),
        subgroup_size=fields.number(".wavefront_size"),
    )
    return fields.text(".symbol", f"{name}.kd"), kernel


def _parameter(fields: _Fields) -> KernelParameter:
    kind = fields.text(".value_kind")
    return KernelParameter(
        offset=fields.required_number(".offset"),
        size_bytes=fields.required_number(".size"),
        type=kind,
        name=fields.text(".name"),
        is_hidden=kind.startswith("hidden_"),
    )
