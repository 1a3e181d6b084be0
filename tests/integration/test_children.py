"""What a keeper starts, signals and ends: with all that belongs to it, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from harness.errors import HarnessError, StackStartError
from harness.launch import processes
from harness.launch.processes import Child, Keeper
from tests.conditions import DEADLINE_S, eventually
from tests.integration.children import DAEMON, MARK, SLEEPER, marked, read, started

RUNS = 20
# Each forks the next and ends. By itself it ends too.
HYDRA = """
import os, time
end_s = time.monotonic() + 30
open("ready", "w").close()
while time.monotonic() < end_s:
    if os.fork():
        os._exit(0)
"""
# Its first thread has ended, which makes the process look like a zombie, and another serves on.
HEADLESS = """
import ctypes, socket, sys, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    open("port", "w").write(str(server.getsockname()[1]))
    while True:
        server.accept()
threading.Thread(target=serve).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
async def keeper() -> AsyncIterator[Keeper]:
    """A keeper of this test's own."""
    async with Keeper() as running:
        yield running


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A process that the keeper did not start."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEPER]) as running:
        yield running
        running.kill()


def session(leader: int) -> list[int]:
    """Pids of what is left of a session, zombies too."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == leader:
                found.append(process.pid)
    return found


async def end_of(child: Child) -> int:
    """How it ended."""
    return await child.exited


async def test_spawn_missing_program_is_told(keeper: Keeper, tmp_path: Path) -> None:
    """A program that does not exist is an error that names it, and the keeper goes on."""
    with pytest.raises(StackStartError, match="no-such-program"):
        await keeper.spawn(
            ["/no-such-program"],
            env={},
            cwd=tmp_path,
            stdout=tmp_path / "out",
            stderr=tmp_path / "err",
        )
    child = await started(keeper, tmp_path, "raise SystemExit(7)")
    assert await child.exited == 7


async def test_spawn_missing_program_of_any_name_is_told(keeper: Keeper, tmp_path: Path) -> None:
    """A name need not be UTF-8, and the keeper can tell of it."""
    with pytest.raises(StackStartError, match="No such file"):
        await keeper.spawn(
            ["/no-\udcff"], env={}, cwd=tmp_path, stdout=tmp_path / "o", stderr=tmp_path / "e"
        )


async def test_spawn_with_blocked_signals_starts_with_none(tmp_path: Path) -> None:
    """What the thread of the harness blocks stops neither the keeper nor its children."""
    blocked = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        async with asyncio.timeout(DEADLINE_S), Keeper() as keeper:
            source = "print(open('/proc/self/status').read())"
            assert await (await started(keeper, tmp_path, source)).exited == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    told = (tmp_path / "out").read_text().partition("SigBlk:")[2].split()[0]
    assert int(told, 16) == 0


async def test_spawn_huge_environment_is_told(keeper: Keeper, tmp_path: Path) -> None:
    """More than the kernel takes is an error of that spawn alone."""
    with pytest.raises(StackStartError):
        await started(keeper, tmp_path, SLEEPER, env={"HUGE": "x" * 2**22})
    child = await started(keeper, tmp_path, "raise SystemExit(7)")
    assert await child.exited == 7


async def test_spawn_descriptors_are_its_own(keeper: Keeper, tmp_path: Path) -> None:
    """A child has its three streams and descriptor 3, and nothing of the keeper's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        source = (
            "import os; fds = sorted(int(n) for n in os.listdir('/proc/self/fd'));"
            "fds.remove(max(fds));"
            "os.write(int(os.environ['STREAMCHAOS_CONTROL_FD']), repr(fds).encode())"
        )
        child = await started(keeper, tmp_path, source, control=theirs)
        assert await child.exited == 0
        assert ours.recv(100) == b"[0, 1, 2, 3]"


async def test_spawn_broken_pipe_ends_the_child(keeper: Keeper, tmp_path: Path) -> None:
    """Signals that Python ignores are not ignored in what it starts."""
    child = await started(
        keeper, tmp_path, "print(open('/proc/self/status').read())", env={"LC_ALL": "C"}
    )
    assert await child.exited == 0
    told = (tmp_path / "out").read_text().partition("SigIgn:")[2].split()[0]
    ignored = int(told, 16)
    # The child is a Python, which ignores these two itself.
    own = (1 << (signal.SIGPIPE - 1)) | (1 << (signal.SIGXFSZ - 1))
    # Real-time signals are the C library's; what it inherited of them is nobody's to reset.
    standard = (1 << 31) - 1
    assert ignored & standard & ~own == 0


async def test_spawn_given_up_on_a_stopped_keeper_is_over_and_leaves_nothing(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is held up no longer than END_S; what is started later is killed at once."""
    monkeypatch.setattr(processes, "END_S", 0.1)
    mark = f"{os.getpid()}-late"
    first = await started(keeper, tmp_path, SLEEPER)
    parent = psutil.Process(first.pid).parent()
    assert parent is not None
    parent.suspend()
    try:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            late = group.create_task(started(keeper, tmp_path, SLEEPER, env={MARK: mark}))
            await asyncio.sleep(0)
            late.cancel()
    finally:
        parent.resume()
    # Orders are done in their turn: behind this one, the one given up has been started.
    last = await started(keeper, tmp_path, "pass")
    assert await last.exited == 0
    await eventually(lambda: not marked(mark))


async def test_kill_tree_of_what_does_not_die_is_told(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it for ever. A stopped keeper stands for a process that cannot be killed."""
    child = await started(keeper, tmp_path, SLEEPER)
    parent = psutil.Process(child.pid).parent()
    assert parent is not None
    with monkeypatch.context() as patch:
        patch.setattr(processes, "END_S", 0.1)
        parent.suspend()
        try:
            with pytest.raises(HarnessError, match=f"process {child.pid} is not dead"):
                await keeper.kill_tree(child.pid)
        finally:
            parent.resume()
    await keeper.kill_tree(child.pid)
    assert child.exit_status == -signal.SIGKILL


async def test_signal_foreign_process_is_left_alone(
    keeper: Keeper, foreign: subprocess.Popen[bytes]
) -> None:
    """A pid that is not below the keeper is never signalled."""
    await keeper.signal(foreign.pid, signal.SIGKILL)
    # Answered in order: when this is done, so is the line above.
    await keeper.kill_tree(foreign.pid)
    assert foreign.poll() is None


async def test_kill_tree_forking_child_leaves_nothing(keeper: Keeper, tmp_path: Path) -> None:
    """Workers of a master that was killed before are ended with its session."""
    source = (
        "import os, signal\n"
        "for _ in range(3):\n"
        "    if not os.fork(): signal.pause()\n"
        "open('ready', 'w').close(); signal.pause()"
    )
    mark = f"{os.getpid()}-tree"
    child = await started(keeper, tmp_path, source, env={MARK: mark})
    await eventually((tmp_path / "ready").exists)
    await keeper.signal(child.pid, signal.SIGKILL)
    assert await child.exited == -signal.SIGKILL
    assert len(marked(mark)) == 3
    await keeper.kill_tree(child.pid)
    assert marked(mark) == []


async def test_kill_tree_done_knows_how_it_ended(keeper: Keeper, tmp_path: Path) -> None:
    """Whoever has waited for the tree need not wait for the exit code."""
    for _ in range(RUNS):
        child = await started(keeper, tmp_path, SLEEPER)
        await keeper.kill_tree(child.pid)
        assert child.exit_status == -signal.SIGKILL


async def test_kill_tree_process_without_its_first_thread_is_ended(
    keeper: Keeper, tmp_path: Path
) -> None:
    """It looks like a zombie, and still serves until it is killed."""
    child = await started(keeper, tmp_path, HEADLESS)
    port = int(await eventually(lambda: read(tmp_path / "port")))
    await eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    socket.create_connection(("127.0.0.1", port)).close()
    await keeper.kill_tree(child.pid)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_kill_tree_who_forks_faster_than_we_look_is_ended(
    keeper: Keeper, tmp_path: Path
) -> None:
    """Each of its processes lives shorter than a look at the process table takes."""
    mark = f"{os.getpid()}-hydra"
    child = await started(keeper, tmp_path, HYDRA, env={MARK: mark})
    await eventually((tmp_path / "ready").exists)
    async with asyncio.timeout(DEADLINE_S):
        await keeper.kill_tree(child.pid)
    assert session(child.pid) == []


async def test_exited_wait_given_up_takes_nothing_from_others(
    keeper: Keeper, tmp_path: Path
) -> None:
    """The child still runs, and who waits longer is told."""
    child = await started(keeper, tmp_path, SLEEPER)
    async with asyncio.TaskGroup() as group:
        longer = group.create_task(end_of(child))
        shorter = group.create_task(end_of(child))
        await asyncio.sleep(0)
        shorter.cancel()
        await asyncio.wait([shorter])
        assert child.exit_status is None
        await keeper.signal(child.pid, signal.SIGTERM)
    assert longer.result() == child.exit_status == -signal.SIGTERM


async def test_kill_tree_daemon_of_another_session_is_ended(keeper: Keeper, tmp_path: Path) -> None:
    """A daemon that left the session before its master died is ended with the tree."""
    mark = f"{os.getpid()}-daemon"
    place = tmp_path / "daemon"
    child = await started(keeper, tmp_path, DAEMON, str(place), env={MARK: mark})
    await eventually(lambda: place.exists() and place.read_text())
    await keeper.signal(child.pid, signal.SIGKILL)
    await child.exited
    await keeper.kill_tree(child.pid)
    assert marked(mark) == []


async def test_spawn_argument_with_nul_is_told(keeper: Keeper, tmp_path: Path) -> None:
    """What execve cannot take is an error of that spawn, not an exit code."""
    with pytest.raises(StackStartError, match="null"):
        await started(keeper, tmp_path, "x\0y")
