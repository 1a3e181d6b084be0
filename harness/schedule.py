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

from harness.errors import HarnessError
from harness.model import Load

LIMITS = {Load.MEASURES: 1, Load.SHAPE: 2, Load.WAITS: 8}
LOCK_POLL_S = 0.05


class Schedule:
    """Hands out places. `jobs` caps how many of them at once, whatever their load."""

    def __init__(self, jobs: int = 8, lock_path: Path | None = None) -> None:
        self._jobs = jobs
        self._running: list[Load] = []
        self._waiting_alone = 0
        self._changed = asyncio.Event()
        self._lock_path = lock_path or Path(tempfile.gettempdir()) / "streamchaos.lock"

    @asynccontextmanager
    async def place(self, load: Load) -> AsyncIterator[None]:
        """Waits for a place and holds it.

        Raises:
            HarnessError: the lock of the machine cannot be opened.
        """
        await self._take(load)
        try:
            async with self._machine(exclusive=load is Load.MEASURES):
                yield
        finally:
            self._running.remove(load)
            self._tell()

    async def _take(self, load: Load) -> None:
        alone = load is Load.MEASURES
        self._waiting_alone += alone
        try:
            while not self._fits(load):
                await self._changed.wait()
            self._running.append(load)
        finally:
            # Also where it gives up: others may have waited for nobody else.
            self._waiting_alone -= alone
            self._tell()

    def _tell(self) -> None:
        """Has those who wait look again. Never suspends, so that no cancellation comes between."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _fits(self, load: Load) -> bool:
        if load is Load.MEASURES:
            return not self._running
        if Load.MEASURES in self._running or self._waiting_alone:
            return False
        return len(self._running) < self._jobs and self._running.count(load) < LIMITS[load]

    @asynccontextmanager
    async def _machine(self, *, exclusive: bool) -> AsyncIterator[None]:
        """The lock of the machine: shared by all but those who measure."""
        fd = _opened(self._lock_path)
        try:
            mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            while not _locked(fd, mode):  # noqa: ASYNC110
                # Other processes hold it: there is no event to wait for.
                await asyncio.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(fd)


def _opened(path: Path) -> int:
    """A descriptor of the lock file. One that another user made is opened as it is: in a sticky
    folder the kernel may refuse O_CREAT for it (fs.protected_regular)."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            return os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as error:
        todo = "remove it, or set TMPDIR to a folder of yours"
        raise HarnessError(
            f"cannot be opened: {error.strerror}", where=str(path), todo=todo
        ) from error


def _locked(fd: int, mode: int) -> bool:
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
