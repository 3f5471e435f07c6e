"""Run the fuzzer with a fixed corpus and seed: every input of the corpus, and as many new ones every time.

`make fuzz` searches for new inputs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
RUNS = 1500
# An input that takes this long never ends, however busy the machine is.
NEVER = 300


def test_no_input_of_the_corpus_nor_one_made_of_it_breaks_a_reader(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    options = (f"-runs={RUNS}", "-seed=1", f"-timeout={NEVER}", "-max_len=16384")
    folders = (str(corpus), str(FOLDER / "seeds"))
    call = [
        sys.executable,
        str(FOLDER / "readers.py"),
        *options,
        f"-artifact_prefix={tmp_path}/",
        *folders,
    ]
    result = subprocess.run(
        call,
        cwd=corpus,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    done = re.search(r"Done (\d+) runs", result.stderr)
    assert done is not None
    assert int(done[1]) >= RUNS > len(list((FOLDER / "seeds").iterdir()))


def test_there_is_a_seed_of_every_format() -> None:
    endings = {path.suffix for path in (FOLDER / "seeds").iterdir()}
    assert endings >= {".o", ".a", ".bc", ".cubin", ".fatbin", ".hsaco", ".hipfb", ".ccob", ".offload", ".ptx", ".spv"}  # fmt: skip
