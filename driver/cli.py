"""The command line: verbs, and the compiler itself for everything that is no verb."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from mlir_offload.driver import __version__
from mlir_offload.driver.report import render_error, show
from mlir_offload.toolchain.errors import InputOutputError, MlirOffloadError
from mlir_offload.toolchain.process import ProcessRunner

_USAGE = """\
mlir-offload: compile MLIR programs with GPU-dialect kernels ahead of time.

usage: mlir-offload [options] FILE...             compile and link
       mlir-offload -c [options] FILE.mlir        compile to an object
       mlir-offload run [options] FILE... [-- ARGUMENT...]
                                                  compile, link and run; exit status of the program
       mlir-offload build [offload.yaml]          compile and link all that a manifest names
       mlir-offload package --image=file=FILE,triple=TRIPLE,arch=ARCH,kind=KIND ... -o FILE
                                                  package device images into an offload binary
       mlir-offload toolchains                    show what is installed and what is missing

FILE is .mlir, .o, .a, .so, .c, .cpp, .ll or .bc.

options:
  -o FILE               output (default: a.out, or FILE.o with -c)
  -c, -S, -emit-llvm    stop at the object, the assembly, the LLVM IR of the host module
  --offload-arch=LIST   sm_NN, host (the CPU), native; commas or several times
                        (default: the GPU of this machine, else the CPU)
  --device-code=FORM    bitcode (device LTO at the link), object (assembled by ptxas), or
                        auto: bitcode with -c, object where one call compiles and links
  --for-clang=N|any     release that links the object (default: the one that compiles); 'any'
                        with -c: 15 to 19 and from 21
  --llvm=N|PATH         LLVM release or prefix (default: the newest complete one)
  --cuda-path=PATH      CUDA toolkit
  --rocm-path=PATH      ROCm installation
  -O0 -O1 -O2 -O3       optimisation of host and device (default: -O2)
  -g                    line tables of the .mlir file, on the host and in kernels
  -fPIC -shared -L -l -Wl,ARG -pthread -static
                        as for clang
  -I -D -std=           for C and C++ inputs, as for clang
  -j N                  programs to run at the same time (default: number of processors)
  -v                    show each step and all that the tools print
  -###                  show each step as a shell line; write no output
  -ftime-report         show how long each step took
  -save-temps[=DIR]     keep the intermediate files
  --version, --help
"""

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the status of its class of result."""
    # A short life with little garbage: collecting it would take 3 % of a small build.
    gc.disable()
    sys.exit(_guarded(tuple(sys.argv[1:] if arguments is None else arguments)))


def _guarded(arguments: tuple[str, ...]) -> int:
    runner = ProcessRunner()
    verbose = "-v" in arguments
    try:
        with _interruptible(runner):
            return _dispatch(arguments, runner)
    except MlirOffloadError as error:
        show(render_error(error, verbose=verbose))
        return error.exit_status
    except KeyboardInterrupt:
        show("mlir-offload: interrupted")
        return _INTERRUPTED
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        show(render_error(_input_output(error), verbose=verbose))
        return InputOutputError.exit_status


def _input_output(error: OSError) -> InputOutputError:
    where = f"{error.filename}: " if error.filename else ""
    return InputOutputError(
        f"{where}{error.strerror or error}",
        hint="free some space, or set TMPDIR to a writable directory",
    )


@contextlib.contextmanager
def _interruptible(runner: ProcessRunner) -> Iterator[None]:
    """End the children at Ctrl-C or SIGTERM; the workspace is removed as the stack unwinds."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (signature of a handler)
        runner.interrupt()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _dispatch(arguments: tuple[str, ...], runner: ProcessRunner) -> int:
    """Call the verb, or the compiler where the first word is none."""
    first = arguments[0] if arguments else "--help"
    if first in {"--help", "-h", "-help"}:
        sys.stdout.write(_USAGE)
        return 0
    if first == "--version":
        sys.stdout.write(f"mlir-offload {__version__}\n")
        return 0
    if "--toolchain-id" in arguments and first not in _VERBS:
        from mlir_offload.driver.toolchain_id import show_toolchain_id

        return show_toolchain_id(arguments, runner)
    if first in _STEPS:
        return _STEPS[first](arguments, runner)
    if first in _VERBS:
        return _VERBS[first](arguments[1:], runner)
    from mlir_offload.driver.build import build

    build(arguments, runner)
    return 0


# A verb is loaded when it is called: the others need not wait for it.
def _step(arguments: Sequence[str], _: ProcessRunner) -> int:
    from mlir_offload.driver.steps import run_step

    run_step(arguments)
    return 0


def _hermetic(arguments: Sequence[str], runner: ProcessRunner) -> int:
    from mlir_offload.driver.image_step import STEPS

    return STEPS[arguments[0]](arguments[1:], runner)


def _project_step(arguments: Sequence[str], runner: ProcessRunner) -> int:
    from mlir_offload.driver.project_step import run_project_step

    return run_project_step(arguments, runner)


def _build(arguments: Sequence[str], runner: ProcessRunner) -> int:
    from mlir_offload.driver.project import build_project

    return build_project(arguments, runner)


def _toolchains(arguments: Sequence[str], runner: ProcessRunner) -> int:
    from mlir_offload.driver.toolchains import show_toolchains

    return show_toolchains(arguments, runner)


def _run(arguments: Sequence[str], runner: ProcessRunner) -> int:
    from mlir_offload.driver.run import run_program

    return run_program(arguments, runner)


def _package(arguments: Sequence[str], runner: ProcessRunner) -> int:
    from mlir_offload.driver.package import package

    return package(arguments, runner)


# A compiler cache takes a first word without dashes for the name of an input.
_HERMETIC_STEPS = ("--image-step", "--host-step", "--object-step")
_PROJECT_STEPS = ("--split-step", "--device-step", "--join-step", "--source-step")
_STEPS: Mapping[str, Callable[[Sequence[str], ProcessRunner], int]] = {
    **dict.fromkeys(_HERMETIC_STEPS, _hermetic),
    **dict.fromkeys(_PROJECT_STEPS, _project_step),
}
_VERBS: Mapping[str, Callable[[Sequence[str], ProcessRunner], int]] = {
    "build": _build,
    "package": _package,
    "run": _run,
    "step": _step,
    "toolchains": _toolchains,
}
