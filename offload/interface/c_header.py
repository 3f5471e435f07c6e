"""Render the header through which C and C++ call the functions of an interface."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from mlir_offload.offload.interface.float8 import FLOAT8
from mlir_offload.offload.interface.function import InterfaceFunction
from mlir_offload.offload.interface.type import (
    Element,
    InterfaceType,
    MemrefType,
    ScalarType,
    TokenType,
    UnrankedType,
)

_NO_LETTER = re.compile(r"\W", re.ASCII)
# Keywords of C23 and C++23 that begin with a letter.
_RESERVED_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int int16_t int32_t int64_t int8_t linux long
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
    register reinterpret_cast requires restrict return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename
    typeof uint16_t uint32_t uint64_t uint8_t union unix unsigned using virtual void volatile
    wchar_t while xor xor_eq"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
_COMPLEX = ("complex<f32>", "complex<f64>")

_HEAD = """\
/* Made by mlir-offload --emit-header; changes here are lost.
 *
 * A memref argument is a pointer to its descriptor. Sizes, strides and the offset count elements.
 * Memory that a function returns is the caller's: free(result.allocated) gives it back, unless the
 * function returned memory that it was given, or a constant.
 */
#ifndef {guard}
#define {guard}

#include <stdbool.h>
#include <stdint.h>
"""
# If the compiler lacks the type, the header declares only pointers to it, not values.
_HAVE_FLOAT16 = (
    "defined(__FLT16_MANT_DIG__) && (defined(__clang__) || !defined(__cplusplus) || __GNUC__ >= 13)"
)
_HALVES = {
    "f16": (_HAVE_FLOAT16, "_Float16"),
    "bf16": ("__GNUC__ >= 13 || (defined(__clang__) && __clang_major__ >= 15)", "__bf16"),
}
_HALF = """
#ifndef MLIR_{upper}
#define MLIR_{upper}
#if {condition}
#define MLIR_HAVE_{upper} 1
typedef {native} mlir_{name};
#else
typedef struct mlir_{name} {{
  uint16_t bits;
}} mlir_{name};
#endif
#endif
"""
_FLOAT8_STRUCT = """
#ifndef MLIR_{upper}
#define MLIR_{upper}
typedef struct mlir_{name} {{
  uint8_t bits;
}} mlir_{name};
#endif
"""
_VECTOR_STRUCT = """
#ifndef {upper}
#define {upper}
typedef struct {name} {{
  {c_type} at{lanes};{gap}
}} __attribute__((aligned({align}))) {name};
#endif
"""
_COMPLEX_STRUCT = """
#ifndef MLIR_COMPLEX_{upper}
#define MLIR_COMPLEX_{upper}
typedef struct mlir_complex_{name} {{
  {c_type} re, im;
}} mlir_complex_{name};
#endif
"""
_UNRANKED_STRUCT = """
#ifndef MLIR_UNRANKED_MEMREF
#define MLIR_UNRANKED_MEMREF
/* A memref of any rank; a descriptor that a function returns is to be freed, too. */
typedef struct mlir_unranked_memref {
  int64_t rank;
  void *descriptor; /* of that rank and the element type */
} mlir_unranked_memref;
#endif
"""
_MEMREF_STRUCT = """
#ifndef {upper}
#define {upper}
typedef struct {name} {{
  {c_type} *allocated; /* what to free */
  {c_type} *aligned;   /* where the data is */
  int64_t offset;{pad} /* of the first element, from aligned */
{dimensions}}} {name};

/* Describes memory that holds its elements row by row, without gaps. */
static inline {name} {name}_of({parameters}) {{
  {name} memref = {{{values}}};
  return memref;
}}
#endif
"""
_LINKAGE_BEGIN = """
#ifdef __cplusplus
extern "C" {
#endif

/* The stream of the calling thread; see mlir_offload.h. */
void mlir_offload_set_stream(void *stream);
void *mlir_offload_get_stream(void);
"""
_LINKAGE_END = """
#ifdef __cplusplus
}
#endif

#endif
"""


class HeaderFunction(Struct, frozen=True):
    """A function, its source location, and whether C must define it."""

    function: InterfaceFunction
    place: str
    is_external: bool = False


class _Parameter(Struct, frozen=True):
    c_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.c_type}{'' if self.c_type.endswith('*') else ' '}{self.name}"


def render_header(functions: Sequence[HeaderFunction], file_name: str) -> str:
    """Return the header; C must be able to express every type in it."""
    guard = f"MLIR_OFFLOAD_{_identifier(file_name).upper()}"
    types = list(_types(item.function for item in functions))
    parts = [
        _HEAD.format(guard=guard),
        *_numbers(types),
        *([_UNRANKED_STRUCT] if any(isinstance(item, UnrankedType) for item in types) else []),
        *dict.fromkeys(_memref(item) for item in types if isinstance(item, MemrefType)),
        _LINKAGE_BEGIN,
        *map(_function, functions),
        _LINKAGE_END,
    ]
    return "".join(parts)


def c_identifier(function: InterfaceFunction) -> str:
    """Return the name by which C calls a function."""
    return _identifier(function.symbol)


def _types(functions: Iterable[InterfaceFunction]) -> Iterator[InterfaceType]:
    for function in functions:
        yield from (item.type for item in function.arguments)
        yield from function.results


def _numbers(types: Iterable[InterfaceType]) -> Iterator[str]:
    """Yield the definitions of element types for which C has no standard type."""
    elements = {
        item.element.spelling: item.element
        for item in types
        if isinstance(item, ScalarType | MemrefType | UnrankedType)
    }
    used = {element.number.spelling for element in elements.values()}
    for name, (condition, native) in _HALVES.items():
        if name in used:
            yield _HALF.format(name=name, upper=name.upper(), condition=condition, native=native)
    for name, c_type in (("f32", "float"), ("f64", "double")):
        if f"complex<{name}>" in used:
            yield _COMPLEX_STRUCT.format(name=name, upper=name.upper(), c_type=c_type)
    for name in sorted(used.intersection(FLOAT8)):
        yield _FLOAT8_STRUCT.format(name=name, upper=name.upper())
    yield from (_vector(element) for _, element in sorted(elements.items()) if element.lanes)


def _vector(element: Element) -> str:
    number = element.number
    row = element.row_bytes // number.size_bytes
    lanes = "".join(f"[{count}]" for count in (*element.lanes[:-1], row))
    gap = f" /* {element.lanes[-1]} of each {row} count */" if row > element.lanes[-1] else ""
    return _VECTOR_STRUCT.format(
        upper=element.c_type.upper(),
        name=element.c_type,
        c_type=number.c_type,
        lanes=lanes,
        gap=gap,
        align=element.align_bytes,
    )


def _struct_name(memref: MemrefType) -> str:
    element = memref.element.spelling.replace("<", "_").replace(">", "")
    return f"mlir_memref_{memref.rank}d_{element}"


def _memref(memref: MemrefType) -> str:
    rank, name = memref.rank, _struct_name(memref)
    sizes = [f"size{i}" for i in range(rank)]
    strides = [" * ".join(sizes[i + 1 :]) or "1" for i in range(rank)]
    parameters = [f"{memref.element.c_type} *data", *(f"int64_t {size}" for size in sizes)]
    values = ["data", "data", "0"]
    if rank:
        values += [f"{{{', '.join(sizes)}}}", f"{{{', '.join(strides)}}}"]
    return _MEMREF_STRUCT.format(
        upper=name.upper(),
        name=name,
        c_type=memref.element.c_type,
        pad=" " * max(0, len(memref.element.c_type) - 3),
        dimensions=f"  int64_t sizes[{rank}];\n  int64_t strides[{rank}];\n" if rank else "",
        parameters=", ".join(parameters),
        values=", ".join(values),
    )


def _function(item: HeaderFunction) -> str:
    function = item.function
    names = _Names()
    result, results = _results(function, names)
    parameters = results + [
        parameter
        for argument in function.arguments
        for parameter in _parameters(argument.type, names.take(argument.name))
    ]
    given = ", ".join(map(str, parameters)) or "void"
    label = "" if function.symbol.isidentifier() else f' __asm__("{_c_string(function.symbol)}")'
    who = "defined in C, called by " if item.is_external else ""
    text = (
        f"\n/* {who}{_comment(item.place)}: {_comment(function.signature)} */\n"
        f"{_results_struct(function)}"
        f"{_Parameter(result, _identifier(function.symbol))}({given}){label};\n"
    )
    if not item.is_external:
        text += _stream_variant(function, result, parameters, names)
    halves = sorted(_halves_by_value(function))
    if halves:
        condition = " && ".join(f"defined(MLIR_HAVE_{name.upper()})" for name in halves)
        text = f"\n#if {condition}{text}#endif\n"
    return text


def _stream_variant(
    function: InterfaceFunction, result: str, parameters: Sequence[_Parameter], names: _Names
) -> str:
    """Return the function that runs the GPU work on a stream of the caller."""
    stream, before, value = names.take("stream"), names.take("before"), names.take("value")
    call = f"{_identifier(function.symbol)}({', '.join(item.name for item in parameters)})"
    given = ", ".join([f"void *{stream}", *map(str, parameters)])
    keeps = result != "void"
    name = f"{_identifier(function.name)}_on_stream"
    return (
        f"\n/* The same, its GPU work in order on a stream (cudaStream_t, hipStream_t, cl_command_queue). */\n"
        f"static inline {_Parameter(result, name)}({given}) {{\n"
        f"  void *{before} = mlir_offload_get_stream();\n"
        f"  mlir_offload_set_stream({stream});\n"
        f"  {f'{_Parameter(result, value)} = ' if keeps else ''}{call};\n"
        f"  mlir_offload_set_stream({before});\n"
        f"{f'  return {value};{chr(10)}' if keeps else ''}"
        f"}}\n"
    )


def _results(function: InterfaceFunction, names: _Names) -> tuple[str, list[_Parameter]]:
    """Return the C return type, and the pointer parameter for results that it cannot express."""
    if not function.results:
        return "void", []
    if len(function.results) > 1:
        pointer = _Parameter(f"struct {_results_name(function)} *", names.take("results"))
        return "void", [pointer]
    only = function.results[0]
    if isinstance(only, TokenType) or (
        isinstance(only, ScalarType) and not only.element.is_complex
    ):
        return _member_type(only), []
    return "void", [_Parameter(f"{_member_type(only)} *", names.take("result"))]


def _results_name(function: InterfaceFunction) -> str:
    return f"{_identifier(function.name)}_results"


def _results_struct(function: InterfaceFunction) -> str:
    if len(function.results) < 2:  # noqa: PLR2004
        return ""
    members = "".join(
        f"  {_Parameter(_member_type(item), f'result{number}')};\n"
        for number, item in enumerate(function.results)
    )
    return f"struct {_results_name(function)} {{\n{members}}};\n"


def _member_type(item: InterfaceType) -> str:
    match item:
        case ScalarType():
            return item.element.c_type
        case MemrefType():
            return _struct_name(item)
        case UnrankedType():
            return "mlir_unranked_memref"
        case _:
            return "void *"


def _parameters(item: InterfaceType, name: str) -> list[_Parameter]:
    """Return the C parameters for an argument: LLVM passes the parts of a complex number separately."""
    match item:
        case ScalarType() if item.element.is_complex:
            part = "float" if item.element.spelling == _COMPLEX[0] else "double"
            return [_Parameter(part, f"{name}_re"), _Parameter(part, f"{name}_im")]
        case MemrefType() | UnrankedType():
            return [_Parameter(f"{_member_type(item)} *", name)]
        case _:
            return [_Parameter(_member_type(item), name)]


def _halves_by_value(function: InterfaceFunction) -> set[str]:
    single = function.results if len(function.results) == 1 else ()
    types = (*(item.type for item in function.arguments), *single)
    return {item.spelling for item in types if isinstance(item, ScalarType)} & _HALVES.keys()


class _Names:
    """The parameter names of one function: each is legal in C and C++, and unique."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, wanted: str) -> str:
        name = f"{wanted}_" if wanted in _RESERVED else wanted
        while not self._taken.isdisjoint((name, f"{name}_re", f"{name}_im")):
            name += "_"
        self._taken |= {name, f"{name}_re", f"{name}_im"}
        return name


def _identifier(text: str) -> str:
    name = _NO_LETTER.sub("_", text)
    return f"_{name}" if name[:1].isdigit() else name


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


def _c_string(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
