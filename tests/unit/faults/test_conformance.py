"""The contract of faults fails on each way of breaking it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from harness.link.stage import Abort, Command, Data, Eof, Event, Fire, Wake
from harness.link.trigger import TriggerWatch
from harness.model import Trigger, TriggerKind
from tests.unit.faults.conformance import NUMBER, STEP_NS, check_conformance

WIRE = b"abcdefgh"
TRIGGER = Trigger(kind=TriggerKind.BYTES, count=3)


class Hold:
    """Holds what comes behind the trigger for two steps; the base of what breaks the contract."""

    def __init__(self, trigger: Trigger) -> None:
        self.watch = TriggerWatch(trigger, 0)
        self.seen_bytes = 0
        self.fired = False
        self.held: list[Event] = []

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        if isinstance(event, Abort):
            return self.on_abort(event)
        if isinstance(event, Wake):
            held, self.held = self.held, []
            return held
        if isinstance(event, Data):
            return self.on_data(event.data, now_ns)
        return self.on_eof(event)

    def on_abort(self, event: Abort) -> list[Command]:
        self.held.clear()
        return [event]

    def on_eof(self, event: Eof) -> list[Command]:
        if not self.held:
            return [event]
        self.held.append(event)
        return []

    def on_data(self, data: bytes, now_ns: int) -> list[Command]:
        offset = self.watch.met_at(data, now_ns)
        if offset is None:
            self.seen_bytes += len(data)
            return [Data(data)]
        out: list[Command] = [Data(data[:offset])] if offset else []
        if not self.fired:
            out.append(Fire(NUMBER, self.seen_bytes + offset))
        self.fired = True
        if data[offset:]:
            self.held.append(Data(data[offset:]))
            out.append(Wake(now_ns + 2 * STEP_NS))
        return out


class Silent(Hold):
    """Gives no evidence."""

    def on_data(self, data: bytes, now_ns: int) -> list[Command]:
        return [c for c in super().on_data(data, now_ns) if not isinstance(c, Fire)]


class Early(Hold):
    """Works before its trigger."""

    def on_data(self, data: bytes, now_ns: int) -> list[Command]:
        return [Data(data[::-1]), Fire(NUMBER, 0)]


class Losing(Hold):
    """Forgets the last byte of what it held."""

    def on_data(self, data: bytes, now_ns: int) -> list[Command]:
        out = super().on_data(data, now_ns)
        self.held = [Data(e.data[:-1]) if isinstance(e, Data) else e for e in self.held]
        return out


class ByRead(Hold):
    """Does its work at the next read instead of the byte."""

    def on_data(self, data: bytes, now_ns: int) -> list[Command]:
        offset = self.watch.met_at(data, now_ns)
        fire: list[Command] = []
        if offset is not None and not self.fired:
            self.fired = True
            fire = [Fire(NUMBER, self.seen_bytes)]
        self.seen_bytes += len(data)
        return [*fire, Data(data)]


class Clinging(Hold):
    """Lets go what it holds behind a reset."""

    def on_abort(self, event: Abort) -> list[Command]:
        return [event]


class Overtaken(Hold):
    """Passes the end on ahead of what it holds."""

    def on_eof(self, event: Eof) -> list[Command]:
        return [event]


class Deaf(Hold):
    """Swallows a reset."""

    def on_abort(self, event: Abort) -> list[Command]:
        self.held.clear()
        return []


class Restless(Hold):
    """Asks to be woken for nothing, for ever."""

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        return [*super().on_event(event, now_ns), *([Wake(now_ns)] if self.fired else [])]


def test_conformance_of_a_fault_that_holds_and_lets_go_is_given() -> None:
    """A stage that keeps the contract passes."""
    check_conformance(Hold, TRIGGER, WIRE, loses=False)


@pytest.mark.parametrize(
    "broken", [Silent, Early, Losing, ByRead, Clinging, Overtaken, Deaf, Restless]
)
def test_conformance_of_a_broken_fault_is_refused(broken: Callable[[Trigger], Hold]) -> None:
    """Each way of breaking the contract is seen."""
    with pytest.raises(AssertionError):
        check_conformance(broken, TRIGGER, WIRE, loses=False)
