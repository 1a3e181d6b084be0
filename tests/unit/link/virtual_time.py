"""A chain played without a socket and without waiting: its wakes are performed when due."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from harness.link.stage import Chain, Command, Data, Event, Stage, Wake

WAKES_MAX = 10_000
Timed = tuple[int, Command]


def play(stages: Sequence[Stage], events: Iterable[tuple[int, Event]]) -> list[Timed]:
    """What comes out and when, wakes left out.

    Args:
        stages: first to see the bytes first.
        events: each with its time, in ns; wakes that are due at the same time come behind.
    """
    chain = Chain(stages)
    waiting: list[tuple[int, int, Event]] = []
    for number, (at_ns, event) in enumerate(events):
        heapq.heappush(waiting, (at_ns, number, event))
    out: list[Timed] = []
    pushed = len(waiting)
    wakes_left = WAKES_MAX
    while waiting:
        at_ns, _, event = heapq.heappop(waiting)
        for command in chain.push(event, at_ns):
            if isinstance(command, Wake):
                wakes_left -= 1
                assert wakes_left, "a stage asks to be woken again and again"
                pushed += 1
                heapq.heappush(waiting, (max(command.due_ns, at_ns), pushed, command))
            else:
                out.append((at_ns, command))
    return out


def bytes_of(out: Iterable[Timed]) -> bytes:
    """The data that came out."""
    return b"".join(command.data for _, command in out if isinstance(command, Data))


def others(out: Iterable[Timed]) -> list[Command]:
    """What came out beside data."""
    return [command for _, command in out if not isinstance(command, Data)]
