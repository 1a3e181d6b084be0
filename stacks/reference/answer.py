"""A whole HTTP answer as the bytes of each write, made before the first of them is due.

The answer has no Date field: it is known byte for byte. The status line says HTTP/1.1 also to an
HTTP/1.0 request, whose body is then delimited by closing (RFC 9112 §2.3, §6.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from itertools import chain

from harness.model import Defects, Framing, Leave, StreamScript
from stacks.reference import frames

LAST_CHUNK = b"0\r\n\r\n"

Fields = tuple[tuple[str, str], ...]


class Closing(StrEnum):
    """What becomes of the connection after an answer."""

    KEEP = "keep"
    FIN = "fin"
    RST = "rst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What the request says of how it may be answered: its HTTP version, whether the connection may
    live on, its id.
    """

    http_version: str = "1.1"
    keep_alive: bool = True
    request_id: str = ""

    @property
    def persistent(self) -> bool:
        """Whether the connection can carry another request. HTTP/1.0 connections are closed, as
        uvicorn does.
        """
        return self.keep_alive and self.http_version == "1.1"

    @property
    def fields(self) -> Fields:
        """The echo of the request's id."""
        return (("x-request-id", self.request_id),) if self.request_id else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`writes[i]` leave with content event i, `ending` behind the last. `head` leaves at once where
    `early_head`, or in front of the first write. `comment` is one keep-alive comment, framed;
    empty where the framing allows none.
    """

    head: bytes
    early_head: bool
    writes: tuple[tuple[bytes, ...], ...]
    ending: tuple[bytes, ...]
    comment: bytes = b""
    closing: Closing
    finish: str = "length"


def framing(defects: Defects, http_version: str) -> Framing:
    """How the body of a stream is delimited."""
    if defects.content_length:
        return Framing.LENGTH
    if defects.close_delimited or (http_version == "1.0" and not defects.http10_chunked):
        return Framing.CLOSE
    return Framing.CHUNKED


def head(status: int, fields: Fields) -> bytes:
    """Status line and fields, with the empty line."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines.extend(f"{name}: {value}" for name, value in fields)
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def complete(
    status: int, body: bytes, *, peer: Peer, kind: str = "application/json", more: Fields = ()
) -> bytes:
    """A whole answer with its length."""
    fields = (("content-type", kind), ("content-length", str(len(body))), *more, *peer.fields)
    if not peer.persistent:
        fields += (("connection", "close"),)
    return head(status, fields) + body


def whole(body: bytes, script: StreamScript, *, peer: Peer) -> Answer:
    """An answer that leaves in one piece with the last token."""
    return Answer(
        head=b"",
        early_head=False,
        writes=((),) * script.event_count,
        ending=(complete(200, body, peer=peer),),
        closing=Closing.KEEP if peer.persistent else Closing.FIN,
    )


def streamed(
    rendered: frames.Rendered, script: StreamScript, defects: Defects, *, peer: Peer
) -> Answer:
    """A streamed answer with the content and framing defects that were asked for."""
    framed_as = framing(defects, peer.http_version)
    writes, ending, finish = _plan(rendered, defects)
    length = sum(map(len, chain(*writes, ending)))
    persistent = peer.persistent and framed_as is not Framing.CLOSE
    closing = Closing.KEEP if persistent else Closing.FIN
    if defects.cut_after_events and defects.cut_after_events <= len(writes):
        writes, ending, finish = writes[: defects.cut_after_events], (), "cut"
        closing = Closing.RST if defects.cut_by is Leave.RST else Closing.FIN
    elif framed_as is Framing.CHUNKED:
        ending = (*ending, b"")
    comment = frames.COMMENT
    if framed_as is Framing.CHUNKED:
        writes = tuple(tuple(map(_chunk, leaving)) for leaving in writes)
        ending, comment = tuple(map(_chunk, ending)), _chunk(comment)
    return Answer(
        head=head(
            200,
            _stream_fields(script, framed_as, length=length, persistent=persistent) + peer.fields,
        ),
        early_head=not defects.late_headers,
        writes=writes,
        ending=ending,
        comment=b"" if framed_as is Framing.LENGTH else comment,
        closing=closing,
        finish=finish,
    )


def _plan(
    rendered: frames.Rendered, defects: Defects
) -> tuple[tuple[tuple[bytes, ...], ...], tuple[bytes, ...], str]:
    """The frames that leave with each event, those behind the last, and how generation ends."""
    writes = [_event_frames(rendered, defects, i) for i in range(len(rendered.events))]
    writes[0] = (*rendered.prelude, *writes[0])
    if 0 < defects.error_event_after <= len(writes):
        error = frames.error_frame("The engine failed while generating.")
        return tuple(writes[: defects.error_event_after]), (error,), "error"
    terminator = () if defects.no_terminator else (rendered.terminator,)
    return tuple(writes), (rendered.finish, *rendered.usage, *terminator), "length"


def _event_frames(rendered: frames.Rendered, defects: Defects, index: int) -> tuple[bytes, ...]:
    frame = rendered.events[index]
    if defects.alter_event == index + 1:
        frame = frames.altered(frame, rendered.text_end)
    return (frame, frame) if defects.duplicate_event == index + 1 else (frame,)


def _chunk(data: bytes) -> bytes:
    """RFC 9112 §7.1; empty data gives the last chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else LAST_CHUNK


def _stream_fields(
    script: StreamScript, framed_as: Framing, *, length: int, persistent: bool
) -> Fields:
    fields: Fields = (
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache"),
    )
    if script.accel_buffering:
        fields += (("x-accel-buffering", script.accel_buffering),)
    if framed_as is Framing.LENGTH:
        fields += (("content-length", str(length)),)
    elif framed_as is Framing.CHUNKED:
        fields += (("transfer-encoding", "chunked"),)
    return fields if persistent else (*fields, ("connection", "close"))
