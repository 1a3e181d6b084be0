"""The loop of the measuring processes (relay, sampler): bare epoll, timers, and the entry time of
each poll.

asyncio hides when a poll was entered, and that moment is what bounds how early bytes can have
arrived (measurement.md §5): at the poll before the one that found a socket readable it was not
readable.
"""

from __future__ import annotations

import heapq
import select
from collections.abc import Callable
from itertools import count

from harness.clock import now_ns

READABLE = select.EPOLLIN | select.EPOLLRDHUP
WRITABLE = select.EPOLLOUT
BROKEN = select.EPOLLERR | select.EPOLLHUP

POLL_MAX_MS = 2
"""Longest poll while somebody measures: keeps the bound of a stamp tight at ≤ 1 % of a core
(measurement.md §5)."""

JITTER_PROBE_NS = 20_000_000
"""How often the loop checks by how much its own timers are late."""

Handler = Callable[[int], None]


class Timer:
    """A callback at a time; `cancel()` makes it never run."""

    __slots__ = ("callback", "due_ns")

    def __init__(self, due_ns: int, callback: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """The callback is dropped; the slot in the heap runs empty."""
        self.callback = None


class Reactor:
    """Calls handlers for ready file descriptors and timers for passed times, in one thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = count()
        self._running = False
        self.poll_entry_ns = now_ns()
        self.previous_poll_entry_ns = self.poll_entry_ns
        self.measuring = False
        self.lateness_ns: list[int] = []

    def add(self, fd: int, events: int, handler: Handler) -> None:
        """Calls `handler(events)` whenever `fd` is ready for one of `events`."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Waits for other events on `fd`."""
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        """Forgets `fd`; harmless when it is not known."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def at(self, due_ns: int, callback: Callable[[], None]) -> Timer:
        """Runs `callback` once at `due_ns`."""
        timer = Timer(due_ns, callback)
        heapq.heappush(self._timers, (due_ns, next(self._order), timer))
        return timer

    def every(self, period_ns: int, callback: Callable[[], None]) -> None:
        """Runs `callback` each `period_ns` until the loop ends."""

        def again() -> None:
            callback()
            self.at(now_ns() + period_ns, again)

        self.at(now_ns() + period_ns, again)

    def run(self) -> None:
        """Until `stop()`."""
        self._running = True
        self._probe(now_ns())
        while self._running:
            timeout_s = self._timeout_s()
            self.previous_poll_entry_ns = self.poll_entry_ns
            self.poll_entry_ns = now_ns()
            # Whose events these are is settled here: a handler may close a descriptor, and the next
            # one that is opened bears the same number.
            ready = [(fd, e, self._handlers.get(fd)) for fd, e in self._epoll.poll(timeout_s)]
            for fd, events, handler in ready:
                if handler is not None and self._handlers.get(fd) is handler:
                    handler(events)
            self._run_timers()

    def close(self) -> None:
        """Gives the poll's descriptor back, once nothing is added or removed any more."""
        self._epoll.close()

    def stop(self) -> None:
        """Ends `run()` once everything that is ready or due in this round has been called."""
        self._running = False

    def _probe(self, planned_ns: int) -> None:
        late_ns = now_ns() - planned_ns
        if self.measuring:
            self.lateness_ns.append(late_ns)
        due_ns = now_ns() + JITTER_PROBE_NS
        self.at(due_ns, lambda: self._probe(due_ns))

    def _timeout_s(self) -> float:
        wait_ns = self._timers[0][0] - now_ns() if self._timers else 1_000_000_000
        if self.measuring:
            wait_ns = min(wait_ns, POLL_MAX_MS * 1_000_000)
        return max(wait_ns, 0) / 1e9

    def _run_timers(self) -> None:
        at_ns = now_ns()
        while self._timers and self._timers[0][0] <= at_ns:
            _, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()


def percentile_ns(values: list[int], share: float) -> int:
    """The value below which `share` of `values` lie; 0 for none."""
    if not values:
        return 0
    ranked = sorted(values)
    return ranked[min(int(len(ranked) * share), len(ranked) - 1)]
