"""The subcommands: what each does, the function that runs it, and its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mlir_offload.driver.option import table
from mlir_offload.driver.option.row import Group, Option, Subcommand
from mlir_offload.toolchain.errors import UsageError


def _taken(*names: str) -> tuple[Option, ...]:
    """Return rows of the compiler that a subcommand shares."""
    return tuple(table.COMPILER.named(name) for name in names)


def _changed(name: str, text: str, to: str = "", **changes: str) -> Option:
    """Return a row of the compiler with another help text, for a parameter of a function."""
    return replace(table.COMPILER.named(name), help=text, to=to, doc="", **changes)


_CODE = _taken("-O", "-O0", "-O1", "-O2", "-O3", "-g", "-g0", "-fPIC")
_KEPT = _taken("-j", "-save-temps=", "-save-temps", "-###")
_JSON = Option(("--json",), "print JSON, as --print-schema describes it", to="as_json")
_HTML = Option(
    ("--html",),
    "write an HTML page",
    value="FILE",
    values="files",
    path="output",
    kind="path",
    to="html",
)
_SCHEMA = Option(("--print-schema",), "print the JSON schema", to="print_schema")
_KINDS = ("cuda", "hip", "openmp", "sycl")


def _places(llvm: str, cuda: str, rocm: str) -> tuple[Option, ...]:
    """Return the options for the paths of LLVM, CUDA and ROCm, with these help texts."""
    return (
        Option(("--llvm",), llvm, value="N|PATH", values="releases", program="place", to="llvm"),
        Option(
            ("--cuda-path",),
            cuda,
            value="DIR",
            values="directories",
            program="always",
            to="cuda_path",
        ),
        Option(
            ("--rocm-path",),
            rocm,
            value="DIR",
            values="directories",
            program="always",
            to="rocm_path",
        ),
    )


# fmt: off
_BUILD = (
    Option(("-j",), "steps to run at the same time", value="N", kind="count", to="jobs"),
    Option(("--keep-going", "-k"), "after a failure, run the independent steps", to="keeps_going"),
    Option(("--resume",), "no effect; every build resumes"),
    Option(("--variant",), "build this variant only; repeatable", value="NAME", to="variants", is_repeated=True),
    Option(("--report",), "write a report of the steps as JSON", value="FILE", values="files", path="output", kind="path", to="report"),
    Option(("--trace",), "write the times of steps for chrome://tracing", value="FILE", values="files", path="output", kind="path", to="trace"),
    Option(("--timeline",), "write the times of steps as an HTML page", value="FILE", values="files", path="output", kind="path", to="timeline"),
    Option(("-n", "--dry-run"), "print the steps that would run; run none", to="dry_run"),
    Option(("--clean",), "remove the outputs", to="clean"),
    Option(("--prune",), "remove outputs not in the manifest", to="prune"),
    Option(("--emit",), "write a build file and run nothing", value="FORM", values=("ninja", "make", "compile_commands"), kind="choice", to="emit"),
    Option(("-o", "--output"), "the output of --emit; - for standard output", value="FILE", values="files", path="output", kind="path", to="output"),
    Option(("--store",), "share results with other builds", value="DIR", values="directories", kind="path", to="store"),
    *table.REMOTE,
    Option(("--launcher",), "as for the compiler", value="COMMAND", program="always", to="launcher"),
    Option(("--cache",), "as for the compiler", to="cache"),
    Option(("--no-cache",), "as for the compiler", kind="off", to="cache"),
)
_BUNDLE = (
    _changed("-o", "the bundle", value="FILE.mob"),
    _changed("--offload-arch=", "comma-separated: sm_NN, gfxNNN, host (default)"),
    _changed("--llvm=", "the lowering LLVM"),
    _changed("--for-clang=", "the linking LLVM", value="N|any"),
    Option(("--with-device-libs",), "include libdevice if a kernel calls it"),
    _changed("--cuda-path=", "the CUDA toolkit with libdevice"),
    *_CODE,
    *_taken("-ffile-prefix-map=", "-fdebug-prefix-map="),
    *_KEPT,
)
_LINK = (
    _changed("-o", "the output"),
    _changed("-c", "compile the bundle to objects"),
    *_taken("-shared"),
    _changed("--llvm=", "the linking LLVM"),
    *_taken("--cuda-path=", "--rocm-path=", "-march="),
    *_CODE,
    *_taken("-L", "-l", "-Wl,", "-fuse-ld=", "-static", "-static-libgcc", "-static-libstdc++", "-pthread", "-rdynamic", "-s"),
    *_KEPT,
    *_taken("-ftime-report"),
)
_INSPECT = (
    Option(("--code-hashes",), "show hashes of images and of each kernel's code", to="code_hashes"),
    _JSON,
    _HTML,
    _SCHEMA,
    Option(("--llvm",), "the LLVM that reads MLIR", value="N|PATH", values="releases", program="place", to="llvm"),
)
_EXTRACT = (
    Option(("--kind",), "offload kind", value="KIND", values=_KINDS, to="kind"),
    Option(("--arch",), "architecture", value="ARCH", values="archs", to="arch"),
    Option(("--kernel",), "images that define this kernel", value="NAME", to="kernel"),
    Option(("--image-kind",), "format: bitcode, cubin, ptx, object, fatbinary...", value="FORM", to="image_kind"),
    Option(("--list",), "list the files without writing them", to="only_list"),
    Option(("-o", "--output"), "DIRECTORY/, or a file if one image matches", value="PLACE", values="files", path="output", to="output"),
)
_PACKAGE = (
    Option(("--image=",), "an image: file=, triple=, arch=, kind=, and others", value="KEY=VALUE,...", to="images", is_repeated=True),
    Option(("--for-clang=",), "the linking LLVM", value="N|any", values="releases", to="consumer"),
    Option(("--format=",), "hipfb: a HIP fat binary, for hipModuleLoad", value="FORM", values=("offload-binary", "hipfb"), to="format"),
    Option(("--compress=",), "compress the fat binary", value="METHOD", values=("zlib", "zstd"), to="compression"),
    Option(("-o",), "the output; - for the standard output", value="FILE", values="files", path="output", to="output"),
)
_CHECK = (
    *_places("LLVM (default: the newest complete one)", "the CUDA toolkit", "the ROCm device libraries"),
    Option(("--for-clang",), "check for this release, installed or not", value="N", values="releases", to="for_clang"),
    Option(("--driver",), "NVIDIA's driver, as nvidia-smi prints it", value="VERSION", to="driver"),
    Option(("-Werror",), "warnings are errors"),
)
_TRUST = (
    Option(("--list",), "list trusted files", to="only_list"),
    Option(("--revoke",), "revoke the trust", to="revoke"),
)
_LEARN = (
    Option(("--llvm",), "the release or prefix to probe", value="N|PATH", values="releases", program="place", to="llvm"),
    Option(("--json",), "print JSON for MLIR_OFFLOAD_LEARNED", to="as_json"),
    Option(("--patch",), "print a patch to the tables of this project", to="patch"),
)
_DOCTOR = (
    Option(("--quick",), "test the default combination only", to="quick"),
    Option(("--kind",), "test this offload kind only; repeatable", value="KIND", values=_KINDS, to="kinds", is_repeated=True),
    Option(("-j",), "concurrent tests", value="N", kind="count", to="jobs"),
    Option(("--timeout",), "limit for each program (default: 120)", value="SECONDS", kind="seconds", to="timeout"),
    *_places("the default release or prefix", "the CUDA toolkit to test", "the ROCm installation to test"),
)
_TOOLCHAINS = _places("the first release or prefix to search", "a CUDA toolkit to search", "a ROCm installation to search")
# fmt: on


def _with(*groups: Group) -> tuple[Group, ...]:
    return (*groups, *table.EVERYWHERE)


_ALL = (
    Subcommand(
        "run",
        "run:run_program",
        "compile, link and run a program",
        "Compile, link and run; the exit status is the program's. Options as for compiling.",
        ("[options] FILE... [-- ARGUMENT...]",),
        table.COMPILER.groups,
    ),
    Subcommand(
        "build",
        "project.subcommand:build_project",
        "build the targets of offload.yaml",
        "Build the targets of a manifest; run only the steps that are out of date.",
        ("[options] [offload.yaml]",),
        _with(Group("build", _BUILD)),
    ),
    Subcommand(
        "bundle",
        "bundle.subcommand:bundle",
        "lower MLIR for a link on another machine",
        "Lower MLIR, to compile and link it on a machine without MLIR.",
        ("[options] FILE... -o FILE.mob",),
        _with(Group("bundle", _BUNDLE)),
    ),
    Subcommand(
        "link",
        "bundle.link:link_bundles",
        "compile and link bundles from another machine",
        "Check that this machine has all requirements of the bundles, then compile and link them.",
        ("[options] FILE.mob... [FILE...] -o FILE",),
        _with(Group("link", _LINK)),
    ),
    Subcommand(
        "inspect",
        "inspect.subcommand:run_inspect",
        "show device images, kernels and entries",
        "Show device images, kernels and entries of files, and report inconsistencies.",
        ("[options] FILE...",),
        _with(Group("output", _INSPECT)),
    ),
    Subcommand(
        "extract",
        "extract:extract",
        "extract device images from a file",
        "Extract device images from a file: all, or those that match every option.",
        ("[options] FILE [-o PLACE]",),
        _with(Group("images", _EXTRACT)),
    ),
    Subcommand(
        "package",
        "package:package",
        "package device images into one offload binary",
        "Package device images into one offload binary; reject those that a link would drop.",
        (
            "--image=KEY=VALUE,... [--for-clang=N] -o FILE",
            "--format=hipfb --image=file=F,arch=A,kind=hip ... -o FILE",
        ),
        _with(Group("package", _PACKAGE)),
    ),
    Subcommand(
        "check",
        "check:check",
        "find what another LLVM would reject or misread",
        "Report what a release of LLVM, CUDA or a driver would reject or misread in files.",
        ("[options] FILE...",),
        _with(Group("what reads the files", _CHECK)),
    ),
    Subcommand(
        "explain",
        "explain:explain",
        "explain a rule of check",
        "Explain rules of check: what is wrong, why, what to do; list them all.",
        ("[RULE...]",),
        _with(),
    ),
    Subcommand(
        "toolchains",
        "toolchains:toolchains",
        "show the installed LLVM, CUDA and ROCm",
        "Show the LLVM, CUDA and ROCm installations found, and what to install.",
        ("[options]",),
        _with(Group("tools", _TOOLCHAINS)),
    ),
    Subcommand(
        "new",
        "new:new",
        "write a small project to start from",
        "Write a small project: a kernel, its callers in C and Python, build files.",
        ("DIRECTORY",),
        _with(),
    ),
    Subcommand(
        "trust",
        "trust:trust",
        "allow the settings of a project to select programs",
        "Allow mlir-offload.toml and offload.yaml of a project to select programs.",
        ("[options] [DIRECTORY|FILE...]",),
        _with(Group("trust", _TRUST)),
    ),
    Subcommand(
        "learn",
        "learn:learn",
        "probe an LLVM that the tables do not cover",
        "Probe the tools of an LLVM, and compare the result with the nearest measured release.",
        ("[options]",),
        _with(Group("learn", _LEARN)),
    ),
    Subcommand(
        "doctor",
        "doctor.subcommand:doctor",
        "test the installed tools with a small program",
        "Test all combinations of the installed LLVM, CUDA and ROCm with a small program.",
        ("[options]",),
        _with(Group("trials", _DOCTOR), Group("output", (_JSON, _HTML, _SCHEMA))),
    ),
)
SUBCOMMANDS: Mapping[str, Subcommand] = {one.name: one for one in _ALL}
"""The subcommands by name."""


def described(name: str) -> Subcommand:
    """Return a subcommand; without a name, the compiler itself."""
    return SUBCOMMANDS[name] if name else table.COMPILER


def every_subcommand() -> Mapping[str, Subcommand]:
    """Return the compiler itself, under the empty name, and the subcommands."""
    return {"": table.COMPILER, **SUBCOMMANDS}


def check_spelled(name: str, spelled: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError for an option of the compiler that a subcommand does not take."""
    for option, _ in spelled:
        if described(name).find(option) is None:
            msg = f"{name} does not take {option.rstrip('=')}"
            raise UsageError(msg, hint=f"see 'mlir-offload {name} --help'")
