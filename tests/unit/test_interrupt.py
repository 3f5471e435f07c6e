from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Raises a signal at each line of the handler of another signal.
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


# Starts like the installed command; the signal arrives when a module of this name is searched.
STARTING = """\
import signal, sys

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {wanted!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
{first}
sys.argv[1:] = ["--cmake-dir"]
from {module} import main
main()
"""


def start(wanted: str, module: str = "mlir_offload.__main__", first: str = "") -> tuple[int, str]:
    code = STARTING.format(wanted=wanted, module=module, first=first)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("module", ["mlir_offload.__main__", "mlir_offload.driver.__main__"])
@pytest.mark.parametrize("wanted", ["msgspec", "typing", "mlir_offload.driver.cli", "subprocess"])
def test_an_interrupt_while_modules_are_loaded_ends_the_process_silently(
    module: str, wanted: str
) -> None:
    assert start(wanted, module) == (-signal.SIGINT, "")


def test_an_interrupt_that_the_parent_ignores_stays_ignored() -> None:
    assert start(
        "mlir_offload.driver.cli", first="signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ) == (0, "")
