"""Build and use a dialect outside of MLIR's tree, as a plugin and in a custom mlir-opt.

Usage: plugin.py [--llvm 22] [--cache DIR]. Debian's MLIR headers are downloaded if they are not installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from foreign.binary_package import find_headers  # noqa: E402
from foreign.source_package import default_cache  # noqa: E402

FOLDER = Path(__file__).with_name("plugin")
LOWERING = "--pipeline=lower-answer"
OUTPUT = "the answer is 42\n" * 2


def main() -> int:
    """Build both, compile with them, and report unexpected results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llvm", type=int, default=22)
    parser.add_argument("--cache", type=Path, default=default_cache())
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plugin, own = build(arguments.llvm, arguments.cache, Path(folder))
        loaded = [f"--load-dialect-plugin={plugin}", f"--load-pass-plugin={plugin}"]
        calls = {
            "plugin": ([*loaded, LOWERING], 0, OUTPUT),
            "own mlir-opt": ([f"--mlir-opt={own}", LOWERING], 0, OUTPUT),
            "no plugin": ([], 1, "answer.mlir:7:29: error: unknown operation 'answer.value'"),
            "no pass": (loaded, 1, "no pass has lowered the operation 'answer.value'"),
            "own mlir-opt without pass": ([f"--mlir-opt={own}"], 1, "answer.mlir:7:15: error:"),
        }
        wrong = [
            name for name, call in calls.items() if not answers(arguments.llvm, Path(folder), *call)
        ]
    print(f"{len(calls) - len(wrong)} of {len(calls)} calls as expected", *wrong, sep="\n")  # noqa: T201
    return 1 if wrong else 0


def build(major: int, cache: Path, folder: Path) -> tuple[Path, Path]:
    """Return the plugin and an mlir-opt with the dialect."""
    prefix = Path(f"/usr/lib/llvm-{major}")
    includes = [f"-I{path}" for path in find_headers(major, cache)]
    clang = [str(prefix / "bin/clang++"), "-std=c++17", "-fno-rtti", *includes]
    plugin, own = folder / "answer.so", folder / "answer-opt"
    source = str(FOLDER / "answer.cpp")
    subprocess.run([*clang, "-shared", "-fPIC", source, "-o", plugin], check=True)
    mlir = next((prefix / "lib").glob("libMLIR.so.*"))
    llvm = next(Path("/usr/lib/x86_64-linux-gnu").glob(f"libLLVM.so.{major}*"))
    libraries = [str(mlir), str(llvm), f"-Wl,-rpath,{mlir.parent}"]
    subprocess.run([*clang, "-DANSWER_OPT", source, *libraries, "-o", own], check=True)
    return plugin, own


def answers(major: int, folder: Path, options: list[str], status: int, text: str) -> bool:
    """Return whether the driver exits with a status and prints a text."""
    driver = Path(sys.executable).with_name("mlir-offload")
    source = str(FOLDER / "answer.mlir")
    call = [str(driver), "run", f"--llvm={major}", "--offload-arch=host", *options, source]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode == status and text in done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
