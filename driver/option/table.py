"""The options of the compiler, each declared once, and those that every subcommand takes.

Parser, configuration, trust, --help, completion, the manual page and the tables of the documentation
are generated from these rows. A new option requires a row and the code that uses its value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.message import report
from mlir_offload.driver.option import action
from mlir_offload.driver.option.compile_options import (
    FAT_BINARY,
    Mode,
    with_ftz,
    with_index_bits,
    with_library,
    with_max_registers,
    with_ptx,
)
from mlir_offload.driver.option.row import Group, Option, Setting, Subcommand

NVIDIA, CLANG, C = "for NVIDIA GPUs", "as for clang", "for C and C++ inputs"

# fmt: off
MESSAGES = Group("messages", (
    Option(("-v", "--verbose"), "print each step and all output", does=action.put(verbose=True), to="is_verbose", in_key=False, doc="print each step and the complete output of the tools"),
    Option(("-q",), "print errors only", says=report.put(quiet=True), setting=Setting("quiet", bool, "false")),
    Option(("--message-format=",), "text, json, sarif or github (annotations)", value="FORM", values=("text", "json", "sarif", "github"), says=report.choose_format, setting=Setting("message-format", str, "text", ("MLIR_OFFLOAD_MESSAGE_FORMAT",)), doc="the format of messages: `text`, `json`, `sarif`, `github`, see [diagnostics.md](diagnostics.md)"),
    Option(("--message-file=",), "write messages in that format to FILE, text to stderr", value="FILE", values="files", path="output", says=report.path("--message-file=", "file")),
    Option(("-Wno-",), "disable a rule", value="RULE", says=report.hide_rule, does=action.compiler_argument("-Wno-"), doc="disable a [rule](diagnostics.md#rules); other names are passed to clang"),
    Option(("-Werror=",), "treat warnings of a rule as errors", value="RULE", says=report.raise_rule, does=action.compiler_argument("-Werror="), doc="treat warnings of a [rule](diagnostics.md#rules) as errors; `-Werror` treats all warnings as errors"),
    Option(("-fdiagnostics-color=",), "colors: auto, always or never", value="WHEN", values=("auto", "always", "never"), says=report.choose_color, setting=Setting("color", str, "auto", ("NO_COLOR", "CLICOLOR_FORCE"), is_read_elsewhere=True)),
    Option(("-fdiagnostics-color", "-fcolor-diagnostics"), "colors always", says=report.put(color=report.Color.ALWAYS)),
    Option(("-fno-color-diagnostics", "-fno-diagnostics-color"), "colors never", says=report.put(color=report.Color.NEVER)),
))
CONFIGURATION = Group("configuration", (
    Option(("--config=",), "read FILE instead of mlir-offload.toml", value="FILE", values="files", path="input", to="config", in_key=False, doc="[settings in a file](configuration.md), in place of the project's"),
    Option(("--no-config",), "read no configuration file", to="no_config", in_key=False),
    Option(("--print-config",), "print each setting and its source", in_key=False),
    Option(("--help", "-help", "-h"), "print this help", in_key=False, doc="show the options, after a subcommand its own"),
))
EVERYWHERE = (MESSAGES, CONFIGURATION)

OUTPUT = Group("output", (
    Option(("-o",), "write output to FILE (default: a.out, FILE.o with -c)", value="FILE", values="files", path="output", does=action.path("output"), in_key=False, doc="the output. Default: `a.out`, or the input's name with `.o`, `.s`, `.ll` or `.bc`"),
    Option(("-c",), "compile only: write an object", does=action.put(stop_after_compile=True), in_key=False, doc="compile only: write objects"),
    Option(("-S",), "write the assembly of the host module", does=action.put(assembly=True, stop_after_compile=True), in_key=False),
    Option(("-emit-llvm",), "write the LLVM IR of the host module", does=action.put(emit_llvm=True, stop_after_compile=True), doc="stop at the LLVM IR of the host module with its offload data: bitcode, or text with `-S`"),
    Option(("-E",), f"preprocess, {C}", does=action.put(last_step=Mode.PREPROCESSED), in_key=False),
    Option(("-M",), "print a dependency rule for Make, and stop", does=action.each(action.put(last_step=Mode.RULE), action.depfile(has_system_files=True)), in_key=False),
    Option(("-MM",), "print the rule without system headers", does=action.each(action.put(last_step=Mode.RULE), action.depfile(has_system_files=False)), in_key=False),
    Option(("-fsyntax-only",), "check the inputs; write nothing", does=action.put(last_step=Mode.SYNTAX)),
    Option(("--offload-device-only", "--cuda-device-only"), "compile the device code only: -S, -c, -emit-llvm", does=action.put(is_device_only=True, is_host_only=False), doc="stop at the device code, a file for each device: PTX or AMD assembly with `-S`, a cubin or code object with `-c`, LLVM IR with `-emit-llvm`"),
    Option(("--offload-host-only", "--cuda-host-only"), "compile the host code only", does=action.put(is_host_only=True, is_device_only=False)),
    Option(("--offload-host-device", "--cuda-compile-host-device"), "compile host and device code (default)", does=action.put(is_host_only=False, is_device_only=False)),
    Option(("-shared",), "link a shared library", does=action.put(shared=True)),
    Option(
        ("-r",),
        "link objects to one, with their device code; the link of the program adds the runtime",
        does=action.link_item("-r"),
    ),
    Option(("-fPIC", "-fpic"), "generate position-independent code", does=action.position("-fPIC")),
    Option(("-fPIE", "-fpie"), "generate position-independent code for programs", does=action.position("-fPIE")),
    Option(("-fno-PIC", "-fno-pic", "-fno-PIE", "-fno-pie"), "generate code for fixed addresses", does=action.position("-fno-pic")),
    Option(("-save-temps=", "--save-temps="), "keep intermediate files; obj: next to the output", value="DIR", values="directories", path="output", does=action.save_temps, doc="keep the intermediate files in `DIR`; `cwd`: in `mlir-offload-temps`; `obj`: in `mlir-offload-temps` next to the output"),
    Option(("-save-temps", "--save-temps"), "keep intermediate files in mlir-offload-temps", path="output", does=action.save_temps, doc="keep the intermediate files in `mlir-offload-temps`"),
    Option(("--emit-header=",), "write a C header of the functions; alone, only this", value="FILE.h", values="files", path="output", does=action.path("header"), doc="declare the functions with `llvm.emit_c_interface` for C and C++ ([calling](../howto/call-from-c-cpp-python.md)); with only `.mlir` inputs and none of `-o`, `-c`, `-S`, `-emit-llvm`, `-shared`, write nothing else"),
))
DEVICES = Group("devices", (
    Option(("--offload-arch=",), "comma-separated: sm_NN, gfxNNN, spirv64, host", value="LIST", values="archs", does=action.offload_arch, setting=Setting("offload-arch", tuple, "the GPU of this machine, else host", ("MLIR_OFFLOAD_ARCH",)), doc="the devices: `sm_NN` (NVIDIA), `gfxNNN` with optional features as in `gfx90a:xnack+` (AMD), `spirv64` (OpenCL), `host` (the CPU), `native` (the GPUs of this machine). A list with commas, and the option may be repeated. Default: the GPU of this machine, else the CPU; the driver prints it"),
    Option(("--device-code=",), "bitcode (device LTO), object (by ptxas), auto", value="FORM", values=("auto", "bitcode", "object"), is_closed=True, does=action.device_code, setting=Setting("device-code", str, "auto"), doc="GPU code as `bitcode`, optimized over all files at the link; as `object`, assembled by ptxas; or `auto` (the default): bitcode with `-c` and with CUDA C++ or HIP C++, object if one invocation compiles and links"),
    Option(("-fgpu-rdc", "-fcuda-rdc"), "generate relocatable device code", does=action.put(gpu_rdc=True), doc="generate relocatable device code: other files can call public functions of a `gpu.module` ([code forms](device-code.md))"),
    Option(("-fno-gpu-rdc", "-fno-cuda-rdc"), "link the device code into each object", does=action.put(gpu_rdc=False), doc="link the device code and the runtime into each object; any linker accepts it"),
    Option(("--embed-runtime",), "embed the runtime, so that clang links the output", does=action.put(embed_runtime=True), doc="with `-c`, `-S` or `-emit-llvm`: embed the runtime, so that clang links the output without mlir-offload ([code forms](device-code.md#linking-with-clang))"),
    Option(("--no-libomptarget",), "run kernels for host without libomptarget", does=action.put(no_libomptarget=True), doc="kernels for `host` run without libomptarget, and so without the libLLVM that it loads ([CPU](../design/cpu-target.md#libomptarget))"),
    Option(("--cuda-include-ptx=",), "PTX to keep in non-RDC objects: sm_NN, all, none", value="ARCH", does=action.device(with_ptx), doc="PTX to keep in non-RDC objects, for newer GPUs: `sm_NN`, `all`, `none`; the newest by default"),
    Option(("--device-lib=",), "bitcode that kernels may call, of a kind or ARCH", value="[ARCH=]FILE", values="files", path="keyed", does=action.device(with_library), doc="bitcode that kernels may call; for `cuda`, `host` or an architecture, or for all"),
    Option(("-ffast-math",), "allow inexact floating point, host and device", does=action.fast_math("-ffast-math")),
    Option(("-fno-fast-math",), "keep floating point exact (the default)", does=action.fast_math("-fno-fast-math")),
    Option(("-ffp-contract=",), "fuse products and sums: off, on, fast", value="WHERE", values=("off", "on", "fast"), does=action.contraction, setting=Setting("fp-contract", str, "on"), doc="where a product and a sum become one fused operation: `off`: nowhere; `on` (the default): where the program allows it, by the flag `contract` of both operations; `fast`: everywhere, as clang and nvcc do in CUDA C++ ([code generation](device-code.md#code-generation))"),
    Option(("--index-bits=",), "the width of index in kernels: 32 or 64", value="N", values=("32", "64"), does=action.device(with_index_bits), setting=Setting("index-bits", str, "64"), doc="the width of `index` in kernels, `64` (the default) or `32`, which needs fewer instructions and registers, and memrefs of fewer than 2147483648 elements ([code generation](device-code.md#code-generation))"),
    Option(("--ftz",), f"flush subnormals to zero, {NVIDIA}", does=action.put_device(ftz=True), doc="flush 32-bit subnormal numbers to zero on NVIDIA GPUs"),
    Option(("--ftz=",), "nvcc's spelling of --ftz", value="BOOL", values=("true", "false"), does=action.device(with_ftz)),
    Option(("--maxrregcount=",), f"limit registers per thread, {NVIDIA}", value="N", does=action.device(with_max_registers)),
    Option(("-march=",), "processor for host code (default: native)", value="CPU", does=action.each(action.store("march"), action.compiler_argument("-march=")), setting=Setting("march", str, "native", ("MLIR_OFFLOAD_MARCH",)), doc="the processor that kernels for `host` are compiled for, as clang names it. Default: `native`, the one of this machine. A launch on a processor without its instructions is an error"),
    Option(("-mcpu=",), "the same as -march=", value="CPU", does=action.each(action.store("march"), action.compiler_argument("-march="))),
    Option(("-Xptxas", "-Xcuda-ptxas"), "pass ARG to ptxas; -v prints registers and spills", value="ARG", program="path", does=action.device_argument("ptxas"), doc="an argument for ptxas; `-v` shows the registers and spills of each kernel"),
    Option(("-Xptxas=", "--ptxas-options="), "the same", value="ARG", program="path", does=action.device(action.with_ptxas_arguments)),
    Option(("-Xarch_",), "an option of clang for host, device or one arch", value="ARCH OPTION", kind="keyed", program="path", does=action.arch_argument, doc="an option of clang for `host`, for each `device`, or for one architecture, as in `-Xarch_sm_90 -O1`"),
    Option(("-Xoffload-linker",), "an argument for the device link", value="[-TRIPLE] ARG", kind="keyed", program="always", does=action.device_linker_argument, inputs="link"),
    Option(("-Xdevice-opt",), "an argument for clang on device code", value="ARG", program="path", does=action.device_argument("device_opt")),
    Option(("--for-clang=",), "the linking LLVM, if it is not that of --llvm", value="N|PATH|any", values="releases", program="place", does=action.for_clang, setting=Setting("for-clang", str, "the lowering LLVM", ("MLIR_OFFLOAD_FOR_CLANG",), is_read_elsewhere=True), doc="the LLVM that compiles host code and links: the one that lowers (the default), an older or newer one, see [two LLVM releases](../howto/mixed-llvm.md), or with `-c` `any` of LLVM 15 to 19 and from 21, see [below](#objects-for-any-release)"),
))
TOOLS = Group("tools", (
    Option(("--llvm=",), "LLVM (default: the newest complete one)", value="N|PATH", values="releases", path="tool", program="place", does=action.store("llvm"), setting=Setting("llvm", str, "the newest complete release", ("MLIR_OFFLOAD_LLVM",), is_path=True, is_read_elsewhere=True), doc="the LLVM release (`22`) or installation (`/opt/llvm`). Default: the newest complete one found"),
    Option(("--cuda-path=",), "the CUDA toolkit; none", value="DIR", values="directories", path="tool", program="always", does=action.store("cuda_path"), setting=Setting("cuda-path", str, "the newest toolkit found", ("CUDA_PATH", "CUDA_HOME"), is_path=True, is_read_elsewhere=True), doc="the CUDA toolkit; `none`: no toolkit. Bitcode (`-emit-llvm`, `-c --device-code=bitcode`) needs none, except for kernels that call libdevice, and may be for GPUs that the installed ptxas does not know"),
    Option(("--rocm-path=",), "the ROCm installation", value="DIR", values="directories", path="tool", program="always", does=action.store("rocm_path"), setting=Setting("rocm-path", str, "found", ("ROCM_PATH",), is_path=True, is_read_elsewhere=True)),
    Option(("--mlir-opt=",), "your own mlir-opt, with your dialects", value="FILE", values="files", path="tool", program="always", does=action.store("mlir_opt"), inputs="mlir", doc="your own `mlir-opt`, with your dialects and passes, built from the lowering LLVM"),
    Option(("--mlir-translate=",), "your own mlir-translate", value="FILE", values="files", path="tool", program="always", does=action.store("mlir_translate"), inputs="mlir"),
    *(Option((f"{name}=",), "a library for mlir-opt", value="FILE", values="files", path="input", program="always", does=action.add("mlir_arguments", f"{name}="), inputs="mlir", doc="a library with dialects, with passes, for mlir-opt as it reads the program") for name in ("--load-dialect-plugin", "--load-pass-plugin")),
))
CODE = Group("code", (
    Option(("--pipeline=",), "gpu, linalg, none, FILE.yaml, or passes to run first", value="PIPELINE", values=("gpu", "linalg", "none"), path="pipeline", does=action.pipeline, inputs="mlir", doc="the passes before the split: `gpu`, `linalg`, `none`, `FILE.yaml`, or passes ([inputs](input.md))"),
    Option(("-O",), "the same as -O1", does=action.optimize(1), setting=Setting("opt-level", int, "2", choices=("0", "1", "2", "3"))),
    *(Option((f"-O{level}",), text, does=action.optimize(level)) for level, text in enumerate(("do not optimize", "optimize little", "optimize host and device code (the default)", "optimize more"))),
    Option(tuple(f"-O{level}" for level in range(4, 10)), "the same as -O3", does=action.optimize(3)),
    Option(("-Os",), "optimize for size: -O2 for kernels", does=action.optimize(2, "s")),
    Option(("-Oz",), "the smallest host code: -O2 for kernels", does=action.optimize(2, "z")),
    Option(("-Og",), "optimize for a debugger: -O1 for kernels", does=action.optimize(1, "g")),
    Option(("-Ofast",), "the same as -O3 -ffast-math", does=action.each(action.optimize(3), action.fast_math("-ffast-math"))),
    Option(("-g",), "line tables of the .mlir file, on host and device", does=action.debug("-g"), setting=Setting("debug", bool, "false", off="-g0"), doc="line tables of the `.mlir` file, on the host and in kernels; with `-O0` also arguments and values of kernels on the CPU ([debug](../howto/debug.md))"),
    Option(("-g0",), "no line tables (the default)", does=action.put(debug=False)),
    *(Option((name,), f"the same as -g; {C} {name}", does=action.debug(name)) for name in ("-g1", "-g2", "-g3", "-ggdb", "-ggdb1", "-ggdb2", "-ggdb3", "-gline-tables-only", "-gmlt", "-gdwarf", "-gdwarf-4", "-gdwarf-5")),
    Option(("-ggdb0",), "the same as -g0", does=action.put(debug=False)),
    Option(("-fvisibility=",), "the visibility of functions in C and C++", value="KIND", does=action.compiler_argument("-fvisibility="), inputs="c"),
    Option(("-x",), "the language of the inputs that follow", value="LANGUAGE", values=tuple(action.LANGUAGES), does=action.language, in_key=False, doc="the language of the inputs that follow, independent of their suffix; `none`: by suffix. `cpp-output` lets ccache cache a [whole call](../howto/cache.md#a-whole-call-behind-ccache)"),
    Option(("-I",), f"search DIR for headers, {C}", value="DIR", values="directories", path="folder", does=action.compiler_argument("-I"), inputs="preprocessor"),
    Option(("-D",), f"define a macro, {C}", value="NAME[=VALUE]", does=action.compiler_argument("-D"), inputs="c"),
    Option(("-U",), f"undefine a macro, {C}", value="NAME", does=action.compiler_argument("-U"), inputs="preprocessor"),
    *(Option((name,), text + f", {C}", value="DIR", values="directories", path="folder", kind="separate", does=action.separate(name, "compiler_arguments"), inputs="preprocessor") for name, text in (("-isystem", "a directory with headers of the system"), ("-iquote", 'a directory for #include "..."'), ("-idirafter", "a directory that is searched last"))),
    Option(("-include",), f"a header to read first, {C}", value="FILE", values="files", path="input", kind="separate", does=action.separate("-include", "compiler_arguments"), inputs="preprocessor"),
    Option(("-object-file-name=",), f"the name in debug info, {C}", value="FILE", does=action.compiler_argument("-object-file-name="), inputs="c"),
    Option(("-Xclang",), f"an argument for clang -cc1, {C}", value="ARG", program="always", kind="separate", does=action.separate("-Xclang", "compiler_arguments"), inputs="c"),
    *(Option((name,), f"an argument for {tool}, {C}", value="ARG", program="path", kind="separate", does=action.separate(name, "compiler_arguments"), inputs="preprocessor") for name, tool in (("-Xpreprocessor", "the preprocessor"), ("-Xassembler", "the assembler"))),
    Option(("-Wp,",), f"arguments for the preprocessor, {C}", value="ARG", program="path", does=action.preprocessor_argument, inputs="preprocessor", doc=f"arguments for the preprocessor, {C}; `-Wp,-MD,FILE` is `-MD -MF FILE`"),
    Option(("-std=",), f"the standard, {C}", value="NAME", does=action.compiler_argument("-std="), inputs="c"),
    Option(("-W",), f"a warning, {C}", value="NAME", program="path", does=action.compiler_argument("-W"), inputs="c"),
    Option(("-fsanitize=",), "instrument host code and CPU kernels: address, thread", value="NAME", values=("address", "thread"), does=action.sanitizer, doc="find accesses out of bounds (`address`), and missing barriers (`thread`), of host code and of kernels on the CPU; implies `-g` ([debug](../howto/debug.md#sanitizers))"),
    Option(("-fno-sanitize=",), "disable sanitizers", value="NAME", values=("address", "thread"), does=action.no_sanitizer),
    Option(("-nogpuinc", "-nocudainc"), "CUDA C++ and HIP C++ without the vendor's headers", does=action.add("gpu_cpp_arguments", "-nogpuinc"), inputs="preprocessor"),
    Option(("-nogpulib", "-nocudalib"), "without the vendor's device libraries", does=action.add("gpu_cpp_arguments", "-nogpulib"), doc="without the vendor's device libraries. If all inputs are `.mlir`, functions of libdevice and of ROCm's device libraries are left to the link"),
))
LINKER = Group("linker", (
    Option(("-L",), "search DIR for libraries", value="DIR", values="directories", path="folder", does=action.link_item("-L"), inputs="link"),
    Option(("-l",), "a library", value="NAME", path="library", does=action.link_item("-l"), inputs="link"),
    Option(("-Wl,",), "arguments for the linker", value="ARG", program="path", does=action.link_item("-Wl,"), inputs="link"),
    Option(("-Xlinker",), "one argument for the linker", value="ARG", program="path", kind="separate", does=action.linker_argument, inputs="link"),
    Option(("-B",), "search DIR for the programs of clang", value="DIR", values="directories", program="always", does=action.compiler_and_linker("-B")),
    Option(("--sysroot=",), "the root of headers and libraries", value="DIR", values="directories", program="always", does=action.compiler_and_linker("--sysroot=")),
    Option(("--target=",), "the triple of this machine; others are rejected", value="TRIPLE", does=action.target),
    Option(("-target",), "the same", value="TRIPLE", kind="separate", does=action.target),
    Option(("-fuse-ld=",), "the linker", value="NAME", program="path", does=action.link_item("-fuse-ld="), inputs="link"),
    *(Option((name,), CLANG, does=action.link_item(name), inputs="link") for name in ("-rdynamic", "-s", "-pie", "-no-pie")),
    *(Option((name,), CLANG, does=action.link_item(name)) for name in ("-static", "-static-libgcc", "-static-libstdc++", "-pthread")),
    *(Option((name,), f"{CLANG}, {C} and the link", does=action.compiler_and_linker(name), inputs="c") for name in ("-fopenmp", "-flto", "-fno-lto")),
    *(Option((f"{name}=",), f"{CLANG}, {C} and the link", value="NAME", does=action.compiler_and_linker(f"{name}="), inputs="c") for name in ("-fopenmp", "-flto")),
))
REPRODUCIBLE = Group("dependencies and reproducible builds", (
    Option(("-MD",), "write a dependency file for Make", does=action.depfile(is_wanted=True, has_system_files=True), in_key=False, doc="write a dependency file for Make, see [Make and Ninja](../howto/make.md)"),
    Option(("-MMD",), "print the rule without system headers", does=action.depfile(is_wanted=True, has_system_files=False), in_key=False),
    Option(("-MP",), "with a rule for each dependency", does=action.depfile(has_phony_targets=True), in_key=False),
    Option(("-MF",), "the name of the dependency file", value="FILE", values="files", path="output", does=action.depfile_name, in_key=False),
    Option(("-MT",), "the target in it", value="TARGET", does=action.depfile_target, in_key=False),
    Option(("-MQ",), "the same, quoted for Make", value="TARGET", does=action.quoted_depfile_target, in_key=False),
    Option(("-MJ",), "write entries of compile_commands.json", value="FILE", values="files", path="output", does=action.path("compile_commands"), in_key=False),
    Option(("--manifest=",), "write an in-toto provenance statement (JSON)", value="FILE", values="files", path="output", does=action.path("manifest")),
    *(Option((f"{name}=",), "write NEW for OLD at the beginning of file names", value="OLD=NEW", does=action.prefix_map(name), doc="write NEW for OLD at the beginning of file names, see [Reproducible builds](reproducibility.md)") for name in ("-ffile-prefix-map", "-fdebug-prefix-map")),
    Option(("-fmacro-prefix-map=",), f"the same in macros, {C}", value="OLD=NEW", does=action.compiler_argument("-fmacro-prefix-map="), inputs="preprocessor"),
    Option(("-ffile-compilation-dir=",), f"a directory to name, {C}", value="DIR", does=action.compiler_argument("-ffile-compilation-dir="), inputs="c"),
))
CACHES = Group("caches and launchers", (
    Option(("--cache",), "cache the results of steps with ccache", does=action.put(cache=True), in_key=False, doc="cache the results of steps with ccache; see [cache](../howto/cache.md)"),
    Option(("--no-cache",), "disable the cache", does=action.put(cache=False), in_key=False),
    Option(("--launcher=",), "put a command, such as srun, before each step", value="COMMAND", program="always", does=action.store("launcher"), in_key=False, doc="put a command before each step: `srun`, `ccache`. Default: none"),
))
OTHERS = Group("options of nvcc and hipcc, with a note that names ours", (
    *(Option((name,), "as --offload-arch=", value="sm_NN", does=action.of_nvcc("architecture", name)) for name in ("-arch=", "-arch", "--gpu-architecture=", "-code=", "-code", "--gpu-code=", "--cuda-gpu-arch=")),
    *(Option((name,), "as --offload-arch=", value="arch=...,code=...", does=action.of_nvcc("generated_code", name.rstrip("="))) for name in ("-gencode", "-gencode=", "--generate-code=")),
    Option(("-ptx", "--ptx"), "as --offload-device-only -S", does=action.of_nvcc("device_form", "-ptx", "-S", ".ptx")),
    Option(("-cubin", "--cubin"), "as --offload-device-only -c", does=action.of_nvcc("device_form", "-cubin", "-c", ".cubin")),
    Option(("--genco",), "as --offload-device-only -c", does=action.of_nvcc("device_form", "--genco", "-c", ".hsaco")),
    Option(("-fatbin", "--fatbin"), "the device code of all architectures in one fat binary", does=action.of_nvcc("device_form", "-fatbin", "", FAT_BINARY), doc="write the device code of all architectures into one fat binary for each `gpu.module`: cubins and PTX in `FILE.fatbin`, code objects for AMD in `FILE.hipfb`; `cuModuleLoad` and `hipModuleLoad` read these"),
    Option(("-dc", "--device-c"), "as -fgpu-rdc -c", does=action.of_nvcc("translated", "-dc", "-fgpu-rdc -c")),
    *(Option((name,), "as -fgpu-rdc, -fno-gpu-rdc", value="BOOL", values=("true", "false"), is_closed=True, does=action.of_nvcc("relocatable", name)) for name in ("-rdc=", "--relocatable-device-code=")),
    Option(("-G", "--device-debug"), "as -g -O0", does=action.of_nvcc("translated", "-G", "-g -O0")),
    Option(("-lineinfo", "--generate-line-info"), "as -g", does=action.of_nvcc("translated", "-lineinfo", "-g")),
    Option(("-use_fast_math", "--use_fast_math"), "as -ffast-math", does=action.of_nvcc("translated", "-use_fast_math", "-ffast-math")),
    *(Option((name,), "as --maxrregcount=", value="N", does=action.of_nvcc("translated", name, "--maxrregcount={}")) for name in ("-maxrregcount=", "-maxrregcount")),
    *(Option((name,), "pass the options to the host compiler", value="OPTION,...", program="path", does=action.of_nvcc("host_arguments")) for name in ("-Xcompiler", "-Xcompiler=", "--compiler-options=")),
    *(Option((name,), "no effect", value="PROGRAM", does=action.of_nvcc("no_effect", name, "clang of --llvm= compiles host code")) for name in ("-ccbin", "-ccbin=", "--compiler-bindir=")),
    *(Option((name,), "no effect", does=action.of_nvcc("no_effect", name, "clang does it always")) for name in ("--expt-relaxed-constexpr", "-expt-relaxed-constexpr", "--expt-extended-lambda", "-expt-extended-lambda", "--extended-lambda", "-extended-lambda")),
    *(Option((name,), "as --offload-arch=", value="gfxNNN", does=action.of_nvcc("translated", name, "--offload-arch={}")) for name in ("--amdgpu-target=",)),
))
ACTIONS = Group("what happens", (
    Option(("-###",), "show each step, write nothing", does=action.put(dry_run=True), doc="show each step as a line that can be pasted into a shell; write no output"),
    Option(("-j",), "programs at the same time (default: processors)", value="N", does=action.jobs, setting=Setting("jobs", int, "number of processors", ("MLIR_OFFLOAD_JOBS",)), in_key=False, doc="the number of concurrent programs. Default: the number of processors; under `make -jN` the free slots of make"),
    Option(("-Qunused-arguments",), "do not warn of unused arguments", does=action.put(hides_unused=True), in_key=False),
    Option(("-ftime-report",), "show how long each step took", does=action.put(time_report=True), in_key=False),
    Option(("--why-rebuilt",), "report what changed since the last build of the output", does=action.put(why_rebuilt=True), in_key=False, doc="print which input, flag or tool changed since the last build of the output"),
    Option(("--reproduce=",), "write a self-contained reproducer archive", value="FILE.tar", values="files", path="output", says=report.path("--reproduce=", "reproduce"), doc="write the invocation and its inputs into an archive, to [reproduce it on another machine](diagnostics.md#reproducers)"),
    Option(("-fno-crash-diagnostics",), "write no reproducer when a tool crashes", says=report.put(reproduces_crashes=False), setting=Setting("crash-diagnostics", bool, "true", option="", off="-fno-crash-diagnostics")),
    Option(("--completion=",), "print what the shell reads to complete options", value="SHELL", values=("bash", "zsh", "fish"), doc="print what `bash`, `zsh` or `fish` reads to complete options, see [below](#completion)"),
    Option(("--toolchain-id",), "print a hash that identifies the tools", doc="print a hash of the content of the tools; with `-v`, its parts"),
    Option(("--print-cache-key",), "print the key of a complete invocation for ccache", doc="print the key for [whole calls behind ccache](../howto/cache.md#a-whole-call-behind-ccache) with the other options; does not run tools whose properties are cached"),
    Option(("--cmake-dir",), "print the directory of the CMake files", doc="print the directory of the [CMake](../howto/cmake.md) files"),
    Option(("--pkg-config-dir",), "print the directory of the pkg-config files"),
    Option(("-print-", "--print-"), "run clang's option of this name, such as -print-search-dirs", value="WHAT", kind="prefix", doc="print what clang's option of this name prints: `-print-search-dirs`, `-print-resource-dir`, `-print-target-triple`, ..."),
    Option(("-dumpmachine",), "print the triple of the host"),
    Option(("-dumpversion",), "print the version of clang"),
    Option(("--version",), "show the release and the tools found"),
))
REMOTE = (
    Option(("--remote",), "a server whose workers run the steps: grpcs://...", value="URL", program="always", to="remote", setting=Setting("remote", str, "no server", ("MLIR_OFFLOAD_REMOTE",), option="--remote=", is_of_build=True)),
    *(Option((f"--remote-{name}",), text, value="FILE", values="files", path="input", kind="path", to=f"remote_{name}", setting=Setting(f"remote-{name}", str, default, option=f"--remote-{name}=", is_path=True, is_of_build=True)) for name, text, default in (("ca", "the authority of its certificate", "those of gRPC"), ("cert", "the certificate of this client", "none"), ("key", "the key of that certificate", "none"), ("token", "a file with a bearer token", "none"))),
    Option(("--remote-platform",), "properties of the workers", value="NAME=VALUE", to="remote_platform", is_repeated=True, setting=Setting("remote-platform", tuple, "none", option="--remote-platform=", is_of_build=True)),
)
"""What `build` takes to run its steps elsewhere."""
# fmt: on

COMPILER = Subcommand(
    "",
    "build.subcommand:build",
    "compile and link",
    "Compile MLIR programs with GPU kernels, C, C++, CUDA C++ and LLVM IR; link.",
    ("[options] FILE...", "-c [options] FILE..."),
    (OUTPUT, DEVICES, TOOLS, CODE, LINKER, REPRODUCIBLE, CACHES, ACTIONS, OTHERS, *EVERYWHERE),
)


def _setting(row: Option) -> Setting | None:
    """Return the setting of a row, with its missing fields taken from the row."""
    setting = row.setting
    if setting is None:
        return None
    choices = row.values if isinstance(row.values, tuple) else ()
    option = row.names[0] if setting.option is None else setting.option
    return replace(setting, option=option, choices=setting.choices or choices)


SETTINGS = tuple(
    setting for row in (*COMPILER.rows, *REMOTE) if (setting := _setting(row)) is not None
)
"""What the files of configuration may set."""

PROJECT_FILE = "mlir-offload.toml"
FILE_VARIABLE = "MLIR_OFFLOAD_CONFIG"
_VARIABLES = (FILE_VARIABLE, *(name for setting in SETTINGS for name in setting.variables))


def are_set(environment: Mapping[str, str], directory: Path) -> bool:
    """Return whether a variable or file sets an option; most invocations have none and read nothing."""
    return (
        any(environment.get(name) for name in _VARIABLES)
        or find_project_file(directory) is not None
        or find_user_file(environment) is not None
    )


def find_project_file(directory: Path) -> Path | None:
    """Return the configuration file in the directory or its nearest parent, within the same checkout."""
    for folder in (directory, *directory.parents):
        path = folder / PROJECT_FILE
        if os.path.lexists(path):
            return path
        if (folder / ".git").exists():
            return None
    return None


def find_user_file(environment: Mapping[str, str]) -> Path | None:
    """Return the configuration file of the user; None if there is none."""
    root = environment.get("XDG_CONFIG_HOME", "")
    if not root.startswith("/"):
        home = environment.get("HOME", "")
        root = f"{home}/.config" if home.startswith("/") else ""
    file = Path(root, "mlir-offload", "config.toml")
    # A home directory that cannot be searched, such as that of another user, has no settings.
    return file if root and os.path.isfile(file) else None  # noqa: PTH113
