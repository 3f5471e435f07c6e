"""The device link: arguments for clang-linker-wrapper, and the directories in which it finds tools."""

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
    """Arguments of clang for the device link, and the environment in which the wrapper finds tools."""

    arguments: tuple[str, ...]
    environment: Environment = ()


def device_link(context: BuildContext, runtime: HostRuntime, directory: Path) -> DeviceLink:
    """Return the arguments and environment for the device link of all kinds in the program.

    `directory` is the directory that `prepare_link` of these kinds has filled.
    """
    abi = load_abi(context.consumer)
    # The wrapper (LLVM 19 and 22) links images of several kinds, and several images for the CPU, in the order
    # in which their compilations end. One job at a time makes this order, and thus the output, deterministic;
    # libomptarget runs the first image for the CPU.
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
    """Return the directory for the files that the kinds prepare for the link."""
    return context.workspace.absolute() / "cuda"
