"""A client leaves: who heard of it, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.cancelling import cancel_latency_ms, cancel_reaches_engine
from harness.model import (
    Cause,
    EndReason,
    Evidence,
    Finding,
    Lane,
    Recording,
    StreamEnd,
    SymptomKind,
    Verdict,
)
from tests.unit.recordings import MS, Case, Polls

CANCELLED = Case(cancel_ms=500)


def judged(recording: Recording) -> Finding:
    return cancel_reaches_engine(Evidence(subject=recording))


def test_cancel_in_time_is_green() -> None:
    """Closed toward the engine and aborted at once."""
    finding = judged(CANCELLED.recording())
    assert finding.verdict is Verdict.PASS
    assert dict(finding.figures) == {"cancel_latency_ms": 1.0, "events_after_cancel": 0}


@pytest.mark.parametrize(
    ("reach_ms", "kind"), [(None, SymptomKind.CANCEL_LOST), (101, SymptomKind.CANCEL_LATE)]
)
def test_cancel_that_a_proxy_keeps_is_the_proxys(reach_ms: float | None, kind: SymptomKind) -> None:
    """Late or never in front of the engine: the proxy is to blame, and the work goes on."""
    finding = judged(replace(CANCELLED, reach_ms=reach_ms).recording())
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "nginx")
    assert finding.symptom is not None
    assert finding.symptom.kind is kind
    assert dict(finding.figures)["events_after_cancel"] >= 1


@pytest.mark.parametrize(
    ("abort_ms", "kind"), [(None, SymptomKind.CANCEL_LOST), (251, SymptomKind.CANCEL_LATE)]
)
def test_cancel_that_the_engine_ignores_is_the_engines(
    abort_ms: float | None, kind: SymptomKind
) -> None:
    """The tap saw it in time, the ledger's abort is late or missing."""
    finding = judged(replace(CANCELLED, abort_ms=abort_ms).recording())
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "engine")
    assert finding.symptom is not None
    assert finding.symptom.kind is kind


def test_cancel_in_a_chain_blames_the_node_that_kept_it() -> None:
    """The first hop, seen from the client, that heard of it late stands behind the culprit."""
    recording = Case(nodes=("outer", "inner", "engine"), cancel_ms=500).recording()
    assert judged(recording).verdict is Verdict.PASS
    kept = tuple(
        replace(
            s,
            taps=tuple(
                replace(t, client_closed_ns=0, end=replace(t.end, reason=EndReason.TERMINATOR))
                if t.hop == 2
                else t
                for t in s.taps
            ),
        )
        if s.key.lane is Lane.THROUGH
        else s
        for s in recording.streams
    )
    late = tuple(
        replace(
            s,
            taps=tuple(
                replace(t, end=replace(t.end, at_ns=t.end.at_ns + 5000 * MS)) for t in s.taps
            ),
        )
        for s in kept
    )
    assert judged(replace(recording, streams=late)).culprit == "inner"


def test_cancel_lost_once_is_red() -> None:
    """A lost cancel needs no majority, a late one does."""
    good = CANCELLED.recording()
    lost = replace(CANCELLED, reach_ms=None).recording()
    late = replace(CANCELLED, reach_ms=150).recording()
    once = replace(good, streams=(*good.streams[:2], lost.streams[2], good.streams[3]))
    assert judged(once).verdict is Verdict.FAIL
    once = replace(good, streams=(*good.streams[:2], late.streams[2], good.streams[3]))
    assert judged(once).verdict is Verdict.PASS


def test_cancel_without_a_ledger_is_judged_to_the_tap() -> None:
    """The proxies can be convicted without the engine's word, but nobody acquitted."""
    unseen = judged(replace(CANCELLED, ledger=False).recording())
    assert (unseen.verdict, unseen.cause) == (Verdict.UNKNOWN, Cause.WITNESS_MISSING)
    assert judged(replace(CANCELLED, ledger=False, reach_ms=None).recording()).culprit == "nginx"


def test_cancel_before_the_head_is_seen_by_the_end_of_the_tap() -> None:
    """A tap that saw no answer tells by its end when the client's side went."""
    recording = CANCELLED.recording()
    headless = tuple(
        replace(s, taps=tuple(replace(t, client_closed_ns=0, events=()) for t in s.taps))
        for s in recording.streams
    )
    finding = judged(replace(recording, streams=headless))
    assert finding.verdict is Verdict.PASS
    assert cancel_latency_ms(headless[1], recording) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("case", "verdict", "cause"),
    [
        (Case(), Verdict.NOT_APPLICABLE, None),
        (Case(cancel_ms=500, lanes=()), Verdict.UNKNOWN, Cause.TOO_FEW),
        (Case(cancel_ms=500, untapped=(1,)), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
    ],
)
def test_cancel_without_witness_is_not_judged(
    case: Case, verdict: Verdict, cause: Cause | None
) -> None:
    """Somebody must leave, and somebody must watch."""
    finding = judged(case.recording())
    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_cancel_of_a_request_that_was_never_forwarded_does_not_apply() -> None:
    """A proxy that dropped the request with its client kept nothing from the engine."""
    recording = CANCELLED.recording()
    first, second, *_ = recording.streams
    dropped = replace(second, taps=(), ledger=())
    assert judged(replace(recording, streams=(first, dropped))).verdict is Verdict.PASS


@pytest.mark.parametrize("early", [True, False])
def test_cancel_of_an_answer_that_was_over_is_unknown(early: bool) -> None:
    """There was nothing left to cancel, by the client's own end or the engine's."""
    whole = Case().recording()
    scenario = CANCELLED.scenario()
    gone = tuple(
        replace(s, client=replace(s.client, end=_left(s.client.end)))
        for s in whole.streams
        if s.client
    )
    recording = replace(whole, scenario=scenario, streams=whole.streams if early else gone)
    finding = judged(recording)
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.TOO_FEW)


def _left(end: StreamEnd) -> StreamEnd:
    return replace(end, reason=EndReason.CLIENT_CANCEL)


@settings(max_examples=50, deadline=None)
@given(
    cancel_ms=st.integers(50, 1500),
    reach_ms=st.integers(0, 100),
    abort_ms=st.integers(1, 250),
    client=st.builds(Polls, asleep_ms=st.integers(0, 300), kernel=st.booleans()),
)
def test_cancel_within_the_limits_is_green(
    cancel_ms: int, reach_ms: int, abort_ms: int, client: Polls
) -> None:
    """Whenever the client leaves, and however late it looked before."""
    case = Case(cancel_ms=cancel_ms, reach_ms=reach_ms, abort_ms=abort_ms, client=client)
    assert judged(case.recording()).verdict is Verdict.PASS


def test_cancel_of_an_answer_that_ended_without_the_ledgers_word_is_unknown() -> None:
    """The tap's end is enough to tell that nothing was left to cancel."""
    whole = Case(ledger=False).recording()
    gone = tuple(
        replace(s, client=replace(s.client, end=_left(s.client.end)))
        for s in whole.streams
        if s.client
    )
    finding = judged(replace(whole, scenario=CANCELLED.scenario(), streams=gone))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.TOO_FEW)
