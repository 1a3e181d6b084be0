"""The HTTP/1 readers against generated messages, h11 as the oracle, and broken input."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import Framing
from harness.wire.http1 import (
    HEAD_BYTES_MAX,
    Body,
    End,
    Head,
    HttpEvent,
    Malformed,
    RequestReader,
    ResponseReader,
)
from tests.unit.wire.messages import Message, requests, responses
from tests.unit.wire.splits import EDITS, PLACES, bytewise, cut, edited, every_cut_in_two

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
FOLLOWED = (Framing.CHUNKED, Framing.LENGTH, Framing.NONE)


def joined(events: list[HttpEvent]) -> list[HttpEvent]:
    """The events with neighbouring pieces of a body made one."""
    found: list[HttpEvent] = []
    for event in events:
        if isinstance(event, Body) and found and isinstance(found[-1], Body):
            event = Body(found.pop().data + event.data)  # type: ignore[union-attr]
        found.append(event)
    return found


def read(
    reader: RequestReader | ResponseReader, pieces: list[bytes], *, eof: bool = True
) -> list[HttpEvent]:
    """All events of a connection that brought these pieces."""
    events = [event for piece in pieces for event in reader.feed(piece)]
    return joined(events + (reader.eof() if eof else []))


def response(wire: bytes, method: str = "GET", *, eof: bool = True) -> list[HttpEvent]:
    """What a response to `method` gives."""
    reader = ResponseReader()
    reader.expect(method)
    return read(reader, [wire], eof=eof)


def expecting(messages: list[Message]) -> ResponseReader:
    """A reader that was told the requests of these responses."""
    reader = ResponseReader()
    for message in messages:
        reader.expect(message.method)
    return reader


def assert_told(events: list[HttpEvent], message: Message) -> None:
    """The events say what the message was made of."""
    head, *body, end = events
    assert isinstance(head, Head)
    assert isinstance(end, End)
    assert (head.version, head.status, head.headers) == (
        message.version,
        message.status,
        message.fields,
    )
    assert b"".join(b.data for b in body if isinstance(b, Body)) == message.body
    chunked = message.framing is Framing.CHUNKED
    assert end == End(message.framing, True, chunked, message.trailers)


def by_message(events: list[HttpEvent]) -> list[list[HttpEvent]]:
    """The events cut behind each end."""
    found: list[list[HttpEvent]] = [[]]
    for event in events:
        found[-1].append(event)
        if isinstance(event, End):
            found.append([])
    assert found.pop() == []
    return found


def of_h11(role: type[h11.CLIENT | h11.SERVER], message: Message) -> tuple[object, ...]:
    """Version, status, headers, body and trailers as h11 reads the message."""
    connection = h11.Connection(role)
    if role is h11.CLIENT:
        connection.send(h11.Request(method=message.method, target="/", headers=[("Host", "a")]))
        connection.send(h11.EndOfMessage())
    connection.receive_data(message.wire)
    connection.receive_data(b"")
    head = connection.next_event()
    assert isinstance(head, h11.Request | h11.Response)
    body = b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    status = head.status_code if isinstance(head, h11.Response) else 0
    version = head.http_version.decode()
    return version, status, as_text(head.headers), body, as_text(event.headers)


def as_text(headers: object) -> list[tuple[str, str]]:
    return [(n.decode(), v.decode()) for n, v in headers]  # type: ignore[attr-defined]


def as_parts(events: list[HttpEvent]) -> tuple[object, ...]:
    """Our events in the form of `of_h11`."""
    head, *body, end = events
    assert isinstance(head, Head)
    assert isinstance(end, End)
    data = b"".join(b.data for b in body if isinstance(b, Body))
    return head.version, head.status, list(head.headers), data, list(end.trailers)


# ------------------------------------------------------------------------------------ valid input


@given(messages=st.lists(responses(FOLLOWED), max_size=3), last=responses(), places=PLACES)
@settings(max_examples=250, deadline=None)
def test_response_reader_of_valid_responses_tells_their_parts(
    messages: list[Message], last: Message, places: list[int]
) -> None:
    """Responses of all framings, one behind the other, are read alike however they are split."""
    messages = [*messages, last]
    wire = b"".join(m.wire for m in messages)
    events = read(expecting(messages), [wire])
    for found, message in zip(by_message(events), messages, strict=True):
        assert_told(found, message)
    assert read(expecting(messages), cut(wire, places)) == events
    assert read(expecting(messages), bytewise(wire)) == events


@given(messages=st.lists(requests(), min_size=1, max_size=3), places=PLACES)
@settings(max_examples=150, deadline=None)
def test_request_reader_of_pipelined_requests_tells_their_parts(
    messages: list[Message], places: list[int]
) -> None:
    """Requests one behind the other are read alike however they are split."""
    wire = b"".join(m.wire for m in messages)
    events = read(RequestReader(), [wire])
    for found, message in zip(by_message(events), messages, strict=True):
        assert_told(found, message)
        assert isinstance(found[0], Head)
        assert (found[0].method, found[0].target) == (message.method, "/v1?x=1")
    assert read(RequestReader(), cut(wire, places)) == events
    assert read(RequestReader(), bytewise(wire)) == events


@given(message=responses())
@settings(max_examples=250, deadline=None)
def test_response_reader_of_a_valid_response_agrees_with_h11(message: Message) -> None:
    """An independent reader finds the same head, body and trailers."""
    assert as_parts(response(message.wire, message.method)) == of_h11(h11.CLIENT, message)


@given(message=requests())
@settings(max_examples=150, deadline=None)
def test_request_reader_of_a_valid_request_agrees_with_h11(message: Message) -> None:
    """An independent reader finds the same head, body and trailers."""
    assert as_parts(read(RequestReader(), [message.wire])) == of_h11(h11.SERVER, message)


def test_response_reader_head_size_counts_to_the_blank_line() -> None:
    """The size of a head is what stands before the body, without empty lines before it."""
    (head, *_) = response(b"\r\n\r\n" + OK + b"A: b\n\r\nbody")
    assert isinstance(head, Head)
    assert head.size_bytes == len(OK + b"A: b\n\r\n")


def test_response_reader_empty_line_before_a_head_that_stops_at_cr_is_skipped() -> None:
    """A line end at the very start is one, whatever byte the read ends with."""
    head, end = read(ResponseReader(), [b"\nHTTP/1.1 204 x\r", b"\n\r\n"])
    assert isinstance(head, Head)
    assert (head.status, end) == (204, End(Framing.NONE, True))


def test_response_reader_interim_heads_come_before_the_final_one() -> None:
    """1xx heads are told apart and use up neither a method nor a body (RFC 9110 §15.2)."""
    wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + OK + b"\r\n"
    events = response(wire, "HEAD")
    heads = [e for e in events if isinstance(e, Head)]
    assert [(h.status, h.interim) for h in heads] == [(100, True), (103, True), (200, False)]
    assert events[-1] == End(Framing.NONE, True)


@pytest.mark.parametrize(
    ("wire", "method", "framing"),
    [
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "GET", Framing.CHUNKED),
        (OK + b"Transfer-Encoding: gzip, Chunked\r\n\r\n0\r\n\r\n", "GET", Framing.CHUNKED),
        (
            OK + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET",
            Framing.CHUNKED,
        ),
        (OK + b"Transfer-Encoding: gzip\r\nContent-Length: 3\r\n\r\n", "GET", Framing.CLOSE),
        (OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n", "GET", Framing.CLOSE),
        (OK + b"Transfer-Encoding: chunked;a=b\r\n\r\n", "GET", Framing.CLOSE),
        (
            OK + b"Transfer-Encoding: , chunked ,\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n",
            "GET",
            Framing.CHUNKED,
        ),
        (
            OK + b"Transfer-Encoding: ,\r\nContent-Length: 0\r\n\r\n",
            "GET",
            Framing.LENGTH,
        ),
        (OK + b"Content-Length: 0\r\n\r\n", "GET", Framing.LENGTH),
        (OK + b"Content-Length: 3, 3\r\nContent-Length: 3\r\n\r\nabc", "GET", Framing.LENGTH),
        (OK + b"\r\n", "GET", Framing.CLOSE),
        (OK + b"Content-Length: 9\r\n\r\n", "HEAD", Framing.NONE),
        (b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n", "GET", Framing.NONE),
        (b"HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", Framing.NONE),
        (b"HTTP/1.1 101 x\r\n\r\n", "GET", Framing.CLOSE),
        (OK + b"Content-Length: 9\r\n\r\n", "CONNECT", Framing.CLOSE),
        (b"HTTP/1.1 407 x\r\nContent-Length: 0\r\n\r\n", "CONNECT", Framing.LENGTH),
    ],
)
def test_response_reader_framing_follows_the_rules(
    wire: bytes, method: str, framing: Framing
) -> None:
    """Each rule of RFC 9112 §6.3 decides how the body ends."""
    end = response(wire, method)[-1]
    assert isinstance(end, End)
    assert end.framing is framing


def test_response_reader_chunk_extension_may_stand_behind_white_space() -> None:
    """White space around a chunk's size and extension is tolerated (RFC 9112 §7.1.1)."""
    events = response(CHUNKED + b"1 \t; a=b\r\na\r\n1  \r\nb\r\n0 ;c\r\n\r\n")
    assert events[1:] == [Body(b"ab"), End(Framing.CHUNKED, True, True)]


def test_response_reader_framing_told_oddly_is_read_and_noted() -> None:
    """Chunked beside a length, or in HTTP/1.0, is read as chunked; the head's note says so."""
    wire = OK + b"Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    head, body, end = response(wire)
    assert isinstance(head, Head)
    assert "overrides" in head.note
    assert (body, end) == (Body(b"a"), End(Framing.CHUNKED, True, True))
    old = response(CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n")
    assert isinstance(old[0], Head)
    assert "HTTP/1.0" in old[0].note
    for alone in (CHUNKED, OK + b"Content-Length: 1\r\n\r\n"):
        assert [h.note for h in response(alone) if isinstance(h, Head)] == [""]


@pytest.mark.parametrize(
    ("wire", "end"),
    [
        (CHUNKED + b"5\r\nab", End(Framing.CHUNKED, False)),
        (CHUNKED + b"2\r\nab", End(Framing.CHUNKED, False)),
        (CHUNKED + b"2\r\nab\r\n", End(Framing.CHUNKED, False)),
        (CHUNKED + b"2\r\nab\r\n0\r\n", End(Framing.CHUNKED, False, True)),
        (CHUNKED + b"0\r\nA: b\r\nC:", End(Framing.CHUNKED, False, True, (("a", "b"),))),
        (CHUNKED, End(Framing.CHUNKED, False)),
        (OK + b"Content-Length: 3\r\n\r\nab", End(Framing.LENGTH, False)),
        (OK + b"Content-Length: 3\r\n\r\n", End(Framing.LENGTH, False)),
        (OK + b"\r\nab", End(Framing.CLOSE, True)),
        (OK + b"\r\n", End(Framing.CLOSE, True)),
    ],
)
def test_response_reader_eof_within_a_body_ends_it(wire: bytes, end: End) -> None:
    """An end of the connection completes only a body that ends by it; nothing follows."""
    reader = ResponseReader()
    assert not any(isinstance(e, End) for e in reader.feed(wire))
    assert reader.eof() == [end]
    assert reader.eof() == []
    assert reader.feed(OK + b"\r\n") == []


def test_reader_in_message_from_its_first_byte_to_its_end() -> None:
    """A message has begun with its first byte, and is over with its last."""
    wire = CHUNKED + b"2\r\nab\r\n0\r\n\r\n"
    for one_message in (False, True):
        reader = ResponseReader(one_message=one_message)
        assert not reader.in_message
        for byte in bytewise(wire[:-1]):
            reader.feed(byte)
            assert reader.in_message
        reader.feed(wire[-1:])
        assert not reader.in_message


@pytest.mark.parametrize("wire", [b"", b"\r\n", b"\r", OK + b"Content-Length: 0\r\n\r\n\r\n"])
def test_response_reader_eof_between_messages_is_silent(wire: bytes) -> None:
    """A connection that closes where no message is begun has nothing wrong with it."""
    reader = ResponseReader()
    reader.feed(wire)
    assert reader.eof() == []


def test_response_reader_of_one_message_leaves_the_rest() -> None:
    """Bytes behind the message are handed on as they are, however they came."""
    first, second = CHUNKED + b"2\r\nab\r\n0\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"
    for pieces in every_cut_in_two(first + second):
        reader = ResponseReader(one_message=True)
        events = read(reader, pieces, eof=False)
        assert isinstance(events[-1], End)
        assert sum(isinstance(e, Head) for e in events) == 1
        assert reader.leftover == second
        assert reader.eof() == []


# ----------------------------------------------------------------------------------- broken input


@pytest.mark.parametrize(
    ("wire", "where", "offset"),
    [
        (b"garbage\r\n", "status line", 0),
        (b"\r\nHTTP/2 200 OK\r\n", "status line", 2),
        (b"HTTP/1.1 20 OK\r\n", "status line", 0),
        (b"HTTP/1.1 200 OK", "head", 0),
        (OK + b"A: b", "head", 21),
        (OK + b"A: b\r\n folded\r\n", "head", 23),
        (OK + b"no colon\r\n", "head", 17),
        (OK + b"A : b\r\n", "head", 17),
        (OK + b": b\r\n", "head", 17),
        (OK + b"A: \0\r\n", "head", 17),
        (OK + b"Content-Length: -1\r\n\r\n", "head", 39),
        (OK + b"Content-Length: 1_0\r\n\r\n", "head", 40),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "head", 57),
        (OK + "Content-Length: ²\r\n\r\n".encode("latin-1"), "head", 38),
        (CHUNKED + b"x\r\n", "chunk size", 47),
        (CHUNKED + b"0x1\r\na\r\n", "chunk size", 47),
        (CHUNKED + b"-1\r\n", "chunk size", 47),
        (CHUNKED + b"\r\n", "chunk size", 47),
        (CHUNKED + b"1_0\r\n", "chunk size", 47),
        (CHUNKED + b"f" * 16 + b"\r\n", "chunk size", 47),
        (CHUNKED + b"1\r\nab\r\n", "chunk end", 51),
        (CHUNKED + b"1\r\na\rb", "chunk end", 51),
        (CHUNKED + b"1\r\na\r\n1;" + b"x" * 9000, "chunk size", 53),
        (CHUNKED + b"0\r\nno colon\r\n", "trailers", 50),
        (CHUNKED + b"0\r\n" + b"A: b\r\n" * 20_000, "trailers", 50 + 65_532),
        (CHUNKED + b"0\r\n\r\nbehind\r\n", "status line", 52),
        (OK + b"Content-Length: 1\r\n\r\nabc\n", "status line", 39),
        (OK + b"A: " + b"x" * HEAD_BYTES_MAX, "head", 17),
        (OK + b"A: b\r\n" * 20_000, "head", 17 + 65_514),
        (b"x" * HEAD_BYTES_MAX, "status line", 0),
    ],
)
def test_response_reader_of_malformed_input_names_the_fault(
    wire: bytes, where: str, offset: int
) -> None:
    """What is wrong is told once with its place, whatever the split; then the reader is dead."""
    reader = ResponseReader()
    events = read(reader, [wire])
    assert isinstance(events[-1], Malformed)
    assert (events[-1].where, events[-1].offset) == (where, offset)
    assert sum(isinstance(e, Malformed) for e in events) == 1
    assert reader.dead
    assert reader.feed(OK + b"\r\n") == []
    assert reader.eof() == []
    assert read(ResponseReader(), cut(wire, list(range(1, 400)))) == events


@pytest.mark.parametrize(
    ("wire", "where"),
    [
        (b"GET  / HTTP/1.1\r\n", "request line"),
        (b"GET /\r\n", "request line"),
        (b"GET / HTTP/3.0\r\n", "request line"),
        (b"G@T / HTTP/1.1\r\n", "request line"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "head"),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "head"),
        (b"\x16\x03\x01\x00\xa5\x01\n", "request line"),
    ],
)
def test_request_reader_of_malformed_input_names_the_fault(wire: bytes, where: str) -> None:
    """A request that is none has a named end."""
    (end,) = read(RequestReader(), [wire])
    assert isinstance(end, Malformed)
    assert end.where == where


@given(message=responses(), edits=EDITS, places=PLACES)
@settings(max_examples=500, deadline=None)
def test_response_reader_of_edited_responses_has_one_end(
    message: Message, edits: list[tuple[int, int, bytes]], places: list[int]
) -> None:
    """A damaged response ends, by name, in the same way for every split, within its bytes."""
    wire = edited(message.wire, edits)
    events = read(expecting([message]), [wire])
    if wire.strip(b"\r\n"):
        assert isinstance(events[-1], End | Malformed)
    assert read(expecting([message]), cut(wire, places)) == events
    assert read(expecting([message]), bytewise(wire)) == events
    assert sum(len(e.data) for e in events if isinstance(e, Body)) <= len(wire)
    assert all(e.offset <= len(wire) for e in events if isinstance(e, Malformed))


@given(wire=st.binary(max_size=200), places=PLACES)
@settings(max_examples=300, deadline=None)
def test_readers_of_junk_have_a_named_end(wire: bytes, places: list[int]) -> None:
    """Bytes that are no message are malformed, and nothing else comes of them."""
    for kind in (RequestReader, ResponseReader):
        for prefix in (b"", CHUNKED if kind is ResponseReader else b"POST / HTTP/1.1\r\n"):
            events = read(kind(), [prefix + wire])
            assert read(kind(), cut(prefix + wire, places)) == events
            # Junk may happen to be a 100 (Continue), behind which nothing need come.
            final = [e for e in events if not (isinstance(e, Head) and e.interim)]
            assert final[-1:] == [] or isinstance(final[-1], End | Malformed)
