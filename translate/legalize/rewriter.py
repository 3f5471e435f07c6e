"""The rewriter of device code, which tracks properties of the current function."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from mlir_offload.translate.kind_lowering import DeviceForm
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import CustomOperation, Operation, Region, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import Attribute, quoted

POINTER = "!llvm.ptr"
_UNKNOWN = "(unknown)"
# In the names of integer types and of index.
_INTEGER = "i"
_FUNCTIONS = frozenset({"gpu.func", "func.func"})


class DeviceRewriter(Rewriter):
    """Rewrites a `gpu.module` for one form.

    `has_full_subgroups`: all blocks of the current function consist of full subgroups. `ragged_threads`
    is the block size if it is known and rows along x are not full subgroups, otherwise 0. `constants`
    are the integer constants, also of vectors of one number, that are visible at the insertion point. `globals`
    are operations to add to the module, by symbol.
    """

    def __init__(self, locations: Locations, form: DeviceForm) -> None:
        """Create a rewriter for a module."""
        super().__init__()
        self.locations = locations
        self.form = form
        self.has_full_subgroups = False
        self.ragged_threads = 0
        self.constants: dict[str, int] = {}
        self.globals: dict[str, Operation] = {}

    def rewrite_module(
        self, module: Operation, find: Callable[[Operation], DevicePattern | None]
    ) -> None:
        """Apply patterns to all operations of a `gpu.module`, and add the globals that they require."""
        self.rewrite(module.regions[0], find)
        defined = {operation.symbol for operation in module.operations}
        module.operations[:0] = [one for name, one in self.globals.items() if name not in defined]

    def enter(self, operation: Operation) -> None:
        """Update the properties of the function and the constants from an operation of the program."""
        if operation.name in _FUNCTIONS:
            sizes = operation.known_block_size or (1,)
            threads, width = prod(sizes), self.form.subgroup_size
            self.has_full_subgroups = threads % width == 0
            self.ragged_threads = threads if sizes[0] % width and sizes[0] != threads else 0
        if operation.name == "arith.constant" and _INTEGER in operation.result_types[0]:
            value = operation.attribute("value")
            number = (Attribute(value.body) if value.startswith("dense<") else value).integer
            if number is not None:
                self.constants[operation.result_text] = number
                return
        if operation.result_text in self.constants:
            # Sibling regions may have values with the same name.
            del self.constants[operation.result_text]

    def index(self, value: int) -> Value:
        """Create a constant of type index."""
        return self.value("arith.constant", (), "index", {"value": f"{value} : index"})

    def identifier(self, kind: str, dimension: str) -> Value:
        """Create an operation such as gpu.thread_id."""
        return self.value(f"gpu.{kind}", (), "index", {"dimension": f"#gpu<dim {dimension}>"})

    def dimensions(self, kind: str) -> tuple[Value, Value, Value]:
        """Create an operation such as gpu.thread_id for each of the three dimensions."""
        x, y, z = (self.identifier(kind, dimension) for dimension in "xyz")
        return x, y, z

    def add_global(self, name: str, text: str, location: str = "") -> None:
        """Add an operation in custom form to the module, unless the symbol was already added."""
        self.globals[name] = CustomOperation("", head=text, end=location)

    def message_global(self, text: str) -> str:
        """Add a global constant string to the module, and return its symbol."""
        name = f"__mo_assert_{len(self.globals)}"
        size = len(text.encode("utf-8", errors="surrogateescape")) + 1
        properties = {
            "addr_space": "0 : i32",
            "constant": "",
            "global_type": f"!llvm.array<{size} x i8>",
            "linkage": "#llvm.linkage<internal>",
            "sym_name": f'"{name}"',
            "value": quoted(f"{text}\0"),
            "visibility_": "0 : i64",
        }
        with self.insertion_point([]):
            made = self.create("llvm.mlir.global", (), (), properties, [Region()])
        self.globals[name] = made
        return name

    def file_and_line(self) -> tuple[str, int]:
        """Return the source location of the current operation."""
        file, _, rest = self.locations.resolve(self.location).rpartition(":")
        file, _, line = file.rpartition(":")
        return (file, int(line)) if rest and line.isdigit() else (_UNKNOWN, 0)

    def function_name(self) -> str:
        """Return the function name in the location of the current operation."""
        return self.locations.function_of(self.location) or _UNKNOWN


DevicePattern = Callable[[DeviceRewriter, Operation], None]
