"""Print the types of intrinsics as one LLVM library has them: a program of its own, which that library may crash.

usage: python signature_probe.py LIBRARY < REQUESTS

A request is a name, and the numbers of TYPES that an overload is to have, or nothing. Without numbers two types are
printed, of overloads with other types each: what differs between them an overload is free to choose. A line is
the request and the types, separated by tabs; a name that the library lacks has no line.
"""

from __future__ import annotations

import ctypes
import os
import sys

# Numbers of elements (negative: of a scalable vector), and the element.
TYPES = (
    (0, "i32"), (0, "i64"), (0, "i16"), (0, "float"), (0, "double"), (0, "half"), (0, "ptr"), (4, "i32"),
    (4, "float"), (2, "double"), (8, "i16"), (16, "i8"), (2, "i64"), (-4, "i32"), (-4, "float"), (-16, "i1"),
)  # fmt: skip
_CHOSEN = 16
# The widths and lengths of the types of which no intrinsic has one.
_OPEN = ((30, 6), (102, 10))
_STEP = 4
_BATCH = 64


class Library:
    """The C API of one release, loaded."""

    def __init__(self, path: str) -> None:
        """Load it, and make the types that overloads are given."""
        self._c = api = ctypes.CDLL(path)
        for name in (
            *(
                "ContextCreate",
                "IntTypeInContext",
                "VectorType",
                "ScalableVectorType",
                "PointerType",
            ),
            *("FloatTypeInContext", "DoubleTypeInContext", "HalfTypeInContext"),
            *("IntrinsicGetType", "IntrinsicGetName", "PrintTypeToString"),
        ):
            getattr(api, f"LLVM{name}").restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(api.LLVMContextCreate())
        self._open = [
            [self._vector(size, self._integer(bits + _STEP * number)) for number in range(_CHOSEN)]
            for bits, size in _OPEN
        ]
        self._types = [self._vector(size, self._element(word)) for size, word in TYPES]

    def _integer(self, bits: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._c.LLVMIntTypeInContext(self._context, bits))

    def _element(self, word: str) -> ctypes.c_void_p:
        if word == "ptr":
            return ctypes.c_void_p(self._c.LLVMPointerType(self._integer(8), 0))
        if word[0] == "i":
            return self._integer(int(word[1:]))
        make = getattr(self._c, f"LLVM{word.title()}TypeInContext")
        return ctypes.c_void_p(make(self._context))

    def _vector(self, size: int, element: ctypes.c_void_p) -> ctypes.c_void_p:
        if not size:
            return element
        make = self._c.LLVMVectorType if size > 0 else self._c.LLVMScalableVectorType
        return ctypes.c_void_p(make(element, abs(size)))

    def line(self, request: str) -> str:
        """Return what is printed of a request; empty if the library lacks the name."""
        name, *numbers = request.split()
        spelled, size = name.encode(), ctypes.c_size_t()
        intrinsic = self._c.LLVMLookupIntrinsicID(spelled, ctypes.c_size_t(len(spelled)))
        if not intrinsic:
            return ""
        # A name that begins with that of an overload is taken for it.
        found = self._c.LLVMIntrinsicGetName(intrinsic, ctypes.byref(size))
        if ctypes.string_at(found, size.value) != spelled:
            return ""
        chosen = [[self._types[int(number)] for number in numbers]] if numbers else self._open
        if not self._c.LLVMIntrinsicIsOverloaded(intrinsic):
            chosen = [[]]
        return "\t".join([request, *(self._spelled(intrinsic, types) for types in chosen)]) + "\n"

    def _spelled(self, intrinsic: int, types: list[ctypes.c_void_p]) -> str:
        array = (ctypes.c_void_p * len(types))(*types)
        made = self._c.LLVMIntrinsicGetType(
            self._context, intrinsic, array, ctypes.c_size_t(len(types))
        )
        text = self._c.LLVMPrintTypeToString(ctypes.c_void_p(made))
        return ctypes.string_at(text).decode()


def _print(library: Library, requests: list[str]) -> None:
    """Print in a child, which some types crash; then one half and the other."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        with os.fdopen(writer, "w") as out:
            out.write("".join(map(library.line, requests)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if not status:
        sys.stdout.write(text)
    elif len(requests) > 1:
        half = len(requests) // 2
        _print(library, requests[:half])
        _print(library, requests[half:])


def main() -> None:
    """Answer the requests of standard input."""
    library = Library(sys.argv[1])
    requests = sys.stdin.read().splitlines()
    for begin in range(0, len(requests), _BATCH):
        _print(library, requests[begin : begin + _BATCH])


if __name__ == "__main__":
    main()
