"""The type bf16 in IR for the CPU: replaced by integers, except in calls of libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.cpu.module import cpu_device_ir

TAIL = (
    '!1 = !DIFile(filename: "k.mlir", directory: "/d")\n'
    '!2 = distinct !DISubprogram(name: "k", file: !1, line: 2)\n'
    "!3 = !DILocation(line: 12, column: 7, scope: !2)\n"
)
PARAMETERS = (
    "ptr %p, bfloat %a, bfloat %b, float %f, double %d, i32 %i, i64 %l, i1 %c, <4 x bfloat> %v"
)


def module(*lines: str, result: str = "", declarations: str = "") -> str:
    body = "".join(f"  {line}\n" for line in lines)
    stored = f"  store {result} %r, ptr %p, align 2\n" if result else ""
    return f"define ptx_kernel void @k({PARAMETERS}) {{\n{body}{stored}  ret void\n}}\n{declarations}{TAIL}"


COMPUTING = [
    *((f"{name} contract bfloat %a, %b", "bfloat") for name in ("fadd", "fsub", "fmul", "fdiv", "frem")),
    ("fadd <4 x bfloat> %v, splat (bfloat 0xR3F80)", "<4 x bfloat>"),
    ("fneg nsz bfloat %a", "bfloat"),
    ("fneg <4 x bfloat> %v", "<4 x bfloat>"),
    ("fcmp fast olt bfloat %a, 0xR0000", "i1"),
    ("fcmp une <4 x bfloat> %v, zeroinitializer", "<4 x i1>"),
    ("fpext bfloat %a to float", "float"),
    ("fpext bfloat %a to double", "double"),
    ("fpext <4 x bfloat> %v to <4 x float>", "<4 x float>"),
    ("fptrunc float %f to bfloat, !dbg !3", "bfloat"),
    ("fptrunc double %d to bfloat", "bfloat"),
    ("sitofp i1 %c to bfloat", "bfloat"),
    ("uitofp nneg i32 %i to bfloat", "bfloat"),
    ("sitofp i64 %l to bfloat", "bfloat"),
    ("fptosi bfloat %a to i64", "i64"),
    ("fptoui <4 x bfloat> %v to <4 x i8>", "<4 x i8>"),
    ("call fast bfloat @llvm.fabs.bf16(bfloat %a)", "bfloat"),
    ("tail call bfloat @llvm.copysign.bf16(bfloat %a, bfloat 0xRBF80), !dbg !3", "bfloat"),
    ("call <4 x bfloat> @llvm.maximum.v4bf16(<4 x bfloat> %v, <4 x bfloat> %v)", "<4 x bfloat>"),
    ("call bfloat @llvm.powi.bf16.i32(bfloat %a, i32 %i)", "bfloat"),
    ("call bfloat @llvm.powi.bf16.i32(bfloat %a, i32 3)", "bfloat"),
    ("call i1 @llvm.is.fpclass.bf16(bfloat %a, i32 3)", "i1"),
    ("call i32 @llvm.fptosi.sat.i32.bf16(bfloat %a)", "i32"),
    ("call { bfloat, i32 } @llvm.frexp.bf16.i32(bfloat %a)", "{ bfloat, i32 }"),
    ("call reassoc bfloat @llvm.vector.reduce.fadd.v4bf16(bfloat 0xR0000, <4 x bfloat> %v)", "bfloat"),
    ("call bfloat @llvm.vector.reduce.fmaximum.v4bf16(<4 x bfloat> %v)", "bfloat"),
    ("atomicrmw fadd ptr %p, bfloat %a acq_rel, align 2", "bfloat"),
    ('atomicrmw volatile fmin ptr %p, bfloat %a syncscope("agent") monotonic, align 2, !dbg !3', "bfloat"),
]  # fmt: skip
MOVING = [
    ("select nnan i1 %c, bfloat %a, bfloat 0xR3F80", "select i1 %c, i16 %a, i16 16256", "bfloat"),
    ("freeze bfloat %a", "freeze i16 %a", "bfloat"),
    ("bitcast bfloat %a to i16", "bitcast i16 %a to i16", "i16"),
    ("insertelement <4 x bfloat> %v, bfloat %a, i64 1", "insertelement <4 x i16> %v, i16 %a, i64 1", "<4 x bfloat>"),
    ("load atomic bfloat, ptr %p monotonic, align 2", "load atomic i16, ptr %p monotonic", "bfloat"),
    ("atomicrmw xchg ptr %p, bfloat %a acq_rel, align 2", "atomicrmw xchg ptr %p, i16 %a acq_rel", "bfloat"),
    (
        "call <4 x bfloat> @llvm.masked.load.v4bf16.p0(ptr %p, i32 2, <4 x i1> splat (i1 true), <4 x bfloat> %v)",
        "call <4 x i16> @llvm.masked.load.v4i16.p0(ptr %p, i32 2,",
        "<4 x bfloat>",
    ),
]  # fmt: skip


@pytest.mark.llvm(22)
def test_no_instruction_computes_with_the_type(tmp_path: Path) -> None:
    clang = "/usr/lib/llvm-22/bin/clang"
    for number, (line, kind) in enumerate(COMPUTING):
        text = cpu_device_ir(module(f"%r = {line}", result=kind), kernels=("k",)).text
        assert "bfloat" not in text, line
        (tmp_path / f"{number}.ll").write_text(text)
    # clang verifies them. Each of these processors has instructions for bf16.
    for processor in ("cooperlake", "sierraforest", "diamondrapids"):
        options = (f"-march={processor}", "-O1", "-S", "-w")
        subprocess.run([clang, *options, *tmp_path.glob("*.ll")], cwd=tmp_path, check=True)
        code = "".join(made.read_text() for made in tmp_path.glob("*.s"))
        mnemonics = {line.split()[0] for line in code.splitlines() if line.startswith("\tv")}
        assert mnemonics
        assert not [name for name in mnemonics if "bf16" in name]


@pytest.mark.parametrize(("line", "moved", "kind"), MOVING)
def test_moves_are_those_of_integers(line: str, moved: str, kind: str) -> None:
    text = cpu_device_ir(module(f"%r = {line}", result=kind), kernels=("k",)).text
    assert moved in text
    assert "bfloat" not in text


def test_values_of_a_phi_and_of_variables_are_integers() -> None:
    lines = (
        "br label %next",
        "next:",
        "%r = phi nsz bfloat [ 0xR4000, %0 ], [ %a, %next ]",
        "br i1 %c, label %next, label %end",
        "end:",
    )
    text = cpu_device_ir(
        f"@table = internal constant [2 x bfloat] [bfloat 0xR3F80, bfloat 0xR0001]\n{module(*lines, result='bfloat')}",
        kernels=("k",),
    ).text
    assert "%r = phi i16 [ 16384, " in text
    assert "@table = internal constant [2 x i16] [i16 16256, i16 1]" in text


def test_a_function_of_a_library_takes_and_returns_the_type() -> None:
    declarations = "declare bfloat @own(bfloat, ptr)\n"
    line = "%r = call bfloat @own(bfloat %a, ptr %p), !dbg !3"
    text = cpu_device_ir(
        module(line, result="bfloat", declarations=declarations),
        kernels=("k",),
        library=frozenset({"own"}),
    ).text
    assert "%mo.bfloat.1 = bitcast i16 %a to bfloat" in text
    assert "%mo.bfloat.2 = call bfloat @own(bfloat %mo.bfloat.1, ptr %p), !dbg !3" in text
    assert "%r = bitcast bfloat %mo.bfloat.2 to i16" in text
    # clang calls them in the code of the library on processors without an instruction.
    assert "bfloat @__truncsfbf2(float %a)" in text


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("fptrunc fp128 undef to bfloat", "a conversion of fp128 to bfloat"),
        ("sitofp i128 undef to bfloat", "a conversion of i128 to bfloat"),
        ("atomicrmw uinc_wrap ptr %p, bfloat %a monotonic", "atomicrmw uinc_wrap of bf16"),
        ("atomicrmw fadd ptr %p, <2 x bfloat> undef monotonic", "atomicrmw fadd of <2 x bfloat>"),
        (
            (
                "call bfloat @llvm.experimental.constrained.fptrunc.bf16.f32(float %f,"
                ' metadata !"round.upward", metadata !"fpexcept.ignore")'
            ),
            "experimental.constrained.fptrunc.bf16.f32 of bf16",
        ),
    ],
)
def test_others_are_refused_with_their_place(line: str, what: str) -> None:
    with pytest.raises(SourceError) as caught:
        cpu_device_ir(module(f"%r = {line}, !dbg !3"), kernels=("k",))
    assert caught.value.message == f"{what} is not supported on the CPU"
    assert caught.value.location == "k.mlir:12:7"
    assert "f32" in caught.value.hint


def test_other_code_is_not_changed() -> None:
    text = cpu_device_ir(module("%r = fadd half 0xH3C00, 0xH3C00"), kernels=("k",)).text
    assert "mo.bf16." not in text
