"""Server-sent events, read strictly and incrementally (WHATWG HTML §9.2.5–9.2.6).

LF, CR and CRLF end lines; a BOM may stand first; comments, all fields and unknown fields are handled as the standard says. The same bytes
give the same events however they were split.
"""

from __future__ import annotations

from typing import NamedTuple

EVENT_BYTES_MAX = 8 * 1024 * 1024
BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """An event or a comment of a stream.

    `end_offset` is the offset in the body just past the *first* byte of the line end that completed it (past the CR of a
    CRLF), so that it does not depend on the split. `raw` holds the lines of it, from `start_offset`, without the blank line.
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
    """Takes a body in pieces of any size; `broken` says why it stopped reading, if it did."""

    __slots__ = (
        "_block",
        "_data",
        "_event",
        "_had_cr",
        "_last_id",
        "_line",
        "_offset",
        "_retry_ms",
        "_start",
        "_started",
        "broken",
        "retry_ms",
    )

    def __init__(self) -> None:
        self._line = b""
        self._had_cr = False
        self._offset = 0
        self._started = False
        self._last_id = ""
        self.retry_ms: int | None = None
        self.broken = ""
        self._reset()

    def _reset(self) -> None:
        self._data: list[str] = []
        self._event = ""
        self._retry_ms: int | None = None
        self._block: list[bytes] = []
        self._start = -1

    @property
    def pending_bytes(self) -> int:
        """Bytes of an event or line that is not whole yet."""
        return len(self._line) + sum(map(len, self._block))

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events and comments that `data` completes."""
        if self.broken:
            return []
        if self._had_cr and data:
            self._had_cr = False
            if data[0] == 10:
                self._offset += 1
                data = data[1:]
        buffer = self._line + data if self._line else data
        begin = self._offset - len(self._line)
        self._offset += len(data)
        if not self._started:
            if len(buffer) < 3 and BOM.startswith(buffer):
                self._line = buffer
                return []
            self._started = True
            if buffer.startswith(BOM):
                buffer = buffer[3:]
                begin += 3
        return self._lines(buffer, begin)

    def _lines(self, buffer: bytes, begin: int) -> list[SseEvent]:
        found: list[SseEvent] = []
        position, size = 0, len(buffer)
        has_cr = b"\r" in buffer
        while True:
            end = buffer.find(b"\n", position)
            if has_cr:
                cr = buffer.find(b"\r", position, end if end >= 0 else size)
                end = cr if cr >= 0 else end
            if end < 0:
                break
            event = self._on_line(buffer[position:end], begin + position, begin + end + 1)
            if event is not None:
                found.append(event)
            position = end + 1
            if buffer[end] == 13:
                if position == size:
                    self._had_cr = True
                elif buffer[position] == 10:
                    position += 1
        self._line = buffer[position:]
        if self.pending_bytes > EVENT_BYTES_MAX:
            self.broken = f"an event is longer than {EVENT_BYTES_MAX} bytes"
        return found

    def _on_line(self, line: bytes, start: int, end: int) -> SseEvent | None:
        if not line:
            return self._dispatch(end)
        if line[0] == 58:
            text = line[1:].decode("utf-8", "replace")
            return SseEvent(True, "", text, self._last_id, None, start, end, line)
        if self._start < 0:
            self._start = start
        self._block.append(line)
        name, _, value = line.partition(b":")
        self._on_field(name, value[1:] if value[:1] == b" " else value)
        return None

    def _on_field(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self._last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 19:
            self._retry_ms = self.retry_ms = int(value)

    def _dispatch(self, end: int) -> SseEvent | None:
        if not self._data:
            self._reset()
            return None
        event = SseEvent(
            False,
            self._event or "message",
            "\n".join(self._data),
            self._last_id,
            self._retry_ms,
            self._start,
            end,
            b"\n".join(self._block),
        )
        self._reset()
        return event
