"""The bound that goes with each stamp, against a world in which every arrival is known."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from harness.arrival import Arrival
from harness.reactor import Reactor

READ_SIZE = 3

STEPS = st.lists(st.sampled_from(["arrive", "poll", "pause", "resume", "read"]), max_size=60)


@dataclass(slots=True)
class World:
    """A source, the loop that polls it, and a clock that ticks with each thing that happens."""

    arrival: Arrival
    reactor: Reactor
    at_ns: int = 1
    watched: bool = False
    ready: bool = False
    unread: list[int] = field(default_factory=list)
    bounds: list[tuple[int, int]] = field(default_factory=list)

    def do(self, step: str) -> None:
        """One step, where it is possible now."""
        self.at_ns += 1
        getattr(self, f"_{step}")()

    def _arrive(self) -> None:
        self.unread.append(self.at_ns)

    def _poll(self) -> None:
        self.reactor.previous_poll_entry_ns = self.reactor.poll_entry_ns
        self.reactor.poll_entry_ns = self.at_ns
        self.ready = self.watched and bool(self.unread)

    def _pause(self) -> None:
        self.watched = False
        self.arrival.pause()

    def _resume(self) -> None:
        self.watched = True
        self.arrival.resume(self.at_ns)

    def _read(self) -> None:
        """What the last poll found is read at once; while paused, only on purpose."""
        if not self.unread or (self.watched and not self.ready):
            return
        taken, self.unread = self.unread[:READ_SIZE], self.unread[READ_SIZE:]
        self.bounds.append((self.arrival.earliest_ns, taken[0]))
        self.arrival.taken(self.at_ns, drained=len(taken) < READ_SIZE)
        self.ready = False


def world() -> World:
    """Nothing has happened yet."""
    reactor = Reactor()
    reactor.poll_entry_ns = reactor.previous_poll_entry_ns = 0
    return World(Arrival(reactor, 1), reactor)


@given(STEPS)
def test_bound_of_any_history_is_never_later_than_the_arrival(steps: list[str]) -> None:
    """Whatever is left unread, paused or not yet watched: no read holds anything older. (What a
    poll has reported is read before the next one, unless reading was paused in between.)"""
    here = world()
    for step in steps:
        if here.ready and here.watched and step == "poll":
            here.do("read")
        here.do(step)
    assert all(earliest_ns <= arrived_ns for earliest_ns, arrived_ns in here.bounds)
    here.reactor.close()


def test_bound_of_a_watched_source_is_the_poll_that_found_nothing() -> None:
    """It is no wider than the loop allows."""
    here = world()
    for step in ("resume", "poll", "poll"):
        here.do(step)
    empty_poll_ns = here.reactor.poll_entry_ns
    for step in ("arrive", "poll", "read"):
        here.do(step)
    assert here.bounds[-1][0] == empty_poll_ns
    here.reactor.close()


def test_bound_behind_a_full_read_is_its_own() -> None:
    """What was left may have come with what was taken."""
    here = world()
    for step in ("resume", "poll", *["arrive"] * (READ_SIZE + 1), "poll", "read", "poll", "read"):
        here.do(step)
    (first_ns, _), (second_ns, _) = here.bounds
    assert second_ns == first_ns
    here.reactor.close()


def test_bound_over_a_pause_is_the_poll_before_it() -> None:
    """Polls that did not watch prove nothing."""
    here = world()
    for step in ("resume", "poll", "arrive", "poll", "read", "pause"):
        here.do(step)
    last_watched_ns = here.reactor.poll_entry_ns
    for step in ("arrive", "poll", "poll", "poll", "resume", "poll", "read"):
        here.do(step)
    assert here.bounds[-1][0] == last_watched_ns
    here.reactor.close()
