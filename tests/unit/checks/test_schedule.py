"""The engine and its script."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.schedule import engine_on_schedule
from harness.model import (
    Cause,
    EndReason,
    Evidence,
    Finding,
    Lane,
    SelfCheck,
    StreamEnd,
    Verdict,
)
from tests.unit.recordings import MS, Case, bursting, cutting, holding_all, passing, stalling


def judged(case: Case) -> Finding:
    return engine_on_schedule(Evidence(subject=case.recording()))


@pytest.mark.parametrize("lanes", [(Lane.DIRECT,), (Lane.THROUGH,), (Lane.AA, Lane.THROUGH)])
def test_schedule_of_a_stalling_engine_is_red(lanes: tuple[Lane, ...]) -> None:
    """A stall above the limit is the engine's, in whatever lane."""
    finding = judged(Case(lanes=lanes, behaviours={"engine": stalling(5, 400)}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "engine")
    assert finding.symptom is not None
    assert finding.symptom.kind == "off_schedule"
    assert "400 ms late" in finding.actual


@pytest.mark.parametrize("case", [Case(), Case(behaviours={"engine": stalling(5, 240)})])
def test_schedule_kept_within_the_limit_is_green(case: Case) -> None:
    """A little lateness is no fault."""
    assert judged(case).verdict is Verdict.PASS


def test_schedule_of_an_engine_that_is_early_is_green() -> None:
    """Only lateness counts."""
    assert judged(Case(behaviours={"engine": passing(-15)})).verdict is Verdict.PASS


def test_schedule_is_not_broken_by_a_proxy() -> None:
    """What a proxy holds left the engine in time."""
    assert judged(Case(behaviours={"nginx": holding_all()})).verdict is Verdict.PASS


def test_schedule_of_late_headers_is_red() -> None:
    """The head is due at once."""
    case = Case()
    recording = case.recording()
    late = tuple(
        replace(
            s,
            taps=tuple(
                replace(
                    t,
                    head=replace(
                        t.head,
                        at_ns=t.request_ns + 400 * MS,
                        earliest_ns=t.request_ns + 399 * MS,
                    ),
                )
                for t in s.taps
                if t.head
            ),
        )
        for s in recording.streams
    )
    finding = engine_on_schedule(Evidence(subject=replace(recording, streams=late)))
    assert finding.verdict is Verdict.FAIL
    assert "its head" in finding.actual


@pytest.mark.parametrize(
    ("late_ms", "jitter_ms", "verdict"),
    [
        (400, 100, Verdict.FAIL),
        (400, 200, Verdict.UNKNOWN),
        (2000, 300, Verdict.UNKNOWN),
        (240, 300, Verdict.PASS),
    ],
)
def test_schedule_on_a_slow_machine_is_red_only_beyond_its_jitter(
    late_ms: int, jitter_ms: int, verdict: Verdict
) -> None:
    """Lateness that the machine itself may have caused is no engine's fault."""
    doubts = SelfCheck(sleep_jitter_ns_max=jitter_ms * MS)
    case = Case(behaviours={"engine": stalling(5, late_ms)}, self_check=doubts)
    finding = judged(case)
    assert finding.verdict is verdict
    assert (finding.cause is Cause.NOISE) == (verdict is Verdict.UNKNOWN)


def test_schedule_of_an_engine_that_falls_silent_is_red() -> None:
    """An event that never came is late until somebody gave up."""
    recording = Case().recording()
    silent = tuple(
        replace(
            s,
            taps=tuple(
                replace(
                    t,
                    head=None,
                    events=t.events[:5],
                    origin_closed_ns=0,
                    end=StreamEnd(reason=EndReason.DEADLINE, at_ns=t.request_ns + 5000 * MS),
                )
                for t in s.taps
            ),
        )
        for s in recording.streams
    )
    finding = engine_on_schedule(Evidence(subject=replace(recording, streams=silent)))
    assert finding.verdict is Verdict.FAIL
    assert finding.evidence[0].event_index == 5


@pytest.mark.parametrize(
    ("case", "verdict", "cause"),
    [
        (Case(lanes=()), Verdict.UNKNOWN, Cause.TOO_FEW),
        (Case(oracle=False, behaviours={"engine": bursting(40)}), Verdict.NOT_APPLICABLE, None),
        (Case(untapped=(1,)), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (Case(behaviours={"engine": cutting(5)}), Verdict.PASS, None),
    ],
)
def test_schedule_without_witness_is_not_judged(
    case: Case, verdict: Verdict, cause: Cause | None
) -> None:
    """Without stream, script or tap nothing is said; an engine that stops early was not late."""
    finding = judged(case)
    assert (finding.verdict, finding.cause) == (verdict, cause)
