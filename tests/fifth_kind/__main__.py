"""The compiler with a fifth device kind, which the four modules here and one C file know."""

from __future__ import annotations

from mlir_offload.driver.cli import main
from mlir_offload.toolchain.target import register_kind

register_kind("fifth", "fifth_kind.{layer}", offload_kind="openmp")
main()
