"""What every fault of the stream layer owes (faults/README.md), as one function."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

import faults
from harness.link.stage import Abort, Command, Data, Eof, Event, Fire, Stage
from harness.model import Fault, Injection, Trigger, TriggerKind
from tests.unit.link.virtual_time import Timed, bytes_of, others, play
from tests.unit.wire.splits import bytewise, every_cut_in_two

NEVER = Trigger(kind=TriggerKind.BYTES, count=1 << 60)
NUMBER = 7
STEP_NS = 1_000
Make = Callable[[Trigger], Stage]


def maker(fault: Fault) -> Make:
    """Makes the fault's stage for one connection as the relay does."""
    module, _, function = faults.stage(fault).partition(":")
    make: Callable[[Injection, int, int, int], Stage]
    make = getattr(importlib.import_module(module), function)
    return lambda trigger: make(Injection(fault=fault, hop=1, trigger=trigger), NUMBER, 1, 0)


def pushed(
    make: Make, trigger: Trigger, pieces: Iterable[bytes], *last: Event, at_ns: int = 0
) -> list[Timed]:
    """What comes of these pieces, one each microsecond, and the events behind them."""
    events: list[Event] = [*(Data(piece) for piece in pieces), *last]
    timed = [(at_ns + i * STEP_NS, event) for i, event in enumerate(events)]
    return play([make(trigger)], timed)


def fires(out: Iterable[Timed]) -> list[Fire]:
    """The evidence in it."""
    return [command for _, command in out if isinstance(command, Fire)]


def check_conformance(make: Make, trigger: Trigger, wire: bytes, *, loses: bool) -> None:
    """Asserts the contract of one fault.

    Args:
        make: gives its stage for a new connection, see `maker`.
        trigger: one that `wire` meets, and on which the fault does its work.
        wire: what comes from the source.
        loses: whether the fault may drop bytes, from some place on.
    """
    check_disarmed(make, wire)
    check_fired(make, trigger, wire, loses=loses)
    check_splits(make, trigger, wire)
    check_abort(make, trigger, wire)


def check_disarmed(make: Make, wire: bytes) -> None:
    """Before its trigger it passes everything on at once, as it came, and gives no evidence."""
    ends: tuple[Event, ...] = (Eof(), Abort())
    for pieces in [*every_cut_in_two(wire), bytewise(wire)]:
        for end in ends:
            events = [*(Data(piece) for piece in pieces), end]
            out = pushed(make, NEVER, pieces, end)
            assert out == [(i * STEP_NS, event) for i, event in enumerate(events)]


def check_fired(make: Make, trigger: Trigger, wire: bytes, *, loses: bool) -> None:
    """It gives evidence once for each time it does its work, of bytes that were there; in order."""
    out = pushed(make, trigger, [wire], Eof())
    assert fires(out), "the trigger is met and there is no evidence"
    for fire in fires(out):
        assert fire.injection == NUMBER
        assert 0 <= fire.byte_offset <= len(wire)
    passed = bytes_of(out)
    assert wire.startswith(passed) if loses else passed == wire
    check_nothing_behind_the_end([command for _, command in out])


def check_nothing_behind_the_end(commands: list[Command]) -> None:
    """A direction ends once, and no data follows."""
    ends = [i for i, command in enumerate(commands) if isinstance(command, Eof | Abort)]
    assert len(ends) <= 1
    if ends:
        assert not any(isinstance(command, Data) for command in commands[ends[0] :])


def check_splits(make: Make, trigger: Trigger, wire: bytes) -> None:
    """Bytes, evidence and the end do not depend on how the bytes were split."""
    whole = summary(pushed(make, trigger, [wire], Eof()))
    for pieces in [*every_cut_in_two(wire), bytewise(wire)]:
        assert summary(pushed(make, trigger, pieces, Eof())) == whole


def summary(out: list[Timed]) -> tuple[object, ...]:
    """What came out, without times."""
    places = [(fire.injection, fire.byte_offset, fire.event_index) for fire in fires(out)]
    return bytes_of(out), places, [c for c in others(out) if not isinstance(c, Fire)]


def check_abort(make: Make, trigger: Trigger, wire: bytes) -> None:
    """A reset passes at once, unless the direction has ended; what is held goes with it."""
    for length in range(len(wire) + 1):
        out = pushed(make, trigger, [wire[:length]] if length else [], Abort())
        reset_ns = STEP_NS if length else 0
        assert all(at_ns <= reset_ns for at_ns, _ in out), "something is let go behind the reset"
        commands = [command for _, command in out]
        ended = any(isinstance(command, Eof) for command in commands)
        assert ended or (commands and commands[-1] == Abort())
