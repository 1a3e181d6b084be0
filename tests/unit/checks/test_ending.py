"""Endings: visible, clean, and with one terminator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.ending import no_silent_truncation, terminator_exactly_once
from harness.model import (
    Cause,
    Direction,
    EndReason,
    Evidence,
    Fault,
    Finding,
    Injection,
    Lane,
    Layer,
    Recording,
    SymptomKind,
    Verdict,
)
from tests.unit.recordings import (
    Behaviour,
    Case,
    bursting,
    chained,
    cutting,
    dropping,
    ending,
    laundering,
)

CHAIN = ("outer", "inner", "engine")
CLEAN = EndReason.CLEAN_EOF_WITHOUT_TERMINATOR
INJECTION = Injection(
    fault=Fault(name="reset_peer", layer=Layer.STREAM), hop=0, direction=Direction.TOWARD_CLIENT
)


def truncation(case: Case) -> Finding:
    return no_silent_truncation(Evidence(subject=case.recording()))


def terminator(case: Case) -> Finding:
    return terminator_exactly_once(Evidence(subject=case.recording()))


def without_clients(recording: Recording) -> Recording:
    return replace(recording, streams=tuple(replace(s, client=None) for s in recording.streams))


# ------------------------------------------------------------------------------------- truncation


@pytest.mark.parametrize("launderer", ["outer", "inner"])
def test_truncation_laundered_by_a_node_is_that_nodes(launderer: str) -> None:
    """A node that saw an answer break and ends it cleanly is to blame."""
    case = Case(nodes=CHAIN, behaviours={"engine": cutting(5), launderer: laundering()})
    finding = truncation(case)
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, launderer)
    assert finding.symptom is not None
    assert finding.symptom.kind is SymptomKind.TRUNCATED_SILENTLY
    assert "5 of 40 events" in finding.actual


def test_truncation_by_an_engine_that_ends_cleanly_is_the_engines() -> None:
    """A close-delimited answer that stops early looks whole from the engine on."""
    assert truncation(Case(behaviours={"engine": cutting(5, CLEAN)})).culprit == "engine"


def test_truncation_by_a_node_that_loses_the_tail_is_that_nodes() -> None:
    """A terminator behind missing events is as silent as a clean end."""
    finding = truncation(Case(behaviours={"nginx": dropping(39)}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "nginx")


@pytest.mark.parametrize(
    "reason",
    [
        EndReason.INCOMPLETE_FRAMING,
        EndReason.RESET,
        EndReason.ERROR_EVENT,
        EndReason.RST_STREAM,
        EndReason.GOAWAY,
        EndReason.CLOSE_CODE,
    ],
)
def test_truncation_that_the_client_can_see_is_green(reason: EndReason) -> None:
    """A broken end tells the client what it needs to know."""
    assert truncation(Case(behaviours={"engine": cutting(5, reason)})).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "case", [Case(), Case(oracle=False), Case(behaviours={"nginx": bursting(17)})]
)
def test_truncation_of_a_whole_answer_is_none(case: Case) -> None:
    """What arrived whole is not truncated, whatever its shape."""
    assert truncation(case).verdict is Verdict.PASS


def test_truncation_behind_an_error_status_is_visible() -> None:
    """A clean end of an error page deceives nobody."""
    recording = Case(behaviours={"nginx": cutting(1, CLEAN)}).recording()
    refused = tuple(
        replace(s, client=replace(s.client, status=400)) for s in recording.streams if s.client
    )
    finding = no_silent_truncation(Evidence(subject=replace(recording, streams=refused)))
    assert finding.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("case", "verdict", "cause"),
    [
        (Case(lanes=()), Verdict.UNKNOWN, Cause.TOO_FEW),
        (Case(oracle=False, untapped=(1,)), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (Case(cancel_ms=300), Verdict.NOT_APPLICABLE, None),
        (Case(cancel_ms=5, oracle=False), Verdict.NOT_APPLICABLE, None),
    ],
)
def test_truncation_without_witness_is_not_judged(
    case: Case, verdict: Verdict, cause: Cause | None
) -> None:
    """What the engine was to send must be known, and the client must have stayed."""
    finding = truncation(case)
    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_truncation_without_the_client_is_not_judged() -> None:
    """How it ended for the client only the client tells."""
    recording = without_clients(Case().recording())
    assert no_silent_truncation(Evidence(subject=recording)).cause is Cause.WITNESS_MISSING


# ------------------------------------------------------------------------------------- terminator


@pytest.mark.parametrize("guilty", CHAIN)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (ending(CLEAN, terminators=0), "no terminator"),
        (ending(terminators=2), "2 terminators"),
        (ending(after_bytes=17), "17 bytes behind"),
        (ending(EndReason.ERROR_EVENT, terminators=0), "error event"),
    ],
)
def test_terminator_that_is_wrong_blames_who_made_it_so(
    guilty: str, change: Behaviour, words: str
) -> None:
    """None, two, something behind it, an error instead: each is found where it arose."""
    finding = terminator(Case(nodes=CHAIN, behaviours={guilty: change}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, guilty)
    assert finding.symptom is not None
    assert finding.symptom.kind is SymptomKind.ENDED_WRONG
    assert words in finding.actual


def test_terminator_of_a_whole_answer_is_green() -> None:
    """One terminator and nothing behind it."""
    assert terminator(Case()).verdict is Verdict.PASS


def test_terminator_behind_an_error_status_names_it() -> None:
    """An error page in place of a stream is told as one."""
    recording = Case(lanes=(Lane.THROUGH,), behaviours={"nginx": ending(CLEAN, terminators=0)})
    streams = tuple(
        replace(s, client=replace(s.client, status=502))
        for s in recording.recording().streams
        if s.client
    )
    subject = replace(recording.recording(), streams=streams)
    assert "status 502" in terminator_exactly_once(Evidence(subject=subject)).actual


@pytest.mark.parametrize(
    "case",
    [
        Case(cancel_ms=300),
        Case(lanes=(Lane.THROUGH,), behaviours={"nginx": cutting(5)}),
        Case(behaviours={"engine": cutting(5)}),
        Case(
            behaviours={"nginx": ending(EndReason.RESET, terminators=0)},
            lanes=(Lane.THROUGH,),
            injections=(INJECTION,),
        ),
    ],
)
def test_terminator_of_a_cut_answer_does_not_apply(case: Case) -> None:
    """Who cut or cancelled an answer cannot ask for its terminator."""
    assert terminator(case).verdict is Verdict.NOT_APPLICABLE


def test_terminator_lost_with_the_last_bytes_is_red() -> None:
    """An answer that broke after the engine had ended it lost its terminator on the way."""
    case = Case(behaviours={"nginx": ending(EndReason.INCOMPLETE_FRAMING, terminators=0)})
    assert terminator(case).culprit == "nginx"


def test_terminator_of_nothing_is_not_judged() -> None:
    """No stream, or no client's trace."""
    assert terminator(Case(lanes=())).cause is Cause.TOO_FEW
    recording = without_clients(Case().recording())
    assert terminator_exactly_once(Evidence(subject=recording)).cause is Cause.WITNESS_MISSING


def test_terminator_laundered_too_is_red_where_the_engine_cut_cleanly() -> None:
    """A clean end without a terminator is wrong from the engine on."""
    case = Case(behaviours={"engine": chained(cutting(5, CLEAN), ending(CLEAN, terminators=0))})
    assert terminator(case).culprit == "engine"
