"""Complete links with recorded tools, of objects that LLVM writes in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from llvmlite import binding
from support.recorded import RecordedTools
from support.recorded_link import (
    CPU,
    LINKED,
    NVIDIA,
    SPIRV,
    calling,
    last_link,
    link,
    make_library,
    make_object,
    shown,
)

from mlir_offload.offload.link.collision import detach_object
from mlir_offload.toolchain.errors import CompatibilityError, SourceError, VerificationError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, Target


def test_one_of_two_objects_with_a_kernel_of_one_name_is_linked_before(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = make_object("a.o", ["scale"]), make_object("b.o", ["scale", "other"], value=2)
    said = shown(tools, capsys, *objects)
    assert "clang -r -fuse-ld=lld --offload-link b.o " in said
    assert "step detach temps/finish/1/b.linked.o -o temps/finish/1/b.o" in said
    assert "--offload-link -fuse-ld=lld a.o temps/finish/1/b.o " in said


def test_members_of_a_library_are_linked_before_in_a_copy_of_it(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    members = make_object("b.o", ["scale"], value=2), make_object("c.o", ["add"])
    library = make_library("libb.a", *members)
    said = shown(
        tools, capsys, make_object("a.o", ["scale"]), "-L.", "-lb", "-Wl,--device-linker=-v"
    )
    assert "step members libb.a -o temps/finish/1" in said
    assert f"--offload-link -fuse-ld=lld a.o -L. temps/finish/1/{library}" in said


@pytest.mark.parametrize("major", [16, 19])
def test_an_older_release_links_a_program_in_place_of_an_object(
    major: int, tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.install(major)
    objects = (
        make_object(name, ["scale"], value=len(name), major=major) for name in ("a.o", "bb.o")
    )
    said = shown(tools, capsys, *objects, major=major)
    assert ("step relocatable-linker" in said) == (major == 16)
    assert ("clang -r " in said) == (major == 19)


def test_an_object_whose_device_code_does_not_link_names_the_other_one(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = make_object("a.o", ["scale"]), make_object("b.o", ["scale"], value=2)
    tools.fails = lambda command: "-r" in command.argv
    assert link(tools, *objects, "-o", "program") != 0
    printed = capsys.readouterr().err
    assert "b.o: error: kernel 'scale' is defined here and in a.o" in printed
    assert "hint: rename one of the kernels" in printed
    assert not Path("program").exists()


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "error: in function k: incompatible ABI version",
            "must have the same code object version",
        ),
        (
            "nvlink error : Undefined reference to 'helper' in 'b.o'",
            "the device code of b.o was device-linked separately, because other objects have kernels",
        ),
    ],
    ids=["code object", "separate device code"],
)
def test_what_device_links_reject_is_explained(
    printed: str, said: str, tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = make_object("a.o", ["scale"]), make_object("b.o", ["scale"], value=2)
    linked = Path(make_object("linked.o", ["scale"], replaced=LINKED)).read_bytes()
    tools.outputs = {"b.linked.o": linked}
    tools.fails, tools.said = lambda command: command.argv[-1].endswith("/linked"), f"{printed}\n"
    assert link(tools, *objects, "-o", "program") != 0
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("printMemrefF32", "mlir_runner_utils"),
        ("__device_stub__k", "name the object that defines the kernel on the link line"),
    ],
)
def test_what_nobody_defines_is_explained(
    symbol: str, said: str, tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: "linked" in command.argv[-1] and "-o" in command.argv
    tools.said = f"ld.lld: error: undefined symbol: {symbol}\n>>> referenced by a.o\n"
    assert link(tools, make_object("a.o", ["scale"]), "-o", "program") != 0
    assert said in capsys.readouterr().err


def test_a_linked_object_without_its_kernel_is_rejected(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = make_object("a.o", ["scale"]), make_object("b.o", ["scale"], value=2)
    make_object("other.o", ["other"])
    tools.outputs = {"b.linked.o": Path("other.o").read_bytes()}
    assert link(tools, *objects, "-o", "program") == VerificationError.exit_status
    assert "b.o: error: " in capsys.readouterr().err


def test_objects_are_linked_to_one_object_with_their_device_code(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = make_object("a.o", ["scale"]), make_object("b.o", ["add"])
    said = shown(tools, capsys, *objects, "-r")
    assert "--offload-link a.o b.o " in said
    assert "step detach temps/device.o -o temps/detached.o" in said
    assert "clang -r -fuse-ld=lld temps/detached.o -o temps/linked.o" in said


def test_bitcode_of_host_code_is_compiled_before_the_link(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    said = shown(tools, capsys, make_object("a.bc", ["scale"]), make_object("b.o", ["add"]))
    assert " a.bc -o temps/0/a.o" in said
    assert "--offload-link -fuse-ld=lld temps/0/a.o b.o " in said


def test_bitcode_that_the_linking_release_cannot_read_is_rejected(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "define void @f(ptr captures(none) %p) {\n  ret void\n}\n"
    Path("new.bc").write_bytes(binding.parse_assembly(source).as_bitcode())
    # With -flto clang writes bitcode to files of this name.
    Path("new.o").write_bytes(Path("new.bc").read_bytes())
    given = make_object("a.o", ["scale"], major=19)
    for name in ("new.bc", "new.o"):
        words = (given, name, "-o", "program")
        assert link(tools, *words, major=19) == CompatibilityError.exit_status
        assert f"{name}: error: " in capsys.readouterr().err


def test_the_image_at_which_the_reader_of_a_link_stopped_is_named(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [make_object(f"{name}.o", [f"{name}_kernel"]) for name in ("one", "two", "three")]
    tools.said = (
        "error: Unknown attribute kind (102) (Producer: 'LLVM23.0.0' Reader: 'LLVM 22.1.0')\n"
    )

    def fails(command: Command) -> bool:
        if "-disable-llvm-passes" not in command.argv:
            return "--offload-link" in command.argv
        return b"two_kernel" in Path(command.argv[-3]).read_bytes()

    tools.fails = fails
    assert link(tools, *objects, "-o", "program") != 0
    said = capsys.readouterr().err
    assert "two.o: error: image cuda nvptx64-nvidia-cuda sm_90: " in said
    assert "one.o: error" not in said
    assert not Path("program").exists()


def test_code_that_cannot_be_linked_object_by_object_is_rejected(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("-c", "scale.mlir", "-fno-gpu-rdc", "--offload-arch=spirv64", "-###")
    assert link(tools, *words) == 4
    said = capsys.readouterr().err
    assert "-fno-gpu-rdc: LLVM 22 cannot link code for spirv64 object by object" in said
    assert "leave spirv64 out of --offload-arch" in said


SM_80 = Target(Kind.CUDA, NVPTX_TRIPLE, "sm_80")
UNREGISTERED = {**LINKED, '"llvm_offload_entries"': '"no_entries"'}
FOLDED = {**LINKED, "i32 0, ptr @__mo_stub__other": "i32 0, ptr @__mo_stub__scale"}


@pytest.mark.parametrize(
    ("words", "linked", "replaced", "said"),
    [
        ((), ["scale", "other"], LINKED, ""),
        ((), ["other"], LINKED, "the device images lack kernels that the host registers: 'scale'"),
        (("-Wl,--gc-sections",), ["scale", "other"], LINKED, ""),
        (("-Wl,--gc-sections",), ["scale", "other"], UNREGISTERED, "the linker removed the entries"),
        ((), ["scale", "other"], UNREGISTERED, ""),
        (("-Wl,--gc-sections", "-Wl,--start-lib"), ["scale", "other"], UNREGISTERED, ""),
        (("-Wl,--icf=all",), ["scale", "other"], FOLDED, "folded the stubs of kernels 'scale' and"),
        ((), ["scale", "other"], FOLDED, ""),
    ],
)  # fmt: skip
def test_a_linked_file_has_each_kernel_and_its_entry(
    words: tuple[str, ...],
    linked: Sequence[str],
    replaced: Mapping[str, str],
    said: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = Path(make_object("made.o", linked, replaced=replaced))
    tools.outputs = {"linked": made.read_bytes()}
    status = link(tools, make_object("a.o", ["scale"]), *words, "-o", "program")
    printed = capsys.readouterr().err
    assert said in printed
    assert status == (VerificationError.exit_status if said else 0), printed
    assert Path("program").exists() == (not said)


@pytest.mark.parametrize(
    ("calls", "parameters", "said"),
    [
        ("llvm.donothing", "ptr %p", ""),
        ("helper", "ptr %p", "the kernels for spirv64 call 'helper', which nothing defines"),
        ("llvm.donothing", "i64 %n, ptr %p", "kernel 'scale' for spirv64 takes its arguments at"),
    ],
)
def test_linked_spirv_calls_what_is_defined_and_takes_what_the_host_passes(
    calls: str,
    parameters: str,
    said: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = make_object("made.o", ["scale"], target=SPIRV, calls=calls, parameters=parameters)
    program = bytearray(Path(made).read_bytes())
    # The field e_type becomes ET_DYN.
    program[16] = 3
    tools.outputs = {"linked": bytes(program)}
    given = make_object("a.o", ["scale"], target=SPIRV, calls="helper")
    status = link(tools, given, "-o", "program")
    assert said in capsys.readouterr().err
    assert status == (VerificationError.exit_status if said else 0)


def test_a_linked_file_without_section_headers_is_not_verified(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    given = make_object("a.o", ["scale"])
    headless = bytearray(Path(make_object("other.o", ["other"], replaced=LINKED)).read_bytes())
    # Elf64_Ehdr.e_shoff, e_shnum
    headless[40:48], headless[60:62] = bytes(8), bytes(2)
    tools.outputs = {"linked": bytes(headless)}
    assert link(tools, given, "-o", "program") == 0
    assert (
        "program has no section headers: its device code cannot be verified"
        in capsys.readouterr().err
    )


def test_an_object_that_is_named_twice_is_to_be_named_once(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: command.argv[-1].endswith("linked")
    tools.said = "ld.lld: error: duplicate symbol: use_a\n"
    given = make_object("a.o", ["scale"])
    assert link(tools, given, given, "-o", "program") != 0
    assert "hint: name a.o once" in capsys.readouterr().err
    assert link(tools, given, "-o", "program") != 0
    assert "hint: name " not in capsys.readouterr().err
    tools.said = "ld.lld: error: out of memory\n"
    assert link(tools, given, given, "-o", "program") != 0
    assert "hint: name " not in capsys.readouterr().err


def test_the_files_that_the_linker_read_are_dependencies(tools: RecordedTools) -> None:
    Path("libc.so").write_text("a script of the linker")

    def write_rule(command: Command) -> bool:
        for word in command.argv:
            option, _, rule = word.partition("=")
            if option == "-Wl,--dependency-file":
                made = Path(rule).parent / "temporary.o"
                made.touch()
                Path(rule).write_text(f"linked: a.o libc.so {made} gone.so\n")
        return False

    tools.fails = write_rule
    tools.outputs = {"linked": Path(make_object("made.o", ["scale"], replaced=LINKED)).read_bytes()}
    words = (make_object("a.o", ["scale"]), "-o", "program", "-MD", "-MF", "program.d")
    assert link(tools, *words) == 0
    assert Path("program.d").read_text().split() == ["program:", "a.o", "libc.so"]
    tools.commands.clear()
    assert link(tools, *words[:3]) == 0
    assert not any("--dependency-file" in word for one in tools.commands for word in one.argv)
    assert link(tools, *words, "-fuse-ld=gold") == 0
    assert Path("program.d").read_text().split() == ["program:", "a.o"]


def test_a_kernel_for_the_cpu_with_the_name_of_a_c_function_is_rejected(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    caller = make_object("caller.o", ["scale"], target=CPU, calls="memcpy")
    named = make_object("named.o", ["memcpy"], target=CPU, calls="other")
    assert link(tools, caller, named, "-o", "program") == VerificationError.exit_status
    said = capsys.readouterr().err
    assert (
        "named.o: error: kernel @memcpy has the name of a C function that kernels of caller.o call"
        in said
    )
    assert "hint: rename the kernel" in said
    shown(tools, capsys, make_object("caller.o", ["scale"], target=CPU, calls="memmove"), named)
    # A kernel for GPUs is not in the device link of the CPU, and another name is none of the C library.
    make_object("caller.o", ["scale"], target=CPU, calls="memcpy")
    shown(tools, capsys, caller, make_object("gpu.o", ["memcpy"]))
    make_object("caller.o", ["scale"], target=CPU, calls="helper")
    shown(tools, capsys, caller, make_object("helper.o", ["helper"], target=CPU, calls="other"))


def test_device_linked_objects_with_kernels_of_one_name_are_kept_apart(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    linked = {**LINKED, '"llvm_offload_entries"': '"llvm_offload_entries_1a2b"'}
    again = make_object("again.o", ["scale"], replaced=linked)
    Path("apart.o").write_bytes(detach_object(Path(again).read_bytes()))
    same, other = make_object("a.o", ["scale"]), make_object("b.o", ["add"])
    said = shown(tools, capsys, same, "apart.o")
    assert "step detach apart.o -o temps/finish/detached0/apart.o" in said
    assert " a.o temps/finish/detached0/apart.o " in last_link(said)
    assert "step detach" not in shown(tools, capsys, other, "apart.o")
    # The wrapper would link its images once more.
    assert "step detach again.o" in shown(tools, capsys, other, again)
    library = make_library("liba.a", again)
    said = shown(tools, capsys, other, "-L.", "-la")
    assert f"step members {library} -o temps/finish/library0" in said
    assert f" b.o -L. temps/finish/library0/{library} " in last_link(said)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ((SPIRV, SPIRV), "LLVM 22 cannot tell two kernels of the same name apart for kind sycl"),
        ((NVIDIA, SM_80), "kernel 'scale' is made for sm_90 here, and for sm_80 in b.o"),
    ],
    ids=["kind", "architectures"],
)
def test_kernels_of_one_name_that_cannot_be_linked_before_are_rejected(
    targets: tuple[Target, Target],
    said: str,
    tools: RecordedTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    objects = [
        make_object(name, ["scale"], target=target, calls="llvm.donothing", value=len(name))
        for name, target in zip(("a.o", "b.o"), targets, strict=True)
    ]
    assert link(tools, *objects, "-o", "program") == SourceError.exit_status
    printed = capsys.readouterr().err
    assert "a.o: error: " in printed
    assert said in printed


def test_a_launch_of_one_of_several_kernels_is_ambiguous(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    public = {"hidden alias": "alias"}
    objects = [
        make_object(f"{name}.o", ["scale"], value=len(name), replaced=public)
        for name in ("a", "bb")
    ]
    caller = make_object("caller.o", ["add"], more=calling("__device_stub__scale"))
    assert link(tools, *objects, caller, "-o", "program") == SourceError.exit_status
    said = capsys.readouterr().err
    assert (
        "caller.o: error: kernel 'scale' is launched here, and defined by a.o and by bb.o" in said
    )


def test_a_member_in_bitcode_is_compiled_before_its_device_code_is_linked(
    tools: RecordedTools,
) -> None:
    library = make_library("libb.a", make_object("b.bc", ["scale"], value=2))
    linked = Path(make_object("linked.o", ["scale"], replaced=LINKED)).read_bytes()
    tools.outputs = {"b.linked.o": linked, "linked": linked}
    assert link(tools, make_object("a.o", ["scale"]), library, "-o", "program") == 0
    files = [[Path(word).name for word in one.argv] for one in tools.commands]
    (made,) = [words for words in files if words[-1] == "b.elf.o"]
    assert made[0] == "clang"
    assert "b.bc" in made
    (linking,) = [words for words in files if words[-1] == "b.linked.o"]
    assert "b.elf.o" in linking
