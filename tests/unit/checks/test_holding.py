"""The first event: held, passed on, or not to be told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.holding import first_event_not_held
from harness.model import Cause, EndReason, Evidence, Finding, Lane, StreamScript, Verdict
from tests.unit.recordings import (
    Behaviour,
    Case,
    Polls,
    bursting,
    cutting,
    holding_all,
    holding_first,
    passing,
    stalling,
)

CHAIN = ("outer", "inner", "engine")


def judged(case: Case) -> Finding:
    return first_event_not_held(Evidence(subject=case.recording()))


@pytest.mark.parametrize("hold", [bursting(17), holding_first(101), holding_all()])
def test_hold_above_the_limit_is_red(hold: Behaviour) -> None:
    """A node that keeps the first event for more than the limit is to blame."""
    finding = judged(Case(behaviours={"nginx": hold}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "nginx")
    assert finding.symptom is not None
    assert finding.symptom.kind == "held"
    assert finding.evidence[0].vantage == "client"


@pytest.mark.parametrize("hold", [passing(0), passing(44), holding_first(99.92)])
def test_hold_below_the_limit_is_green(hold: Behaviour) -> None:
    """What a node needs to pass an event on is no hold."""
    assert judged(Case(behaviours={"nginx": hold})).verdict is Verdict.PASS


@pytest.mark.parametrize("guilty", ["outer", "inner"])
def test_hold_in_a_chain_blames_the_one_that_holds(guilty: str) -> None:
    """Taps between the nodes tell which of them holds."""
    finding = judged(Case(nodes=CHAIN, behaviours={guilty: bursting(17)}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, guilty)


def test_hold_without_a_tap_between_blames_the_run_of_nodes() -> None:
    """Where nobody watched between two nodes both are named."""
    finding = judged(Case(nodes=CHAIN, behaviours={"inner": bursting(17)}, untapped=(1,)))
    assert finding.culprit == "outer+inner"


def test_hold_of_a_late_engine_is_not_a_proxys() -> None:
    """An engine that waits before its first event leaves the proxy green."""
    assert judged(Case(behaviours={"engine": stalling(0, 900)})).verdict is Verdict.PASS


def test_hold_of_an_event_that_never_came_is_red() -> None:
    """An event that entered and never came out was held until the end."""
    case = Case(behaviours={"nginx": cutting(1, EndReason.INCOMPLETE_FRAMING)})
    recording = case.recording()
    streams = tuple(
        replace(
            s,
            client=replace(
                s.client,
                events=(),
                end=replace(s.client.end, at_ns=s.client.request_ns + 900_000_000),
            ),
        )
        for s in recording.streams
        if s.client
    )
    finding = first_event_not_held(Evidence(subject=replace(recording, streams=streams)))
    assert finding.verdict is Verdict.FAIL
    assert "never passed on" in finding.actual


def test_hold_within_wide_bounds_is_unknown() -> None:
    """A client that slept across the limit can tell neither way."""
    finding = judged(Case(client=Polls(kernel=False, asleep_ms=399)))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.NOISE)
    assert finding.settle


def test_hold_seen_in_one_stream_of_two_is_unknown() -> None:
    """One stream against one is no majority."""
    good, bad = Case().recording(), Case(behaviours={"nginx": bursting(17)}).recording()
    mixed = replace(good, streams=(*good.streams[:2], bad.streams[2]))
    assert [s.key.lane for s in mixed.streams].count(Lane.THROUGH) == 2
    finding = first_event_not_held(Evidence(subject=mixed))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.NOISE)


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        (Case(lanes=()), None),
        (Case(nodes=("engine",)), None),
        (Case(untapped=(1,)), Cause.WITNESS_MISSING),
        (Case(script=StreamScript(event_count=0)), Cause.TOO_FEW),
    ],
)
def test_hold_that_nobody_can_see_is_no_pass(case: Case, cause: Cause | None) -> None:
    """Without a node, a stream, a tap or an event nothing is said."""
    if case.script.event_count:
        finding = judged(case)
    else:
        empty = Case().recording()
        streams = tuple(
            replace(s, taps=tuple(replace(t, events=()) for t in s.taps)) for s in empty.streams
        )
        finding = first_event_not_held(Evidence(subject=replace(empty, streams=streams)))
    assert finding.cause is cause
    assert finding.verdict in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE)


def test_hold_of_no_recorded_stream_is_unknown() -> None:
    """A run of which nothing was recorded is not green."""
    recording = replace(Case().recording(), streams=())
    finding = first_event_not_held(Evidence(subject=recording))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.TOO_FEW)


def test_hold_of_a_client_that_left_before_does_not_apply() -> None:
    """Who leaves before the first event was not kept waiting by a node."""
    assert judged(Case(cancel_ms=5)).verdict is Verdict.NOT_APPLICABLE


@settings(max_examples=50, deadline=None)
@given(
    grid_ms=st.lists(st.integers(1, 3000), unique=True, max_size=30).map(sorted),
    kernel=st.booleans(),
    residence_ms=st.floats(0, 90),
)
def test_hold_seen_by_any_slow_client_is_never_red(
    grid_ms: list[int], kernel: bool, residence_ms: float
) -> None:
    """However late a truthful client looks, a node that passes events on is not blamed."""
    client = Polls(grid_ms=tuple(grid_ms), kernel=kernel)
    case = Case(client=client, behaviours={"nginx": passing(residence_ms)})
    assert judged(case).verdict is not Verdict.FAIL


@settings(max_examples=50, deadline=None)
@given(count=st.integers(4, 40), kernel=st.booleans())
def test_hold_of_a_buffer_of_any_size_is_red(count: int, kernel: bool) -> None:
    """Whatever fits into the buffer, holding three gaps or more is seen."""
    case = Case(behaviours={"nginx": bursting(count)}, client=Polls(kernel=kernel))
    assert judged(case).culprit == "nginx"
