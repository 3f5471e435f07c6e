"""Load libraries of different releases and kinds into one process, call all, unload them: LIBRARY..."""

import _ctypes
import ctypes
import os
import sys
import threading

COUNT = 96


class MemRef(ctypes.Structure):
    _fields_ = [
        ("allocated", ctypes.c_void_p),
        ("aligned", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("stride", ctypes.c_int64),
    ]


def add(library: ctypes.CDLL, by: int) -> None:
    """Let the library add a number to all elements."""
    numbers = (ctypes.c_int32 * COUNT)(*range(COUNT))
    place = ctypes.addressof(numbers)
    memref = MemRef(place, place, 0, COUNT, 1)
    library._mlir_ciface_add(ctypes.byref(memref), by)
    assert list(numbers) == [by + i for i in range(COUNT)]


def add_with_all(libraries: list[ctypes.CDLL]) -> None:
    """Call them in turn, and at the same time."""
    for by, library in enumerate(libraries):
        add(library, by)
    threads = [threading.Thread(target=add, args=(one, 7)) for one in libraries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_child(libraries: list[ctypes.CDLL]) -> None:
    """Call them in a child of this process."""
    child = os.fork()
    if not child:
        add_with_all(libraries)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


for names in (sys.argv[1:], sys.argv[:0:-1]):
    loaded = [ctypes.CDLL(name) for name in names]
    add_with_all(loaded)
    in_child(loaded)
    while loaded:
        _ctypes.dlclose(loaded.pop(len(loaded) // 2)._handle)
        add_with_all(loaded)
sys.stdout.write("ended\n")
