"""Who ended an answer before its time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.cutting import not_cut_before_engine_ended
from harness.model import (
    Cause,
    EndReason,
    Evidence,
    Fault,
    Finding,
    Fired,
    Injection,
    Lane,
    Layer,
    StreamEnd,
    SymptomKind,
    Verdict,
)
from tests.unit.recordings import MS, Case, bursting, cutting, ending, laundering

CHAIN = ("outer", "inner", "engine")
CLEAN = EndReason.CLEAN_EOF_WITHOUT_TERMINATOR


def judged(case: Case) -> Finding:
    return not_cut_before_engine_ended(Evidence(subject=case.recording()))


@settings(max_examples=60, deadline=None)
@given(
    guilty=st.sampled_from(CHAIN),
    after_events=st.integers(1, 38),
    reason=st.sampled_from([EndReason.RESET, EndReason.INCOMPLETE_FRAMING, CLEAN]),
)
def test_cut_anywhere_blames_who_cut(guilty: str, after_events: int, reason: EndReason) -> None:
    """A cut after any event, by any node and in any way, is that node's."""
    finding = judged(Case(nodes=CHAIN, behaviours={guilty: cutting(after_events, reason)}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, guilty)
    assert finding.symptom is not None
    assert finding.symptom.kind is SymptomKind.CUT


def test_cut_by_the_engine_is_not_the_launderers() -> None:
    """Who presents a cut as a clean end did another wrong."""
    case = Case(behaviours={"engine": cutting(5), "nginx": laundering()})
    assert judged(case).culprit == "engine"


def test_cut_toward_the_client_alone_is_red() -> None:
    """A node that lets the engine run on has cut the client off all the same."""
    recording = Case().recording()
    gone = tuple(
        replace(
            s,
            client=replace(
                s.client,
                events=s.client.events[:5],
                end=StreamEnd(reason=EndReason.RESET, at_ns=s.client.events[5].arrived.at_ns),
            ),
        )
        for s in recording.streams
        if s.client
    )
    finding = not_cut_before_engine_ended(Evidence(subject=replace(recording, streams=gone)))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "hop1")
    through = tuple(s for s in gone if s.key.lane == "through")
    finding = not_cut_before_engine_ended(Evidence(subject=replace(recording, streams=through)))
    assert finding.culprit == "nginx"


@pytest.mark.parametrize(
    ("hop", "before_ms", "key", "culprit"),
    [
        (1, 1, "", "hop1"),
        (1, 1, "own", "hop1"),
        (1, 1, "other", "nginx"),
        (1, 200, "", "nginx"),
        (1, -1, "", "nginx"),
        (0, 1, "", "nginx"),
    ],
)
def test_cut_right_behind_a_fault_on_the_hop_is_the_hops(
    hop: int, before_ms: int, key: str, culprit: str
) -> None:
    """A node that closes because our own fault cut its connection is innocent."""
    cut = Case(lanes=(Lane.THROUGH,), behaviours={"nginx": cutting(5)}).recording()
    stream = cut.streams[0]
    firing = Fired(
        injection=0,
        connection=1,
        at_ns=stream.taps[0].client_closed_ns - before_ms * MS,
        key=str(stream.key) if key == "own" else key,
    )
    fault = Fault(name="limit-data", layer=Layer.STREAM)
    scenario = replace(cut.scenario, injections=(Injection(fault=fault, hop=hop),))
    subject = replace(cut, scenario=scenario, fired=(firing,))
    assert not_cut_before_engine_ended(Evidence(subject=subject)).culprit == culprit


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(nodes=("engine",)),
        Case(behaviours={"nginx": bursting(17)}),
        Case(behaviours={"engine": ending(CLEAN, terminators=0)}),
        Case(behaviours={"engine": ending(EndReason.ERROR_EVENT, terminators=0)}),
    ],
)
def test_cut_of_an_answer_that_ran_to_its_end_is_none(case: Case) -> None:
    """However the engine ended it, it was the engine's end."""
    assert judged(case).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("case", "verdict", "cause"),
    [
        (Case(lanes=()), Verdict.UNKNOWN, Cause.TOO_FEW),
        (Case(untapped=(1,)), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (Case(cancel_ms=300), Verdict.NOT_APPLICABLE, None),
    ],
)
def test_cut_without_witness_is_not_judged(
    case: Case, verdict: Verdict, cause: Cause | None
) -> None:
    """The tap in front of the engine must have seen who went first."""
    finding = judged(case)
    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_cut_behind_the_terminator_is_none() -> None:
    """A connection that its neighbour closes behind a whole answer was not cut."""
    recording = Case().recording()
    closed = tuple(
        replace(
            s,
            taps=tuple(
                replace(
                    t,
                    origin_closed_ns=0,
                    client_closed_ns=t.end.at_ns + MS,
                    end=replace(t.end, last_chunk_seen=False),
                )
                for t in s.taps
            ),
        )
        for s in recording.streams
    )
    finding = not_cut_before_engine_ended(Evidence(subject=replace(recording, streams=closed)))
    assert finding.verdict is Verdict.PASS
