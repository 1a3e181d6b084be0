"""What each kind of chunk of OpenAI's streaming API counts as."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import EventKind
from harness.wire.completions import classify
from harness.wire.sse import SseReader


def kind_of(data: str, *, event: str = "") -> EventKind:
    """The kind of an event as it comes off the wire."""
    name = f"event: {event}\n" if event else ""
    (found,) = SseReader().feed(f"{name}data: {data}\n\n".encode())
    return classify(found)


def chunk(**choice: object) -> str:
    return json.dumps({"id": "c", "choices": [{"index": 0, **choice}]})


TOOLS = {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}
USAGE = {"choices": [], "usage": {"total_tokens": 3}}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (chunk(text="a", finish_reason=None), EventKind.CONTENT),
        (chunk(text=" ", finish_reason="length"), EventKind.CONTENT),
        (chunk(delta={"content": "a"}), EventKind.CONTENT),
        (chunk(delta={"role": "assistant", "content": "a"}), EventKind.CONTENT),
        (chunk(delta={"reasoning_content": "a"}), EventKind.CONTENT),
        (chunk(delta={"reasoning": "a"}), EventKind.CONTENT),
        (chunk(delta=TOOLS), EventKind.CONTENT),
        (chunk(delta={"role": "assistant", "content": ""}), EventKind.EMPTY),
        (chunk(delta={}), EventKind.EMPTY),
        (chunk(text="", finish_reason=None), EventKind.EMPTY),
        (chunk(text="", finish_reason="stop"), EventKind.FINISH),
        (chunk(delta={}, finish_reason="stop"), EventKind.FINISH),
        (json.dumps(USAGE), EventKind.USAGE),
        (json.dumps({"choices": []}), EventKind.EMPTY),
        (json.dumps({"choices": [{"text": ""}, {"text": "b"}]}), EventKind.CONTENT),
        (json.dumps({"choices": [{"text": ""}, {"finish_reason": "stop"}]}), EventKind.FINISH),
        (json.dumps({"error": {"message": "x", "code": 500}}), EventKind.ERROR),
        (json.dumps({"error": None, "choices": [{"text": "a"}]}), EventKind.CONTENT),
        ("[DONE]", EventKind.TERMINATOR),
        (" [DONE]", EventKind.OTHER),
        ("[DONE] ", EventKind.TERMINATOR),
        ("[DONE]x", EventKind.OTHER),
        ('"[DONE]"', EventKind.OTHER),
        ("{", EventKind.OTHER),
        ("", EventKind.OTHER),
        ("[]", EventKind.OTHER),
        ("{}", EventKind.OTHER),
        (json.dumps({"choices": 7}), EventKind.OTHER),
        (json.dumps({"choices": [7]}), EventKind.OTHER),
        (json.dumps({"choices": [{"delta": 7}]}), EventKind.EMPTY),
        ("[" * 100_000, EventKind.OTHER),
    ],
)
def test_classify_of_a_chunk_gives_its_kind(data: str, kind: EventKind) -> None:
    """Each form of chunk has the kind that a reader of the API would give it."""
    assert kind_of(data) is kind


def test_classify_of_an_error_event_goes_by_its_type() -> None:
    """An event of type error is one, whatever its data."""
    assert kind_of(chunk(text="a"), event="error") is EventKind.ERROR
    assert kind_of(chunk(text="a"), event="other") is EventKind.CONTENT


def test_classify_of_a_comment_is_comment() -> None:
    """A heartbeat is a comment even where its text looks like more."""
    (found,) = SseReader().feed(b": [DONE]\n")
    assert classify(found) is EventKind.COMMENT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "text", "error", "usage", "content", "finish_reason"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(value=JSON, junk=st.text(max_size=10))
@settings(max_examples=400, deadline=None)
def test_classify_of_any_json_gives_a_kind(value: object, junk: str) -> None:
    """JSON of any shape, and what is no JSON, gives a kind and no exception."""
    for data in (json.dumps(value), json.dumps(value) + junk.replace("\r", "").replace("\n", "")):
        assert kind_of(data) in EventKind
