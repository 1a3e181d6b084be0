"""The way of an answer, cut where somebody watched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.segments import (
    closed_by_client,
    crossings,
    engine_name,
    engine_segments,
    engine_tap,
    node_name,
    passed_on,
    segments,
)
from harness.model import Evidence, Lane, Node, Recording, Stack
from tests.unit.recordings import Case

CHAIN = ("outer", "inner", "engine")


def names(recording: Recording, lane: Lane) -> list[str]:
    return [segment.node for segment in segments(recording.lane(lane)[0], recording)]


@pytest.mark.parametrize(
    ("untapped", "through"),
    [
        ((), ["engine", "inner", "outer"]),
        ((1,), ["engine", "outer+inner"]),
        ((2,), ["inner+engine", "outer"]),
        ((1, 2), ["outer+inner+engine"]),
    ],
)
def test_segments_follow_the_taps(untapped: tuple[int, ...], through: list[str]) -> None:
    """From the engine to the client, and joined where a tap is missing."""
    assert names(Case(nodes=CHAIN, untapped=untapped).recording(), Lane.THROUGH) == through


def test_segments_of_the_direct_lane_are_engine_and_link() -> None:
    """No proxy stands there, so none can be named."""
    assert names(Case(nodes=CHAIN).recording(), Lane.DIRECT) == ["engine", "hop2"]
    assert names(Case(nodes=("engine",)).recording(), Lane.THROUGH) == ["engine", "hop0"]


def test_segments_with_a_tap_on_the_clients_hop_name_the_link() -> None:
    """A tap on hop 0 tells the outermost node from the link in front of it."""
    recording = Case().recording()
    stream = recording.lane(Lane.THROUGH)[0]
    tap = stream.taps[0]
    both = replace(stream, taps=(replace(tap, hop=0), tap))
    assert [s.node for s in segments(both, recording)] == ["engine", "nginx", "hop0"]


def test_segments_of_what_nobody_saw_are_none() -> None:
    """No vantage, no way."""
    recording = Case().recording()
    assert segments(replace(recording.streams[0], client=None, taps=()), recording) == ()


def test_segments_enter_with_what_was_passed_on() -> None:
    """An event that a tap did not pass on entered nobody."""
    recording = Case().recording()
    tap = engine_tap(recording.streams[0], recording)
    assert tap is not None
    stuck = replace(tap, events=(*tap.events[:3], replace(tap.events[3], left=None)))
    assert len(passed_on(stuck)) == 3
    engine, *_ = segments(recording.streams[0], recording)
    assert engine.entered() == ()


def test_crossings_hold_the_proxies_of_the_through_lane() -> None:
    """Two streams through two proxies; the engine has segments in all lanes."""
    evidence = Evidence(subject=Case(nodes=CHAIN).recording())
    assert {node: len(found) for node, found in crossings(evidence).items()} == {
        "inner": 2,
        "outer": 2,
    }
    assert len(engine_segments(evidence)) == 4


def test_names_of_a_run_that_broke_off_come_from_the_stack() -> None:
    """A recording without facts still names its nodes."""
    recording = replace(Case().recording(), nodes=())
    assert engine_name(recording) == "engine"
    nameless = Stack(id="unit", nodes=(Node(kind="nginx", name="edge"), Node(kind="reference")))
    scenario = replace(recording.scenario, stack=nameless)
    recording = replace(recording, scenario=scenario)
    assert (node_name(recording, 0), engine_name(recording)) == ("edge", "reference")


@pytest.mark.parametrize(
    ("origin_ns", "client_ns", "expected"),
    [(0, 0, False), (5, 0, False), (0, 5, True), (6, 5, True), (5, 6, False), (5, 5, False)],
)
def test_closing_first_is_the_clients_only_before_the_origins(
    origin_ns: int, client_ns: int, expected: bool
) -> None:
    """Who closed first closed; at once counts as the origin's."""
    trace = Case().recording().streams[0].taps[0]
    trace = replace(trace, origin_closed_ns=origin_ns, client_closed_ns=client_ns)
    assert closed_by_client(trace) is expected
