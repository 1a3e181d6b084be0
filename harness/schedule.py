"""How many scenarios run side by side, by what they ask of the machine.

`measures` runs alone, on the machine and not only in this process: a lock file that checkouts and
workers share. `shape`: two at once; `waits`: eight.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harness.model import Load

LIMITS = {Load.MEASURES: 1, Load.SHAPE: 2, Load.WAITS: 8}
LOCK_POLL_S = 0.05


class Schedule:
    """Hands out places. `jobs` caps how many of them at once, whatever their load."""

    def __init__(self, jobs: int = 8, lock_path: Path | None = None) -> None:
        self._jobs = jobs
        self._running: list[Load] = []
        self._waiting_alone = 0
        self._changed = asyncio.Condition()
        self._lock_path = lock_path or Path(tempfile.gettempdir()) / "streamchaos.lock"

    @asynccontextmanager
    async def place(self, load: Load) -> AsyncIterator[None]:
        """Waits for a place and holds it."""
        alone = load is Load.MEASURES
        self._waiting_alone += alone
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._fits(load))
                self._running.append(load)
        finally:
            self._waiting_alone -= alone
        try:
            async with self._machine(exclusive=alone):
                yield
        finally:
            async with self._changed:
                self._running.remove(load)
                self._changed.notify_all()

    def _fits(self, load: Load) -> bool:
        if load is Load.MEASURES:
            return not self._running
        if Load.MEASURES in self._running or self._waiting_alone:
            return False
        return len(self._running) < self._jobs and self._running.count(load) < LIMITS[load]

    @asynccontextmanager
    async def _machine(self, *, exclusive: bool) -> AsyncIterator[None]:
        """The lock of the machine: shared by all but those who measure."""
        fd = os.open(self._lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            while not _locked(fd, mode):  # noqa: ASYNC110
                # Other processes hold it: there is no event to wait for.
                await asyncio.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(fd)


def _locked(fd: int, mode: int) -> bool:
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
