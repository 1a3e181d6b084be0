"""One question, asked once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.repeating import one_request_one_engine_request
from harness.model import Cause, Evidence, Finding, Lane, Recording, SymptomKind, Verdict
from tests.unit.recordings import Case

THROUGH = (Lane.THROUGH, Lane.THROUGH)


def judged(recording: Recording) -> Finding:
    return one_request_one_engine_request(Evidence(subject=recording))


def lost(case: Case, hops: tuple[int, ...]) -> Recording:
    """The case with the first stream lost before these hops, and before the engine."""
    recording = case.recording()
    first, *others = recording.streams
    kept = tuple(trace for trace in first.taps if trace.hop not in hops)
    return replace(recording, streams=(replace(first, taps=kept, ledger=()), *others))


@pytest.mark.parametrize("ledger", [True, False])
def test_request_that_arrives_once_is_green(ledger: bool) -> None:
    """Counted by the ledger, or by the tap where there is none."""
    assert judged(Case(ledger=ledger).recording()).verdict is Verdict.PASS


@pytest.mark.parametrize("ledger", [True, False])
def test_request_that_arrives_twice_blames_the_proxy(ledger: bool) -> None:
    """A proxy that asks again for a client that asked once is found."""
    finding = judged(Case(lanes=THROUGH, received=2, ledger=ledger).recording())
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "nginx")
    assert finding.symptom is not None
    assert finding.symptom.kind is SymptomKind.REQUEST_REPEATED


@pytest.mark.parametrize(("hops", "culprit"), [((1, 2), "outer"), ((2,), "inner"), ((), "engine")])
def test_request_that_is_lost_blames_where_it_was_seen_last(
    hops: tuple[int, ...], culprit: str
) -> None:
    """The node in front of the first vantage that did not see it lost it."""
    finding = judged(lost(Case(nodes=("outer", "inner", "engine"), lanes=THROUGH), hops))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, culprit)
    assert finding.symptom is not None
    assert finding.symptom.kind is SymptomKind.REQUEST_LOST


def test_request_lost_on_the_way_to_the_engine_in_the_direct_lane_is_the_engines() -> None:
    """Nobody else stands there."""
    assert judged(lost(Case(lanes=(Lane.DIRECT, Lane.THROUGH)), ())).culprit == "engine"


def test_request_lost_before_the_client_met_any_tap_blames_the_hop() -> None:
    """With a tap on the client's own hop a bare link can be named."""
    case = Case(nodes=("engine",), lanes=THROUGH)
    assert judged(lost(case, (0,))).culprit == "hop0"


@pytest.mark.parametrize(
    ("recording", "cause"),
    [
        (Case(lanes=()).recording(), Cause.TOO_FEW),
        (Case(ledger=False, untapped=(1,)).recording(), Cause.WITNESS_MISSING),
        (
            replace(
                Case().recording(),
                streams=tuple(replace(s, client=None) for s in Case().recording().streams),
            ),
            Cause.WITNESS_MISSING,
        ),
    ],
)
def test_request_that_nobody_counted_is_unknown(recording: Recording, cause: Cause) -> None:
    """Without ledger, tap or client there is nothing to count."""
    finding = judged(recording)
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, cause)


def test_request_of_a_client_that_left_at_once_need_not_arrive() -> None:
    """A proxy need not forward what nobody waits for."""
    finding = judged(lost(Case(cancel_ms=1), (1,)))
    assert finding.verdict is Verdict.PASS
