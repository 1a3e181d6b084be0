"""Programs for a keeper to start, and who is left of them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from harness.launch.processes import Child, Keeper

MARK = "STREAMCHAOS_TEST_MARK"
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
FORKED = """
import os, signal
if not os.fork():
    open("ready", "w").close()
signal.pause()
"""


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


def read(path: Path) -> str:
    """What stands in a file by now."""
    return path.read_text() if path.exists() else ""
