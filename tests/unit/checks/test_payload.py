"""The content that arrives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.payload import difference, payload_intact
from harness.model import Cause, Evidence, Finding, Lane, SymptomKind, Verdict
from tests.unit.recordings import (
    Behaviour,
    Case,
    Polls,
    altering,
    bursting,
    cutting,
    dropping,
    repeating,
    rewriting,
)

CHAIN = ("outer", "inner", "engine")


def judged(case: Case) -> Finding:
    return payload_intact(Evidence(subject=case.recording()))


@pytest.mark.parametrize("guilty", CHAIN)
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (repeating(7), SymptomKind.DUPLICATED),
        (repeating(39), SymptomKind.DUPLICATED),
        (altering(7), SymptomKind.ALTERED),
        (dropping(7), SymptomKind.ALTERED),
    ],
)
def test_payload_changed_on_the_way_blames_who_changed_it(
    guilty: str, change: Behaviour, kind: SymptomKind
) -> None:
    """The first node behind which the events differ is to blame, and for what."""
    finding = judged(Case(nodes=CHAIN, behaviours={guilty: change}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, guilty)
    assert finding.symptom is not None
    assert finding.symptom.kind is kind
    assert finding.evidence[0].event_index in (7, 8, 40)


def test_payload_with_something_between_the_events_is_red() -> None:
    """Bytes that hold no content must be the same too."""
    finding = judged(Case(behaviours={"nginx": rewriting()}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "nginx")


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(behaviours={"nginx": bursting(17)}, client=Polls(asleep_ms=200)),
        Case(behaviours={"nginx": cutting(5)}),
        Case(behaviours={"engine": cutting(5)}),
        Case(cancel_ms=300),
        Case(untapped=(1,)),
        Case(oracle=False),
    ],
)
def test_payload_that_is_a_beginning_is_green(case: Case) -> None:
    """Bursts change no byte, and an answer that ends early is another check's matter."""
    assert judged(case).verdict is Verdict.PASS


def test_payload_without_a_tap_blames_the_whole_way() -> None:
    """Where nobody watched, the oracle still tells that something changed."""
    finding = judged(Case(lanes=(Lane.THROUGH,), untapped=(1,), behaviours={"nginx": altering(3)}))
    assert finding.culprit == "nginx+engine"


@pytest.mark.parametrize(
    ("case", "verdict", "cause"),
    [
        (Case(lanes=()), Verdict.UNKNOWN, Cause.TOO_FEW),
        (Case(oracle=False, untapped=(1,)), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (Case(cancel_ms=5), Verdict.NOT_APPLICABLE, None),
    ],
)
def test_payload_with_nothing_to_compare_is_no_pass(
    case: Case, verdict: Verdict, cause: Cause | None
) -> None:
    """Nothing compared is nothing proven."""
    finding = judged(case)
    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_payload_of_empty_answers_is_no_pass() -> None:
    """An answer without an event shows nothing."""
    recording = Case().recording()
    empty = tuple(
        replace(
            s,
            client=replace(s.client, events=()),
            taps=tuple(replace(t, events=()) for t in s.taps),
        )
        for s in recording.streams
        if s.client
    )
    finding = payload_intact(Evidence(subject=replace(recording, streams=empty)))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.TOO_FEW)


def test_payload_without_the_clients_trace_is_no_pass() -> None:
    """What arrived is not known without the client."""
    recording = Case().recording()
    blind = tuple(replace(stream, client=None) for stream in recording.streams)
    finding = payload_intact(Evidence(subject=replace(recording, streams=blind)))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.WITNESS_MISSING)


digests = st.lists(st.text("abc", min_size=1, max_size=3), max_size=12)


@settings(deadline=None)
@given(sent=digests, count=st.integers(0, 12))
def test_difference_of_a_beginning_is_none(sent: list[str], count: int) -> None:
    """Any beginning of what was sent is intact."""
    assert difference(sent, sent[:count]) is None


@settings(deadline=None)
@given(sent=digests, seen=digests)
def test_difference_of_anything_else_is_found(sent: list[str], seen: list[str]) -> None:
    """What is no beginning differs at the first place where it does."""
    found = difference(sent, seen)
    if seen == sent[: len(seen)]:
        assert found is None
    else:
        assert found is not None
        assert seen[: found[0]] == sent[: found[0]]
        assert seen[: found[0] + 1] != sent[: found[0] + 1]
