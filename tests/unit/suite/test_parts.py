"""The catalogues as the core asks for them."""

from __future__ import annotations

import hashlib
import importlib
import json
from dataclasses import replace

import h11
import pytest

import faults
from harness.model import (
    Defects,
    Lane,
    Node,
    StreamKey,
    StreamScript,
    Workload,
)
from harness.suite.parts import MODEL, SuiteParts
from harness.wire.sse import SseReader
from stacks.reference import frames

KEY = StreamKey(run="r", scenario="a/b", lane=Lane.THROUGH, n=1)
SECRET = "sk-planted-0123456789"


def parsed(request: bytes) -> tuple[h11.Request, dict[str, object]]:
    """The request as a server reads it."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(request)
    head, body = connection.next_event(), connection.next_event()
    assert isinstance(head, h11.Request)
    assert isinstance(body, h11.Data)
    assert isinstance(connection.next_event(), h11.EndOfMessage)
    return head, json.loads(bytes(body.data))


@pytest.mark.parametrize("endpoint", [frames.COMPLETIONS, frames.CHAT_COMPLETIONS])
def test_request_carries_its_key_wherever_it_can_survive(endpoint: str) -> None:
    """Two headers, and the prompt's prefix."""
    workload = Workload(endpoint=endpoint, accept_encoding="gzip")
    head, body = parsed(SuiteParts({}).request(workload, KEY, "127.0.0.1:1"))
    headers = {name: value.decode() for name, value in head.headers}
    assert headers[b"x-streamchaos-id"] == headers[b"x-request-id"] == str(KEY)
    assert headers[b"accept-encoding"] == "gzip"
    assert b"authorization" not in headers
    assert f"[{KEY}]" in json.dumps(body)
    assert (head.target.decode(), body["model"]) == (endpoint, MODEL)


def test_request_asks_with_the_key_of_the_environment() -> None:
    """On the wire, and told to whoever writes to disk."""
    parts = SuiteParts({"STREAMCHAOS_API_KEY": SECRET, "OPENAI_API_KEY": ""})
    head, _ = parsed(parts.request(Workload(), KEY, "h:1"))
    assert dict(head.headers)[b"authorization"].decode() == f"Bearer {SECRET}"
    assert parts.secrets == (SECRET,)


def test_request_without_defects_leaves_those_of_the_start_in_force() -> None:
    """An engine that was started with stale gauges keeps them."""
    plain = Workload(script=StreamScript(event_count=5))
    _, body = parsed(SuiteParts({}).request(plain, KEY, "h:1"))
    extension = body["streamchaos"]
    assert isinstance(extension, dict)
    assert "defects" not in extension
    assert extension["script"]["event_count"] == 5
    _, body = parsed(
        SuiteParts({}).request(replace(plain, defects=Defects(clump_events=3)), KEY, "h:1")
    )
    assert body["streamchaos"]["defects"]["clump_events"] == 3  # type: ignore[index]


@pytest.mark.parametrize("endpoint", [frames.COMPLETIONS, frames.CHAT_COMPLETIONS])
def test_oracle_is_what_a_reader_sees_of_the_engines_frames(endpoint: str) -> None:
    """Digests of the events that carry content, as any vantage point takes them from the bytes."""
    script = StreamScript(event_count=4, seed=9, include_usage=True)
    rendered = frames.render(script, key=str(KEY), endpoint=endpoint, model=MODEL)
    sent = [*rendered.prelude, *rendered.events, rendered.finish, *rendered.usage]
    seen = SseReader().feed(b"".join([*sent, rendered.terminator]))
    content = seen[len(rendered.prelude) :][: script.event_count]
    digests = tuple(hashlib.sha256(event.raw).hexdigest() for event in content)
    oracle = SuiteParts({}).oracle(Workload(endpoint=endpoint, script=script), KEY)
    assert oracle == digests
    assert len(set(oracle)) == 4


def test_oracle_differs_from_stream_to_stream() -> None:
    """An answer that was mixed up with another's is not intact."""
    parts, workload = SuiteParts({}), Workload(script=StreamScript(event_count=4))
    one, two = (parts.oracle(workload, replace(KEY, n=n)) for n in (1, 2))
    assert not set(one) & set(two)


def test_every_key_of_the_environment_is_a_secret() -> None:
    """The first goes on the wire; the other is not to be written either."""
    environ = {"OPENAI_API_KEY": "sk-other", "STREAMCHAOS_API_KEY": SECRET, "HOME": "/x"}
    parts = SuiteParts(environ)
    assert set(parts.secrets) == {SECRET, "sk-other"}
    request = parts.request(Workload(), KEY, "h:1")
    assert SECRET.encode() in request
    assert b"sk-other" not in request


def test_fault_is_found_where_its_stage_is_made() -> None:
    """The relay imports it by this name."""
    module, _, function = SuiteParts({}).stage(faults.fault("limit-data")).partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_part_that_is_missing_says_what_gets_it() -> None:
    """Empty where it is here."""
    parts = SuiteParts({})
    assert parts.available(Node(kind="reference")) == ""
    assert "9.9" in parts.available(Node(kind="nginx", version="9.9"))
