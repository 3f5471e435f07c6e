"""Run GPU work on streams of a caller, with a libcudart that writes down what it is asked for."""

import ctypes
import os
import sys
import threading

import numpy as np

import mlir_offload

os.environ["RECORD_STREAMS"] = "1"
library = mlir_offload.load(sys.argv[1])
x, y = np.ones(4, np.float32), np.ones((2, 2), np.float32)


class Stream:
    """A stream as cuda.core has them."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def cut() -> None:
    ctypes.CDLL(None).fflush(None)
    sys.stdout.write("--\n")
    sys.stdout.flush()


def work(stream: int) -> None:
    for _ in range(50):
        library.double(stream, x)


library.double(Stream(0x1234), x)
cut()
library.scale(2.0, y, y.copy(), stream=0x5678)
cut()
threads = [threading.Thread(target=work, args=(stream,)) for stream in (0x1000, 0x2000)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
cut()
library.set_device("cuda:1")
library.scale(2.0, y, y.copy())
