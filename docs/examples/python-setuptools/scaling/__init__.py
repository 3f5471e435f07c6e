"""Multiply arrays by a number, on the GPU or else on the CPU."""

from pathlib import Path

import numpy as np

import mlir_offload

_library = mlir_offload.load(Path(__file__).with_name("libscaling.so"))


def scale(factor: float, numbers: np.ndarray) -> None:
    """Multiply each element of an array of float32 in place."""
    _library.scale(factor, numbers)
