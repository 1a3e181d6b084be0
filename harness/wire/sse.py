"""Server-sent events, read strictly and incrementally (WHATWG HTML §9.2.5–9.2.6).

LF, CR and CRLF end lines; a BOM may stand first; comments, all fields and unknown fields are
handled as the standard says. The same bytes give the same events however they were split.
"""

from __future__ import annotations

from typing import NamedTuple

EVENT_BYTES_MAX = 8 * 1024 * 1024
# Python refuses to read numbers of more than 4,300 digits; no retry is longer than this.
RETRY_DIGITS_MAX = 18
BOM = b"\xef\xbb\xbf"
LF, CR, COLON = 10, 13, 58


class SseEvent(NamedTuple):
    """An event, or a comment (a heartbeat: its text is in `data`), of a stream.

    `start_offset` and `end_offset` count bytes of the body. The latter lies just past the *first*
    byte of the line end that completed the item (past the CR of a CRLF), so that it does not depend
    on the split. `raw` holds the item's own lines, joined by LF whatever ended them: without the
    blank line, and without comments that stood between them.
    """

    comment: bool
    event: str
    data: str
    last_event_id: str
    retry_ms: int | None
    start_offset: int
    end_offset: int
    raw: bytes


class SseReader:
    """Takes a body in pieces of any size. `retry_ms` is the last reconnection time that was told.

    `broken` says why it stopped reading, if it did: an event (or comment) whose lines hold more
    than `event_bytes_max` bytes.
    """

    __slots__ = (
        "_block",
        "_block_bytes",
        "_block_start",
        "_data",
        "_event",
        "_event_bytes_max",
        "_had_cr",
        "_last_id",
        "_line",
        "_line_bytes",
        "_offset",
        "_retry_ms",
        "_started",
        "broken",
        "retry_ms",
    )

    def __init__(self, *, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._event_bytes_max = event_bytes_max
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._had_cr = False
        self._offset = 0
        self._started = False
        self._last_id = ""
        self.retry_ms: int | None = None
        self.broken = ""
        self._clear()

    def _clear(self) -> None:
        """Forgets the event at hand; the last event id stays."""
        self._data: list[str] = []
        self._event = ""
        self._retry_ms: int | None = None
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._block_start = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of an event or line that is not whole yet, line ends not counted."""
        return self._line_bytes + self._block_bytes

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events and comments that `data` completes."""
        if not data or self.broken:
            return []
        if self._had_cr:
            self._had_cr = False
            if data[0] == LF:
                self._offset += 1
                data = data[1:]
        begin = self._offset - self._line_bytes
        self._offset += len(data)
        has_cr = b"\r" in data
        if self._line:
            self._line.append(data)
            if self._started and not has_cr and b"\n" not in data:
                self._line_bytes += len(data)
                self._check(self.pending_bytes)
                return []
            data = b"".join(self._line)
        if not self._started:
            if len(data) < len(BOM) and BOM.startswith(data):
                self._keep(data)
                return []
            self._started = True
            if data.startswith(BOM):
                data = data[len(BOM) :]
                begin += len(BOM)
        return self._read(data, begin, has_cr=has_cr)

    def _keep(self, line: bytes) -> None:
        self._line = [line] if line else []
        self._line_bytes = len(line)

    def _check(self, size: int) -> bool:
        """False, and broken, where an item of this size is too long."""
        if size > self._event_bytes_max:
            self.broken = f"an event of more than {self._event_bytes_max} bytes"
        return not self.broken

    def _read(self, buffer: bytes, begin: int, *, has_cr: bool) -> list[SseEvent]:
        """Takes `buffer`, which lies `begin` bytes into the body, line by line."""
        found: list[SseEvent] = []
        at, size = 0, len(buffer)
        while (end := buffer.find(b"\n", at)) >= 0 or has_cr:
            if has_cr and (cr := buffer.find(b"\r", at, end if end >= 0 else size)) >= 0:
                end = cr
            if end < 0:
                break
            line = buffer[at:end]
            if not self._check(self._block_bytes + len(line)):
                return found
            if line.startswith(b"data: ") and not self._block and buffer.startswith(b"\n\n", end):
                found.append(self._whole(line, begin + at))
                at = end + 2
                continue
            if line:
                item = self._on_line(line, begin + at, begin + end + 1)
            else:
                item = self._dispatch(begin + end + 1)
            if item is not None:
                found.append(item)
            at = end + 1
            if buffer[end] == CR:
                if at == size:
                    self._had_cr = True
                elif buffer[at] == LF:
                    at += 1
        self._keep(buffer[at:])
        self._check(self.pending_bytes)
        return found

    def _whole(self, line: bytes, start: int) -> SseEvent:
        """The usual event in one go: one line of data between LFs, with nothing before it."""
        data = line[6:].decode("utf-8", "replace")
        end = start + len(line) + 2
        return SseEvent(False, "message", data, self._last_id, None, start, end, line)

    def _on_line(self, line: bytes, start: int, end: int) -> SseEvent | None:
        if line[0] == COLON:
            text = line[1:].decode("utf-8", "replace")
            return SseEvent(True, "", text, self._last_id, None, start, end, line)
        if not self._block:
            self._block_start = start
        self._block.append(line)
        self._block_bytes += len(line)
        if line.startswith(b"data: "):
            self._data.append(line[6:].decode("utf-8", "replace"))
        else:
            name, _, value = line.partition(b":")
            self._on_field(name, value[1:] if value.startswith(b" ") else value)
        return None

    def _on_field(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self._last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= RETRY_DIGITS_MAX:
            self._retry_ms = self.retry_ms = int(value)

    def _dispatch(self, end: int) -> SseEvent | None:
        if not self._data:
            if self._block:
                self._clear()
            return None
        event = SseEvent(
            False,
            self._event or "message",
            "\n".join(self._data),
            self._last_id,
            self._retry_ms,
            self._block_start,
            end,
            b"\n".join(self._block),
        )
        self._clear()
        return event
