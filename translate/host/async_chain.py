"""GPU operations of the host in the one form that gpu-to-llvm converts.

gpu-to-llvm converts gpu.memcpy, gpu.memset, gpu.alloc and gpu.dealloc only where they are asynchronous
with exactly one dependency, and gpu.alloc host_shared only where it is not. gpu-async-region, the
stock pass for that, gives a second dependency to operations that have one already. Here a synchronous
operation becomes an asynchronous one between a fresh stream and a wait; neighbours share the stream.

To that lowering a token is a stream. A token used twice would be a stream destroyed twice, and one
that comes out of control flow would be taken for an event. Both are put right here too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.translate.host.gpu_operation import (
    POINTER,
    TOKEN,
    GpuOperation,
    is_gpu_operation,
    parse_gpu_operation,
    with_segment,
)
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import parse_operation

_PURE = re.compile(
    r' *(?:%\S+ = )?"(?:arith\.\w+|llvm\.mlir\.constant|memref\.(?:cast|subview|dim))"\('
)
_LLVM_TYPE = re.compile(r"!llvm\.|[if]\d+$|bf16$")
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_DEFINES = re.compile(r"%[\w$.-]+(?=:)")
_BLOCK = re.compile(r" *\^\w+\(")
_RUNTIME_CALLS = {
    "mgpuStreamSynchronize": 1,
    "mgpuStreamDestroy": 1,
    "mgpuStreamWaitEvent": 2,
}
"""Functions of the runtime that are called here, and how many handles they take."""


class AsyncRewriter(Struct):
    """Rewrites function after function of one host module; the names it makes never clash."""

    count: int = 0
    called: set[str] = field(default_factory=set)
    forks: set[str] = field(default_factory=set)

    def rewrite(self, lines: Sequence[str]) -> tuple[str, ...]:
        """Return the lines of a function with every GPU operation in a form that converts."""
        if not any(map(is_gpu_operation, lines)):
            return tuple(lines)
        text = self._share_at_once(list(lines))
        text = self._name_streams(text)
        text = self._fork(text)
        text = _Chaining(self).run(text)
        return tuple(self._wait_for_streams(text))

    def declarations(self, declared: Collection[str]) -> list[str]:
        """Return the declarations of the functions that were called and are not declared yet."""
        return [
            f"llvm.func @{name}({', '.join(['!llvm.ptr'] * _RUNTIME_CALLS[name])})"
            for name in sorted(self.called.difference(declared))
        ]

    def name(self) -> str:
        """Return a new token name."""
        self.count += 1
        return f"%mo_token_{self.count}"

    def wait(self, tokens: Sequence[str], like: GpuOperation) -> tuple[str, str]:
        """Return a token that follows all of these, and the operation that makes it."""
        token = self.name()
        types = tuple(TOKEN for _ in tokens)
        line = GpuOperation(
            like.indent, "gpu.wait", (token,), (TOKEN,), tuple(tokens), types, "", like.location
        ).render()
        return token, line

    def _share_at_once(self, lines: list[str]) -> list[str]:
        """Make host_shared allocations synchronous; their token follows their dependencies."""
        out: list[str] = []
        renamed: dict[str, str] = {}
        for line in lines:
            current = _rename(line, renamed)
            gpu = parse_gpu_operation(current)
            if gpu is None or not gpu.is_shared_alloc or not (gpu.is_async or gpu.dependencies):
                out.append(current)
                continue
            buffer = self.name()
            if gpu.is_async:
                token, wait = self.wait(gpu.dependencies, gpu)
                renamed[gpu.values[-1]] = token
                out.append(wait)
            elif gpu.dependencies:
                out.append(_sync_wait(gpu.dependencies, gpu))
            renamed[gpu.values[0]] = buffer
            alloc = replace(gpu, results=(buffer,), result_types=gpu.result_types[:1])
            out.append(alloc.depending_on().render())
        return out

    def _name_streams(self, lines: list[str]) -> list[str]:
        """Turn `<%stream : !llvm.ptr>` of a launch into a token.

        The conversion drops the stream of a launch whose other operands it has to convert, and the
        tokens of any. The stream waits for these by calls.
        """
        out: list[str] = []
        for line in lines:
            gpu = parse_gpu_operation(line)
            if gpu is None or not gpu.names_stream:
                out.append(line)
                continue
            for waited in gpu.dependencies:
                stream = self._stream_of(waited, gpu, out)
                out.append(self._call("mgpuStreamWaitEvent", gpu, gpu.operands[-1], stream))
                out.append(self._call("mgpuStreamDestroy", gpu, stream))
            gpu = gpu.depending_on()
            if all(map(_LLVM_TYPE.match, gpu.operand_types)):
                out.append(gpu.render())
                continue
            token = self.name()
            cast = GpuOperation(
                gpu.indent, "builtin.unrealized_conversion_cast", (token,), (TOKEN,),
                gpu.operands[-1:], (POINTER,), "", gpu.location,
            )  # fmt: skip
            launch = replace(
                gpu,
                operands=gpu.operands[:-1],
                operand_types=gpu.operand_types[:-1],
                attributes=with_segment(gpu.attributes, -1, 0),
            )
            out.extend((cast.render(), launch.depending_on(token).giving(self.name()).render()))
        return out

    def _fork(self, lines: list[str]) -> list[str]:
        """Give each token one use: every use but the last waits for it on a stream of its own."""
        uses = _count_token_uses(lines)
        shared = {token for token, count in uses.items() if count > 1}
        if not shared:
            return lines
        left = {token: uses[token] for token in shared}
        forks: dict[str, list[str]] = {token: [] for token in shared}
        out: list[str] = []
        for line in lines:
            gpu = parse_gpu_operation(line)
            tokens = []
            for token in gpu.dependencies if gpu else ():
                left[token] = left.get(token, 1) - 1
                if gpu and left[token] > 0:
                    fork, wait = self.wait((token,), gpu)
                    forks[token].append(wait)
                    self.forks.add(fork)
                    tokens.append(fork)
                else:
                    tokens.append(token)
            out.append(gpu.depending_on(*tokens).render() if gpu and tokens else line)
        return self._insert_forks(out, forks)

    def _insert_forks(self, lines: list[str], forks: dict[str, list[str]]) -> list[str]:
        out: list[str] = []
        open_results: list[tuple[str, ...]] = []
        for line in lines:
            out.append(line)
            defined = _defined_tokens(line)
            if line.endswith("({"):
                open_results.append(defined)  # they are there when its regions have ended
                continue
            if line.lstrip().startswith("})"):
                defined = open_results.pop()
            for token in defined:
                out.extend(forks.get(token, ()))
        return out

    def _wait_for_streams(self, lines: list[str]) -> list[str]:
        """Wait for tokens of arguments and of control flow by calls: gpu-to-llvm takes them for events."""
        fresh: set[str] = set()
        out: list[str] = []
        for line in lines:
            gpu = parse_gpu_operation(line)
            if gpu is None:
                out.append(line)
                continue
            carried = tuple(token for token in gpu.dependencies if token not in fresh)
            if gpu.name == "gpu.wait" and carried:
                wait = self._join_carried if gpu.is_async else self._wait_for_carried
                out.extend(wait(gpu, carried))
            else:
                out.append(line)
            if gpu.is_async and (gpu.name == "gpu.wait" or not carried):
                fresh.add(gpu.values[-1])
        return out

    def _wait_for_carried(self, gpu: GpuOperation, carried: tuple[str, ...]) -> list[str]:
        others = tuple(token for token in gpu.dependencies if token not in carried)
        out = [_sync_wait(others, gpu)] if others else []
        for token in carried:
            stream = self._stream_of(token, gpu, out)
            out.append(self._call("mgpuStreamSynchronize", gpu, stream))
            out.append(self._call("mgpuStreamDestroy", gpu, stream))
        return out

    def _join_carried(self, gpu: GpuOperation, carried: tuple[str, ...]) -> list[str]:
        """Let a fresh stream wait for streams: the runtime records the event."""
        others = (token for token in gpu.dependencies if token not in carried)
        out = [gpu.depending_on(*others).render()]
        waiting = self._stream_of(gpu.values[-1], gpu, out)
        for token in carried:
            stream = self._stream_of(token, gpu, out)
            out.append(self._call("mgpuStreamWaitEvent", gpu, waiting, stream))
            if gpu.values[-1] not in self.forks:
                out.append(self._call("mgpuStreamDestroy", gpu, stream))
        return out

    def _stream_of(self, token: str, like: GpuOperation, out: list[str]) -> str:
        stream = self.name()
        cast = f'{stream} = "builtin.unrealized_conversion_cast"({token}) : ({TOKEN}) -> {POINTER}'
        out.append(f"{' ' * like.indent}{cast} {like.location}")
        return stream

    def _call(self, name: str, like: GpuOperation, *streams: str) -> str:
        self.called.add(name)
        types = ", ".join(POINTER for _ in streams)
        call = f"llvm.call @{name}({', '.join(streams)}) : ({types}) -> ()"
        return f"{' ' * like.indent}{call} {like.location}"


class _Chaining(Struct):
    """One pass over a function that makes every operation asynchronous with one dependency."""

    rewriter: AsyncRewriter
    out: list[str] = field(default_factory=list)
    run_operations: list[GpuOperation] = field(default_factory=list)
    run_lines: list[str] = field(default_factory=list)

    def run(self, lines: list[str]) -> list[str]:
        for line in lines:
            gpu = parse_gpu_operation(line)
            if gpu is None:
                if not (self.run_operations and _PURE.match(line)):
                    self._finish()
                self._keep(line)
            elif gpu.is_shared_alloc:
                self._keep(line)
            elif gpu.name == "gpu.wait" or gpu.names_stream:
                self._finish()
                self.out.append(line)
            elif gpu.is_async:
                self._finish()
                self._with_one_dependency(gpu)
            else:
                if gpu.dependencies or (
                    self.run_operations and gpu.indent != self.run_operations[0].indent
                ):
                    self._finish()
                self.run_operations.append(gpu)
                self.run_lines.append("")
        self._finish()
        return self.out

    def _keep(self, line: str) -> None:
        (self.run_lines if self.run_operations else self.out).append(line)

    def _with_one_dependency(self, gpu: GpuOperation) -> None:
        if len(gpu.dependencies) == 1:
            self.out.append(gpu.render())
            return
        token, wait = self.rewriter.wait(gpu.dependencies, gpu)
        self.out.extend((wait, gpu.depending_on(token).render()))

    def _finish(self) -> None:
        """Write the run of neighbouring synchronous operations, all on one stream."""
        operations, lines = self.run_operations, self.run_lines
        self.run_operations, self.run_lines = [], []
        if not operations:
            return
        first = operations[0]
        if len(operations) == 1 and first.name == "gpu.launch_func" and not first.dependencies:
            self.out.extend(line or first.render() for line in lines)
            return
        token = first.dependencies[0] if len(first.dependencies) == 1 else ""
        if not token:
            token, wait = self.rewriter.wait(first.dependencies, first)
            self.out.append(wait)
        rest = iter(operations)
        for line in lines:
            if line:
                self.out.append(line)
                continue
            gpu = next(rest).depending_on(token).giving(token := self.rewriter.name())
            self.out.append(gpu.render())
        self.out.append(_sync_wait((token,), operations[-1]))


def _sync_wait(tokens: tuple[str, ...], like: GpuOperation) -> str:
    types = tuple(TOKEN for _ in tokens)
    return GpuOperation(like.indent, "gpu.wait", (), (), tokens, types, "", like.location).render()


def _defined_tokens(line: str) -> tuple[str, ...]:
    """Return the values that a line defines: the arguments of a block, or results."""
    if _BLOCK.match(line):
        return tuple(_DEFINES.findall(line))
    operation = parse_operation(line)
    groups = (
        (group.partition(":") for group in MLIR.split_list(operation.results)) if operation else ()
    )
    return tuple(
        f"{name}#{index}" if count else name
        for name, _, count in groups
        for index in range(int(count or 1))
    )


def _count_token_uses(lines: Sequence[str]) -> Counter[str]:
    """Count for each token its uses as a dependency, and one more where anything else names it."""
    uses: Counter[str] = Counter()
    for line in lines:
        gpu = parse_gpu_operation(line)
        if gpu is not None:
            uses.update(gpu.dependencies)
    for line in lines:
        if TOKEN in line and not is_gpu_operation(line):
            operation = parse_operation(line)
            named = operation.operands if operation else ()
            uses.update(operand for operand in set(named) if operand in uses)
    return uses


def _rename(line: str, renamed: dict[str, str]) -> str:
    if not renamed or "%" not in line:
        return line
    return MLIR.replace(_VALUE, lambda match: renamed.get(match[0], match[0]), line)
