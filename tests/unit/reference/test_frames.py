"""The oracle knows an answer byte for byte."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import StreamScript
from stacks.reference import frames

SCRIPT = StreamScript(event_count=60)


def _render(
    script: StreamScript, endpoint: str = frames.COMPLETIONS, key: str = "k"
) -> frames.Rendered:
    return frames.render(script, key=key, endpoint=endpoint, model="reference")


@given(
    count=st.integers(1, 40),
    size=st.integers(250, 2000),
    spread=st.floats(0, 0.15),
    endpoint=st.sampled_from((frames.COMPLETIONS, frames.CHAT_COMPLETIONS)),
)
def test_render_sizes_lie_within_the_spread(
    count: int, size: int, spread: float, endpoint: str
) -> None:
    """Every content frame is one event of the asked size ± spread that holds one JSON document."""
    script = StreamScript(event_count=count, event_bytes=size, event_bytes_spread=spread)
    rendered = _render(script, endpoint)
    assert len(rendered.events) == count
    for frame in rendered.events:
        assert size * (1 - spread) - 1 <= len(frame) <= size * (1 + spread) + 1
        assert frame.startswith(b"data: ")
        assert frame.endswith(b"}\n\n")
        assert frame.count(b"\n") == 2
        json.loads(frame[6:])


def test_render_twice_gives_the_same_bytes() -> None:
    """Nothing but the arguments decides what is rendered."""
    assert _render(SCRIPT) == _render(SCRIPT)


@pytest.mark.parametrize("other", ["seed", "key"])
def test_render_other_seed_or_key_gives_other_bytes(other: str) -> None:
    """Streams of different keys and runs of different seeds can be told apart by every event."""
    changed = _render(replace(SCRIPT, seed=1)) if other == "seed" else _render(SCRIPT, key="l")
    assert not set(frames.digests(changed)) & set(frames.digests(_render(SCRIPT)))


def test_render_events_are_all_different() -> None:
    """An event that comes twice can be told from its neighbour."""
    script = replace(SCRIPT, event_count=500, event_bytes_spread=0.0)
    assert len(set(frames.digests(_render(script)))) == 500


def test_render_chat_begins_with_the_role() -> None:
    """The chat API's first delta tells the role and no text; the completions API has none."""
    (prelude,) = _render(SCRIPT, frames.CHAT_COMPLETIONS).prelude
    delta = json.loads(prelude[6:])["choices"][0]["delta"]
    assert delta == {"role": "assistant", "content": ""}
    assert _render(SCRIPT).prelude == ()


def test_render_usage_only_where_asked_for() -> None:
    """The usage frame counts the events and has no choices."""
    assert _render(SCRIPT).usage == ()
    (usage,) = _render(replace(SCRIPT, include_usage=True)).usage
    told = json.loads(usage[6:])
    assert told["choices"] == []
    assert told["usage"]["completion_tokens"] == 60


def test_digests_leave_out_the_closing_line_ends() -> None:
    """A digest is of the event's bytes without the line ends that close it."""
    rendered = _render(SCRIPT)
    assert frames.digests(rendered)[3] == hashlib.sha256(rendered.events[3][:-2]).hexdigest()


def test_altered_changes_one_byte_of_the_text() -> None:
    """The frame keeps its length and stays JSON; only its text's last letter differs."""
    rendered = _render(SCRIPT)
    before = rendered.events[0]
    after = frames.altered(before, rendered.text_end)
    differing = [i for i in range(len(before)) if before[i] != after[i]]
    assert len(after) == len(before)
    assert len(differing) == 1
    text = json.loads(after[6:])["choices"][0]["text"]
    assert text.swapcase()[-1] == json.loads(before[6:])["choices"][0]["text"][-1]


@pytest.mark.parametrize("endpoint", [frames.COMPLETIONS, frames.CHAT_COMPLETIONS])
def test_body_holds_the_text_of_the_stream(endpoint: str) -> None:
    """The same answer, not streamed, has the same text and id."""
    rendered = _render(SCRIPT, endpoint)
    body = json.loads(frames.render_body(SCRIPT, key="k", endpoint=endpoint, model="reference"))
    choices = [json.loads(frame[6:])["choices"][0] for frame in rendered.events]
    streamed = "".join(c["text"] if "text" in c else c["delta"]["content"] for c in choices)
    (choice,) = body["choices"]
    assert (choice["text"] if "text" in choice else choice["message"]["content"]) == streamed
    assert body["id"] == json.loads(rendered.finish[6:])["id"]
