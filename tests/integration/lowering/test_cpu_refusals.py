"""Operations that only GPUs have: told by name and line where a kernel is compiled for the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from support.operation_table import cases_of, program_of

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.translate.cpu.rewrite import rewrite_functions
from mlir_offload.translate.cpu.text import parse_device_module

MESSAGE = "is not supported on the CPU"


def test_what_the_cpu_lacks_is_refused_at_its_line(
    llvm: LlvmToolchain, lower: Callable[..., Any]
) -> None:
    refused = [
        case
        for case in cases_of(llvm.version.major)
        if dict(case.refused).get("cpu") == MESSAGE and case.frame == "device"
    ]
    lowered = lower(program_of(refused), debug=True)
    module = parse_device_module(lowered.devices[0])
    functions = {function.name: function for function in module.functions}
    kernels = {kernel.name: kernel.symbol for kernel in lowered.program.modules[0].kernels}

    for number, case in enumerate(refused):
        with pytest.raises(SourceError, match=MESSAGE) as caught:
            rewrite_functions(replace(module, functions=(functions[kernels[f"k{number}"]],)))
        # cluster_dim and cluster_dim_blocks share a register.
        family = case.name.split()[0].removesuffix("_blocks").partition("_matrix")[0]
        assert f"gpu.{family.split('_')[0]}" in str(caught.value), case.name
        assert re.search(r"program\.mlir:\d+", caught.value.location), case.name
    assert refused
