"""Call with arrays of the standard library, where no NumPy is to be had."""

import array
import sys

sys.modules["numpy"] = None  # type: ignore[assignment]

import mlir_offload  # noqa: E402 (after NumPy is gone)

library = mlir_offload.load(sys.argv[1])
x = memoryview(array.array("f", range(6))).cast("B").cast("f", (2, 3))
y = memoryview(bytearray(24)).cast("f", (2, 3))
library.scale(3.0, x, y)
assert str(y.tolist()) == "[[0.0, 3.0, 6.0], [9.0, 12.0, 15.0]]"
try:
    library.count(3)
except mlir_offload.MlirOffloadError as error:
    assert "needs NumPy" in str(error)  # noqa: PT017
else:
    raise AssertionError
heavy = {"yaml", "click", "rich", "llvmlite", "numpy.core"} & sys.modules.keys()
assert not heavy, heavy
sys.stdout.write("ok\n")
