"""One answer on an HTTP/1.1 connection: framing, content coding, events and their kinds, read together.

Used live by the client, and again when a recording is loaded.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from harness.model import EndReason, EventKind, Framing
from harness.wire.completions import classify
from harness.wire.content import Decoder, decoder
from harness.wire.http1 import Body, End, Head, Headers, Malformed, ResponseReader
from harness.wire.sse import SseEvent, SseReader

EVENT_STREAM = "text/event-stream"
LINE_ENDS = b"\r\n"


class Told(NamedTuple):
    """An event of the answer and what it carries."""

    event: SseEvent
    kind: EventKind


AnswerItem = Head | Told | End | Malformed


class AnswerReader:
    """Reads one answer. Once `finished`, the bytes behind it are in `leftover`. With `events` False only the framing is read."""

    def __init__(self, method: str = "GET", *, events: bool = True) -> None:
        self._http = ResponseReader(stop_after_end=True)
        self._http.expect(method)
        self._events = events
        self._sse: SseReader | None = None
        self._decoder: Decoder | None = None
        self._digest = hashlib.sha256()
        self._last_kind: EventKind | None = None
        self._terminator_offset = 0
        self.status = 0
        self.http_version = ""
        self.headers: Headers = ()
        self.framing = Framing.NONE
        self.content_encoding = ""
        self.malformed = ""
        self.finished = False
        self.complete = False
        self.last_chunk_seen = False
        self.wire_bytes = 0
        self.body_bytes = 0
        self.terminators = 0
        self.after_terminator_bytes = 0

    @property
    def leftover(self) -> bytes:
        """Bytes behind the end of this answer; taken once."""
        return self._http.take_leftover() if self.finished else b""

    @property
    def pending_bytes(self) -> int:
        """Bytes of the body that belong to no whole event yet."""
        return self._sse.pending_bytes if self._sse is not None else 0

    def body_digest(self) -> str:
        """SHA-256 of the decoded body so far."""
        return self._digest.hexdigest()

    def feed(self, data: bytes) -> list[AnswerItem]:
        """What `data` completes: the head, events, the end."""
        items: list[AnswerItem] = []
        for item in self._http.feed(data):
            if isinstance(item, Body):
                self.wire_bytes += len(item.data)
                if self._decoder is not None:
                    self._on_plain(self._decoder.feed(item.data), items)
            elif isinstance(item, Head):
                items.append(item)
                if not item.interim:
                    self._on_head(item)
            elif isinstance(item, End):
                self._on_end(item, items)
            else:
                self.malformed = f"{item.where}: {item.what} (byte {item.offset})"
                self.finished = True
                items.append(item)
        return items

    def _on_head(self, head: Head) -> None:
        headers = dict(head.headers)
        self.status = head.status
        self.http_version = head.version
        self.headers = head.headers
        self.content_encoding = headers.get("content-encoding", "")
        if not self._events:
            return
        self._decoder = decoder(self.content_encoding)
        self.framing = _framing_told(head)
        if headers.get("content-type", "").split(";")[0].strip().lower() == EVENT_STREAM:
            self._sse = SseReader()

    def _on_end(self, end: End, items: list[AnswerItem]) -> None:
        self.framing = end.framing
        self.complete = end.complete
        self.last_chunk_seen = end.last_chunk_seen
        self.finished = True
        if self._decoder is not None:
            self._on_plain(self._decoder.finish(), items)
        items.append(end)

    def _on_plain(self, plain: bytes, items: list[AnswerItem]) -> None:
        if not plain:
            return
        if self.terminators:
            self._count_after(plain)
        self.body_bytes += len(plain)
        self._digest.update(plain)
        if self._sse is None:
            return
        for event in self._sse.feed(plain):
            kind = classify(event)
            items.append(Told(event, kind))
            if kind is EventKind.TERMINATOR:
                if not self.terminators:
                    self._count_after(plain[len(plain) - (self.body_bytes - event.end_offset) :])
                self.terminators += 1
            if kind is not EventKind.COMMENT:
                self._last_kind = kind

    def _count_after(self, plain: bytes) -> None:
        """Line ends right behind the terminator are its own."""
        extra = plain if self.after_terminator_bytes else plain.lstrip(LINE_ENDS)
        self.after_terminator_bytes += len(extra)

    def ending(self, *, eof: bool, reset: bool) -> tuple[EndReason, str]:
        """How the answer ended, given how the connection did: content and framing judged together.

        Returns the reason and, where it is a broken message, what broke it.
        """
        if reset and not self.finished:
            return EndReason.RESET, ""
        broken = self._broken(eof=eof)
        if broken:
            return EndReason.INCOMPLETE_FRAMING, broken
        if self._last_kind is EventKind.ERROR:
            return EndReason.ERROR_EVENT, ""
        if self.terminators:
            return EndReason.TERMINATOR, ""
        return EndReason.CLEAN_EOF_WITHOUT_TERMINATOR, ""

    def _broken(self, *, eof: bool) -> str:
        if self.malformed:
            return self.malformed
        if not self.status:
            return "no response"
        if self.finished:
            return "" if self.complete else "the framing broke off"
        if self.framing is Framing.CLOSE:
            return "" if eof else "still open"
        return "the last chunk is missing" if self.framing is Framing.CHUNKED else "bytes are missing"


def _framing_told(head: Head) -> Framing:
    """How the head says that the body ends, for a body whose end is not seen."""
    names = {name for name, _ in head.headers}
    if "transfer-encoding" in names:
        return Framing.CHUNKED
    return Framing.LENGTH if "content-length" in names else Framing.CLOSE
