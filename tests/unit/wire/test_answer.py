"""One answer read live: its items, its account of bytes, and how it ended."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import EndReason, EventKind, Framing
from harness.wire.answer import AnswerItem, AnswerReader, Told
from harness.wire.http1 import End, Head, Malformed
from tests.unit.wire.splits import EDITS, PLACES, bytewise, cut, edited

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
TOKEN = b'data: {"choices":[{"text":"a"}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"x"}}\n\n'
GOOD = TOKEN + b": beat\n\n" + TOKEN + DONE


def chunked(body: bytes, *, size: int = 20, head: bytes = SSE, last: bytes = b"0\r\n\r\n") -> bytes:
    """An answer in chunks of `size` bytes."""
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + last


def sized(body: bytes, *, length: int | None = None, head: bytes = SSE) -> bytes:
    """An answer of told length."""
    return head + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def until_close(body: bytes, *, head: bytes = SSE) -> bytes:
    """An answer that ends with the connection."""
    return head + b"\r\n" + body


def read(pieces: list[bytes], *, events: bool = True) -> tuple[list[AnswerItem], AnswerReader]:
    """The items of an answer fed in these pieces."""
    reader = AnswerReader(events=events)
    return [item for piece in pieces for item in reader.feed(piece)], reader


def account(reader: AnswerReader) -> tuple[object, ...]:
    """All that the reader counted."""
    return (
        *(reader.status, reader.http_version, reader.headers, reader.framing, reader.finished),
        *(reader.complete, reader.last_chunk_seen, reader.wire_bytes, reader.body_bytes),
        *(reader.body_digest(), reader.terminators, reader.after_terminator_bytes),
        *(reader.malformed, reader.leftover, reader.pending_bytes),
    )


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize(
    ("wire", "framing"),
    [
        (chunked(GOOD), Framing.CHUNKED),
        (sized(GOOD), Framing.LENGTH),
        (until_close(GOOD), Framing.CLOSE),
    ],
)
def test_answer_of_each_framing_is_accounted_for(
    wire: bytes, framing: Framing, events: bool
) -> None:
    """Events come with kinds and offsets in the decoded body; without events the end remains."""
    items, reader = read([wire], events=events)
    assert isinstance(items[0], Head)
    assert (reader.status, reader.http_version, reader.framing) == (200, "1.1", framing)
    assert reader.finished == (framing is not Framing.CLOSE)
    assert reader.wire_bytes == len(GOOD)
    told = [item for item in items if isinstance(item, Told)]
    if not events:
        assert (told, reader.body_bytes) == ([], 0)
        return
    kinds = [EventKind.CONTENT, EventKind.COMMENT, EventKind.CONTENT, EventKind.TERMINATOR]
    assert [t.kind for t in told] == kinds
    assert told[-1].event.end_offset == reader.body_bytes == len(GOOD)
    assert reader.body_digest() == hashlib.sha256(GOOD).hexdigest()
    assert (reader.terminators, reader.after_terminator_bytes) == (1, 0)


def test_answer_coded_counts_both_sizes() -> None:
    """Bytes on the wire are the coded ones, offsets and digest are of the decoded body."""
    coded = gzip.compress(GOOD)
    items, reader = read([chunked(coded, head=SSE + b"Content-Encoding: gzip\r\n")])
    told = [item for item in items if isinstance(item, Told)]
    assert (reader.wire_bytes, reader.body_bytes) == (len(coded), len(GOOD))
    assert reader.content_encoding == "gzip"
    assert reader.body_digest() == hashlib.sha256(GOOD).hexdigest()
    assert told[-1].event.end_offset == len(GOOD)
    assert reader.ending(eof=False, reset=False) == (EndReason.TERMINATOR, "")


def test_answer_of_json_has_no_events() -> None:
    """A body that is no event stream is bytes only, even where it looks like one."""
    items, reader = read(
        [sized(GOOD, head=b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")]
    )
    assert [type(item) for item in items] == [Head, End]
    assert reader.body_bytes == len(GOOD)


def test_answer_interim_head_is_not_its_status() -> None:
    """A 100 or 103 comes as a head of its own and leaves the answer to follow."""
    items, reader = read([b"HTTP/1.1 103 Hints\r\n\r\n"])
    assert (len(items), reader.status) == (1, 0)
    reader.feed(sized(b""))
    assert (reader.status, reader.finished) == (200, True)


def test_answer_to_head_has_no_body() -> None:
    """What follows the head of an answer to HEAD is the next answer's."""
    reader = AnswerReader(method="HEAD")
    reader.feed(sized(b"", length=9) + b"HTTP/1.1")
    assert (reader.finished, reader.framing, reader.leftover) == (True, Framing.NONE, b"HTTP/1.1")


def test_answers_on_one_connection_follow_by_leftover() -> None:
    """A fresh reader goes on with the bytes behind the last answer."""
    data = chunked(GOOD) + sized(TOKEN) + until_close(DONE)
    found: list[AnswerReader] = []
    while data:
        found.append(AnswerReader())
        found[-1].feed(data)
        data = found[-1].leftover
    assert [r.body_bytes for r in found] == [len(GOOD), len(TOKEN), len(DONE)]


@given(
    wire=st.sampled_from([chunked, sized, until_close]),
    body=st.lists(st.sampled_from([TOKEN, DONE, ERROR, b": c\n", b"\r\n", b"x"]), max_size=8),
    places=PLACES,
)
@settings(max_examples=200, deadline=None)
def test_answer_of_any_split_is_the_same(
    wire: Callable[[bytes], bytes], body: list[bytes], places: list[int]
) -> None:
    """Items and account do not depend on how the bytes came."""
    data = wire(b"".join(body)) + b"behind"
    items, whole = read([data])
    for pieces in (cut(data, places), bytewise(data)):
        other_items, other = read(pieces)
        assert other_items == items
        assert account(other) == account(whole)
        assert other.ending(eof=True, reset=False) == read([data])[1].ending(eof=True, reset=False)


@pytest.mark.parametrize(
    ("behind", "terminators", "count"),
    [
        (b"", 1, 0),
        (b"\n\n\r\n", 1, 0),
        (b": c\n\n", 1, 5),
        (b"\nx\n", 1, 2),
        (DONE, 2, len(DONE)),
        (b"\n" + TOKEN, 1, len(TOKEN)),
    ],
)
def test_answer_behind_its_terminator_is_counted(
    behind: bytes, terminators: int, count: int
) -> None:
    """What follows the terminator counts, line ends right behind it do not."""
    for done in (DONE, DONE.replace(b"\n", b"\r\n"), DONE.replace(b"\n", b"\r")):
        wire = chunked(TOKEN + done + behind)
        for pieces in ([wire], bytewise(wire)):
            _, reader = read(pieces)
            assert (reader.terminators, reader.after_terminator_bytes) == (terminators, count)


GZIP = SSE + b"Content-Encoding: gzip\r\n"
FLUSHED = zlib.compressobj(wbits=31)
CUT_OFF = FLUSHED.compress(GOOD) + FLUSHED.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    ("wire", "reason", "detail"),
    [
        (chunked(GOOD), EndReason.TERMINATOR, ""),
        (sized(GOOD), EndReason.TERMINATOR, ""),
        (until_close(GOOD), EndReason.TERMINATOR, ""),
        (chunked(TOKEN), EndReason.CLEAN_EOF_WITHOUT_TERMINATOR, ""),
        (until_close(TOKEN), EndReason.CLEAN_EOF_WITHOUT_TERMINATOR, ""),
        (chunked(TOKEN + b"data: [DONE]\n"), EndReason.CLEAN_EOF_WITHOUT_TERMINATOR, "12 bytes"),
        (chunked(TOKEN + ERROR), EndReason.ERROR_EVENT, ""),
        (chunked(TOKEN + ERROR + b": beat\n\n"), EndReason.ERROR_EVENT, ""),
        (chunked(ERROR + DONE), EndReason.TERMINATOR, ""),
        (chunked(GOOD, last=b""), EndReason.INCOMPLETE_FRAMING, "the last chunk is missing"),
        (chunked(GOOD, last=b"0\r\n"), EndReason.INCOMPLETE_FRAMING, "the trailers break off"),
        (chunked(GOOD, last=b"zz\r\n"), EndReason.INCOMPLETE_FRAMING, "chunk size"),
        (sized(GOOD, length=999), EndReason.INCOMPLETE_FRAMING, "bytes are missing"),
        (SSE, EndReason.INCOMPLETE_FRAMING, "head"),
        (b"", EndReason.INCOMPLETE_FRAMING, "no response"),
        (b"junk\n", EndReason.INCOMPLETE_FRAMING, "status line"),
        (chunked(gzip.compress(GOOD), head=GZIP), EndReason.TERMINATOR, ""),
        (chunked(CUT_OFF, head=GZIP), EndReason.INCOMPLETE_FRAMING, "gzip: breaks off"),
        (until_close(CUT_OFF, head=GZIP), EndReason.INCOMPLETE_FRAMING, "gzip: breaks off"),
        (chunked(GOOD, head=GZIP), EndReason.INCOMPLETE_FRAMING, "gzip: "),
        (
            chunked(GOOD, head=SSE + b"Content-Encoding: br\r\n"),
            EndReason.CLEAN_EOF_WITHOUT_TERMINATOR,
            "unknown content-encoding 'br'",
        ),
        (
            until_close(b"data: " + b"x" * (9 << 20)),
            EndReason.INCOMPLETE_FRAMING,
            "an event of more than 8388608 bytes",
        ),
    ],
)
def test_answer_ending_at_eof_has_one_reason(wire: bytes, reason: EndReason, detail: str) -> None:
    """Content and framing together give the reason; a broken message is told in words."""
    _, reader = read([wire])
    found, text = reader.ending(eof=True, reset=False)
    assert found is reason
    assert detail in text
    assert bool(detail) == bool(text)
    assert reader.ending(eof=True, reset=False) == (found, text)


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (chunked(GOOD, last=b""), EndReason.RESET),
        (until_close(GOOD), EndReason.RESET),
        (b"", EndReason.RESET),
        (chunked(GOOD), EndReason.TERMINATOR),
        (sized(TOKEN), EndReason.CLEAN_EOF_WITHOUT_TERMINATOR),
    ],
)
def test_answer_ending_at_reset_counts_for_an_open_answer_only(
    wire: bytes, reason: EndReason
) -> None:
    """A reset behind a whole answer is not the answer's end."""
    _, reader = read([wire])
    assert reader.ending(eof=False, reset=True)[0] is reason


def test_answer_ending_while_open_is_incomplete() -> None:
    """An answer that nothing ended is not whole, whatever its framing."""
    for wire in (chunked(GOOD, last=b""), until_close(GOOD)):
        found = read([wire])[1].ending(eof=False, reset=False)
        assert found == (EndReason.INCOMPLETE_FRAMING, "still open")


@given(
    wire=st.sampled_from([chunked(GOOD), sized(GOOD), chunked(gzip.compress(GOOD), head=GZIP)]),
    edits=EDITS,
    places=PLACES,
)
@settings(max_examples=300, deadline=None)
def test_answer_of_edited_input_has_a_named_end(
    wire: bytes, edits: list[tuple[int, int, bytes]], places: list[int]
) -> None:
    """A damaged answer raises nothing; it ends once, with a reason, within its bytes."""
    data = edited(wire, edits)
    items, reader = read(cut(data, places))
    reason, detail = reader.ending(eof=True, reset=False)
    assert reason in EndReason
    assert bool(detail) or reason is not EndReason.INCOMPLETE_FRAMING
    assert sum(isinstance(item, End | Malformed) for item in items) <= 1
    assert reader.wire_bytes <= len(data)
