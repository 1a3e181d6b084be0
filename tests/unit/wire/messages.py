"""Valid HTTP/1 messages of every framing, as bytes with what they say."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from harness.model import Framing

Fields = list[tuple[str, str]]

NAMES = st.sampled_from(["X-A", "content-type", "Server", "x-Very-long_name.1"])
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=3)
PIECES = st.lists(st.binary(min_size=1, max_size=40), max_size=5)
# White space before the semicolon is allowed but not here: h11 refuses it.
EXTENSIONS = st.sampled_from([b"", b"", b";a", b"; a=b", b';q="x"'])


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message on the wire and its parts; `method` is that of the request it is, or answers."""

    wire: bytes
    method: str
    version: str
    status: int
    framing: Framing
    fields: tuple[tuple[str, str], ...]
    body: bytes
    trailers: tuple[tuple[str, str], ...] = ()


def field_lines(fields: Fields) -> bytes:
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in fields)


def lowered(fields: Fields) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in fields)


@st.composite
def chunked(draw: st.DrawFn, pieces: list[bytes], trailers: Fields) -> bytes:
    """A chunked body with extensions, sizes in either case, and trailers."""
    lines = [
        (b"%x" if draw(st.booleans()) else b"%04X") % len(piece)
        + draw(EXTENSIONS)
        + b"\r\n"
        + piece
        + b"\r\n"
        for piece in pieces
    ]
    return b"".join(lines) + b"0\r\n" + field_lines(trailers) + b"\r\n"


@st.composite
def bodies(draw: st.DrawFn, framing: Framing) -> tuple[Fields, bytes, bytes, Fields]:
    """Fields that tell the framing, the body on the wire and as it is, and trailers."""
    pieces = draw(PIECES)
    body = b"".join(pieces)
    match framing:
        case Framing.CHUNKED:
            trailers = draw(FIELDS)
            return (
                [("Transfer-Encoding", "chunked")],
                draw(chunked(pieces, trailers)),
                body,
                trailers,
            )
        case Framing.LENGTH:
            return [("Content-Length", str(len(body)))], body, body, []
        case Framing.CLOSE:
            return [], body, body, []
        case Framing.NONE:
            return [], b"", b"", []


@st.composite
def responses(draw: st.DrawFn, framings: tuple[Framing, ...] = tuple(Framing)) -> Message:
    """A response; one without a body answers HEAD or has a status that allows none."""
    framing = draw(st.sampled_from(framings))
    method, status = "GET", draw(st.sampled_from([200, 206, 404, 503]))
    if framing is Framing.NONE:
        method, status = draw(st.sampled_from([("HEAD", 200), ("GET", 204), ("POST", 304)]))
    version = draw(st.sampled_from(["1.1", "1.1", "1.0"]))
    told, wire, body, trailers = draw(bodies(framing))
    fields = draw(FIELDS) + told
    reason = draw(st.sampled_from([" OK", " ", " Not so good"]))
    head = f"HTTP/{version} {status}{reason}\r\n".encode() + field_lines(fields) + b"\r\n"
    return Message(
        wire=head + wire,
        method=method,
        version=version,
        status=status,
        framing=framing,
        fields=lowered(fields),
        body=body,
        trailers=lowered(trailers),
    )


@st.composite
def requests(draw: st.DrawFn) -> Message:
    """A request with or without a body."""
    framing = draw(st.sampled_from([Framing.CHUNKED, Framing.LENGTH, Framing.NONE]))
    told, wire, body, trailers = draw(bodies(framing))
    fields = [("Host", "a"), *draw(FIELDS), *told]
    method = draw(st.sampled_from(["GET", "POST", "PATCH"]))
    return Message(
        wire=f"{method} /v1?x=1 HTTP/1.1\r\n".encode() + field_lines(fields) + b"\r\n" + wire,
        method=method,
        version="1.1",
        status=0,
        framing=framing,
        fields=lowered(fields),
        body=body,
        trailers=lowered(trailers),
    )
