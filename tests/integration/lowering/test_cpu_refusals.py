"""Operations that only GPUs have: told by name and line where a kernel is compiled for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.cpu.rewrite import rewrite_functions
from mlir_offload.translate.cpu.text import parse_device_module

PROGRAM = """\
gpu.module @m {
  gpu.func @k() kernel {
    gpu.barrier
    nvvm.cluster.arrive {aligned}
    gpu.return
  }
}
"""


def test_what_the_cpu_lacks_is_refused_at_its_line(lower: Callable[..., Any]) -> None:
    lowered = lower(PROGRAM, debug=True)
    with pytest.raises(
        SourceError, match=r"cluster\.arrive.* is not supported on the CPU"
    ) as caught:
        rewrite_functions(parse_device_module(lowered.devices[0]))
    assert caught.value.location.endswith("program.mlir:4:5")
