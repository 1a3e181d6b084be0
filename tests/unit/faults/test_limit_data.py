"""limit-data: exactly so many bytes, then the end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faults
from harness.link.stage import Abort, Eof, Fire
from harness.model import Layer, Trigger, TriggerKind
from tests.unit.faults.conformance import NUMBER, Make, check_conformance, fires, maker, pushed
from tests.unit.link.virtual_time import bytes_of, others
from tests.unit.wire.splits import PLACES, bytewise, cut

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"text":"a"}]}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
EVENT_COUNT = 5
WIRE = HEAD + CHUNK * EVENT_COUNT + b"0\r\n\r\n"

TRIGGERS = {
    Trigger(): 0,
    Trigger(kind=TriggerKind.HEADERS): len(HEAD),
    Trigger(kind=TriggerKind.BYTES, count=50): 50,
    Trigger(kind=TriggerKind.ELAPSED, after_ms=0): 0,
    **{
        Trigger(kind=TriggerKind.EVENTS, count=n): len(HEAD) + n * len(CHUNK) - len(b"\r\n")
        for n in range(1, EVENT_COUNT + 1)
    },
}


def limit(limit_bytes: int) -> Make:
    return maker(faults.fault("limit-data", limit_bytes=limit_bytes))


def test_limit_data_is_in_the_catalogue() -> None:
    """By default nothing passes behind the trigger; it is made in the relay."""
    fault = faults.fault("limit-data")
    assert fault.layer is Layer.STREAM
    assert fault.parameters == (("limit_bytes", 0),)


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: f"{trigger.kind}-{trigger.count}")
@pytest.mark.parametrize("limit_bytes", [0, 1, 5])
def test_limit_data_owes_what_every_fault_owes(trigger: Trigger, limit_bytes: int) -> None:
    """It passes all until it is met, then does its work once, alike for every split."""
    check_conformance(limit(limit_bytes), trigger, WIRE, loses=True)


@given(trigger=st.sampled_from(list(TRIGGERS)), limit_bytes=st.integers(0, 120), places=PLACES)
@settings(max_examples=150)
def test_limit_data_passes_exactly_the_limit(
    trigger: Trigger, limit_bytes: int, places: list[int]
) -> None:
    """The limit counts from the byte at which the trigger is met; the end follows at once."""
    wanted = TRIGGERS[trigger] + limit_bytes
    for pieces in (cut(WIRE, places), bytewise(WIRE)):
        out = pushed(limit(limit_bytes), trigger, pieces, Eof())
        if wanted > len(WIRE):
            assert bytes_of(out) == WIRE
            assert others(out) == [Eof()]
            continue
        assert bytes_of(out) == WIRE[:wanted]
        (fire,) = fires(out)
        assert (fire.injection, fire.byte_offset) == (NUMBER, wanted)
        assert others(out) == [fire, Eof()]


def test_limit_data_of_no_bytes_ends_as_soon_as_the_event_is_whole() -> None:
    """The cut does not wait for the read behind the event."""
    trigger = Trigger(kind=TriggerKind.EVENTS, count=2)
    upto = TRIGGERS[trigger]
    out = pushed(limit(0), trigger, [WIRE[:upto]])
    assert bytes_of(out) == WIRE[:upto]
    assert others(out) == [Fire(NUMBER, upto, 2, 0), Eof()]


def test_limit_data_swallows_what_comes_behind() -> None:
    """Neither bytes nor an end nor a reset of the source are seen once it has cut."""
    for end in (Eof(), Abort()):
        out = pushed(limit(3), Trigger(), [b"abc", b"def"], end)
        assert bytes_of(out) == b"abc"
        assert others(out) == [Fire(NUMBER, 3, 0, 0), Eof()]


def test_limit_data_by_time_counts_from_then_on() -> None:
    """What passed before the time was up is not counted."""
    trigger = Trigger(kind=TriggerKind.ELAPSED, after_ms=1)
    at_ns = 1_000_000 - 2_000
    out = pushed(limit(3), trigger, [b"abcd", b"efgh", b"ij", b"klm"], at_ns=at_ns)
    assert bytes_of(out) == b"abcdefghijk"
    assert fires(out) == [Fire(NUMBER, 11, 0, 1_001_000)]
