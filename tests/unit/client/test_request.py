"""The request on the wire, as another HTTP library reads it."""

from __future__ import annotations

import json
from typing import Any

import h11
import pytest

from harness.client.request import CHAT_ENDPOINT, StreamRequest
from harness.model import Lane, StreamKey

KEY = StreamKey(run="r1", scenario="story1/direct", lane=Lane.THROUGH, n=3)
HOST = "127.0.0.1:8000"
PLAIN = StreamRequest(endpoint="/v1/completions", model="reference", max_tokens=60)


def read(wire: bytes) -> tuple[h11.Request, dict[str, str], dict[str, Any]]:
    """The request, its fields by name, and its body; nothing may be left over."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(wire)
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    body = b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert connection.trailing_data == (b"", False)
    names = [name for name, _ in request.headers]
    assert len(set(names)) == len(names)
    return request, {n.decode(): v.decode() for n, v in request.headers}, json.loads(body)


def test_request_asks_for_a_stream_of_so_many_tokens() -> None:
    """The body is the API's, whole and as long as the head says."""
    request, fields, body = read(PLAIN.encode(KEY, HOST))
    assert (request.method, request.target) == (b"POST", b"/v1/completions")
    assert request.http_version == b"1.1"
    assert fields["host"] == HOST
    assert fields["content-type"] == "application/json"
    prompt = body.pop("prompt")
    assert prompt.startswith(f"[{KEY}] ")
    assert body == {"model": "reference", "stream": True, "max_tokens": 60, "ignore_eos": True}


def test_request_carries_its_key_in_each_place() -> None:
    """In both fields and in front of the prompt."""
    _, fields, body = read(PLAIN.encode(KEY, HOST))
    assert fields["x-streamchaos-id"] == fields["x-request-id"] == str(KEY)
    assert StreamKey.parse(fields["x-streamchaos-id"]) == KEY
    assert str(KEY) in body["prompt"]


def test_chat_request_has_messages_in_the_place_of_a_prompt() -> None:
    """The other endpoint's grammar."""
    chat = StreamRequest(endpoint=CHAT_ENDPOINT, model="m", max_tokens=1)
    _, _, body = read(chat.encode(KEY, HOST))
    (message,) = body["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith(f"[{KEY}] ")
    assert "prompt" not in body


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ({"accept_encoding": "gzip"}, "accept-encoding", "gzip"),
        ({"api_key": "sk-planted"}, "authorization", "Bearer sk-planted"),
    ],
)
def test_request_sends_a_field_where_it_was_asked_for(
    option: dict[str, str], field: str, value: str
) -> None:
    """The API's key goes on the wire as it is; without it there is no such field."""
    asked = StreamRequest(endpoint="/v1/completions", model="m", max_tokens=1, **option)  # type: ignore[arg-type]
    assert read(asked.encode(KEY, HOST))[1][field] == value
    assert field not in read(PLAIN.encode(KEY, HOST))[1]


def test_request_hands_the_extension_on_as_it_is() -> None:
    """What the reference engine is to play; other engines get none."""
    extension = {"script": {"event_count": 3, "text": "é\u2028"}, "defects": {}}
    asked = StreamRequest(endpoint="/v1/x", model="m", max_tokens=1, extension=extension)
    assert read(asked.encode(KEY, HOST))[2]["streamchaos"] == extension
    assert "streamchaos" not in read(PLAIN.encode(KEY, HOST))[2]
