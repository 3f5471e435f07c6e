from __future__ import annotations

import subprocess
import sys

# In the handler of a signal, another one comes at each line.
NESTED = """\
import signal, sys
from mlir_offload.driver.system import parallel
from mlir_offload.driver.system.parallel import interruptible
from mlir_offload.toolchain.process import ProcessRunner

left = 40

def more(frame, event, argument):
    global left
    if left:
        left -= 1
        signal.raise_signal(signal.SIGTERM)
    return more

try:
    with interruptible(ProcessRunner()), parallel.pool():
        sys.settrace(more)
        signal.raise_signal(signal.SIGTERM)
        sys.settrace(None)
        raise ValueError("of a tool that was ended")
except KeyboardInterrupt:
    print("interrupted again" if left < 40 else "interrupted")
"""


def test_a_signal_may_come_while_another_one_is_heard() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NESTED], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout == "interrupted again\n", done.stderr
