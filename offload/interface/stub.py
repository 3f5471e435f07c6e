"""Render the Python type stub of a library, for type checkers and editors."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from mlir_offload.offload.interface.library import Function, Library


def render_stub(library: Library, name: str) -> str:
    """Return the text of a `.pyi` file: a class `name` with the functions of the library.

    Arrays are `Any`, because those of every Python library are accepted; comments contain the MLIR types.
    """
    lines = [
        f'"""The functions of {library.name}."""',
        "",
        "from typing import Any",
        "",
        "from mlir_offload.offload.interface.library import Library",
        "",
        f"class {name}(Library):",
        *_methods(library.values()),
    ]
    return "\n".join(lines) + "\n"


def _methods(functions: Iterable[Function]) -> list[str]:
    methods = [_method(function) for function in functions if function.__name__.isidentifier()]
    return methods or ["    pass"]


def _method(function: Function) -> str:
    signature = function.__signature__
    parameters = [
        f"{parameter.name}: {_type(parameter.annotation)}"
        for parameter in signature.parameters.values()
    ]
    is_by_position = any(
        parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        for parameter in signature.parameters.values()
    )
    words = ["self", *parameters, *(["/"] if is_by_position else []), "*", "stream: Any = ..."]
    results = signature.return_annotation
    returned = (
        f"tuple[{', '.join(map(_type, results))}]" if isinstance(results, tuple) else _type(results)
    )
    head = f"    def {function.__name__}({', '.join(words)}) -> {returned}: ..."
    return f"{head}  # {function.interface.signature}"


def _type(annotation: object) -> str:
    if annotation is None:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else "Any"
