"""The group of the steps, and what all of them use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from mlir_offload.toolchain.errors import MlirOffloadError

PATH = click.Path(path_type=Path)
output_option = click.option("-o", "--output", type=PATH, required=True)
kernels_option = click.option("--kernel", "kernels", multiple=True)
consumer_option = click.option("--for-clang", "consumer", required=True, metavar="RELEASE|any")
release_option = click.option("--llvm", "major", type=int, required=True)
rdc_option = click.option("--rdc", is_flag=True, help="keep functions that other files may call")
ftz_option = click.option("--ftz", is_flag=True, help="take subnormal numbers for zero")
sanitize_option = click.option(
    "--sanitize", default="", help="the sanitizer that the code is marked for"
)
source_argument = click.argument("source", type=PATH)


# Where each is: the first tool of a compilation runs while the rest is still being loaded.
_MODULES = {
    "split": "program",
    "header": "program",
    "annotate": "annotate",
    "unpack": "image_file",
    "package": "image_file",
    "depfile": "rule",
    "anchor": "object_file",
    "members": "object_file",
    "detach": "object_file",
    "relocatable-linker": "object_file",
    "registration-names": "object_file",
    "runtime-symbols": "object_file",
    "ptx-time": "cuda",
    "nvptx-ir": "cuda",
    "cuda-directory": "cuda",
    "amdgpu-ir": "hip",
    "amdgpu-check": "hip",
    "hip-fat-binary": "hip",
    "spirv-ir": "spirv",
    "spirv-check": "spirv",
    "unwrap": "device",
    "cpu-ir": "cpu",
    "cpu-inline": "cpu",
    "cpu-split": "cpu",
    "downgrade": "older",
    "same-kernels": "older",
}


class _Steps(click.Group):
    """The steps, whose modules are loaded when one of them is called."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names of all steps."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a step, once its module has defined it."""
        if cmd_name in _MODULES:
            import_module(f"mlir_offload.driver.step.{_MODULES[cmd_name]}")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Steps)
def step() -> None:
    """Run one step of a compilation; these are what -### prints."""


@contextlib.contextmanager
def located(location: str) -> Iterator[None]:
    """Give errors raised inside the place of the input where they name none."""
    try:
        yield
    except MlirOffloadError as error:
        error.location = error.location or location
        raise


def read_text(path: Path) -> str:
    """Return the text of a file, bytes that are no UTF-8 kept as they are."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write_text(path: Path, text: str) -> None:
    """Write what `read_text` reads."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
