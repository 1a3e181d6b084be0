"""The event-stream reader against the standard, an independent reading of it, and every split."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.wire.sse import SseEvent, SseReader
from tests.unit.wire.splits import PLACES, bytewise, cut, every_cut_in_two


def read(
    pieces: list[bytes], *, event_bytes_max: int = 1 << 20
) -> tuple[list[SseEvent], SseReader]:
    """All items of a body fed in these pieces."""
    reader = SseReader(event_bytes_max=event_bytes_max)
    return [item for piece in pieces for item in reader.feed(piece)], reader


def told(body: bytes) -> list[tuple[str, str, str]]:
    """Type, data and last event id of each event of a body, comments left out."""
    return [(e.event, e.data, e.last_event_id) for e in read([body])[0] if not e.comment]


def reference(body: bytes) -> list[tuple[bool, str, str, str, int | None]]:
    """WHATWG HTML §9.2.6, sentence by sentence, on the whole text; comments as items too."""
    found: list[tuple[bool, str, str, str, int | None]] = []
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _ = re.split("\r\n|\r|\n", text)
    data, event, last_id = "", "", ""
    retry: int | None = None
    for line in lines:
        if line == "":
            if data != "":
                found.append((False, event or "message", data.removesuffix("\n"), last_id, retry))
            data, event, retry = "", "", None
        elif line.startswith(":"):
            found.append((True, "", line[1:], last_id, None))
        else:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                event = value
            elif field == "data":
                data += value + "\n"
            elif field == "id" and "\0" not in value:
                last_id = value
            elif field == "retry" and re.fullmatch("[0-9]+", value):
                retry = int(value)
    return found


def as_reference(items: list[SseEvent]) -> list[tuple[bool, str, str, str, int | None]]:
    return [(e.comment, e.event, e.data, e.last_event_id, e.retry_ms) for e in items]


TOKENS = (
    *(b"data", b"data: ", b"data:", b"event: ", b"id: ", b"id", b"retry: ", b"retry:", b":", b": "),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r", b" ", b"x", b"12", b"0"),
    *(
        b"\0",
        b"\xef\xbb\xbf",
        b"\xef",
        b"\xbb",
        b"\xbf",
        b"\xff",
        b"\xe2\x82",
        "€".encode(),
        *(b"foo: ", b"data: y\n\n", b"\n\ndata: z\n\n", b"data: c\r\n\r\n"),
    ),
)
STREAMS = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=4), max_size=40).map(b"".join)


@given(body=STREAMS, places=PLACES)
@settings(max_examples=600, deadline=None)
def test_reader_of_any_stream_agrees_with_the_standard(body: bytes, places: list[int]) -> None:
    """Whole or in pieces, a stream gives what an independent reading of the standard gives."""
    whole, reader = read([body])
    assert as_reference(whole) == reference(body)
    pieces, other = read(cut(body, places))
    assert pieces == whole
    assert other.pending_bytes == reader.pending_bytes
    assert read(bytewise(body))[0] == whole


@given(body=STREAMS)
@settings(max_examples=400, deadline=None)
def test_reader_offsets_enclose_the_lines_they_name(body: bytes) -> None:
    """Items lie in order, from their first line to just past the line end that made them whole."""
    last_end = 0
    for item in read([body])[0]:
        span = body[item.start_offset : item.end_offset]
        assert span[-1:] in (b"\r", b"\n")
        assert item.end_offset > last_end
        last_end = item.end_offset
        lines = re.split(rb"\r\n|\r|\n", span)
        assert lines[-1 if item.comment else -2 :] == ([b""] if item.comment else [b"", b""])
        kept = [x for x in lines if x and (item.comment or not x.startswith(b":"))]
        assert b"\n".join(kept) == item.raw


@pytest.mark.parametrize(
    ("body", "spans"),
    [
        (b"data: a\n\ndata: b\n\n", [(0, 9), (9, 18)]),
        (b"data: a\r\rdata: b\r\r", [(0, 9), (9, 18)]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [(0, 10), (11, 21)]),
        (b"\xef\xbb\xbfdata: a\n\n\n: b\r\n", [(3, 12), (13, 17)]),
        (b"event: e\ndata:a\n\nid: 1\n\ndata: b\n\n", [(0, 17), (24, 33)]),
    ],
    ids=["lf", "cr", "crlf", "bom", "fields"],
)
def test_reader_of_a_known_stream_gives_known_offsets(
    body: bytes, spans: list[tuple[int, int]]
) -> None:
    """An item ends just past the first byte of its last line end: behind the CR of a CRLF."""
    for pieces in ([body], bytewise(body)):
        assert [(e.start_offset, e.end_offset) for e in read(pieces)[0]] == spans


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["lf", "cr", "crlf"])
def test_reader_cut_anywhere_in_two_gives_the_same_items(end: bytes) -> None:
    """One cut at any place changes neither items nor offsets, whatever ends the lines."""
    lines = (
        b"\xef\xbb\xbfid: 7|data: a|data:b||: beat|event: e|retry: 10|data: \xe2\x82\xac||data: z|"
    )
    body = lines.replace(b"|", end)
    whole, _ = read([body])
    assert [e.data for e in whole] == ["a\nb", " beat", "€"]
    for pieces in every_cut_in_two(body):
        assert read(pieces)[0] == whole


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # The examples of WHATWG HTML §9.2.6.
        (
            b"data: YHOO\ndata: +2\ndata: 10\n\n",
            [("message", "YHOO\n+2\n10", "")],
        ),
        (
            b": test stream\n\ndata: first event\nid: 1\n\n"
            b"data:second event\nid\n\ndata:  third\n\n",
            [
                ("message", "first event", "1"),
                ("message", "second event", ""),
                ("message", " third", ""),
            ],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [("message", "", ""), ("message", "\n", "")]),
        (b"data:test\n\ndata: test\n\n", [("message", "test", ""), ("message", "test", "")]),
        # What it says besides.
        (b"event: a\n\ndata: x\n\n", [("message", "x", "")]),
        (b"id: 5\n\ndata: x\n\n", [("message", "x", "5")]),
        (b"id: 5\nid: a\0b\ndata: x\n\n", [("message", "x", "5")]),
        (b"event: a\nevent: b\ndata: x\n\n", [("b", "x", "")]),
        (b"Data: x\n data: x\ndata : x\n\n", []),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", []),
        (b"data: x\n", []),
        (b"data: \xff\xe2\x82\n\n", [("message", "\ufffd\ufffd", "")]),
    ],
    ids=[
        *(
            "three-lines",
            "test-stream",
            "empty-data",
            "optional-space",
            "no-data",
            "id-alone",
            "nul-id",
        ),
        *("last-type-wins", "names-are-exact", "second-bom", "no-blank-line", "not-utf8"),
    ],
)
def test_reader_of_a_known_stream_gives_known_events(
    body: bytes, expected: list[tuple[str, str, str]]
) -> None:
    """The standard's examples and rules hold."""
    assert told(body) == expected


@pytest.mark.parametrize(
    ("value", "retry_ms"),
    [
        *((b"10", 10), (b"007", 7), (b"", None), (b"1a", None), (b"-1", None), (b"1 ", None)),
        *(("٣".encode(), None), (b"9" * 5000, None)),
    ],
    ids=["digits", "zeros", "empty", "letter", "sign", "space", "arabic-digit", "endless"],
)
def test_reader_retry_takes_ascii_digits_only(value: bytes, retry_ms: int | None) -> None:
    """A retry of anything but ASCII digits is ignored; one that counts outlives its event."""
    items, reader = read([b"retry:" + value + b"\ndata: x\n\ndata: y\n\n"])
    assert [e.retry_ms for e in items] == [retry_ms, None]
    assert reader.retry_ms == retry_ms


def test_reader_comment_is_an_item_of_its_own() -> None:
    """A heartbeat is told at once, even inside an event, whose bytes it does not change."""
    items, _ = read([b"data: a\n: beat\ndata: b\n\n"])
    assert [(e.comment, e.raw) for e in items] == [(True, b": beat"), (False, b"data: a\ndata: b")]
    assert [(e.start_offset, e.end_offset) for e in items] == [(8, 15), (0, 24)]


def test_reader_pending_bytes_counts_what_no_item_has() -> None:
    """Nothing is pending behind a whole event; lines and parts of lines are until it is whole."""
    _, reader = read([b"data: a\n\n"])
    assert reader.pending_bytes == 0
    reader.feed(b"data: b\nda")
    assert reader.pending_bytes == len(b"data: bda")
    reader.feed(b"ta: c\r\n\r")
    assert reader.pending_bytes == 0


@given(body=STREAMS, places=PLACES, limit=st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_reader_limit_ends_the_stream_at_the_same_item(
    body: bytes, places: list[int], limit: int
) -> None:
    """An event over the limit has a named end, behind the same items for every split."""
    whole, reader = read([body], event_bytes_max=limit)
    pieces, other = read(cut(body, places), event_bytes_max=limit)
    assert pieces == whole
    assert other.broken == reader.broken
    assert all(len(item.raw.replace(b"\n", b"")) <= limit for item in whole)
    if reader.broken:
        assert reader.feed(b"\n\ndata: x\n\n") == []


@given(junk=st.binary(max_size=300), places=PLACES)
@settings(max_examples=300, deadline=None)
def test_reader_of_junk_reads_on(junk: bytes, places: list[int]) -> None:
    """No bytes upset the reader: an event behind them is found."""
    items, _ = read([*cut(junk, places), b"\n\ndata: behind\n\n"])
    assert items[-1].data == "behind"
