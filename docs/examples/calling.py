"""Call the functions of calling.mlir from Python.

mlir-offload -shared -fPIC calling.mlir -o libcalling.so && python calling.py ./libcalling.so
"""

import sys

import numpy as np

import mlir_offload

library = mlir_offload.load(sys.argv[1])

x = np.arange(32, dtype=np.float32).reshape(4, 8)
y = np.zeros((4, 4), dtype=np.float32)
library.scale(2.0, x[:, :4], y)
assert (y == 2 * x[:, :4]).all()

numbers, total = library.count(10)
assert numbers.tolist() == list(range(10))
assert total == sum(range(10))

try:
    library.scale(2.0, x.astype(np.float64), y)
except TypeError as error:
    print(error)

print("calling: ok, scaled and counted in Python")
