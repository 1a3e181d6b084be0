"""Waiting for what is to become true: by looking again, never by trusting a duration."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TICK_S = 0.01
DEADLINE_S = 10.0


def until(condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
    """The first true value of `condition`. AssertionError where there is none by the deadline."""
    end_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end_s, f"still {value!r} after {deadline_s} s"
        threading.Event().wait(TICK_S)
    return value


async def eventually(condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
    """`until` for coroutines: the loop goes on meanwhile."""
    end_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end_s, f"still {value!r} after {deadline_s} s"
        await asyncio.sleep(TICK_S)
    return value
