"""The rewriter of device code, and what it knows of the function that it rewrites."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from mlir_offload.translate.kind_lowering import DeviceForm
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import CustomOperation, Operation, Region, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import quoted

POINTER = "!llvm.ptr"
_UNKNOWN = "(unknown)"
_FUNCTIONS = frozenset({"gpu.func", "func.func"})


class DeviceRewriter(Rewriter):
    """Rewrites a `gpu.module` for one form.

    `has_full_subgroups` says whether the function is known to run in blocks of whole subgroups only;
    `ragged_threads` is the size of its blocks if their rows are known not to be whole subgroups, else 0.
    `constants` are the values of type i32 that are known where the next operation is made. `globals` are
    what the module gets in addition, by symbol.
    """

    def __init__(self, locations: Locations, form: DeviceForm) -> None:
        """Begin with a module of which nothing is known."""
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
        """Apply patterns to everything in a `gpu.module`, and add the globals that they need."""
        self.rewrite(module.regions[0], find)
        defined = {operation.symbol for operation in module.operations}
        module.operations[:0] = [one for name, one in self.globals.items() if name not in defined]

    def enter(self, operation: Operation) -> None:
        """Keep what an operation of the program says about its function, or the value it defines."""
        if operation.name in _FUNCTIONS:
            sizes = operation.known_block_size or (1,)
            threads, width = prod(sizes), self.form.subgroup_size
            self.has_full_subgroups = threads % width == 0
            self.ragged_threads = threads if sizes[0] % width and sizes[0] != threads else 0
        if operation.name == "arith.constant" and operation.result_types == ["i32"]:
            number = operation.attribute("value").integer
            if number is not None:
                self.constants[operation.result_text] = number
        elif operation.result_text in self.constants:
            # Regions that are next to each other may give values the same name.
            del self.constants[operation.result_text]

    def index(self, value: int) -> Value:
        """Make a constant of type index."""
        return self.value("arith.constant", (), "index", {"value": f"{value} : index"})

    def identifier(self, kind: str, dimension: str) -> Value:
        """Make an operation such as gpu.thread_id."""
        return self.value(f"gpu.{kind}", (), "index", {"dimension": f"#gpu<dim {dimension}>"})

    def dimensions(self, kind: str) -> tuple[Value, Value, Value]:
        """Make an operation such as gpu.thread_id for each of the three dimensions."""
        x, y, z = (self.identifier(kind, dimension) for dimension in "xyz")
        return x, y, z

    def add_global(self, name: str, text: str, location: str = "") -> None:
        """Add to the module what is written in its custom form, once."""
        self.globals[name] = CustomOperation("", head=text, end=location)

    def message_global(self, text: str) -> str:
        """Add a constant string to the module, and return its name."""
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
        """Return the place in the source of what is rewritten."""
        file, _, rest = self.locations.resolve(self.location).rpartition(":")
        file, _, line = file.rpartition(":")
        return (file, int(line)) if rest and line.isdigit() else (_UNKNOWN, 0)

    def function_name(self) -> str:
        """Return the function that the location of what is rewritten names."""
        return self.locations.function_of(self.location) or _UNKNOWN


DevicePattern = Callable[[DeviceRewriter, Operation], None]
