"""The loop of the measuring processes."""

from __future__ import annotations

import os
import socket
from itertools import pairwise

from harness.clock import now_ns
from harness.reactor import READABLE, WRITABLE, Reactor, percentile_ns

MS = 1_000_000


def test_timers_run_in_order_and_never_early() -> None:
    """By their time, whatever the order in which they were asked for; a cancelled one does not."""
    reactor, ran = Reactor(), list[tuple[int, bool]]()
    begin_ns = now_ns()
    for number, delay_ms in ((3, 6), (1, 2), (2, 4)):
        due_ns = begin_ns + delay_ms * MS
        reactor.at(due_ns, lambda n=number, d=due_ns: ran.append((n, now_ns() >= d)))  # type: ignore[misc]
    reactor.at(begin_ns + 3 * MS, lambda: ran.append((9, True))).cancel()
    reactor.at(begin_ns + 8 * MS, reactor.stop)
    reactor.run()
    assert ran == [(1, True), (2, True), (3, True)]


def test_handler_knows_the_entry_of_the_poll_before() -> None:
    """What it reads cannot have been there when that poll was entered and found nothing."""
    reactor = Reactor()
    reader, writer = os.pipe()
    seen: list[tuple[int, int]] = []
    written: list[int] = []

    def write() -> None:
        written.append(now_ns())
        os.write(writer, b"x")

    def on_readable(_: int) -> None:
        os.read(reader, 1)
        seen.append((reactor.previous_poll_entry_ns, reactor.poll_entry_ns))
        reactor.stop()

    reactor.add(reader, READABLE, on_readable)
    reactor.at(now_ns() + 2 * MS, write)
    reactor.run()
    os.close(reader)
    os.close(writer)
    ((previous_ns, entry_ns),) = seen
    assert previous_ns <= written[0] <= entry_ns


def test_removed_descriptor_is_not_handled() -> None:
    """Even where it was ready in the same round."""
    reactor = Reactor()
    pipes = [os.pipe(), os.pipe()]
    handled: list[int] = []

    def handler(mine: int) -> None:
        handled.append(mine)
        for reader, _ in pipes:
            reactor.remove(reader)
        reactor.stop()

    for number, (reader, writer) in enumerate(pipes):
        os.write(writer, b"x")
        reactor.add(reader, READABLE, lambda _, n=number: handler(n))  # type: ignore[misc]
    reactor.run()
    for fds in pipes:
        for fd in fds:
            os.close(fd)
    assert len(handled) == 1


def test_descriptor_used_again_gets_no_events_of_the_one_before() -> None:
    """A number that is closed and opened again in one round has had nothing happen to it yet."""
    reactor = Reactor()
    pipes = [os.pipe(), os.pipe()]
    handled: list[str] = []

    def replace(mine: int) -> None:
        handled.append("first")
        other, writer = pipes[1 - mine]
        reactor.remove(other)
        os.close(other)
        os.close(writer)
        pipes[1 - mine] = os.pipe()
        assert pipes[1 - mine][0] == other
        reactor.add(other, READABLE, lambda _: handled.append("stale"))
        reactor.stop()

    for number, (reader, writer) in enumerate(pipes):
        os.write(writer, b"x")
        reactor.add(reader, READABLE, lambda _, n=number: replace(n))  # type: ignore[misc]
    reactor.run()
    reactor.close()
    for fds in pipes:
        for fd in fds:
            os.close(fd)
    assert handled == ["first"]


def test_every_runs_until_the_loop_ends() -> None:
    """Again and again, and never twice for one period."""
    reactor, ran = Reactor(), list[int]()

    def tick() -> None:
        ran.append(now_ns())
        if len(ran) == 3:
            reactor.stop()

    begin_ns = now_ns()
    reactor.every(MS, tick)
    reactor.run()
    reactor.close()
    assert all(b - a >= MS for a, b in pairwise([begin_ns, *ran]))


def test_events_that_are_waited_for_can_change() -> None:
    """Writable first, then only readable: a descriptor that stays writable is not called again."""
    reactor, seen = Reactor(), list[int]()
    ours, theirs = socket.socketpair()

    def on_events(events: int) -> None:
        seen.append(events)
        reactor.modify(ours.fileno(), READABLE)
        theirs.send(b"x")
        if len(seen) == 2:
            reactor.stop()

    with ours, theirs:
        reactor.add(ours.fileno(), WRITABLE, on_events)
        reactor.run()
        reactor.close()
    assert [bool(e & WRITABLE) for e in seen] == [True, False]


def test_measuring_loop_knows_its_own_lateness() -> None:
    """Each probe says by how much it was late; none is early."""
    reactor = Reactor()
    reactor.measuring = True
    reactor.at(now_ns() + 70 * MS, reactor.stop)
    reactor.run()
    assert len(reactor.lateness_ns) >= 2
    assert min(reactor.lateness_ns) >= 0


def test_percentile_is_a_value_that_was_seen() -> None:
    """Nearest rank; 0 for nothing."""
    assert percentile_ns([], 0.99) == 0
    assert percentile_ns([5, 1, 3], 0.5) == 3
    assert percentile_ns(list(range(100)), 0.99) == 99
