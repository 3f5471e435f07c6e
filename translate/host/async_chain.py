"""Rewrite GPU operations of the host to the form that gpu-to-llvm converts.

gpu-to-llvm converts gpu.memcpy, gpu.memset, gpu.alloc and gpu.dealloc only if they are asynchronous
with exactly one dependency, and gpu.alloc host_shared only if it is not. gpu-async-region, the
upstream pass for that, adds a second dependency to operations that already have one. Here a synchronous
operation becomes an asynchronous one between a new stream and a wait; neighbours share the stream.

gpu-to-llvm lowers a token to a stream. It would destroy the stream of a token with two uses twice, and treat
a token from control flow as an event. Both are corrected here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from mlir_offload.translate.gpu_module import (
    POINTER,
    TOKEN,
    depend_on,
    dependencies,
    give_token,
    is_async,
    is_gpu_operation,
    is_shared_alloc,
    names_stream,
    resize_segment,
)
from mlir_offload.translate.mlir.operation import CustomOperation, Operation, Region, Value
from mlir_offload.translate.mlir.rewriter import Rewriter

_CAST = "builtin.unrealized_conversion_cast"
_PURE = frozenset({"llvm.mlir.constant", "memref.cast", "memref.subview", "memref.dim"})
_RUNTIME_CALLS = {
    "mgpuStreamSynchronize": 1,
    "mgpuStreamDestroy": 1,
    "mgpuStreamWaitEvent": 2,
}
"""The runtime functions that this module calls, and their number of parameters, which are all handles."""


class AsyncRewriter(Rewriter):
    """Rewrites the functions of one host module, with unique names for new values."""

    def __init__(self) -> None:
        """Create a rewriter for a module."""
        super().__init__("%mo_token_")
        self._called: set[str] = set()
        self._forks: set[str] = set()
        self._fresh: set[str] = set()

    def rewrite_function(self, function: Operation) -> None:
        """Rewrite all GPU operations of a function to a form that gpu-to-llvm converts."""
        if not any(map(is_gpu_operation, function.walk_inside())):
            return
        self._fresh.clear()
        for region in function.regions:
            self._rewrite_where(region, _is_chained_share, AsyncRewriter._share_at_once)
            self._rewrite_where(region, names_stream, AsyncRewriter._name_stream)
            self._fork(region)
            self._chain(region)
            self._rewrite_where(region, is_gpu_operation, AsyncRewriter._wait_for_streams)

    def declarations(self, declared: Collection[str]) -> list[Operation]:
        """Return declarations of the functions that were called, except those in `declared`."""
        heads = (
            f"llvm.func @{name}({', '.join([POINTER] * _RUNTIME_CALLS[name])})"
            for name in sorted(self._called.difference(declared))
        )
        return [CustomOperation("", head=head) for head in heads]

    def _rewrite_where(
        self,
        region: Region,
        applies: Callable[[Operation], bool],
        pattern: Callable[[AsyncRewriter, Operation], None],
    ) -> None:
        self.rewrite(region, lambda operation: pattern if applies(operation) else None)

    def _wait(self, tokens: Sequence[Value]) -> Value:
        """Create a token that depends on all of these tokens."""
        return self.value("gpu.wait", tokens, TOKEN)

    def _share_at_once(self, operation: Operation) -> None:
        """Make a host_shared allocation synchronous; its token becomes that of a wait for its dependencies."""
        tokens, old = dependencies(operation), operation.copy_without_regions()
        made = []
        if is_async(operation):
            made = [self._wait(tokens)]
        else:
            self.create("gpu.wait", tokens)
        operation.result_text = self.fresh_name()
        del operation.result_types[1:]
        depend_on(operation, ())
        self.insert(operation)
        self.replace(old, (*operation.results, *made))

    def _name_stream(self, launch: Operation) -> None:
        """Replace the stream of a launch, `<%stream : !llvm.ptr>`, by a token.

        gpu-to-llvm drops the stream of a launch if it converts its other operands, and always drops its
        tokens. Therefore calls make the stream wait for the tokens.
        """
        for waited in dependencies(launch):
            stream = self._stream_of(waited)
            self._call("mgpuStreamWaitEvent", launch.operands[-1], stream)
            self._call("mgpuStreamDestroy", stream)
        depend_on(launch, ())
        if not all(map(_is_llvm_type, launch.operand_types)):
            *operands, stream = launch.operands
            launch.operands = operands
            resize_segment(launch, -1, 0)
            depend_on(launch, (self.value(_CAST, (stream,), TOKEN),))
            give_token(launch, self.fresh_name())
        self.insert(launch)

    def _fork(self, region: Region) -> None:
        """Make each token have one use: every use except the last one waits for it on a separate stream."""
        left = _count_token_uses(region)
        forks: dict[str, list[Operation]] = {}
        for operation in region.walk():
            tokens = dependencies(operation) if is_gpu_operation(operation) else []
            self.location = operation.location
            for index, token in enumerate(tokens):
                left[token.name] -= 1
                if left[token.name] > 0:
                    with self.insertion_point(forks.setdefault(token.name, [])):
                        tokens[index] = self._wait((token,))
                    self._forks.add(tokens[index].name)
            if tokens:
                depend_on(operation, tokens)
        if forks:
            _insert_forks(region, forks)

    def _chain(self, region: Region) -> None:
        """Make every operation asynchronous with exactly one dependency."""
        for block in region.blocks:
            given, block.operations = block.operations, []
            with self.insertion_point(block.operations):
                run: list[Operation] = []
                for operation in given:
                    if run and (_is_pure(operation) or is_shared_alloc(operation)):
                        run.append(operation)
                        continue
                    if not _joins(operation, run):
                        self._finish(run)
                        run = []
                    if _is_synchronous(operation):
                        run.append(operation)
                    else:
                        self._chain_other(operation)
                self._finish(run)

    def _chain_other(self, operation: Operation) -> None:
        for inner in operation.regions:
            self._chain(inner)
        has_one = len(dependencies(operation)) == 1 if is_gpu_operation(operation) else True
        is_kept = operation.name == "gpu.wait" or names_stream(operation)
        if not (has_one or is_kept or is_shared_alloc(operation)):
            self.location = operation.location
            depend_on(operation, (self._wait(dependencies(operation)),))
        self.insert(operation)

    def _finish(self, run: Sequence[Operation]) -> None:
        """Insert a run of neighbouring synchronous operations on one stream."""
        operations = [one for one in run if _is_synchronous(one)]
        first = operations[0] if operations else None
        if first is None:
            return
        tokens = dependencies(first)
        if len(operations) == 1 and first.name == "gpu.launch_func" and not tokens:
            for operation in run:
                self.insert(operation)
            return
        self.location = first.location
        token = tokens[0] if len(tokens) == 1 else self._wait(tokens)
        for operation in run:
            if _is_synchronous(operation):
                depend_on(operation, (token,))
                token = give_token(operation, self.fresh_name())
            self.insert(operation)
        self.location = operations[-1].location
        self.create("gpu.wait", (token,))

    def _wait_for_streams(self, operation: Operation) -> None:
        """Wait for tokens from arguments and control flow with calls, because gpu-to-llvm treats them as events."""
        tokens = dependencies(operation)
        carried = [token for token in tokens if token.name not in self._fresh]
        others = [token for token in tokens if token.name in self._fresh]
        if operation.name != "gpu.wait" or not carried:
            self.insert(operation)
        elif is_async(operation):
            self._join_carried(operation, carried, others)
        else:
            self._wait_for_carried(carried, others)
        if is_async(operation) and (operation.name == "gpu.wait" or not carried):
            self._fresh.add(operation.result_names[-1])

    def _wait_for_carried(self, carried: Iterable[Value], others: Sequence[Value]) -> None:
        if others:
            self.create("gpu.wait", others)
        for token in carried:
            stream = self._stream_of(token)
            self._call("mgpuStreamSynchronize", stream)
            self._call("mgpuStreamDestroy", stream)

    def _join_carried(
        self, wait: Operation, carried: Iterable[Value], others: Sequence[Value]
    ) -> None:
        """Make a new stream wait for other streams; the runtime records the events."""
        depend_on(wait, others)
        self.insert(wait)
        (joined,) = wait.results
        waiting = self._stream_of(joined)
        for token in carried:
            stream = self._stream_of(token)
            self._call("mgpuStreamWaitEvent", waiting, stream)
            if joined.name not in self._forks:
                self._call("mgpuStreamDestroy", stream)

    def _stream_of(self, token: Value) -> Value:
        return self.value(_CAST, (token,), POINTER)

    def _call(self, name: str, *streams: Value) -> None:
        self._called.add(name)
        names, types = ", ".join(one.name for one in streams), ", ".join([POINTER] * len(streams))
        self.custom(f"llvm.call @{name}({names}) : ({types}) -> ()")


def _is_chained_share(operation: Operation) -> bool:
    return is_shared_alloc(operation) and (is_async(operation) or bool(dependencies(operation)))


def _is_llvm_type(kind: str) -> bool:
    return kind.startswith("!llvm.") or kind == "bf16" or (kind[0] in "if" and kind[1:].isdigit())


def _is_pure(operation: Operation) -> bool:
    return operation.name.startswith("arith.") or operation.name in _PURE


def _is_synchronous(operation: Operation) -> bool:
    """Return whether an operation is synchronous and must become asynchronous."""
    return (
        is_gpu_operation(operation)
        and operation.name != "gpu.wait"
        and not is_async(operation)
        and not is_shared_alloc(operation)
        and not names_stream(operation)
    )


def _joins(operation: Operation, run: Sequence[Operation]) -> bool:
    """Return whether an operation can run on the stream of the operations before it."""
    return bool(run) and _is_synchronous(operation) and not dependencies(operation)


def _count_token_uses(region: Region) -> Counter[str]:
    """Count the uses of each token as a dependency, and one for each other operation that uses it."""
    uses: Counter[str] = Counter()
    for operation in region.walk():
        if is_gpu_operation(operation):
            uses.update(token.name for token in dependencies(operation))
    for operation in region.walk() if uses else ():
        if not is_gpu_operation(operation):
            uses.update(name for name in set(operation.operand_names) if name in uses)
    return uses


def _insert_forks(region: Region, forks: Mapping[str, Sequence[Operation]]) -> None:
    """Insert operations after the definition of each token."""
    for block in region.blocks:
        made: list[Operation] = []
        for argument in block.arguments:
            made.extend(forks.get(argument.name, ()))
        for operation in block.operations:
            for inner in operation.regions:
                _insert_forks(inner, forks)
            made.append(operation)
            for name in operation.result_names:
                made.extend(forks.get(name, ()))
        block.operations = made
