"""Ctrl-C and SIGTERM: the first stops in good order and in time, the second at once.

Whatever ends this process, the keeper ends what it has started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from harness.errors import HarnessError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The promise is 3 s from the signal to the end of the process.
GRACE_S = 2.5

T = TypeVar("T")
Note = Callable[[], str]
"""What to tell of what is left: where the partial results are."""


class Interrupted(HarnessError):
    """Somebody asked for the end; everything is stopped."""

    def __init__(self, signum: int, note: str) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}", todo=note)
        self.exit_code = exit_code(signum)


def exit_code(signum: int) -> int:
    """What a shell reports of a process that this signal ended."""
    return 128 + signum


def run(work: Coroutine[Any, Any, T], note: Note = str) -> T:
    """What `work` comes to, run on a loop of its own.

    Raises:
        Interrupted: a signal came first. `work` was cancelled and has ended.
    """
    return asyncio.run(_guarded(work, note))


async def _guarded(work: Coroutine[Any, Any, T], note: Note) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    received: list[int] = []

    def stop(signum: int) -> None:
        received.append(signum)
        for one in SIGNALS:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        _end_in_time(signum, note)
        if task is not None:
            task.cancel()

    for signum in SIGNALS:
        loop.add_signal_handler(signum, stop, signum)
    try:
        result = await work
    except (asyncio.CancelledError, HarnessError) as error:
        if not received:
            raise
        raise Interrupted(received[0], note()) from error
    finally:
        for signum in SIGNALS:
            loop.remove_signal_handler(signum)
    return result


def _end_in_time(signum: int, note: Note) -> None:
    """Ends the process where good order takes too long; by a thread, the loop may be what hangs."""

    def end() -> None:
        sys.stderr.write(f"streamchaos: stopped by {signal.Signals(signum).name}\n  {note()}\n")
        sys.stderr.flush()
        os._exit(exit_code(signum))

    timer = threading.Timer(GRACE_S, end)
    timer.daemon = True
    timer.start()
