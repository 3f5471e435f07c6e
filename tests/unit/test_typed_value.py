"""Values of Struct types can be read in any thread."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("toolchain", "offload", "translate", "driver")
# The annotation of Inner blocks while msgspec knows only the first field of Outer.
PROGRAM = """
import sys, threading
from msgspec import Struct
from mlir_offload.toolchain.tables import converted, decoded

entered, leave = threading.Event(), threading.Event()

def wait():
    entered.set()
    leave.wait(60)
    return int

class Inner(Struct):
    x: "wait()"

class Outer(Struct):
    inner: Inner
    name: str

results = []
threads = [
    threading.Thread(target=lambda: results.append(converted({"inner": {"x": 1}, "name": "a"}, Outer))),
    threading.Thread(target=lambda: results.append(decoded('{"inner": {"x": 2}, "name": "b"}', Outer))),
]
threads[0].start()
assert entered.wait(60)
threads[1].start()
threads[1].join(0.2)
leave.set()
for thread in threads:
    thread.join()
print(sorted((value.inner.x, value.name) for value in results))
"""


def test_two_threads_read_values_of_a_type_that_is_new() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "[(1, 'a'), (2, 'b')]\n"), done.stderr


def test_no_other_module_reads_values_of_types() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for layer in LAYERS
        for path in sorted((ROOT / layer).rglob("*.py"))
        if any(_reads_a_type(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {"toolchain/tables.py"}


def _reads_a_type(tree: ast.AST) -> Iterator[bool]:
    """Yield whether each part of a module uses a function of msgspec that takes a type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msgspec"):
            yield any(alias.name in {"convert", "decode", "Decoder"} for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr in {"convert", "Decoder"}:
            yield ast.unparse(node) in {
                "msgspec.convert",
                "msgspec.json.Decoder",
                "msgspec.msgpack.Decoder",
            }
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr == "decode" and any(word.arg == "type" for word in node.keywords)
