"""Call the kernel from Python: python run.py"""

from pathlib import Path

import numpy as np

import mlir_offload

library = mlir_offload.compile(Path(__file__).with_name("scale.mlir"))
x = np.array([1, 2, 3, 4], dtype=np.float32)
library.scale(10, x)
print(*x, sep="\n")
