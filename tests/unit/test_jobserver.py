"""The jobserver client, rule by rule, on real pipes."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.driver.system.jobserver import Jobserver, find_jobserver
from mlir_offload.driver.system.parallel import JobSlots, parallel_map
from mlir_offload.driver.tools.choose import choose_slots

# Only a deadlock takes this long.
_DEADLOCK_S = 600


@dataclass
class Server:
    """A jobserver of either form, with the tokens that it was given."""

    read_end: int
    write_end: int
    auth: str

    def put(self, tokens: bytes) -> None:
        os.write(self.write_end, tokens)

    def tokens(self) -> bytes:
        """Take all tokens that are there."""
        os.set_blocking(self.read_end, False)
        try:
            return bytes(sorted(os.read(self.read_end, 64)))
        except BlockingIOError:
            return b""

    @property
    def environment(self) -> dict[str, str]:
        return {"MAKEFLAGS": f" -j4 --jobserver-auth={self.auth}"}


@pytest.fixture(params=["pipe", "fifo"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "pipe":
        read_end, write_end = os.pipe()
        auth = f"{read_end},{write_end}"
    else:
        path = tmp_path / "a server"
        os.mkfifo(path)
        read_end = os.open(path, os.O_RDWR)
        write_end = os.dup(read_end)
        auth = f"fifo:{path}".replace(" ", "\\ ")
    yield Server(read_end, write_end, auth)
    os.close(read_end)
    os.close(write_end)


def slots_of(server: Server, jobs: int = 8) -> JobSlots:
    found = find_jobserver(server.environment)
    assert found.server is not None
    return JobSlots(jobs, found.server)


@dataclass
class Meter:
    """Counts how many are at work at once; `full` is set when there are as many as expected."""

    expected: int
    now: int = 0
    peak: int = 0
    full: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, slots: JobSlots) -> None:
        with slots.slot():
            with self.lock:
                self.now += 1
                self.peak = max(self.peak, self.now)
                if self.now == self.expected:
                    self.full.set()
            # Each thread waits until all slots are in use; with fewer slots than expected, this is a deadlock.
            assert self.full.wait(_DEADLOCK_S)
            with self.lock:
                self.now -= 1


@pytest.mark.parametrize(("tokens", "jobs", "peak"), [(3, 8, 4), (3, 2, 2), (0, 8, 1), (1, 1, 1)])
def test_as_many_run_as_there_are_tokens_and_one_more(
    server: Server, tokens: int, jobs: int, peak: int
) -> None:
    server.put(b"+" * tokens)
    slots = slots_of(server, jobs)
    meter = Meter(peak)
    parallel_map([lambda: meter.work(slots)] * 12)
    slots.close()
    assert meter.peak == peak
    assert server.tokens() == b"+" * tokens


@pytest.mark.parametrize("jobs", [1, 3])
def test_without_a_jobserver_as_many_run_as_are_allowed(jobs: int) -> None:
    assert not find_jobserver({"MAKEFLAGS": "w -j8"}).is_announced
    slots, meter = JobSlots(jobs), Meter(jobs)
    parallel_map([lambda: meter.work(slots)] * 8)
    slots.close()
    assert meter.peak == jobs


@pytest.mark.parametrize(
    ("flags", "is_announced"),
    [
        ("", False),
        ("kw -j4", False),
        ("-j1", False),
        (" -- X=--jobserver-auth=0,1", False),
        ("--jobserver-auth=-2,-2", True),
        ("--jobserver-auth=fifo:/nonexistent/place", True),
        ("--jobserver-auth=fifo:/dev/null", True),
        ("--jobserver-auth=nonsense 'open", True),
        ("--jobserver-fds=997,998", True),
    ],
)
def test_what_cannot_be_reached_is_known_to_be_announced(flags: str, *, is_announced: bool) -> None:
    found = find_jobserver({"MAKEFLAGS": flags})
    assert (found.is_announced, found.server) == (is_announced, None)


def test_the_last_announcement_counts(server: Server) -> None:
    last = f"--jobserver-auth={server.auth}"
    assert find_jobserver({"MAKEFLAGS": f"k --jobserver-auth=-2,-2 {last}"}).server
    assert find_jobserver({"MAKEFLAGS": last.replace("auth", "fds")}).server
    assert find_jobserver({"MAKEFLAGS": f"{last} --jobserver-auth=-2,-2"}).server is None


@pytest.mark.parametrize("first", ["n", "kn", "nw"])
def test_a_dry_run_of_make_gives_no_tokens(server: Server, first: str) -> None:
    flags = f"{first} --jobserver-auth={server.auth}"
    found = find_jobserver({"MAKEFLAGS": flags})
    assert (found.is_announced, found.server) == (True, None)
    assert find_jobserver({"MAKEFLAGS": flags.removeprefix(first) + " --no-print"}).server


def test_descriptors_that_are_no_pipe_of_one_server_are_left_alone(tmp_path: Path) -> None:
    (read_end, write_end), (other_read, other_write) = os.pipe(), os.pipe()
    with (tmp_path / "file").open("w+b") as file:
        pairs = [
            (write_end, read_end),
            (read_end, other_write),
            (read_end, read_end),
            (file.fileno(), file.fileno()),
        ]
        before = sorted(Path("/proc/self/fd").iterdir())
        for pair in pairs:
            flags = f"--jobserver-auth={pair[0]},{pair[1]}"
            assert find_jobserver({"MAKEFLAGS": flags}).server is None
        assert sorted(Path("/proc/self/fd").iterdir()) == before
    for end in (read_end, write_end, other_read, other_write):
        os.close(end)


def test_the_pipe_of_the_others_is_left_as_it_blocks() -> None:
    read_end, write_end = os.pipe()
    slots = slots_of(Server(read_end, write_end, f"{read_end},{write_end}"))
    with slots.slot():
        assert not fcntl.fcntl(read_end, fcntl.F_GETFL) & os.O_NONBLOCK
    slots.close()
    os.close(read_end)
    os.close(write_end)


def test_each_token_is_written_back_as_it_was_read(server: Server) -> None:
    server.put(b"abc")
    slots = slots_of(server)
    meter = Meter(4)
    parallel_map([lambda: meter.work(slots)] * 4)
    assert server.tokens() == b"abc"
    slots.close()


def test_who_waits_goes_on_with_the_slot_that_came_with_the_process(server: Server) -> None:
    slots = slots_of(server)
    held, done = threading.Event(), threading.Event()

    def first() -> None:
        with slots.slot():
            held.set()
            # The second thread is waiting, or it starts later and finds the slot free; both are correct.
        assert done.wait(_DEADLOCK_S)

    def second() -> None:
        assert held.wait(_DEADLOCK_S)
        with slots.slot():
            done.set()

    parallel_map([first, second])
    slots.close()
    assert server.tokens() == b""


def test_who_waits_goes_on_with_a_token_that_another_client_returns(server: Server) -> None:
    slots = slots_of(server)
    waiter = threading.Thread(target=lambda: Meter(1).work(slots))
    with slots.slot():
        waiter.start()
        server.put(b"x")
        waiter.join(_DEADLOCK_S)
        assert not waiter.is_alive()
    slots.close()
    assert server.tokens() == b"x"


def test_a_token_that_another_client_takes_first_is_waited_for(server: Server) -> None:
    slots = slots_of(server)
    waiter = threading.Thread(target=lambda: Meter(1).work(slots))
    with slots.slot():
        waiter.start()
        for _ in range(200):
            server.put(b"+")
            taken = server.tokens()
            if not taken:
                break
        else:
            server.put(b"+")
        waiter.join(_DEADLOCK_S)
        assert not waiter.is_alive()
    slots.close()
    assert server.tokens() == b"+"


def test_an_interruption_gives_every_token_back(server: Server) -> None:
    server.put(b"abc")
    slots = slots_of(server)

    def interrupted() -> None:
        with slots.slot(), slots.slot():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert slots.for_child(takes_jobserver=False) == "4"
    slots.close()
    slots.close()
    assert server.tokens() == b"abc"


@pytest.mark.parametrize(
    ("takes_jobserver", "tokens", "value"),
    [
        (True, b"abc", "jobserver"),
        (False, b"abc", "4"),
        (False, b"", "1"),
        (False, b"abcdefgh", "6"),
    ],
)
def test_a_child_with_jobs_of_its_own_is_told_what_it_may_use(
    server: Server, tokens: bytes, value: str, *, takes_jobserver: bool
) -> None:
    server.put(tokens)
    slots = slots_of(server, jobs=6)
    for _ in range(2):
        assert slots.for_child(takes_jobserver=takes_jobserver) == value
    slots.close()
    assert server.tokens() == tokens
    assert JobSlots(3).for_child(takes_jobserver=takes_jobserver) == "3"


def test_only_a_pipe_is_handed_to_children(server: Server) -> None:
    slots = slots_of(server)
    expected = () if server.auth.startswith("fifo") else (server.read_end, server.write_end)
    assert slots.inherited == expected
    slots.close()
    assert JobSlots(2).inherited == ()


def test_one_that_is_announced_and_out_of_reach_allows_one_job(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    options = parse_arguments(["-j5", "k.mlir"])
    monkeypatch.setenv("MAKEFLAGS", " -j8 --jobserver-auth=997,998")
    assert choose_slots(options).jobs == 1
    monkeypatch.setenv("MAKEFLAGS", " -j8")
    assert choose_slots(options).jobs == 5
    monkeypatch.setenv("MAKEFLAGS", server.environment["MAKEFLAGS"])
    slots = choose_slots(options)
    assert (slots.jobs, slots.is_shared) == (5, True)
    slots.close()


def test_a_server_without_a_token_lets_its_client_close(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    found = find_jobserver({"MAKEFLAGS": f"--jobserver-auth=fifo:{path}"})
    assert isinstance(found.server, Jobserver)
    before = len(list(Path("/proc/self/fd").iterdir()))
    JobSlots(2, found.server).close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1
