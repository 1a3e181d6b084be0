"""The types that pass between the parts."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import model
from harness.model import (
    Lane,
    Node,
    NodeSpec,
    Pause,
    Readiness,
    Scenario,
    Stack,
    Stamp,
    StreamKey,
    StreamScript,
)
from harness.suite.catalogue import scenarios

SLUG = st.from_regex(r"[a-z0-9-]+(/[a-z0-9-]+){0,2}", fullmatch=True)
STACK = Stack(id="s", nodes=(Node(kind="reference"),))


@given(
    st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True), SLUG, st.sampled_from(Lane), st.integers(0, 99)
)
def test_stream_key_is_read_back(run: str, scenario: str, lane: Lane, n: int) -> None:
    """What goes on the wire names the stream that came from it."""
    key = StreamKey(run=run, scenario=scenario, lane=lane, n=n)
    assert StreamKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "a.b.c.d", "a.b.through", "a.b.through.x", "a.b.c.through.1"])
def test_stream_key_of_others_is_none(text: str) -> None:
    """Anybody's request id may look like anything."""
    assert StreamKey.parse(text) is None


@pytest.mark.parametrize(
    "name", ["", "A", "a b", "a//b", "/a", "a/", "a_b", "a=b", "a\n", "..", "é"]
)
def test_scenario_id_that_is_no_path_is_refused(name: str) -> None:
    """It is a pytest id, a folder and a pattern at once."""
    with pytest.raises(ValueError, match="scenario id"):
        Scenario(id=name, title="t", stack=STACK)


def test_stack_without_a_node_is_refused() -> None:
    """There would be nothing to ask."""
    with pytest.raises(ValueError, match="no node"):
        Stack(id="empty", nodes=())
    assert STACK.engine_index == 0


def test_script_is_due_behind_its_pauses() -> None:
    """Each silence shifts all that comes after it."""
    script = StreamScript(
        first_token_ms=20, gap_ms=50, pauses=(Pause(after_events=2, silence_ms=1000),)
    )
    assert [script.due_ms(i) for i in range(4)] == [20, 70, 1120, 1170]


@given(
    st.integers(0, 500),
    st.integers(0, 500),
    st.lists(st.builds(Pause, after_events=st.integers(0, 9), silence_ms=st.integers(0, 900))),
)
def test_gap_between_two_events_holds_the_silences_in_it(
    first_ms: int, gap_ms: int, pauses: list[Pause]
) -> None:
    """Wherever pauses lie, also several in one place and one before the first event."""
    script = StreamScript(first_token_ms=first_ms, gap_ms=gap_ms, pauses=tuple(pauses))
    silences = [sum(p.silence_ms for p in pauses if p.after_events == i) for i in range(10)]
    due = [script.due_ms(i) for i in range(10)]
    assert due[0] == first_ms + silences[0]
    assert [b - a for a, b in pairwise(due)] == [gap_ms + s for s in silences[1:]]


def test_stamp_knows_its_error() -> None:
    """The width of its bound."""
    assert Stamp(at_ns=9, earliest_ns=4).error_ns == 5


def test_node_spec_finds_its_logs_by_role() -> None:
    """None for a role that it has not."""
    spec = NodeSpec(
        name="n",
        kind="k",
        version="1",
        argv=("x",),
        readiness=Readiness(port="http"),
        logs=(("access", "a.log"),),
    )
    assert (spec.log_path("access"), spec.log_path("error")) == ("a.log", None)


def test_types_are_frozen_and_slotted() -> None:
    """What passes between parts cannot be changed on the way."""
    kinds = [k for k in vars(model).values() if dataclasses.is_dataclass(k)]
    assert len(kinds) > 30
    for kind in kinds:
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[union-attr]
        assert "__slots__" in vars(kind), kind
        assert kind.__doc__


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda s: s.id)
def test_scenario_survives_json(scenario: Scenario) -> None:
    """What a recording holds is what was run."""
    assert msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario) == scenario
