"""A short run of the fuzzer: every seed, then new inputs that reach new code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SECONDS = os.environ.get("MLIR_OFFLOAD_FUZZ_SECONDS", "20")


def test_no_input_that_the_fuzzer_finds_breaks_a_reader(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    options = (f"-max_total_time={SECONDS}", "-max_len=16384", f"-artifact_prefix={tmp_path}/")
    result = subprocess.run(
        [sys.executable, str(FOLDER / "readers.py"), *options, str(corpus), str(FOLDER / "seeds")],
        capture_output=True,
        text=True,
        check=False,
    )
    done = re.search(r"Done (\d+) runs", result.stderr)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert done is not None
    assert int(done[1]) > len(list((FOLDER / "seeds").iterdir()))


def test_there_is_a_seed_of_every_format() -> None:
    endings = {path.suffix for path in (FOLDER / "seeds").iterdir()}
    assert endings >= {".o", ".a", ".bc", ".cubin", ".fatbin", ".hsaco", ".hipfb", ".ccob", ".offload", ".ptx", ".spv"}  # fmt: skip
