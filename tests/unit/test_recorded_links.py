"""Complete links with recorded tools, of objects that LLVM writes in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from llvmlite import binding
from support.device_image import DeviceImage, image_kind_of, serialize_binary
from support.recorded import RecordedTools

from mlir_offload.driver import cli
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.host.embed import HostKernel, embed_offload_data
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, Target
from mlir_offload.translate.kind.cuda import nvptx_device_ir

_KERNEL = "define ptx_kernel void @{name}(ptr %p) {{\n  store i32 {value}, ptr %p\n  ret void\n}}\n"


def device_code(names: Sequence[str], value: int) -> bytes:
    kernels = "".join(_KERNEL.format(name=name, value=value) for name in names)
    text = nvptx_device_ir(kernels, kernels=names, llvm_major=22)
    code: bytes = binding.parse_assembly(text).as_bitcode()
    return code


def make_object(name: str, kernels: Sequence[str], *, value: int = 1, major: int = 22) -> str:
    """Write an object, or host bitcode, that registers kernels for an NVIDIA GPU; return its name."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    abi, code = load_abi(major), device_code(kernels, value)
    target = Target(Kind.CUDA, NVPTX_TRIPLE, "sm_90")
    images = [DeviceImage(target, code, image_kind_of(code))]
    text = embed_offload_data(
        f"define void @use_{Path(name).stem}() {{\n  ret void\n}}\n",
        kernels=[HostKernel(kernel, ("ptr",)) for kernel in kernels],
        kinds=[Kind.CUDA],
        binary=serialize_binary(images, abi),
        abis=(abi,),
    )
    host = binding.parse_assembly(text)
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic")
    host.triple, host.data_layout = machine.triple, str(machine.target_data)
    is_bitcode = name.endswith(".bc")
    Path(name).write_bytes(host.as_bitcode() if is_bitcode else machine.emit_object(host))
    return name


def link(tools: RecordedTools, *words: str, major: int = 22) -> int:
    places = (f"--llvm={tools.root}/llvm-{major}", f"--cuda-path={tools.root}/cuda")
    return cli._guarded(("-j2", *places, *words))


def make_library(name: str, *objects: str) -> str:
    """Write a static library of objects."""
    data = b"!<arch>\n"
    for item in objects:
        content = Path(item).read_bytes()
        head = f"{item + '/':<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(content):<10}`\n"
        data += head.encode() + content + b"\n" * (len(content) % 2)
    Path(name).write_bytes(data)
    return name


def shown(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str], *words: str, **more: int
) -> str:
    """Return the steps of a link, without the places of this machine."""
    status = link(tools, *words, "-o", "program", "-###", "-save-temps=temps", **more)
    said = capsys.readouterr().err
    assert status == 0, said
    return said.replace(f"{Path.cwd()}/", "").replace(f"{tools.root}/", "")


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


def test_device_code_in_libraries_only_gets_an_object_in_front_of_them(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    make_library("libk.a", make_object("k.o", ["scale"]))
    said = shown(tools, capsys, "libk.a", "-Wl,--whole-archive", "-L.", "-lk")
    assert "step dummy-image temps/dummy/dummy.offload -o temps/dummy/dummy.ll" in said
    assert "-fuse-ld=lld temps/dummy/dummy.o libk.a " in said


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
    objects = make_object("a.o", ["scale"], major=19), "new.bc"
    assert link(tools, *objects, "-o", "program", major=19) == CompatibilityError.exit_status
    assert "new.bc: error: " in capsys.readouterr().err


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


def test_an_older_release_links_no_library_to_one_object(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.install(16)
    library = make_library("libkernels.a", make_object("one.o", ["one"], major=16))
    assert link(tools, "-r", library, "-o", "all.o", major=16) == 4
    said = capsys.readouterr().err
    assert "-r: LLVM 16 links objects (.o) to one, not libkernels.a" in said


def test_a_function_of_mlirs_library_that_is_missing_names_the_package(
    tools: RecordedTools, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.fails = lambda command: "--offload-link" in command.argv
    tools.said = "ld.lld: error: undefined symbol: printMemrefF32\n"
    assert link(tools, make_object("one.o", ["one"]), "-o", "program") != 0
    said = capsys.readouterr().err
    assert "printMemrefF32 is in libmlir_runner_utils.so of LLVM 22, which was not found" in said
    assert "apt install" in said
