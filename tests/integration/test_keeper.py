"""The keeper against real processes: whoever started them and however it died, none is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import psutil
import pytest

from harness.control import Message, MessageReader, encode
from harness.errors import HarnessError
from harness.launch.processes import KEEPER, Keeper
from tests.conditions import DEADLINE_S, eventually, until
from tests.integration.children import DAEMON, FORKED, MARK, SLEEPER, marked, read, started

ROOT = Path(__file__).parents[2]
RUNS = 20
RUNNER = """
import asyncio, os, signal, sys
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
        if len(sys.argv) > 3 and not (fork := os.fork()):
            signal.pause()
        (folder / "ready").write_text(str(fork if len(sys.argv) > 3 else ""))
        await asyncio.Event().wait()
asyncio.run(main())
"""
RUN = """
import asyncio, sys
from pathlib import Path
from harness.run import Runner, RunOptions
from harness.suite.parts import SuiteParts
async def main():
    folder = Path(sys.argv[1])
    async with Runner.open(SuiteParts({}), RunOptions(results=folder)) as runner:
        print(runner._bench.certificates.key_pem, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
async def keeper() -> AsyncIterator[Keeper]:
    """A keeper of this test's own."""
    async with Keeper() as running:
        yield running


async def failure_of(asked: Awaitable[object]) -> str:
    """What the harness's failure says; empty where there is none."""
    try:
        await asked
    except HarnessError as error:
        return str(error)
    return ""


def send(sock: socket.socket, **order: object) -> None:
    """An order, as the harness sends it."""
    sock.sendall(encode(dict(order)))


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


def test_keeper_runner_killed_whose_fork_lives_ends_all_the_same(tmp_path: Path) -> None:
    """A process that the runner forked holds the socket open, and saves nobody by it."""
    mark = f"{os.getpid()}-forked"
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path), DAEMON, "fork"],
        cwd=ROOT,
        env={**os.environ, MARK: mark, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        fork = int(until(lambda: (tmp_path / "ready").exists() and read(tmp_path / "ready")))
        os.kill(runner.pid, signal.SIGKILL)
        until(lambda: marked(mark) == [fork])
        until(lambda: not (tmp_path / "kept").exists())
    finally:
        os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()


def test_run_killed_leaves_no_private_key(tmp_path: Path) -> None:
    """The folder of a run stays, the certificates in it do not."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as runner:
        assert runner.stdout is not None
        key = Path(runner.stdout.readline().strip())
        assert key.exists()
        runner.kill()
    until(lambda: not key.parent.exists())
    assert key.parents[1].exists()


async def test_keeper_left_removes_its_folders_after_its_children(tmp_path: Path) -> None:
    """Whoever still writes there is ended first; other folders stay."""
    kept, other = tmp_path / "kept", tmp_path / "other"
    for folder in (kept, other):
        folder.mkdir()
    source = (
        "import itertools, pathlib, sys\n"
        "for n in itertools.count():\n"
        "    pathlib.Path(sys.argv[1], str(n % 1000)).touch()"
    )
    async with Keeper() as keeper:
        await keeper.keep_folder(kept)
        await started(keeper, tmp_path, source, str(kept))
        await eventually((kept / "999").exists)
    assert not kept.exists()
    assert other.exists()


async def test_keeper_left_at_once_is_gone() -> None:
    """Before anything was asked of it."""
    before = set(psutil.Process().children())
    async with Keeper():
        pass
    assert set(psutil.Process().children()) <= before


async def test_keeper_itself_killed_leaves_no_forks_of_its_children(tmp_path: Path) -> None:
    """The kernel ends the children; the harness ends those that they had forked."""
    mark = f"{os.getpid()}-orphans"
    async with Keeper() as keeper:
        child = await started(keeper, tmp_path, FORKED, env={MARK: mark})
        await eventually((tmp_path / "ready").exists)
        assert len(marked(mark)) == 2
        os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
        await eventually(lambda: not marked(mark))


async def test_keeper_itself_killed_refuses_whatever_is_asked(tmp_path: Path) -> None:
    """Each time anew, and nobody waits for an answer that cannot come."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        async with asyncio.timeout(DEADLINE_S), Keeper() as keeper:
            child = await started(keeper, tmp_path, SLEEPER)
            os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
            await child.exited
            for _ in range(2):
                with pytest.raises(HarnessError, match="keeper"):
                    await keeper.kill_tree(child.pid)
                with pytest.raises(HarnessError, match="keeper"):
                    await started(keeper, tmp_path, SLEEPER, control=theirs)
                with pytest.raises(HarnessError, match="keeper"):
                    await keeper.keep_folder(tmp_path)


async def test_keeper_itself_killed_tells_who_waits_for_a_tree(tmp_path: Path) -> None:
    """An order that it never got to is answered too."""
    async with asyncio.timeout(DEADLINE_S), Keeper() as keeper:
        child = await started(keeper, tmp_path, SLEEPER)
        parent = psutil.Process(child.pid).ppid()
        os.kill(parent, signal.SIGSTOP)
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(failure_of(keeper.kill_tree(child.pid)))
            spawning = group.create_task(failure_of(started(keeper, tmp_path, SLEEPER)))
            await asyncio.sleep(0)
            os.kill(parent, signal.SIGKILL)
        assert "keeper" in killing.result()
        assert "keeper" in spawning.result()


async def test_keeper_itself_killed_takes_its_children_along(tmp_path: Path) -> None:
    """Children do not outlive a keeper that is killed, and who waits for them is told."""
    async with Keeper() as keeper:
        mark = f"{os.getpid()}-child"
        child = await started(keeper, tmp_path, SLEEPER, env={MARK: mark})
        parent = psutil.Process(child.pid).ppid()
        os.kill(parent, signal.SIGKILL)
        await eventually(lambda: not marked(mark))
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


async def test_orders_beyond_the_socket_are_done_in_order(keeper: Keeper, tmp_path: Path) -> None:
    """Nobody waits for a stopped keeper, and one who is cancelled cuts no order of the others."""
    first = await started(keeper, tmp_path, SLEEPER)
    parent = psutil.Process(first.pid).ppid()
    os.kill(parent, signal.SIGSTOP)
    ours, theirs = socket.socketpair()
    source = "import os; os.write(int(os.environ['STREAMCHAOS_CONTROL_FD']), b'here')"
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        with theirs:
            for _ in range(20):
                large = {"LARGE": "x" * 100_000}
                cut = group.create_task(started(keeper, tmp_path, SLEEPER, env=large))
                await asyncio.sleep(0)
                cut.cancel()
            last = group.create_task(started(keeper, tmp_path, source, control=theirs))
            await keeper.signal(first.pid, signal.SIGTERM)
            await asyncio.sleep(0)
        os.kill(parent, signal.SIGCONT)
        assert await (await last).exited == 0
    with ours:
        assert ours.recv(100) == b"here"
    assert await first.exited == -signal.SIGTERM
    assert psutil.Process(parent).children() == []


def test_keeper_whose_notices_nobody_reads_goes_on(tmp_path: Path) -> None:
    """They wait for their reader, however many; orders are done meanwhile."""
    count, nobody = 1_000, 1 << 30
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-I", "-S", str(KEEPER), str(theirs.fileno())]
    with ours, subprocess.Popen(argv, pass_fds=(theirs.fileno(),), start_new_session=True):
        theirs.close()
        for number in range(count):
            send(ours, verb="kill_tree", pid=nobody + number)
        out = str(tmp_path / "out")
        where = {"env": {}, "cwd": str(tmp_path), "stdout": out, "stderr": out}
        send(ours, verb="spawn", id=1, argv=["touch", "done"], **where)
        until((tmp_path / "done").exists)
        ours.settimeout(DEADLINE_S)
        reader, told = MessageReader(), list[Message]()
        while len(told) < count + 2:
            told += reader.feed(ours.recv(1 << 16))
        ours.shutdown(socket.SHUT_RDWR)
    gone = {notice["pid"] for notice in told if notice["kind"] == "tree_gone"}
    assert gone == set(range(nobody, nobody + count))
    assert [n["kind"] for n in told if n["kind"] != "tree_gone"] == ["spawned", "exited"]


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


async def test_keeper_itself_killed_tells_who_waits(tmp_path: Path) -> None:
    """Who waits for a child learns of its end when the keeper is killed."""
    async with Keeper() as keeper:
        child = await started(keeper, tmp_path, SLEEPER)
        os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            assert await child.exited == -signal.SIGKILL


async def test_keeper_undone_by_a_request_ends_all_the_same(tmp_path: Path) -> None:
    """A keeper that fails ends the workers of its children too."""
    mark = f"{os.getpid()}-undone"
    async with Keeper() as keeper:
        await started(keeper, tmp_path, FORKED, env={MARK: mark})
        await eventually((tmp_path / "ready").exists)
        keeper._order({"nonsense": 1})
        await eventually(lambda: not marked(mark))
