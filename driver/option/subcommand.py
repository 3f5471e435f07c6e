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
    "write a page that a browser shows",
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
    Option(("--keep-going", "-k"), "do all that can be done", to="keeps_going"),
    Option(("--resume",), "repeat only what is not there; every build does"),
    Option(("--variant",), "build this one only; several times", value="NAME", to="variants", is_repeated=True),
    Option(("--report",), "write what was done, as JSON", value="FILE", values="files", path="output", kind="path", to="report"),
    Option(("--trace",), "write when it was done, for Perfetto or chrome://tracing", value="FILE", values="files", path="output", kind="path", to="trace"),
    Option(("--timeline",), "write when it was done, as a page", value="FILE", values="files", path="output", kind="path", to="timeline"),
    Option(("-n", "--dry-run"), "show what would run, and run nothing", to="dry_run"),
    Option(("--clean",), "remove what was built", to="clean"),
    Option(("--prune",), "remove what the manifest no longer names", to="prune"),
    Option(("--emit",), "write such a file instead", value="FORM", values=("ninja", "make", "compile_commands"), kind="choice", to="emit"),
    Option(("-o", "--output"), "where --emit writes; - for the standard output", value="FILE", values="files", path="output", kind="path", to="output"),
    Option(("--store",), "keep results; builds may share it", value="DIR", values="directories", kind="path", to="store"),
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
    Option(("--with-device-libs",), "put libdevice in where kernels call it"),
    _changed("--cuda-path=", "the CUDA to take libdevice from"),
    *_CODE,
    *_taken("-ffile-prefix-map=", "-fdebug-prefix-map="),
    *_KEPT,
)
_LINK = (
    _changed("-o", "the output"),
    _changed("-c", "make objects of the bundle"),
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
    Option(("--list",), "show what would be taken", to="only_list"),
    Option(("-o", "--output"), "DIRECTORY/, or the file where one image fits", value="PLACE", values="files", path="output", to="output"),
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
    Option(("--for-clang",), "that release, installed or not", value="N", values="releases", to="for_clang"),
    Option(("--driver",), "NVIDIA's driver, as nvidia-smi prints it", value="VERSION", to="driver"),
    Option(("-Werror",), "warnings are errors"),
)
_TRUST = (
    Option(("--list",), "show what is trusted", to="only_list"),
    Option(("--revoke",), "trust it no longer", to="revoke"),
)
_LEARN = (
    Option(("--llvm",), "the release or prefix to ask", value="N|PATH", values="releases", program="place", to="llvm"),
    Option(("--json",), "print JSON, as MLIR_OFFLOAD_LEARNED takes it", to="as_json"),
    Option(("--patch",), "print a patch to the tables of this project", to="patch"),
)
_DOCTOR = (
    Option(("--quick",), "try the default combination only", to="quick"),
    Option(("--kind",), "try this offload kind only; several times", value="KIND", values=_KINDS, to="kinds", is_repeated=True),
    Option(("-j",), "trials at the same time", value="N", kind="count", to="jobs"),
    Option(("--timeout",), "for each program (default: 120)", value="SECONDS", kind="seconds", to="timeout"),
    *_places("a release or prefix to be the default", "the CUDA toolkit to try", "the ROCm installation to try"),
)
_TOOLCHAINS = _places("a release or prefix to look at first", "a CUDA toolkit to look at", "a ROCm installation to look at")
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
        "compile and link what offload.yaml names",
        "Compile and link all that a manifest names, as far as it is out of date.",
        ("[options] [offload.yaml]",),
        _with(Group("build", _BUILD)),
    ),
    Subcommand(
        "bundle",
        "bundle.subcommand:bundle",
        "lower MLIR for a link on another machine",
        "Lower MLIR, to be compiled and linked on a machine that has no MLIR.",
        ("[options] FILE... -o FILE.mob",),
        _with(Group("bundle", _BUNDLE)),
    ),
    Subcommand(
        "link",
        "bundle.link:link_bundles",
        "compile and link bundles from another machine",
        "Compile and link bundles from elsewhere; say first what is missing here.",
        ("[options] FILE.mob... [FILE...] -o FILE",),
        _with(Group("link", _LINK)),
    ),
    Subcommand(
        "inspect",
        "inspect.subcommand:run_inspect",
        "show device images, kernels and entries",
        "Show device images, kernels and entries of files, and what is wrong with them.",
        ("[options] FILE...",),
        _with(Group("output", _INSPECT)),
    ),
    Subcommand(
        "extract",
        "extract:run_extract",
        "take device images out of a file",
        "Take device images out of a file: all, or those that fit every option.",
        ("[options] FILE [-o PLACE]",),
        _with(Group("images", _EXTRACT)),
    ),
    Subcommand(
        "package",
        "package:package",
        "put device images into one offload binary",
        "Package device images into one offload binary; reject those that a link would drop.",
        (
            "--image=KEY=VALUE,... [--for-clang=N] -o FILE",
            "--format=hipfb --image=file=F,arch=A,kind=hip ... -o FILE",
        ),
        _with(Group("package", _PACKAGE)),
    ),
    Subcommand(
        "check",
        "check:run_check",
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
        "toolchains:show_toolchains",
        "show the installed LLVM, CUDA and ROCm",
        "Show the LLVM, CUDA and ROCm installations found, and what to install.",
        ("[options]",),
        _with(Group("tools", _TOOLCHAINS)),
    ),
    Subcommand(
        "new",
        "new:run_new",
        "write a small project to start from",
        "Write a small project: a kernel, its callers in C and Python, build files.",
        ("DIRECTORY",),
        _with(),
    ),
    Subcommand(
        "trust",
        "trust:run_trust",
        "let the settings of a project choose programs",
        "Let the settings of a project choose programs: mlir-offload.toml, offload.yaml.",
        ("[options] [DIRECTORY|FILE...]",),
        _with(Group("trust", _TRUST)),
    ),
    Subcommand(
        "learn",
        "learn:run_learn",
        "probe an LLVM that the tables do not cover",
        "Show what the tools of an LLVM tell of its release, next to the nearest release that is known.",
        ("[options]",),
        _with(Group("learn", _LEARN)),
    ),
    Subcommand(
        "doctor",
        "doctor.subcommand:run_doctor",
        "try the installed tools with a small program",
        "Try every combination of the LLVM, CUDA and ROCm found with a small program.",
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
