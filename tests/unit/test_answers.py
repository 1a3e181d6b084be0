"""From stamped pieces to answers: the stamps say no more than is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.answers import Answer, Piece, answers, ending, read_pieces, written_pieces
from harness.model import Direction, EndReason, EventKind, Framing, Stamp
from harness.trace import Record
from tests.unit.wire.splits import PLACES, bytewise, cut

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT_COUNT = 4
LAST = b"0\r\n\r\n"


def event(index: int) -> bytes:
    return b'data: {"choices":[{"text":"%d"}]}' % index


def chunk(*events: bytes) -> bytes:
    body = b"".join(e + b"\n\n" for e in events)
    return b"%x\r\n%s\r\n" % (len(body), body)


CHUNKS = [chunk(event(i)) for i in range(EVENT_COUNT)] + [chunk(b"data: [DONE]")]
WIRE = HEAD + b"".join(CHUNKS) + LAST


def reads(*datas: bytes, kernel: bool = True) -> list[Record]:
    """Reads, one each 100 ns: the kernel's stamp at 90, ours at 95, the poll before at 10."""
    return [
        Record(
            write=False,
            direction=Direction.TOWARD_CLIENT,
            connection=1,
            user_ns=100 * n + 95,
            kernel_ns=100 * n + 90 if kernel else 0,
            earliest_ns=100 * n + 10,
            size=len(data),
            data=data,
        )
        for n, data in enumerate(datas)
    ]


def writes(*sizes: int) -> list[Record]:
    """Writes of these sizes, one each 100 ns."""
    return [
        Record(
            write=True,
            direction=Direction.TOWARD_CLIENT,
            connection=1,
            user_ns=100 * n + 8,
            kernel_ns=0,
            earliest_ns=100 * n + 5,
            size=size,
            data=b"",
        )
        for n, size in enumerate(sizes)
    ]


def whole(wire: bytes) -> list[bytes]:
    return [wire]


def one(records: list[Record]) -> Answer:
    """The only answer in these reads."""
    (answer,) = answers(read_pieces(records), ["POST"])
    return answer


def bounds(answer: Answer) -> list[tuple[int, int]]:
    return [(e.arrived.earliest_ns, e.arrived.at_ns) for e in answer.events]


# -------------------------------------------------------------------------------------- contents


def test_answers_of_a_stream_tell_its_events() -> None:
    """Events in order, with kind, size, digest, end in the decoded body, and the read of each."""
    answer = one(reads(HEAD, *CHUNKS, LAST))
    assert [e.index for e in answer.events] == [0, 1, 2, 3, 4]
    assert [e.kind for e in answer.events] == [EventKind.CONTENT] * 4 + [EventKind.TERMINATOR]
    assert [e.read_index for e in answer.events] == [1, 2, 3, 4, 5]
    first = answer.events[0]
    assert first.size_bytes == len(event(0))
    assert first.digest == hashlib.sha256(event(0)).hexdigest()
    assert [e.end_offset for e in answer.events[:2]] == [len(event(0)) + 2, 2 * len(event(0)) + 4]
    assert answer.reader.framing is Framing.CHUNKED
    assert answer.finished_ns == 690


@given(places=PLACES)
@settings(max_examples=60)
def test_answers_of_any_split_have_the_same_events(places: list[int]) -> None:
    """Reads change stamps and read indexes, nothing else."""
    expected = one(reads(WIRE))
    for pieces in (cut(WIRE, places), bytewise(WIRE)):
        answer = one(reads(*pieces))
        told = [(e.index, e.kind, e.end_offset, e.digest) for e in answer.events]
        assert told == [(e.index, e.kind, e.end_offset, e.digest) for e in expected.events]
        assert answer.reader.body_digest() == expected.reader.body_digest()


# ---------------------------------------------------------------------------------------- stamps


def test_answers_event_that_a_kernel_stamped_read_ends_with_is_exact() -> None:
    """The kernel stamps the last bytes of a read; nothing older is in an event alone."""
    answer = one(reads(HEAD, *CHUNKS, LAST))
    exact = [(100 * n + 90, 100 * n + 90) for n in range(1, 6)]
    assert bounds(answer) == exact
    assert all(e.arrived.kernel for e in answer.events)
    assert answer.head == Stamp(at_ns=90, earliest_ns=90, kernel=True)


def test_answers_earlier_events_of_a_read_are_bounded() -> None:
    """Those in front of the last came between the poll before and the kernel's stamp."""
    answer = one(reads(HEAD, b"".join(CHUNKS[:3])))
    assert bounds(answer) == [(110, 190), (110, 190), (190, 190)]


def test_answers_last_event_with_more_behind_it_is_bounded() -> None:
    """A part of the next event, or the last chunk, may be what the kernel stamped."""
    for rest in (CHUNKS[1][:9], LAST):
        answer = one(reads(HEAD, CHUNKS[0] + rest))
        assert bounds(answer) == [(110, 190)]


def test_answers_event_in_front_of_another_answer_is_bounded() -> None:
    """What the read ends with belongs to the next answer."""
    sized = HEAD.replace(b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(b"data: a\n\n"))
    one_answer = sized + b"data: a\n\n"
    first, second = answers(read_pieces(reads(one_answer + one_answer[:10])), ["GET", "GET"])
    assert bounds(first) == [(10, 90)]
    assert first.finished_ns == 90
    assert second.events == []
    assert second.finished_ns == 0


def test_answers_of_user_stamps_are_bounded_by_the_poll_before() -> None:
    """Without a kernel stamp nothing is exact."""
    answer = one(reads(HEAD, *CHUNKS[:2], kernel=False))
    assert bounds(answer) == [(110, 195), (210, 295)]
    assert answer.head == Stamp(at_ns=95, earliest_ns=10)
    assert not any(e.arrived.kernel for e in answer.events)


def test_answers_event_over_several_reads_has_the_stamp_that_completed_it() -> None:
    """An event is there when its last byte is."""
    pieces = (CHUNKS[0][:5], CHUNKS[0][5:20], CHUNKS[0][20:])
    answer = one(reads(HEAD, *pieces))
    assert bounds(answer) == [(390, 390)]
    assert answer.events[0].read_index == 3


def test_read_pieces_poll_behind_the_kernel_stamp_gives_no_negative_bound() -> None:
    """A poll that was entered between arrival and read says nothing earlier than the stamp."""
    (record,) = reads(b"x")
    late = Record(False, record.direction, 1, 95, 90, 93, 1, b"x")
    assert list(read_pieces([late])) == [Piece(b"x", 90, 90, True)]


# ---------------------------------------------------------------------------------------- writes


def test_written_pieces_are_the_bytes_read_as_they_were_cut_by_writes() -> None:
    """A tap's writes have no data of their own; each has its own stamps."""
    pieces = list(written_pieces(reads(b"abc", b"def"), writes(2, 3, 1)))
    assert [p.data for p in pieces] == [b"ab", b"cde", b"f"]
    assert [(p.earliest_ns, p.at_ns, p.kernel) for p in pieces] == [
        (5, 8, False),
        (105, 108, False),
        (205, 208, False),
    ]


def test_written_pieces_end_where_nothing_was_written_on() -> None:
    """What a fault swallowed did not leave."""
    sizes = (len(HEAD) + len(CHUNKS[0]), 10)
    (left,) = answers(written_pieces(reads(WIRE), writes(*sizes)), ["GET"])
    assert len(left.events) == 1
    assert left.finished_ns == 0


# ------------------------------------------------------------------------------------- sequences


@pytest.mark.parametrize("split", [whole, bytewise])
def test_answers_on_a_kept_connection_follow_each_other(
    split: Callable[[bytes], list[bytes]],
) -> None:
    """Each request's answer by its method, interim heads and answers without a body included."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"
    none = b"HTTP/1.1 204 No Content\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
    wire = WIRE + head + none + early + WIRE
    found = answers(read_pieces(reads(*split(wire))), ["POST", "HEAD", "GET", "POST"])
    assert [a.reader.status for a in found] == [200, 200, 204, 200]
    assert [len(a.events) for a in found] == [5, 0, 0, 5]
    assert all(a.finished_ns for a in found)


def test_answers_that_nobody_asked_for_are_found_too() -> None:
    """An answer more than there were requests is read as one to GET."""
    found = answers(read_pieces(reads(WIRE + WIRE)), ["POST"])
    assert [len(a.events) for a in found] == [5, 5]


def test_answers_behind_a_malformed_one_are_not_looked_for() -> None:
    """Bytes whose place is unknown are nobody's answer."""
    broken = HEAD + b"zz\r\n"
    found = answers(read_pieces(reads(broken, WIRE, WIRE)), ["GET"] * 3)
    (answer,) = found
    assert answer.reader.malformed
    assert answer.finished_ns == 90
    assert ending(answer, eof=True, reset=False)[0] is EndReason.INCOMPLETE_FRAMING


def test_answers_of_nothing_are_none() -> None:
    """A connection that brought nothing has no answer, not an empty one."""
    assert answers(read_pieces([]), ["GET"]) == []


@given(junk=st.lists(st.binary(max_size=20), max_size=8))
@settings(max_examples=100)
def test_answers_of_junk_are_at_most_one_without_an_event(junk: list[bytes]) -> None:
    """What is no HTTP gives no event, ends by name, and upsets nobody."""
    found = answers(read_pieces(reads(b"x", *junk)), ["GET", "GET"])
    assert len(found) == 1
    assert found[0].events == []
    assert ending(found[0], eof=True, reset=False)[0] is EndReason.INCOMPLETE_FRAMING
