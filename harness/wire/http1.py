"""HTTP/1.0 and 1.1 messages, read incrementally (RFC 9112).

Framings are told apart, malformed input has a named end. A reader never raises: after a `Malformed`
it is dead and gives nothing more. The same bytes give the same events however they were split, but
that a body comes in more or fewer `Body` pieces.

Read leniently, because proxies do: empty lines before a start line (§2.2), a bare LF where CRLF
belongs. Not read: folded headers (§5.2), HTTP/0.9, HTTP/2.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from harness.model import Framing

CR = 13
HEAD_BYTES_MAX = 64 * 1024
CHUNK_LINE_BYTES_MAX = 8 * 1024
REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([^\x00-\x20\x7f]+) HTTP/(1\.[01])")
STATUS_LINE = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9]{2})(?: ([^\x00\r\n]*))?")
TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
NOT_IN_VALUES = re.compile(rb"[\x00\r\n]")
BARE_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
NO_BODY = frozenset({204, 304})
TWO_LENGTHS = "Transfer-Encoding overrides Content-Length (RFC 9112 §6.3)"
TOO_OLD = "Transfer-Encoding in HTTP/1.0 is faulty framing (RFC 9112 §6.1)"

Headers = tuple[tuple[str, str], ...]


class Head(NamedTuple):
    """Start line and headers (names in lower case) of a message; `interim` for 1xx but 101.

    A request has `method` and `target`, a response `status` and `reason`. `size_bytes` counts from
    the start line to the blank line, both included. `note` says what is odd about its framing.
    """

    version: str
    headers: Headers
    size_bytes: int
    method: str = ""
    target: str = ""
    status: int = 0
    reason: str = ""
    interim: bool = False
    note: str = ""


class Body(NamedTuple):
    """Bytes of the body, chunk framing taken off, content coding still on."""

    data: bytes


class End(NamedTuple):
    """The message is over: `complete` by its framing; `last_chunk_seen` as in RFC 9112 §7.1."""

    framing: Framing
    complete: bool
    last_chunk_seen: bool = False
    trailers: Headers = ()


class Malformed(NamedTuple):
    """What broke the message; `offset` counts the connection's bytes before the fault."""

    where: str
    what: str
    offset: int


HttpEvent = Head | Body | End | Malformed


class _Reader:
    """What both directions share: heads, framings, and the way from one to the other.

    A state is a method that consumes from `_at` on; it returns False when it needs more bytes or
    nothing follows. States are kept as plain functions: bound ones would be reference cycles.
    """

    __slots__ = (
        "_at",
        "_base",
        "_buffer",
        "_fields",
        "_fields_from",
        "_found",
        "_left",
        "_start",
        "_state",
        "dead",
        "framing",
    )

    _start_line_name = ""
    _one_message = False

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0
        self._base = 0
        self._state: Callable[[_Reader], bool] = _Reader._in_start_line
        self._start = Head("", (), 0)
        self._fields: list[tuple[str, str]] = []
        self._fields_from = 0
        self._left = 0
        self._found: list[HttpEvent] = []
        self.framing = Framing.NONE
        self.dead = False

    # To be told by the direction.
    def _start_of(self, line: bytes) -> Head | None:
        raise NotImplementedError

    def _framing_of(self, head: Head) -> Framing | None:
        raise NotImplementedError

    @property
    def in_message(self) -> bool:
        """Whether a message has begun and is not over."""
        if self._state is _Reader._in_start_line:
            return bool(self._buffer)
        return self._state is not _Reader._behind

    @property
    def leftover(self) -> bytes:
        """The bytes that no message has taken yet."""
        return b"" if self.dead else self._buffer

    def feed(self, data: bytes) -> list[HttpEvent]:
        """What `data` completes, in order."""
        if self.dead:
            return []
        found: list[HttpEvent] = []
        self._found = found
        self._buffer = self._buffer + data if self._buffer else data
        while self._state(self):
            pass
        self._base += self._at
        self._buffer = self._buffer[self._at :]
        self._at = 0
        return found

    def eof(self) -> list[HttpEvent]:
        """What the end of the connection means for the message at hand; the reader is dead then."""
        if self.dead:
            return []
        found: list[HttpEvent] = []
        self._found = found
        if self._state is _Reader._in_start_line:
            if self._buffer.strip(b"\r"):
                self._malformed("head", "the connection ended within it", 0)
        elif self._state is _Reader._in_fields:
            self._malformed("head", "the connection ended within it", len(self._buffer))
        elif self._state is not _Reader._behind:
            last_chunk = self._state is _Reader._in_trailers
            self._end(complete=self.framing is Framing.CLOSE, last_chunk=last_chunk)
        self.dead = True
        return found

    def _malformed(self, where: str, what: str, at: int) -> bool:
        self.dead = True
        self._found.append(Malformed(where, what, self._base + at))
        return False

    def _line(self, limit: int, where: str) -> bytes | None:
        """The next line without its end; None: not whole yet, or over `limit`, then it is dead."""
        buffer, at = self._buffer, self._at
        end = buffer.find(b"\n", at, at + limit)
        if end < 0:
            if len(buffer) - at >= limit:
                self._malformed(where, "too long", at)
            return None
        self._at = end + 1
        if end > at and buffer[end - 1] == CR:
            end -= 1
        return buffer[at:end]

    # ------------------------------------------------------------------ heads (RFC 9112 §2–5)

    def _in_start_line(self) -> bool:
        at = self._at
        line = self._line(HEAD_BYTES_MAX, self._start_line_name)
        if line is None:
            return False
        if not line:
            return True
        start = self._start_of(line)
        if start is None:
            return self._malformed(self._start_line_name, f"not one: {line[:60]!r}", at)
        self._start = start
        self._fields = []
        self._fields_from = self._base + at
        self._state = _Reader._in_fields
        return True

    def _in_fields(self) -> bool:
        line = self._field_line("head")
        if line is None or line:
            return line is not None
        size_bytes = self._base + self._at - self._fields_from
        head = self._start._replace(headers=tuple(self._fields), size_bytes=size_bytes)
        return self._on_head(head)

    def _field_line(self, where: str) -> bytes | None:
        """Reads a field into `_fields`; its line is empty at the section's end, None as `_line`."""
        at = self._at
        line = self._line(HEAD_BYTES_MAX - (self._base + at - self._fields_from), where)
        if not line:
            return line
        name, colon, value = line.partition(b":")
        if not colon or TOKEN.fullmatch(name) is None or NOT_IN_VALUES.search(value):
            what = "a folded header (RFC 9112 §5.2)" if line[0] in b" \t" else "not a header"
            self._malformed(where, f"{what}: {line[:60]!r}", at)
            return None
        self._fields.append((name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")))
        return line

    def _on_head(self, head: Head) -> bool:
        if head.interim:
            self._found.append(head)
            self._state = _Reader._in_start_line
            return True
        framing = self._framing_of(head)
        if framing is None:
            return False
        if _values(head.headers, "transfer-encoding"):
            head = head._replace(note=_oddity(head))
        self._found.append(head)
        self.framing = framing
        self._fields = []
        match framing:
            case Framing.CHUNKED:
                self._state = _Reader._in_chunk_line
            case Framing.CLOSE:
                self._state = _Reader._until_close
            case Framing.LENGTH if self._left:
                self._state = _Reader._in_length
            case _:
                return self._end(complete=True)
        return True

    def _length_of(self, values: list[str]) -> Framing | None:
        """Takes the one content length. Equal repeats count once (RFC 9112 §6.3 item 5)."""
        texts = {part.strip(" \t") for value in values for part in value.split(",")}
        if len(texts) != 1 or DIGITS.fullmatch(text := texts.pop()) is None:
            self._malformed("head", f"content-length {', '.join(values)[:60]!r}", self._at)
            return None
        self._left = int(text)
        return Framing.LENGTH

    # -------------------------------------------------------------- bodies (RFC 9112 §6.3, §7.1)

    def _end(self, *, complete: bool, last_chunk: bool = False) -> bool:
        """Closes the message; True where another may follow."""
        self._found.append(End(self.framing, complete, last_chunk, tuple(self._fields)))
        self._state = _Reader._behind if self._one_message else _Reader._in_start_line
        return not self._one_message

    def _behind(self) -> bool:
        return False

    def _take(self) -> bool:
        """Gives what there is of the `_left` bytes; True when it was the rest."""
        buffer, at = self._buffer, self._at
        data = buffer[at : at + self._left]
        if data:
            self._found.append(Body(data))
            self._left -= len(data)
            self._at = at + len(data)
        return not self._left

    def _until_close(self) -> bool:
        self._left = len(self._buffer) - self._at
        self._take()
        return False

    def _in_length(self) -> bool:
        return self._take() and self._end(complete=True)

    def _in_chunk_line(self) -> bool:
        self._take_whole_chunks()
        at = self._at
        line = self._line(CHUNK_LINE_BYTES_MAX, "chunk size")
        if line is None:
            return False
        match = CHUNK_LINE.fullmatch(line)
        if match is None:
            return self._malformed("chunk size", f"not one: {line[:40]!r}", at)
        self._left = int(match[1], 16)
        self._fields_from = self._base + self._at
        self._state = _Reader._in_chunk if self._left else _Reader._in_trailers
        return True

    def _take_whole_chunks(self) -> None:
        """The usual case in one go: chunks without extensions, there from size to line end."""
        buffer, at = self._buffer, self._at
        pieces: list[bytes] = []
        while (match := BARE_CHUNK_LINE.match(buffer, at)) is not None:
            begin = match.end()
            end = begin + int(match[1], 16)
            if end == begin or buffer[end : end + 2] != b"\r\n":
                break
            pieces.append(buffer[begin:end])
            at = end + 2
        if pieces:
            self._found.append(Body(pieces[0] if len(pieces) == 1 else b"".join(pieces)))
            self._at = at

    def _in_chunk(self) -> bool:
        if not self._take():
            return False
        self._state = _Reader._in_chunk_end
        return True

    def _in_chunk_end(self) -> bool:
        at = self._at
        found = self._buffer[at : at + 2]
        if found in (b"", b"\r"):
            return False
        if found != b"\r\n" and found[:1] != b"\n":
            return self._malformed("chunk end", "no line end behind a chunk", at)
        self._at = at + 2 if found == b"\r\n" else at + 1
        self._state = _Reader._in_chunk_line
        return True

    def _in_trailers(self) -> bool:
        line = self._field_line("trailers")
        if line is None or line:
            return line is not None
        return self._end(complete=True, last_chunk=True)


def _values(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key == name]


def _is_chunked(headers: Headers) -> bool | None:
    """None without a transfer coding; else whether chunked is the last one.

    Empty elements of the list do not count (RFC 9110 §5.6.1.2).
    """
    listed = ",".join(_values(headers, "transfer-encoding")).split(",")
    codings = [coding for one in listed if (coding := one.strip(" \t").lower())]
    return codings[-1] == "chunked" if codings else None


def _oddity(head: Head) -> str:
    """What is odd about the framing of a message with a Transfer-Encoding."""
    if head.version == "1.0":
        return TOO_OLD
    return TWO_LENGTHS if _values(head.headers, "content-length") else ""


class RequestReader(_Reader):
    """Requests of one connection, one after the other."""

    __slots__ = ()

    _start_line_name = "request line"

    def _start_of(self, line: bytes) -> Head | None:
        match = REQUEST_LINE.fullmatch(line)
        if match is None:
            return None
        method, target, version = (part.decode("latin-1") for part in match.groups())
        return Head(version, (), 0, method=method, target=target)

    def _framing_of(self, head: Head) -> Framing | None:
        chunked = _is_chunked(head.headers)
        if chunked is False:
            self._malformed("head", "a request's last transfer coding is not chunked", self._at)
            return None
        if chunked:
            return Framing.CHUNKED
        lengths = _values(head.headers, "content-length")
        return self._length_of(lengths) if lengths else Framing.NONE


class ResponseReader(_Reader):
    """Responses of one connection. With `one_message` it stops behind the first: see `leftover`."""

    __slots__ = ("_methods", "_one_message")

    _start_line_name = "status line"

    def __init__(self, *, one_message: bool = False) -> None:
        super().__init__()
        self._methods: deque[str] = deque()
        self._one_message = one_message

    def expect(self, method: str) -> None:
        """A request with this method was sent. Responses that nothing is told of are to a GET."""
        self._methods.append(method)

    def _start_of(self, line: bytes) -> Head | None:
        match = STATUS_LINE.fullmatch(line)
        if match is None:
            return None
        status = int(match[2])
        return Head(
            match[1].decode("ascii"),
            (),
            0,
            status=status,
            reason=(match[3] or b"").decode("latin-1"),
            interim=100 <= status < 200 and status != 101,
        )

    def _framing_of(self, head: Head) -> Framing | None:
        method = self._methods.popleft() if self._methods else "GET"
        if method == "HEAD" or head.status in NO_BODY:
            return Framing.NONE
        if head.status == 101 or (method == "CONNECT" and 200 <= head.status < 300):
            return Framing.CLOSE
        chunked = _is_chunked(head.headers)
        if chunked is not None:
            return Framing.CHUNKED if chunked else Framing.CLOSE
        lengths = _values(head.headers, "content-length")
        return self._length_of(lengths) if lengths else Framing.CLOSE
