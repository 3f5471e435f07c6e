"""Link an object with device images with the clang of another release."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from support.bitcode_corpus import tool
from support.skew_corpus import SOURCES, Module
from support.tool_call import call, first_error

# libomptarget is packaged for these releases; older wrappers register with that of 19.
_RUNTIMES = {15: 19, 16: 19, 19: 19, 22: 22}
_LIBRARIES = Path("/usr/lib/llvm-19/lib")


def link(module: Module, consumer: int, output: Path) -> str:
    """Link; return the error message, empty if the link succeeds."""
    options = _hip(module) if module.case.target == "linked-hip" else _openmp(module, consumer)
    command = (tool(consumer, "clang++"), *options, "-w", "-nogpulib", "-o", str(output))
    done = call(*command, str(module.form("o")))
    return first_error(done.stderr) if done.returncode != 0 else ""


def _hip(module: Module) -> tuple[str, ...]:
    return ("--offload-link", str(_recorder(module.folder)))


def _openmp(module: Module, consumer: int) -> tuple[str, ...]:
    runtime = _RUNTIMES[consumer]
    return (
        # GNU ld takes half a second to read the symbols of libLLVM, which libomptarget needs.
        *("-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu", "-fuse-ld=lld"),
        *(f"-L{_runtime(module.folder, runtime)}", f"-L{_LIBRARIES}"),
        f"-Wl,-rpath,/usr/lib/llvm-{runtime}/lib:{_LIBRARIES}",
    )


@cache
def _runtime(folder: Path, release: int) -> Path:
    """Return a directory in which the linker finds that release's libomptarget by its plain name."""
    own = folder / f"runtime-{release}"
    own.mkdir(exist_ok=True)
    library = next(Path(f"/usr/lib/llvm-{release}/lib").glob("libomptarget.so.*"))
    link = own / "libomptarget.so"
    if not link.is_symlink():
        link.symlink_to(library)
    return own


@cache
def _recorder(folder: Path) -> Path:
    output = folder / "recorder.o"
    done = call(tool(22, "clang"), "-c", str(SOURCES / "recorder.c"), "-o", str(output))
    assert done.returncode == 0, done.stderr
    return output
