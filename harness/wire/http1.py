"""HTTP/1.0 and 1.1 messages, read incrementally (RFC 9112). Framings are told apart, malformed input has a named end.

A reader never raises: after a `Malformed` it is dead and gives nothing more.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from harness.model import Framing

HEAD_BYTES_MAX = 64 * 1024
LINE_BYTES_MAX = 8 * 1024
TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([^\x00-\x20\x7f]+) HTTP/(1\.[01])")
STATUS_LINE = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9]{2})(?: ([^\x00\r\n]*))?")
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
DIGITS = re.compile(rb"[0-9]{1,18}")
NO_BODY = frozenset({204, 304})

Headers = tuple[tuple[str, str], ...]


class Head(NamedTuple):
    """Start line and headers (names in lower case) of a message; `interim` for 1xx. A request has `method`, a response `status`."""

    version: str
    headers: Headers
    size_bytes: int
    method: str = ""
    target: str = ""
    status: int = 0
    reason: str = ""
    interim: bool = False


class Body(NamedTuple):
    """Bytes of the body, chunk framing taken off, content coding still on."""

    data: bytes


class End(NamedTuple):
    """The message is over. `complete` by its framing; `last_chunk_seen` for chunked bodies (RFC 9112 §7.1)."""

    framing: Framing
    complete: bool
    last_chunk_seen: bool = False
    trailers: Headers = ()


class Malformed(NamedTuple):
    """What broke the message, at which byte of the connection."""

    where: str
    what: str
    offset: int


HttpEvent = Head | Body | End | Malformed


class _Reader:
    """What both directions share: heads, framings, and the way from one to the other."""

    def __init__(self) -> None:
        self._buffer = b""
        self._offset = 0
        self._state = self._in_head
        self._framing = Framing.NONE
        self._left = 0
        self._trailers: list[tuple[str, str]] = []
        self._found: list[HttpEvent] = []
        self.dead = False

    # To be told by the direction.
    def _start(self, line: bytes, headers: Headers, size: int) -> Head | Malformed:
        raise NotImplementedError

    def _framing_of(self, head: Head) -> Framing:
        raise NotImplementedError

    @property
    def in_message(self) -> bool:
        """Whether a message has begun and is not over."""
        return self._state != self._in_head or bool(self._buffer)

    def take_leftover(self) -> bytes:
        """The bytes behind the last message, taken out of this reader."""
        leftover, self._buffer = self._buffer, b""
        return leftover

    def feed(self, data: bytes) -> list[HttpEvent]:
        """What `data` completes, in order."""
        if self.dead:
            return []
        self._found = found = []
        self._buffer = self._buffer + data if self._buffer else data
        while not self.dead and self._state():
            if self._stop_after_end and found and isinstance(found[-1], End):
                break
        return found

    _stop_after_end = False

    def eof(self) -> list[HttpEvent]:
        """What the end of the connection means for the message at hand."""
        self._found = found = []
        if self.dead or not self.in_message:
            return found
        if self._state == self._in_head:
            self._malformed("head", "the connection ended within a head")
        else:
            self._end(complete=self._framing is Framing.CLOSE)
        return found

    def _malformed(self, where: str, what: str) -> bool:
        self.dead = True
        self._found.append(Malformed(where, what, self._offset))
        return False

    def _take(self, size: int) -> bytes:
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        self._offset += size
        return taken

    def _line(self, limit: int, where: str) -> bytes | None:
        """The next line without its end, or None: not there yet, or the reader is dead."""
        end = self._buffer.find(b"\n")
        if end < 0 or end > limit:
            if len(self._buffer) > limit:
                self._malformed(where, f"a line longer than {limit} bytes")
            return None
        line = self._take(end + 1)[:-1]
        return line[:-1] if line.endswith(b"\r") else line

    def _in_head(self) -> bool:
        buffer = self._buffer
        blank = buffer.lstrip(b"\r\n")
        if len(blank) != len(buffer):
            # RFC 9112 §2.2: a server ignores empty lines before a request line.
            self._take(len(buffer) - len(blank))
        if not self._buffer:
            return False
        end = self._head_end()
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                self._malformed("head", f"longer than {HEAD_BYTES_MAX} bytes")
            return False
        if end > HEAD_BYTES_MAX:
            return self._malformed("head", f"longer than {HEAD_BYTES_MAX} bytes")
        lines = self._buffer[:end].replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")
        headers = self._headers(lines[1:])
        if headers is None:
            return False
        head = self._start(lines[0], headers, end)
        if isinstance(head, Malformed):
            self.dead = True
            self._found.append(head)
            return False
        self._take(end)
        self._found.append(head)
        return self._begin_body(head)

    def _head_end(self) -> int:
        buffer = self._buffer
        strict = buffer.find(b"\r\n\r\n")
        lenient = buffer.find(b"\n\n", 0, strict if strict >= 0 else len(buffer))
        if lenient >= 0:
            return lenient + 2
        return strict + 4 if strict >= 0 else -1

    def _headers(self, lines: list[bytes]) -> Headers | None:
        headers: list[tuple[str, str]] = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if line[:1] in b" \t":
                self._malformed("head", "a folded header (RFC 9112 §5.2)")
                return None
            if not colon or TOKEN.fullmatch(name) is None:
                self._malformed("head", f"not a header: {line[:60]!r}")
                return None
            headers.append((name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")))
        return tuple(headers)

    def _begin_body(self, head: Head) -> bool:
        if head.interim:
            return True
        framing = self._framing_of(head)
        if self.dead:
            return False
        self._framing = framing
        match framing:
            case Framing.CHUNKED:
                self._state = self._in_chunk_size
            case Framing.LENGTH:
                self._state = self._in_length
                if not self._left:
                    self._end(complete=True)
            case Framing.CLOSE:
                self._state = self._until_close
            case Framing.NONE:
                self._end(complete=True)
        return True

    def _end(self, *, complete: bool, last_chunk: bool = False) -> None:
        self._found.append(End(self._framing, complete, last_chunk, tuple(self._trailers)))
        self._trailers = []
        self._state = self._in_head

    def _until_close(self) -> bool:
        if self._buffer:
            self._found.append(Body(self._take(len(self._buffer))))
        return False

    def _in_length(self) -> bool:
        if not self._buffer:
            return False
        data = self._take(min(self._left, len(self._buffer)))
        self._left -= len(data)
        self._found.append(Body(data))
        if not self._left:
            self._end(complete=True)
        return True

    def _in_chunk_size(self) -> bool:
        line = self._line(LINE_BYTES_MAX, "chunk size")
        if line is None:
            return False
        match = CHUNK_SIZE.fullmatch(line)
        if match is None:
            return self._malformed("chunk size", f"not a size: {line[:40]!r}")
        self._left = int(match[1], 16)
        self._state = self._in_chunk if self._left else self._in_trailers
        return True

    def _in_chunk(self) -> bool:
        if not self._buffer:
            return False
        data = self._take(min(self._left, len(self._buffer)))
        self._left -= len(data)
        self._found.append(Body(data))
        if not self._left:
            self._state = self._in_chunk_end
        return True

    def _in_chunk_end(self) -> bool:
        line = self._line(2, "chunk end")
        if line is None:
            return False
        if line:
            return self._malformed("chunk end", f"{line[:20]!r} instead of a line end")
        self._state = self._in_chunk_size
        return True

    def _in_trailers(self) -> bool:
        line = self._line(LINE_BYTES_MAX, "trailers")
        if line is None:
            return False
        if not line:
            self._end(complete=True, last_chunk=True)
            return True
        header = self._headers([line])
        if header is None:
            return False
        self._trailers.extend(header)
        if len(self._trailers) > 1000:
            return self._malformed("trailers", "more than 1000")
        return True

    def _length(self, values: list[str]) -> int | None:
        """The one content length; None is malformed. Equal repeats count once (RFC 9112 §6.3)."""
        texts = {part.strip() for value in values for part in value.split(",")}
        if len(texts) != 1 or DIGITS.fullmatch(text := texts.pop().encode()) is None:
            self._malformed("head", f"Content-Length {', '.join(values)!r}")
            return None
        return int(text)


def _all(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key == name]


def _chunked_last(headers: Headers) -> bool | None:
    """None without Transfer-Encoding; else whether chunked is its last coding."""
    codings = [c.strip().lower() for v in _all(headers, "transfer-encoding") for c in v.split(",")]
    return None if not codings else codings[-1] == "chunked"


class RequestReader(_Reader):
    """Requests of one connection, one after the other."""

    def _start(self, line: bytes, headers: Headers, size: int) -> Head | Malformed:
        match = REQUEST_LINE.fullmatch(line)
        if match is None:
            return Malformed("request line", f"not one: {line[:60]!r}", self._offset)
        method, target, version = (part.decode("latin-1") for part in match.groups())
        return Head(version, headers, size, method=method, target=target)

    def _framing_of(self, head: Head) -> Framing:
        chunked = _chunked_last(head.headers)
        if chunked is not None:
            if not chunked:
                self._malformed("head", "a request's last transfer coding must be chunked")
            return Framing.CHUNKED
        lengths = _all(head.headers, "content-length")
        if not lengths:
            return Framing.NONE
        length = self._length(lengths)
        self._left = length or 0
        return Framing.LENGTH


class ResponseReader(_Reader):
    """Responses of one connection; `expect(method)` tells for which request the next one is (GET where nothing was told)."""

    def __init__(self, *, stop_after_end: bool = False) -> None:
        super().__init__()
        self._methods: deque[str] = deque()
        self._stop_after_end = stop_after_end

    def expect(self, method: str) -> None:
        """A request with this method was sent."""
        self._methods.append(method)

    def _start(self, line: bytes, headers: Headers, size: int) -> Head | Malformed:
        match = STATUS_LINE.fullmatch(line)
        if match is None:
            return Malformed("status line", f"not one: {line[:60]!r}", self._offset)
        status = int(match[2])
        return Head(
            match[1].decode(),
            headers,
            size,
            status=status,
            reason=(match[3] or b"").decode("latin-1"),
            interim=100 <= status < 200 and status != 101,
        )

    def _framing_of(self, head: Head) -> Framing:
        method = self._methods.popleft() if self._methods else "GET"
        if method == "HEAD" or head.status in NO_BODY:
            return Framing.NONE
        chunked = _chunked_last(head.headers)
        if chunked is not None:
            return Framing.CHUNKED if chunked else Framing.CLOSE
        lengths = _all(head.headers, "content-length")
        if not lengths:
            return Framing.CLOSE
        length = self._length(lengths)
        self._left = length or 0
        return Framing.LENGTH
