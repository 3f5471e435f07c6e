"""Print the types of intrinsics in one LLVM library; a separate program, because that library may crash it.

usage: python signature_probe.py LIBRARY < REQUESTS

A request is a name, and the indices in TYPES of the types of an overload, or nothing. Without indices, two
types are printed, of overloads with different types; they differ in the types that an overload selects. With
indices, or `-` if there is nothing to select, the output is the type if the verifier accepts a call, the name
with the suffix of the overload, and the possible arguments: the parameters of the function, or a number for
those of integer type, which may have to be constants. A line is the request and the answer, separated by
tabs. There is no line for a name that the library lacks, or for a call that it rejects.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Sequence

# The number of elements (negative: of a scalable vector), and the element type.
TYPES = (
    (0, "i32"), (0, "i64"), (0, "i16"), (0, "float"), (0, "double"), (0, "half"), (0, "ptr"), (4, "i32"),
    (4, "float"), (2, "double"), (8, "i16"), (16, "i8"), (2, "i64"), (-4, "i32"), (-4, "float"), (-16, "i1"),
    (-16, "i8"), (-32, "i8"), (-48, "i8"), (-64, "i8"), (4, "ptr"),
)  # fmt: skip
PARAMETERS = "parameters"
"""The value of a call that passes no number."""

_CHOSEN = 16
# The widths and lengths of types that no intrinsic has.
_OPEN = ((30, 6), (102, 10))
_STEP = 4
_NUMBERS = (None, 0, 1)
# LLVMTypeKind: types with special constants, and types that a function parameter cannot have.
_INTEGER, _METADATA, _TOKEN, _AMX = 8, 14, 16, 19
_RETURN_STATUS = 2
_SECONDS = 0.5
_NEW = (
    *("ContextCreate", "IntTypeInContext", "VectorType", "ScalableVectorType", "PointerType"),
    *("FloatTypeInContext", "DoubleTypeInContext", "HalfTypeInContext", "VoidTypeInContext"),
    *("IntrinsicGetType", "IntrinsicGetName", "PrintTypeToString", "FunctionType", "GetReturnType"),
    *("ModuleCreateWithNameInContext", "GetIntrinsicDeclaration", "AddFunction", "GetParam"),
    *("AppendBasicBlockInContext", "CreateBuilderInContext", "BuildCall2", "BuildRetVoid"),
    *("ConstInt", "ConstNull", "GetPoison", "BuildFreeze", "MDNodeInContext2", "MetadataAsValue"),
    "GetValueName2",
)
Pointers = Sequence[ctypes.c_void_p]


class Library:
    """The C API of one release."""

    def __init__(self, path: str) -> None:
        """Load the library, and create the types for overloads."""
        self._c = api = ctypes.CDLL(path)
        for name in _NEW:
            getattr(api, f"LLVM{name}").restype = ctypes.c_void_p
        self._context = self._make("ContextCreate")
        self._builder = self._make("CreateBuilderInContext", self._context)
        self._open = [
            [self._vector(size, self._integer(bits + _STEP * number)) for number in range(_CHOSEN)]
            for bits, size in _OPEN
        ]
        self._types = [self._vector(size, self._element(word)) for size, word in TYPES]

    def _make(self, name: str, *arguments: object) -> ctypes.c_void_p:
        return ctypes.c_void_p(getattr(self._c, f"LLVM{name}")(*arguments))

    def _integer(self, bits: int) -> ctypes.c_void_p:
        return self._make("IntTypeInContext", self._context, bits)

    def _element(self, word: str) -> ctypes.c_void_p:
        if word == "ptr":
            return self._make("PointerType", self._integer(8), 0)
        if word[0] == "i":
            return self._integer(int(word[1:]))
        return self._make(f"{word.title()}TypeInContext", self._context)

    def _vector(self, size: int, element: ctypes.c_void_p) -> ctypes.c_void_p:
        if not size:
            return element
        return self._make("VectorType" if size > 0 else "ScalableVectorType", element, abs(size))

    def line(self, request: str) -> str:
        """Return the answer to a request; empty if the library lacks the name or rejects the call."""
        name, *numbers = request.split()
        spelled, size = name.encode(), ctypes.c_size_t()
        intrinsic = self._c.LLVMLookupIntrinsicID(spelled, ctypes.c_size_t(len(spelled)))
        if not intrinsic:
            return ""
        # The lookup also accepts a name that begins with the name of an overloaded intrinsic.
        found = self._c.LLVMIntrinsicGetName(intrinsic, ctypes.byref(size))
        if ctypes.string_at(found, size.value) != spelled:
            return ""
        if numbers:
            types = [self._types[int(number)] for number in numbers if number != "-"]
            called = self._called(intrinsic, types)
            answer = [self._spelled(intrinsic, types), *called] if called else []
        else:
            is_free = self._c.LLVMIntrinsicIsOverloaded(intrinsic)
            answer = [
                self._spelled(intrinsic, types) for types in (self._open if is_free else [[]])
            ]
        return "\t".join([request, *answer]) + "\n" if answer else ""

    def _spelled(self, intrinsic: int, types: Pointers) -> str:
        array = _array(types)
        made = self._make(
            "IntrinsicGetType", self._context, intrinsic, array, ctypes.c_size_t(len(types))
        )
        return ctypes.string_at(self._c.LLVMPrintTypeToString(made)).decode()

    def _called(self, intrinsic: int, types: Pointers) -> list[str]:
        """Return the name of the overload, and the arguments that the verifier accepts; empty if there are none."""
        module = self._make("ModuleCreateWithNameInContext", b"", self._context)
        array, count = _array(types), ctypes.c_size_t(len(types))
        called = self._make("GetIntrinsicDeclaration", module, intrinsic, array, count)
        kind = self._make("IntrinsicGetType", self._context, intrinsic, array, count)
        numbers = _NUMBERS if _INTEGER in map(self._kind, self._parameters(kind)) else (None,)
        found = [one for one in numbers if self._is_taken(module, called, kind, one)]
        size = ctypes.c_size_t()
        name = self._c.LLVMGetValueName2(called, ctypes.byref(size))
        spelled = ctypes.string_at(name, size.value).decode()
        self._c.LLVMDisposeModule(module)
        return (
            [spelled, *(PARAMETERS if one is None else str(one) for one in found)] if found else []
        )

    def _is_taken(
        self,
        module: ctypes.c_void_p,
        called: ctypes.c_void_p,
        kind: ctypes.c_void_p,
        number: int | None,
    ) -> bool:
        types = self._parameters(kind)
        free = [one for one in types if not self._is_given(one, number)]
        void = self._make("VoidTypeInContext", self._context)
        own = self._make("FunctionType", void, _array(free), len(free), 0)
        function = self._make("AddFunction", module, b"c", own)
        block = self._make("AppendBasicBlockInContext", self._context, function, b"")
        self._c.LLVMPositionBuilderAtEnd(self._builder, block)
        parameters = iter(range(len(free)))
        values = [
            self._given(one, number)
            if self._is_given(one, number)
            else self._make("GetParam", function, next(parameters))
            for one in types
        ]
        self._make("BuildCall2", self._builder, kind, called, _array(values), len(types), b"")
        self._make("BuildRetVoid", self._builder)
        return not self._c.LLVMVerifyFunction(function, _RETURN_STATUS)

    def _parameters(self, kind: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        """Return the parameter types of a function type."""
        array = (ctypes.c_void_p * self._c.LLVMCountParamTypes(kind))()
        self._c.LLVMGetParamTypes(kind, array)
        return [ctypes.c_void_p(one) for one in array]

    def _kind(self, kind: ctypes.c_void_p) -> int:
        return int(self._c.LLVMGetTypeKind(kind))

    def _is_given(self, kind: ctypes.c_void_p, number: int | None) -> bool:
        """Return whether a constant is passed for a type, instead of a parameter of the calling function."""
        which = self._kind(kind)
        return which in {_TOKEN, _AMX, _METADATA} or (which == _INTEGER and number is not None)

    def _given(self, kind: ctypes.c_void_p, number: int | None) -> ctypes.c_void_p:
        """Return the argument for such a type: a constant, or a value computed from one."""
        which = self._kind(kind)
        if which == _TOKEN:
            return self._make("ConstNull", kind)
        if which == _AMX:
            return self._make("BuildFreeze", self._builder, self._make("GetPoison", kind), b"")
        if which == _METADATA:
            node = self._make("MDNodeInContext2", self._context, None, ctypes.c_size_t(0))
            return self._make("MetadataAsValue", self._context, node)
        return self._make("ConstInt", kind, ctypes.c_ulonglong(number or 0), 0)


def _array(values: Iterable[ctypes.c_void_p]) -> ctypes.Array[ctypes.c_void_p]:
    listed = list(values)
    return (ctypes.c_void_p * len(listed))(*listed)


def _print(library: Library, requests: list[str]) -> None:
    """Print in a child process, which some types crash; then continue after them in another one."""
    while requests:
        sys.stdout.flush()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            # Write a line after each request, so that the parent knows which one crashed.
            with os.fdopen(writer, "w", buffering=1) as out:
                for request in requests:
                    # Limit the processor time, because some types make a library loop; the signal ends the
                    # child.
                    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
                    out.write(library.line(request) or "\n")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as stream:
            lines = stream.readlines()
        os.waitpid(child, 0)
        sys.stdout.writelines(line for line in lines if line != "\n")
        requests = requests[len(lines) + 1 :]


def main() -> None:
    """Answer the requests in standard input."""
    _print(Library(sys.argv[1]), sys.stdin.read().splitlines())


if __name__ == "__main__":
    main()
