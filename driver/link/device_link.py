"""How the linker wrapper links device code: its arguments, and the CUDA directory that it uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import builds_of
from mlir_offload.driver.link.runtime import HostRuntime
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.link.held_image import runs_on_host
from mlir_offload.toolchain.process import Environment

_HEAD_BYTES = 4


class DeviceLink(Struct, frozen=True):
    """How device code is linked: arguments of clang, and the environment in which it finds tools."""

    arguments: tuple[str, ...]
    environment: Environment = ()


def device_link(context: BuildContext, runtime: HostRuntime, directory: Path) -> DeviceLink:
    """Return what the linker wrapper needs to link the device code of each kind.

    `directory` is the one that was prepared for the kinds.
    """
    abi = load_abi(context.consumer)
    # The wrapper (LLVM 19 and 22) links the images that it makes of several kinds, and several for the
    # host, in the order in which they got ready: one job at a time gives equal bytes, and libomptarget
    # runs the first image for the host.
    is_ordered = len(runtime.kinds) > 1 or any(map(_has_host_arch, _given_images(context)))
    slots = JobSlots(1) if is_ordered else context.executor.slots
    jobs = slots.for_child(takes_jobserver=abi.takes_jobserver)
    arguments = list(abi.jobs_arguments(jobs))
    folders: list[str] = []
    for build in builds_of(runtime.kinds):
        arguments += build.link_arguments(context, runtime.archs(build.name), directory)
        folders += map(str, build.link_folders(context, directory))
    if not folders:
        return DeviceLink(tuple(arguments))
    path = os.pathsep.join((*folders, context.search_path))
    return DeviceLink(tuple(arguments), (("PATH", path),))


def _given_images(context: BuildContext) -> Iterator[PackagedImage]:
    return (image for item in context.given for image in item.images)


def _has_host_arch(image: PackagedImage) -> bool:
    return runs_on_host(image) and bool(image.arch)


def link_directory(context: BuildContext) -> Path:
    """Return the directory that is prepared for the link of all."""
    return context.workspace.absolute() / "cuda"
