"""The command, stopped in the middle of a story: by Ctrl-C, by SIGTERM, by kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.record import scenario_folders
from harness.run import judge
from reports import json_report
from tests.conditions import until

ROOT = Path(__file__).parents[2]
# The lock of the machine is shared with other checkouts, and stays.
LOCK = "streamchaos.lock"
# A keeper, an engine and the two instruments, at least.
FAMILY_MIN = 4
DEADLINE_S = 10.0
SECRET = "sk-planted-in-the-environment"

Story = subprocess.Popen[str]


@contextmanager
def running(folder: Path, *argv: str) -> Iterator[Story]:
    """A command in the middle of its streams, in a session and folders of its own."""
    temporary = folder / "tmp"
    temporary.mkdir()
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(temporary),
        "STREAMCHAOS_API_KEY": SECRET,
    }
    with subprocess.Popen(
        (sys.executable, *argv),
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        until(lambda: list(folder.glob("chaos-results/2*/*/*/attempt-1/client.events.jsonl")))
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """A story that is being told."""
    with running(tmp_path, "-m", "harness.cli", "warstory", "1", "--seed", "7") as process:
        yield process


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Story]:
    """A session of pytest that waits for its first scenario."""
    installed = any(point.name == "streamchaos" for point in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "harness.plugin")
    tests = str(ROOT / "tests" / "chaos")
    results = str(tmp_path / "chaos-results")
    arguments = ("--chaos-seed=7", f"--chaos-results={results}", "-p", "no:cacheprovider")
    with running(tmp_path, "-m", "pytest", *plugin, tests, *arguments) as process:
        yield process


def family(story: Story) -> list[psutil.Process]:
    """All processes that the command has started, itself left out."""
    return psutil.Process(story.pid).children(recursive=True)


def served(connections: Iterable[Any]) -> set[int]:
    """The ports of those connections that wait for others."""
    return {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}


def listening(processes: list[psutil.Process]) -> set[int]:
    """The ports that they hold."""
    found = set()
    for process in processes:
        try:
            found |= served(process.net_connections("tcp"))
        except psutil.Error:
            continue
    return found


def touching(folder: Path) -> list[str]:
    """Processes that work in the folder or were started with a path in it."""
    found = []
    for process in psutil.process_iter(["pid", "cwd", "cmdline", "status"]):
        words = [process.info["cwd"] or "", *(process.info["cmdline"] or [])]
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(folder) in w for w in words):
            found.append(f"{process.info['pid']}: {' '.join(words)}")
    return found


def busy_ports() -> set[int]:
    """The ports of this machine that somebody listens on."""
    return served(psutil.net_connections("tcp"))


def wait_until_nothing_is_left(
    processes: list[psutil.Process], ports: set[int], folder: Path
) -> None:
    """No process, no port, no temporary folder, no private key."""
    assert len(processes) >= FAMILY_MIN
    assert ports
    psutil.wait_procs(processes, timeout=DEADLINE_S)
    until(lambda: not touching(folder))
    until(lambda: not ports & busy_ports())
    until(lambda: [path.name for path in (folder / "tmp").iterdir() if path.name != LOCK] == [])
    until(lambda: not [*folder.rglob("*.pem"), *folder.rglob("*.key")])


def recordings_that_can_be_read(folder: Path) -> int:
    """How many of the recordings can be judged; the others must not have begun."""
    found = scenario_folders(folder / "chaos-results" / "latest")
    begun = [one for one in found if (one.path / "client.events.jsonl").exists()]
    for one in begun:
        judge(one)
    return len(begun)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_story_with_a_signal_ends_in_order(
    signum: signal.Signals, story: Story, tmp_path: Path
) -> None:
    """Everything is stopped, the recordings are closed, the partial report is named."""
    processes = family(story)
    ports = listening(processes)
    story.send_signal(signum)
    out, err = story.communicate(timeout=DEADLINE_S)
    assert (story.returncode, out) == (128 + signum, "")
    run = (tmp_path / "chaos-results" / "latest").resolve()
    assert f"streamchaos: stopped by {signum.name}\n  partial results: {run}\n" in err
    assert "Traceback" not in err
    wait_until_nothing_is_left(processes, ports, tmp_path)
    assert recordings_that_can_be_read(tmp_path) >= 1
    assert json_report.loads((run / "report.json").read_bytes()).seed == 7


def test_story_with_a_second_signal_ends_at_once(story: Story, tmp_path: Path) -> None:
    """Whoever presses Ctrl-C twice does not wait, and still nothing is left."""
    processes = family(story)
    ports = listening(processes)
    story.send_signal(signal.SIGINT)
    story.send_signal(signal.SIGINT)
    story.communicate(timeout=DEADLINE_S)
    assert story.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    wait_until_nothing_is_left(processes, ports, tmp_path)


@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_story_killed_leaves_nothing_but_its_recordings(
    kill: Callable[[int, int], None], story: Story, tmp_path: Path
) -> None:
    """kill -9 of the command or of its process group: what it had started goes with it."""
    processes = family(story)
    ports = listening(processes)
    kill(story.pid, signal.SIGKILL)
    story.communicate(timeout=DEADLINE_S)
    wait_until_nothing_is_left(processes, ports, tmp_path)
    assert recordings_that_can_be_read(tmp_path) >= 1


def test_story_interrupted_keeps_the_key_of_the_environment_to_itself(
    story: Story, tmp_path: Path
) -> None:
    """The key went over the wire, and is in no file of the run."""
    story.send_signal(signal.SIGINT)
    out, err = story.communicate(timeout=DEADLINE_S)
    assert SECRET not in out + err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_session_with_a_signal_ends_in_order(
    signum: signal.Signals, session: Story, tmp_path: Path
) -> None:
    """pytest ends as it does elsewhere, names the report, and nothing is left."""
    processes = family(session)
    ports = listening(processes)
    session.send_signal(signum)
    out, _ = session.communicate(timeout=DEADLINE_S)
    run = (tmp_path / "chaos-results" / "latest").resolve()
    assert session.returncode == pytest.ExitCode.INTERRUPTED
    assert f"report: {run}" in out
    wait_until_nothing_is_left(processes, ports, tmp_path)
    assert recordings_that_can_be_read(tmp_path) >= 1
    assert (run / "report.json").exists()
