"""The keeper against real processes: whoever started them and however it died, none is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from harness.errors import HarnessError, StackStartError
from harness.launch.processes import Child, Keeper
from tests.conditions import DEADLINE_S, eventually, until

ROOT = Path(__file__).parents[2]
MARK = "STREAMCHAOS_TEST_MARK"
RUNS = 20
SLEEPER = "import signal; signal.pause()"
# Forks twice, leaves the session, and says where it is once it is deaf to SIGTERM.
DAEMON = """
import os, signal, sys
def fork():
    if os.fork():
        signal.pause()
fork()
os.setsid()
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(os.getpid()))
signal.pause()
"""
RUNNER = """
import asyncio, os, sys
from pathlib import Path
from harness.launch.processes import Keeper
folder = Path(sys.argv[1])
kept = folder / "kept"
async def main():
    async with Keeper() as keeper:
        await keeper.keep_folder(kept)
        kept.mkdir()
        (kept / "file").write_text("x")
        async def start(*argv):
            await keeper.spawn([sys.executable, "-I", "-S", "-c", *argv], env=dict(os.environ),
                cwd=folder, stdout=folder / "out", stderr=folder / "err")
        await start("import signal; signal.pause()")
        await start("import signal; signal.pause()")
        await start(sys.argv[2], str(folder / "daemon"))
        while not (folder / "daemon").exists() or not (folder / "daemon").read_text():
            await asyncio.sleep(0.005)
        (folder / "ready").touch()
        await asyncio.Event().wait()
asyncio.run(main())
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


async def started(
    keeper: Keeper,
    folder: Path,
    *argv: str,
    env: Mapping[str, str] | None = None,
    control: socket.socket | None = None,
) -> Child:
    """A Python program below `folder`, its output in `out` and `err`."""
    return await keeper.spawn(
        [sys.executable, "-I", "-S", "-c", *argv],
        env=dict(env or {}),
        cwd=folder,
        stdout=folder / "out",
        stderr=folder / "err",
        control=control,
    )


def marked(mark: str) -> list[int]:
    """Pids of the live processes whose environment holds this mark."""
    found = []
    for process in psutil.process_iter(["environ", "status"]):
        environ = process.info["environ"] or {}
        if environ.get(MARK) == mark and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


@pytest.mark.parametrize("victim", ["runner", "group"])
@pytest.mark.parametrize("run", range(RUNS // 2))
def test_keeper_runner_killed_leaves_nothing(tmp_path: Path, victim: str, run: int) -> None:
    """SIGKILL to the runner or its process group leaves no process and no temporary folder."""
    mark = f"{os.getpid()}-{victim}-{run}"
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path), DAEMON],
        cwd=ROOT,
        env={**os.environ, MARK: mark, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        until((tmp_path / "ready").exists)
        # Runner, keeper, two sleepers, the daemon's first process and the daemon.
        assert len(marked(mark)) >= 6
    finally:
        kill = os.kill if victim == "runner" else os.killpg
        kill(runner.pid, signal.SIGKILL)
        runner.wait()
    until(lambda: not marked(mark))
    assert not (tmp_path / "kept").exists()


async def test_keeper_itself_killed_takes_its_children_along(tmp_path: Path) -> None:
    """Children do not outlive a keeper that is killed, and who waits for them is told."""
    async with Keeper() as keeper:
        child = await started(keeper, tmp_path, SLEEPER)
        parent = psutil.Process(child.pid).ppid()
        os.kill(parent, signal.SIGKILL)
        await eventually(lambda: not psutil.pid_exists(child.pid))
        with pytest.raises(HarnessError):
            await started(keeper, tmp_path, SLEEPER)


async def test_keeper_stopped_and_continued_goes_on(keeper: Keeper, tmp_path: Path) -> None:
    """What is asked of a stopped keeper is done when it continues."""
    first = await started(keeper, tmp_path, SLEEPER)
    parent = psutil.Process(first.pid).ppid()
    os.kill(parent, signal.SIGSTOP)
    await keeper.signal(first.pid, signal.SIGTERM)
    os.kill(parent, signal.SIGCONT)
    assert await first.exited == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_keeper_signalled_politely_goes_on(
    keeper: Keeper, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C and its like do not end the keeper, and its children are not deaf to them."""
    first = await started(keeper, tmp_path, SLEEPER)
    os.kill(psutil.Process(first.pid).ppid(), number)
    second = await started(keeper, tmp_path, SLEEPER)
    await keeper.signal(second.pid, number)
    assert await second.exited == -number
    assert first.exit_status is None


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


async def test_keeper_itself_killed_tells_who_waits(tmp_path: Path) -> None:
    """Who waits for a child learns of its end when the keeper is killed."""
    async with Keeper() as keeper:
        child = await started(keeper, tmp_path, SLEEPER)
        os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            assert await child.exited == -signal.SIGKILL


async def test_keeper_undone_by_a_request_ends_all_the_same(tmp_path: Path) -> None:
    """A keeper that fails ends the workers of its children too."""
    source = (
        "import os, signal\n"
        "if not os.fork():\n"
        "    open('ready', 'w').close(); signal.pause()\n"
        "signal.pause()"
    )
    mark = f"{os.getpid()}-undone"
    async with Keeper() as keeper:
        await started(keeper, tmp_path, source, env={MARK: mark})
        await eventually((tmp_path / "ready").exists)
        await keeper._send({"nonsense": 1})
        await eventually(lambda: not marked(mark))


async def test_spawn_argument_with_nul_is_told(keeper: Keeper, tmp_path: Path) -> None:
    """What execve cannot take is an error of that spawn, not an exit code."""
    with pytest.raises(StackStartError, match="null"):
        await started(keeper, tmp_path, "x\0y")
