"""When a fault starts: at the same byte however the bytes were split."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.link.trigger import TriggerWatch
from harness.model import Trigger, TriggerKind
from tests.unit.wire.splits import PLACES, bytewise, cut, every_cut_in_two

EVENT_COUNT = 6
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP_WBITS = 31


def event(index: int, end: bytes) -> bytes:
    """A content event behind a comment and an empty chunk, which do not count."""
    lines = b': beat|data: {"choices":[{"text":""}]}||data: {"choices":[{"text":"%d"}]}||' % index
    return lines.replace(b"|", end)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def plain(frame: Callable[[bytes], bytes], end: bytes) -> tuple[list[bytes], int]:
    """The pieces that complete one event each, and how many bytes of a piece lie behind it."""
    behind = len(frame(b"x")) - frame(b"x").index(b"x") - 1
    return [frame(event(i, end)) for i in range(EVENT_COUNT)], behind + len(end) - 1


def coded() -> list[bytes]:
    """The same in chunks of gzip, flushed behind each event."""
    coder = zlib.compressobj(wbits=GZIP_WBITS)
    flush = zlib.Z_SYNC_FLUSH
    events = (event(i, b"\n") for i in range(EVENT_COUNT))
    return [chunk(coder.compress(data) + coder.flush(flush)) for data in events]


def met_at(trigger: Trigger, pieces: list[bytes], *, at_ns: int = 0) -> int | None:
    """Offset in the whole at which the trigger is met; None for never."""
    watch = TriggerWatch(trigger, 0)
    before = 0
    for piece in pieces:
        offset = watch.met_at(piece, at_ns)
        if offset is not None:
            assert watch.met
            assert 0 <= offset <= len(piece)
            return before + offset
        assert not watch.met
        before += len(piece)
    return None


def after_events(count: int) -> Trigger:
    return Trigger(kind=TriggerKind.EVENTS, count=count)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["lf", "cr", "crlf"])
@pytest.mark.parametrize(
    ("head", "frame"),
    [(CHUNKED, chunk), (HEAD + b"\r\n", bytes), (HEAD + b"Content-Length: 9999\r\n\r\n", bytes)],
    ids=["chunked", "close", "length"],
)
def test_watch_of_events_is_met_behind_each_in_turn(
    head: bytes, frame: Callable[[bytes], bytes], end: bytes
) -> None:
    """After event 1 … N the offset is just behind the event, for each cut in two and bytewise."""
    pieces, behind = plain(frame, end)
    wire = head + b"".join(pieces)
    for count in range(1, EVENT_COUNT + 1):
        wanted = len(head) + sum(map(len, pieces[:count])) - behind
        assert met_at(after_events(count), [wire]) == wanted
        assert met_at(after_events(count), bytewise(wire)) == wanted
    for split in every_cut_in_two(wire):
        assert met_at(after_events(EVENT_COUNT), split) == wanted
    assert met_at(after_events(EVENT_COUNT + 1), [wire]) is None


@given(places=st.lists(st.integers(1, 900), max_size=12), count=st.integers(1, EVENT_COUNT))
@settings(max_examples=80)
def test_watch_of_coded_events_is_met_alike_for_every_split(places: list[int], count: int) -> None:
    """In a compressed body, too, the offset does not depend on the reads."""
    pieces = coded()
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    wire = head + b"".join(pieces)
    found = met_at(after_events(count), [wire])
    assert found is not None
    begin = len(head) + sum(map(len, pieces[: count - 1]))
    assert begin < found <= begin + len(pieces[count - 1])
    assert met_at(after_events(count), cut(wire, places)) == found


def test_watch_of_events_counts_each_answer_of_a_connection_for_itself() -> None:
    """What came in the answer before does not count, nor does it hide the next."""
    one = CHUNKED + chunk(event(0, b"\n")) + b"0\r\n\r\n"
    two = HEAD + b"Content-Length: %d\r\n\r\n" % (2 * len(event(0, b"\n")))
    two += event(0, b"\n") + event(1, b"\n")
    ready = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    wire = ready + one + two + one
    wanted = len(ready + one + two)
    for split in every_cut_in_two(wire):
        assert met_at(after_events(2), split) == wanted
    assert met_at(after_events(3), [wire]) is None


@given(junk=st.binary(max_size=200), places=PLACES)
@settings(max_examples=100)
def test_watch_of_junk_is_never_met(junk: bytes, places: list[int]) -> None:
    """What is no answer has no events, and upsets nobody."""
    assert met_at(after_events(1), cut(b"JUNK " + junk, places)) is None
    assert met_at(Trigger(kind=TriggerKind.HEADERS), cut(b"JUNK " + junk, places)) is None


def test_watch_of_headers_is_met_behind_the_final_head() -> None:
    """An interim head is not yet the response's."""
    early = b"HTTP/1.1 100 Continue\r\n\r\n"
    wire = early + CHUNKED + chunk(event(0, b"\n"))
    for split in [*every_cut_in_two(wire), bytewise(wire)]:
        assert met_at(Trigger(kind=TriggerKind.HEADERS), split) == len(early + CHUNKED)


@pytest.mark.parametrize(("count", "wanted"), [(0, 0), (1, 1), (7, 7), (20, 20), (21, None)])
def test_watch_of_bytes_is_met_at_that_byte(count: int, wanted: int | None) -> None:
    """After `count` bytes, whatever they are."""
    wire = bytes(range(20))
    trigger = Trigger(kind=TriggerKind.BYTES, count=count)
    for split in [*every_cut_in_two(wire), bytewise(wire)]:
        assert met_at(trigger, split) == wanted


def test_watch_of_connect_is_met_at_once() -> None:
    """Nothing needs to pass."""
    watch = TriggerWatch(Trigger(), 5)
    assert watch.met
    assert watch.due_ns is None
    assert watch.met_at(b"abc", 6) == 0


def test_watch_of_elapsed_time_is_met_when_due() -> None:
    """Time counts from the opening of the connection; before it no byte is enough."""
    opened_ns = 1_000
    watch = TriggerWatch(Trigger(kind=TriggerKind.ELAPSED, after_ms=2), opened_ns)
    assert watch.due_ns == opened_ns + 2_000_000
    assert watch.met_at(b"abc", watch.due_ns - 1) is None
    assert watch.met_at(b"abc", watch.due_ns) == 0


@pytest.mark.parametrize("kind", list(TriggerKind))
def test_watch_once_met_stays_met(kind: TriggerKind) -> None:
    """Behind the offset everything is behind it."""
    watch = TriggerWatch(Trigger(kind=kind, count=1), 0)
    assert watch.met_at(CHUNKED + chunk(event(0, b"\n")), 1) is not None
    assert watch.met_at(b"more", 2) == 0


def test_watch_event_count_tells_how_many_were_followed() -> None:
    """At the moment it is met, the count is what was asked for."""
    watch = TriggerWatch(after_events(2), 0)
    watch.met_at(CHUNKED + b"".join(chunk(event(i, b"\n")) for i in range(4)), 1)
    assert watch.event_count == 2
