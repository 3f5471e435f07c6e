"""Vectors whose bits LLVM packs are moved from and to memory element by element."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cuda_emulator import CudaEmulator, run_program
from support.launch_operands import SHOW

COUNT, LANES = 16, 5
WIDTHS = (1, 4, 24, 33, 65)
PLACE = "%o = arith.constant 1 : index\n%p = arith.constant 2 : index"
# %m is a mask without disabled lanes, with which LLVM makes vector.load of vector.maskedload.
READS = {
    "load": "vector.load %a[%o] : M, V",
    "transfer_read": "vector.transfer_read %a[%o], %z : M, V",
    "maskedload": "vector.maskedload %a[%o], %m, %v0 : M, B, V into V",
    "expandload": "vector.expandload %a[%o], %m, %v0 : M, B, V into V",
}
WRITES = {
    "store": "vector.store %v, %b[%p] : M, V",
    "transfer_write": "vector.transfer_write %v, %b[%p] : V, M",
    "maskedstore": "vector.maskedstore %b[%p], %m, %v : M, B, V",
    "compressstore": "vector.compressstore %b[%p], %m, %v : M, B, V",
    "vector_store": "affine.vector_store %v, %b[%p] : M, V",
}
OPERATIONS = READS | WRITES


def value(index: int) -> int:
    return index * index * 0x1234567 + 0x55 * index + 1


def body(operation: str, kind: str) -> str:
    """Return code that moves five elements from place 1 of %a to place 2 of %b."""
    lanes = range(LANES)
    lines = [
        PLACE,
        f"%z = arith.constant {'false' if kind == 'i1' else f'0 : {kind}'}",
        f"%v0 = vector.broadcast %z : {kind} to V",
        "%t = arith.constant true",
        "%m = vector.broadcast %t : i1 to B",
    ]
    for at in lanes:
        lines += [f"%x{at} = arith.constant {1 + at} : index", f"%y{at} = arith.constant {2 + at} : index"]  # fmt: skip
    if operation in READS:
        lines.append(f"%v = {READS[operation]}")
        for at in lanes:
            lines += [f"%e{at} = vector.extract %v[{at}] : {kind} from V", f"memref.store %e{at}, %b[%y{at}] : M"]  # fmt: skip
    else:
        for at in lanes:
            made = "%v" if at == LANES - 1 else f"%v{at + 1}"
            lines += [f"%e{at} = memref.load %a[%x{at}] : M", f"{made} = vector.insert %e{at}, %v{at} [{at}] : {kind} into V"]  # fmt: skip
        lines.append(WRITES[operation])
    return "\n".join(lines)


def cases() -> Iterator[tuple[str, int, str]]:
    for width in WIDTHS:
        for operation in OPERATIONS:
            yield f"{operation}_{width}", width, operation


def host(name: str, width: int, call: str) -> str:
    kind = f"i{width}"
    low = f"arith.{'trunci' if width < 64 else 'extui'}"
    high = f"arith.{'extui' if width < 64 else 'trunci'}"
    return f"""
func.func private @h_{name}() {{
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %n = arith.constant {COUNT} : index
  %zero = arith.constant {"false" if width == 1 else f"0 : {kind}"}
  %a = gpu.alloc host_shared () : M
  %b = gpu.alloc host_shared () : M
  %r = memref.alloc(%n) : memref<?xi64>
  affine.for %i = 0 to {COUNT} {{
    %x = arith.index_cast %i : index to i64
    %s = arith.muli %x, %x : i64
    %c = arith.constant {0x1234567} : i64
    %d = arith.constant {0x55} : i64
    %e = arith.constant 1 : i64
    %sc = arith.muli %s, %c : i64
    %xd = arith.muli %x, %d : i64
    %f = arith.addi %sc, %xd : i64
    %g = arith.addi %f, %e : i64
    %v = {low} %g : i64 to {kind}
    memref.store %v, %a[%i] : M
    memref.store %zero, %b[%i] : M
  }}
  {call}
  affine.for %i = 0 to {COUNT} {{
    %v = memref.load %b[%i] : M
    %w = {high} %v : {kind} to i64
    memref.store %w, %r[%i] : memref<?xi64>
  }}
  %address = memref.extract_aligned_pointer_as_index %r : memref<?xi64> -> index
  %number = arith.index_cast %address : index to i64
  %pointer = llvm.inttoptr %number : i64 to !llvm.ptr
  %count = arith.constant {COUNT} : i64
  llvm.call @show(%pointer, %count) : (!llvm.ptr, i64) -> ()
  return
}}""".replace(": M", f": memref<{COUNT}x{kind}>")


def typed(text: str, width: int) -> str:
    """Replace the letters for types."""
    kinds = {"M": f"memref<{COUNT}xi{width}>", "V": f"vector<{LANES}xi{width}>", "B": f"vector<{LANES}xi1>"}  # fmt: skip
    words = text.replace(",", " ,").replace("\n", " \n ").split(" ")
    return " ".join(kinds.get(word, word) for word in words)


def program() -> str:
    """Return a program that moves elements by each operation, in a kernel and in a function of the host."""
    kernels, functions, calls = [], [], []
    for name, width, operation in cases():
        memref, moved = f"memref<{COUNT}xi{width}>", typed(body(operation, f"i{width}"), width)
        taken = f"(%a: {memref}, %b: {memref})"
        kernels.append(f"gpu.func @{name}{taken} kernel {{\n{moved}\ngpu.return }}")
        functions.append(f"func.func private @{name}{taken} {{\n{moved}\nreturn }}")
        launch = f"""gpu.launch_func @m::@{name} blocks in (%1, %1, %1) threads in (%1, %1, %1)
          args(%a : {memref}, %b : {memref})"""
        functions.append(host(f"{name}_device", width, launch))
        functions.append(host(name, width, f"func.call @{name}(%a, %b) : ({memref}, {memref}) -> ()"))  # fmt: skip
        calls += [f"func.call @h_{name}_device() : () -> ()", f"func.call @h_{name}() : () -> ()"]
    return "\n".join(
        (
            "module attributes {gpu.container_module} {\nllvm.func @show(!llvm.ptr, i64)",
            "gpu.module @m {",
            *kernels,
            "}",
            *functions,
            "func.func @main() {",
            *calls,
            "return } }",
        )
    )


@pytest.mark.parametrize(
    "release", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
)
def test_elements_that_vectors_pack_are_moved_one_by_one(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, release: int
) -> None:
    source, show, made = (tmp_path / name for name in ("p.mlir", "show.c", "p"))
    source.write_text(program())
    show.write_text(SHOW)
    flags = (f"--llvm={release}", "--offload-arch=sm_90,host", *cuda_emulator.options(is_kept=False))  # fmt: skip
    subprocess.run([*mlir_offload, *flags, str(source), str(show), "-o", str(made)], check=True)
    for device in ("host", "cuda"):
        ran = run_program(made, device=device)
        assert ran.stderr == ""
        lines = iter(ran.stdout.splitlines())
        for name, width, _ in cases():
            moved = [value(1 + at) % 2 ** min(width, 64) for at in range(LANES)]
            expected = [0, 0, *moved, *[0] * (COUNT - LANES - 2)]
            for side in ("kernel", "host"):
                assert list(map(int, next(lines).split())) == expected, (device, name, side)
