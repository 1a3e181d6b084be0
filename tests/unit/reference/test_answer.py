"""An answer's writes make a well-framed message, or the wrong one that was asked for."""

from __future__ import annotations

from itertools import chain

import h11
import pytest

from harness.model import Defects, Framing, Leave, StreamScript
from stacks.reference import answer, frames
from stacks.reference.answer import Answer, Closing, Peer

SCRIPT = StreamScript(event_count=5, include_usage=True)
RENDERED = frames.render(SCRIPT, key="k", endpoint=frames.COMPLETIONS, model="m")
WHOLE = (*RENDERED.events, RENDERED.finish, *RENDERED.usage, RENDERED.terminator)


def _streamed(peer: Peer | None = None, **defects: object) -> Answer:
    asked = Defects(**defects)  # type: ignore[arg-type]
    return answer.streamed(RENDERED, SCRIPT, asked, peer=peer or Peer())


def _body(told: Answer) -> tuple[bytes, bool]:
    """The decoded body, by h11, and whether its end was told before the connection's."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("host", "e")]))
    client.send(h11.EndOfMessage())
    client.receive_data(told.head + b"".join((*chain(*told.writes), *told.ending)))
    body = b""
    while True:
        event = client.next_event()
        if isinstance(event, h11.Data):
            body += bytes(event.data)
        elif event is h11.NEED_DATA:
            return body, False
        elif isinstance(event, h11.EndOfMessage):
            return body, True


@pytest.mark.parametrize(
    ("peer", "defects", "framed_as", "closing"),
    [
        (Peer(), {}, Framing.CHUNKED, Closing.KEEP),
        (Peer(keep_alive=False), {}, Framing.CHUNKED, Closing.FIN),
        (Peer(http_version="1.0"), {}, Framing.CLOSE, Closing.FIN),
        (Peer(http_version="1.0"), {"http10_chunked": True}, Framing.CHUNKED, Closing.FIN),
        (Peer(), {"http10_chunked": True}, Framing.CHUNKED, Closing.KEEP),
        (Peer(), {"close_delimited": True}, Framing.CLOSE, Closing.FIN),
        (Peer(), {"content_length": True}, Framing.LENGTH, Closing.KEEP),
        (Peer(http_version="1.0"), {"content_length": True}, Framing.LENGTH, Closing.FIN),
    ],
)
def test_streamed_framing_carries_the_whole_body(
    peer: Peer, defects: dict[str, bool], framed_as: Framing, closing: Closing
) -> None:
    """Whatever the framing, another reader (h11) finds the same body, and its end where the framing
    tells it.
    """
    told = _streamed(peer, **defects)
    assert _body(told) == (b"".join(WHOLE), framed_as is not Framing.CLOSE)
    assert told.closing is closing
    assert (b"connection: close" in told.head) == (closing is Closing.FIN)
    assert (b"chunked" in told.head) == (framed_as is Framing.CHUNKED)


def test_streamed_one_write_per_event() -> None:
    """Each content event is a write of its own."""
    told = _streamed()
    assert [len(leaving) for leaving in told.writes] == [1] * 5
    assert told.early_head


def test_streamed_no_terminator_ends_well_framed() -> None:
    """Only `[DONE]` is missing."""
    assert _body(_streamed(no_terminator=True)) == (b"".join(WHOLE[:-1]), True)


def test_streamed_error_event_ends_the_body() -> None:
    """After n events comes an error, then the end of the body, no `[DONE]`."""
    told = _streamed(error_event_after=2)
    body, ended = _body(told)
    assert body.startswith(b"".join(WHOLE[:2]) + b'data: {"error":')
    assert (ended, len(told.writes), told.finish) == (True, 2, "error")


@pytest.mark.parametrize("how", [Leave.FIN, Leave.RST])
def test_streamed_cut_leaves_the_body_open(how: Leave) -> None:
    """After n events the connection is closed as was asked for, the body unfinished."""
    told = _streamed(cut_after_events=3, cut_by=how)
    assert _body(told) == (b"".join(WHOLE[:3]), False)
    assert (told.closing.value, told.finish) == (how.value, "cut")


def test_streamed_cut_keeps_the_promised_length() -> None:
    """A cut answer with Content-Length still promises the whole."""
    told = _streamed(cut_after_events=3, content_length=True)
    assert f"content-length: {len(b''.join(WHOLE))}\r\n".encode() in told.head


def test_streamed_duplicate_and_alteration_touch_one_event() -> None:
    """Event 2 comes twice; event 4 differs by one byte; the others are untouched."""
    body, _ = _body(_streamed(duplicate_event=2, alter_event=4))
    events = [event + b"\n\n" for event in body.split(b"\n\n")[:-1]]
    assert events[:4] == [WHOLE[0], WHOLE[1], WHOLE[1], WHOLE[2]]
    assert sum(a != b for a, b in zip(events[4], WHOLE[3], strict=True)) == 1
    assert tuple(events[5:]) == WHOLE[4:]


def test_streamed_length_allows_no_comment() -> None:
    """A comment that was not counted would break a promised length."""
    assert _streamed(content_length=True).comment == b""
    assert frames.COMMENT in _streamed().comment
