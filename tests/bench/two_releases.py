"""Compile every program of the docs and tests with one LLVM and link it with an older one.

For each pair of releases: how many programs compile, with device bitcode, link with the older linker wrapper
and pass its verification, run on the CPU with the same result as with one release, and generate the same PTX
from downgraded IR. The exit status is 1 if one fails.

usage: python tests/bench/two_releases.py [PAIR...], as 22:19
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from support.cuda_tools import cuda_root  # noqa: E402
from support.ptx_shape import ADDRESS_OPERATIONS, lost_facts, ptx_of, shape  # noqa: E402

from mlir_offload.translate.downgrade.text import downgrade  # noqa: E402

FOLDERS = ("docs/examples", "tests/integration/inputs")
PAIRS = ("22:19", "19:16", "22:16")
# Inline PTX cannot be compiled for the CPU.
ONLY_GPU = {"tma_descriptor"}
SECONDS = 300
# A main function without a result has no meaningful exit status.
_MAIN = re.compile(r"@main\(.*\) -> i32")


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the compiler."""
    argv = [sys.executable, "-m", "mlir_offload.driver", *map(str, arguments)]
    environment = {"PYTHONPATH": str(ROOT / ".importroot"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=environment,
        cwd=tempfile.gettempdir(),
    )


def check(source: Path, lowers: str, links: str, work: Path) -> dict[str, str]:
    """Return the result of each stage: `yes`, `-` if the stage does not apply, or the first error."""
    made, shared = work / f"{source.stem}.o", work / f"{source.stem}.so"
    archs = "sm_90" if source.stem in ONLY_GPU else "sm_80,host"
    if call("-c", f"--llvm={lowers}", f"--offload-arch={archs}", source, "-o", made).returncode:
        return {}
    temps = work / source.stem
    pair = (f"--llvm={lowers}", f"--for-clang={links}", f"--offload-arch={archs}")
    done = call(*(*pair, "-c", "-fPIC", f"-save-temps={temps}", source, "-o", made))
    is_code = "a linked device image instead" in done.stderr
    result = {"compiles": _said(done), "as bitcode": done.stderr if is_code else _said(done)}
    if done.returncode == 0:
        result["links"] = _said(call(*pair, "-shared", "-fPIC", made, "-o", shared))
        result["ptx"] = _same_ptx(temps, int(lowers), int(links))
    if source.stem not in ONLY_GPU and _MAIN.search(source.read_text(encoding="utf-8")):
        run = ("run", "-q", "--offload-arch=host", f"--llvm={lowers}", source)
        one, two = call(*run), call(*run, f"--for-clang={links}")
        same = (one.returncode, one.stdout) == (two.returncode, two.stdout)
        result["runs"] = "yes" if same else two.stderr.splitlines()[0] if two.stderr else "differs"
    return result


def _said(done: subprocess.CompletedProcess[str]) -> str:
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    return "yes" if done.returncode == 0 else (errors or ["failed"])[0]


def _same_ptx(temps: Path, lowers: int, reader: int) -> str:
    library = str(next(cuda_root().rglob("libdevice.10.bc")))
    for lowered in sorted(temps.glob("*/split/device*.ll")):
        if lowered.stem.count("."):
            continue
        text = lowered.read_text(encoding="utf-8")
        arch = "sm_90" if "sm_90" in str(list(temps.glob("*/split/*sm_90*"))) else "sm_80"
        shapes = [
            shape(ptx_of(each, lowers, library=library, arch=arch))
            for each in (text, downgrade(text, reader=reader))
        ]
        if shapes[0] != shapes[1] and lost_facts(*shapes) - ADDRESS_OPERATIONS:
            return f"{lowered.name} differs in {sorted(lost_facts(*shapes))}"
    return "yes"


def main() -> int:
    """Print a line for each pair and stage, and one for each failure."""
    failed = 0
    for pair in sys.argv[1:] or PAIRS:
        lowers, links = pair.split(":")
        counts: dict[str, list[int]] = {}
        for folder in FOLDERS:
            for source in sorted((ROOT / folder).glob("*.mlir")):
                with tempfile.TemporaryDirectory() as work:
                    found = check(source, lowers, links, Path(work))
                for stage, text in found.items():
                    tally = counts.setdefault(stage, [0, 0])
                    tally[0] += text == "yes"
                    tally[1] += 1
                    if text != "yes":
                        failed += 1
                        print(f"  {pair} {source.name} {stage}: {text}")  # noqa: T201
        shown = ", ".join(f"{stage} {good} of {all_}" for stage, (good, all_) in counts.items())
        print(f"LLVM {lowers} to {links}: {shown}", flush=True)  # noqa: T201
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
