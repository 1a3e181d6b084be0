"""Requests come out of bytes however those are cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import Defects, Leave, StreamScript
from stacks.reference import api
from stacks.reference.answer import Peer
from stacks.reference.request import BadRequest, HttpRequest, RequestReader
from stacks.reference.settings import EngineSettings

WIRE = (
    b"POST /v1/completions?x=1 HTTP/1.1\r\nHost: e\r\nX-Request-Id: a\r\n"
    b"Content-Length: 5\r\n\r\nhello"
    b"GET /health HTTP/1.1\r\nHost: e\r\nConnection: keep-alive, close\r\n\r\n"
)
KEY = "run.scenario.through.1"


@given(st.lists(st.integers(0, len(WIRE)), max_size=12))
def test_reader_any_split_gives_the_same_requests(cuts: list[int]) -> None:
    """Two pipelined requests are read alike whatever the split."""
    reader, requests = RequestReader(), []
    edges = [0, *sorted(cuts), len(WIRE)]
    for start, end in pairwise(edges):
        if start < end:
            reader.feed(WIRE[start:end])
        while (request := reader.next_request()) is not None:
            requests.append(request)
    first, second = requests
    assert (first.method, first.path, first.body) == ("POST", "/v1/completions", b"hello")
    assert first.peer == Peer(http_version="1.1", keep_alive=True, request_id="a")
    assert (second.path, second.peer.persistent) == ("/health", False)


@given(st.binary(max_size=200))
def test_reader_any_bytes_give_a_request_or_bad_request(data: bytes) -> None:
    """Garbage is refused with a status, never with another exception."""
    reader = RequestReader()
    if data:
        reader.feed(data)
    refused = 400
    try:
        reader.next_request()
    except BadRequest as error:
        refused = error.status
    assert 400 <= refused < 600


def _read(body: object, path: str = "/v1/completions", **headers: str) -> api.Ask:
    request = HttpRequest(
        method="POST", path=path, headers=headers, body=json.dumps(body).encode(), peer=Peer()
    )
    return api.read(request, EngineSettings())


def test_read_extension_is_played_as_it_is() -> None:
    """Script and defects come from the extension; max_tokens does not touch them."""
    extension = {
        "script": {"event_count": 7, "pauses": [{"after_events": 1, "silence_ms": 9}]},
        "defects": {"cut_after_events": 2, "cut_by": "rst"},
    }
    ask = _read({"prompt": "a b c", "stream": True, "max_tokens": 3, "streamchaos": extension})
    assert ask.script.event_count == 7
    assert ask.script.pauses[0].silence_ms == 9
    assert ask.defects == Defects(cut_after_events=2, cut_by=Leave.RST)
    assert (ask.stream, ask.prompt_tokens) == (True, 3)


def test_read_without_extension_makes_a_script_from_max_tokens() -> None:
    """An ordinary client gets as many events as it asks for tokens."""
    options = {"include_usage": True}
    ask = _read({"prompt": [1, 2, 3, 4], "max_tokens": 9, "stream_options": options})
    assert ask.script == StreamScript(event_count=9, include_usage=True)
    assert ask.prompt_tokens == 4


@pytest.mark.parametrize(
    ("body", "headers", "key"),
    [
        ({"prompt": f"[{KEY}] hello"}, {}, KEY),
        ({"prompt": f"[{KEY}] hello"}, {"x-streamchaos-id": "other"}, "other"),
        ({"prompt": "[no key] hello"}, {}, ""),
        ({"prompt": f"hello [{KEY}]"}, {}, ""),
    ],
)
def test_read_key_comes_from_header_or_prompt(
    body: object, headers: dict[str, str], key: str
) -> None:
    """The header names the stream, else the prompt's beginning does, else nothing."""
    assert _read(body, **headers).key == key


def test_read_key_comes_from_a_chat_message() -> None:
    """Chat messages carry the key too, as text or in parts."""
    parts = [{"type": "text", "text": f"[{KEY}] hello"}]
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": parts}]
    assert _read({"messages": messages}, "/v1/chat/completions").key == KEY


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"prompt": "a", "n": 2}, 400, "n:"),
        ({"prompt": "a", "model": "gpt-9"}, 404, "gpt-9"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": "many"}, 400, "max_tokens"),
        ({"prompt": ["a", "b"]}, 400, "prompt"),
        ({}, 400, "prompt"),
        ({"prompt": "a", "streamchaos": {"scrpt": {}}}, 400, "scrpt"),
        ({"prompt": "a", "streamchaos": {"script": {"event_cout": 1}}}, 400, "event_cout"),
        ({"prompt": "a", "streamchaos": {"script": {"event_count": "1"}}}, 400, "event_count"),
        ({"prompt": "a", "streamchaos": {"script": {"event_count": 0}}}, 400, "event_count"),
        ({"prompt": "a", "streamchaos": {"script": {"gap_ms": -1}}}, 400, "gap_ms"),
        ({"prompt": "a", "streamchaos": {"script": {"pauses": [{"x": 1}]}}}, 400, "pauses[0].x"),
        ({"prompt": "a", "streamchaos": {"script": {"accel_buffering": "a\r\nb"}}}, 400, "accel"),
        ({"prompt": "a", "streamchaos": {"defects": {"stall": 1}}}, 400, "stall"),
        ({"prompt": "a", "streamchaos": {"defects": {"clump_events": 0}}}, 400, "clump_events"),
        ({"prompt": "a", "streamchaos": {"defects": {"cut_by": "close_notify"}}}, 400, "cut_by"),
    ],
)
def test_read_wrong_field_is_refused_by_name(body: object, status: int, named: str) -> None:
    """What cannot be meant is answered with a status and the field's name."""
    with pytest.raises(api.ApiError) as caught:
        _read(body)
    assert caught.value.status == status
    assert named in str(caught.value)


@given(st.binary(max_size=100))
def test_read_any_body_is_understood_or_refused(body: bytes) -> None:
    """No body makes the engine stumble."""
    request = HttpRequest(method="POST", path="/v1/completions", headers={}, body=body, peer=Peer())
    with pytest.raises(api.ApiError):
        api.read(request, EngineSettings())
