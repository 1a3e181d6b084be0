"""One answer on an HTTP/1.1 connection: framing, coding, events and their kinds, read together.

Used live by the client, and again when a recording is loaded.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from harness.model import EndReason, EventKind, Framing
from harness.wire.completions import classify
from harness.wire.content import Decoder, UnknownDecoder, decoder
from harness.wire.http1 import Body, End, Head, Headers, HttpEvent, Malformed, ResponseReader
from harness.wire.sse import SseEvent, SseReader

EVENT_STREAM = "text/event-stream"
LINE_ENDS = b"\r\n"


class Told(NamedTuple):
    """An event of the answer and what it carries."""

    event: SseEvent
    kind: EventKind


AnswerItem = Head | Told | End | Malformed


class AnswerReader:
    """Reads one answer to a request with `method`, interim heads (1xx) included.

    Once `finished`, the bytes behind it are in `leftover`, for the next answer's reader. With
    `events` False only the framing is read: nothing is decoded, counted in `body_bytes`, digested.
    `wire_bytes` counts the body before, `body_bytes` after content decoding.
    `after_terminator_bytes` are those of the decoded body behind the first terminator, line ends
    right behind it not counted.
    """

    def __init__(self, method: str = "GET", *, events: bool = True) -> None:
        self._http = ResponseReader(one_message=True)
        self._http.expect(method)
        self._events = events
        self._sse: SseReader | None = None
        self._decoder: Decoder | None = None
        self._digest = hashlib.sha256()
        self._last_kind: EventKind | None = None
        self._http_malformed = ""
        self.status = 0
        self.http_version = ""
        self.headers: Headers = ()
        self.content_encoding = ""
        self.finished = False
        self.complete = False
        self.last_chunk_seen = False
        self.wire_bytes = 0
        self.body_bytes = 0
        self.terminators = 0
        self.after_terminator_bytes = 0

    @property
    def framing(self) -> Framing:
        """How the body is delimited, as its head tells."""
        return self._http.framing

    @property
    def leftover(self) -> bytes:
        """Bytes behind the end of this answer; none while it is not `finished`, or malformed."""
        return self._http.leftover if self.finished else b""

    @property
    def pending_bytes(self) -> int:
        """Bytes of the body that belong to no whole event yet."""
        return self._sse.pending_bytes if self._sse is not None else 0

    @property
    def malformed(self) -> str:
        """What is wrong with the bytes: of HTTP, of the content coding, of the event stream."""
        if self._http_malformed:
            return self._http_malformed
        if self._decoder is not None and not isinstance(self._decoder, UnknownDecoder):
            broken = self._decoder.broken
        else:
            broken = ""
        return broken or (self._sse.broken if self._sse is not None else "")

    def body_digest(self) -> str:
        """SHA-256 of the decoded body so far."""
        return self._digest.hexdigest()

    def feed(self, data: bytes) -> list[AnswerItem]:
        """What `data` completes: the head, events, the end."""
        return self._on(self._http.feed(data))

    def _on(self, events: list[HttpEvent]) -> list[AnswerItem]:
        items: list[AnswerItem] = []
        for item in events:
            if isinstance(item, Body):
                self.wire_bytes += len(item.data)
                if self._decoder is not None:
                    self._on_plain(self._decoder.feed(item.data), items)
                continue
            if isinstance(item, Head):
                self._on_head(item)
            elif isinstance(item, End):
                self._on_end(item, items)
            else:
                self._http_malformed = f"{item.where}: {item.what} (byte {item.offset})"
                self.finished = True
            items.append(item)
        return items

    def _on_head(self, head: Head) -> None:
        if head.interim:
            return
        headers = dict(head.headers)
        self.status = head.status
        self.http_version = head.version
        self.headers = head.headers
        self.content_encoding = headers.get("content-encoding", "")
        if not self._events:
            return
        self._decoder = decoder(self.content_encoding)
        if headers.get("content-type", "").partition(";")[0].strip().lower() == EVENT_STREAM:
            self._sse = SseReader()

    def _on_end(self, end: End, items: list[AnswerItem]) -> None:
        self.complete = end.complete
        self.last_chunk_seen = end.last_chunk_seen
        self.finished = True
        if self._decoder is not None:
            self._on_plain(self._decoder.finish(), items)

    def _on_plain(self, plain: bytes, items: list[AnswerItem]) -> None:
        if not plain:
            return
        if self.terminators:
            self._count_behind(plain)
        self.body_bytes += len(plain)
        self._digest.update(plain)
        if self._sse is None:
            return
        for event in self._sse.feed(plain):
            kind = classify(event)
            items.append(Told(event, kind))
            if kind is EventKind.TERMINATOR:
                if not self.terminators:
                    begin_offset = self.body_bytes - len(plain)
                    self._count_behind(plain[event.end_offset - begin_offset :])
                self.terminators += 1
            if not event.comment:
                self._last_kind = kind

    def _count_behind(self, plain: bytes) -> None:
        """Counts what follows the terminator; line ends right behind it are its own."""
        extra = plain if self.after_terminator_bytes else plain.lstrip(LINE_ENDS)
        self.after_terminator_bytes += len(extra)

    def ending(self, *, eof: bool, reset: bool) -> tuple[EndReason, str]:
        """How the answer ended, content and framing judged together; to be asked once, at the end.

        Args:
            eof: the connection was closed in order.
            reset: it was reset, or failed; this counts only where the answer was not whole yet.

        Returns:
            The reason, and where more is known, a text about it.
        """
        if reset and not self.finished:
            return EndReason.RESET, ""
        if eof and not self.finished:
            self._on(self._http.eof())
        if broken := self._broken():
            return EndReason.INCOMPLETE_FRAMING, broken
        if self._last_kind is EventKind.ERROR:
            return EndReason.ERROR_EVENT, ""
        if self.terminators:
            return EndReason.TERMINATOR, ""
        return EndReason.CLEAN_EOF_WITHOUT_TERMINATOR, self._unread()

    def _broken(self) -> str:
        """What is wrong with the message, empty for a whole one."""
        if self._http_malformed or not self.status:
            return self._http_malformed or "no response"
        if not self.finished:
            return "still open"
        if not self.complete:
            if self.framing is not Framing.CHUNKED:
                return "bytes are missing"
            return "the trailers break off" if self.last_chunk_seen else "the last chunk is missing"
        return self.malformed

    def _unread(self) -> str:
        """Why a terminator may have been missed."""
        if isinstance(self._decoder, UnknownDecoder):
            return self._decoder.broken
        pending = self.pending_bytes
        return f"{pending} bytes of an event without its end" if pending else ""
