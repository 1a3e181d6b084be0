"""What a check can say, in one line each, and how the votes of several streams become one verdict.

The registry fills in the check's name, strength and source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.model import (
    Cause,
    Finding,
    Lane,
    Position,
    Recording,
    Symptom,
    SymptomKind,
    Verdict,
)

EVIDENCE_LIMIT = 5

Figures = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What one stream says of one node. `cause` is there exactly when it says unknown."""

    verdict: Verdict
    cause: Cause | None = None
    actual: str = ""
    symptom: SymptomKind | None = None
    culprit: str = ""
    evidence: tuple[Position, ...] = ()


def passed(expected: str, actual: str, figures: Figures = ()) -> Finding:
    """The property holds."""
    return Finding(
        check="", verdict=Verdict.PASS, expected=expected, actual=actual, figures=figures
    )


def failed(
    expected: str,
    actual: str,
    kind: SymptomKind,
    culprit: str,
    *,
    evidence: Sequence[Position] = (),
    figures: Figures = (),
) -> Finding:
    """The property does not hold, and `culprit` is to blame."""
    return Finding(
        check="",
        verdict=Verdict.FAIL,
        expected=expected,
        actual=actual,
        symptom=Symptom(kind=kind, node=culprit),
        culprit=culprit,
        evidence=tuple(evidence[:EVIDENCE_LIMIT]),
        figures=figures,
    )


SETTLES = {
    Cause.NOISE: "a run on a quieter machine",
    Cause.TOO_FEW: "a run with more streams or longer answers",
    Cause.WITNESS_MISSING: "a tap on each hop, and the engine's ledger",
}


def unknown(cause: Cause, expected: str, actual: str, figures: Figures = ()) -> Finding:
    """Nothing can be said, and why; what would settle it follows from the cause."""
    return Finding(
        check="",
        verdict=Verdict.UNKNOWN,
        cause=cause,
        settle=SETTLES[cause],
        expected=expected,
        actual=actual,
        figures=figures,
    )


def not_applicable(reason: str) -> Finding:
    """The property means nothing here."""
    return Finding(check="", verdict=Verdict.NOT_APPLICABLE, actual=reason)


def majority(votes: Sequence[Vote]) -> Vote:
    """The streams' common verdict, for properties that a busy machine can break once.

    A fail needs more than half of the votes. A pass needs more than half too, or half where nobody
    saw a fail: what holds bytes by its configuration holds those of every stream. Anything else is
    unknown. Streams that do not apply do not vote.
    """
    voting = [vote for vote in votes if vote.verdict is not Verdict.NOT_APPLICABLE]
    if not voting:
        return Vote(verdict=Verdict.NOT_APPLICABLE)
    fails = [vote for vote in voting if vote.verdict is Verdict.FAIL]
    passes = [vote for vote in voting if vote.verdict is Verdict.PASS]
    if 2 * len(fails) > len(voting):
        return fails[0]
    if 2 * len(passes) > len(voting) or (2 * len(passes) == len(voting) and not fails):
        return passes[0]
    doubts = [vote for vote in voting if vote.verdict is Verdict.UNKNOWN]
    if doubts and not fails and not passes:
        return doubts[0]
    actual = f"{len(fails)} of {len(voting)} streams fail, {len(passes)} pass"
    return Vote(verdict=Verdict.UNKNOWN, cause=Cause.NOISE, actual=actual)


def unanimous(votes: Sequence[Vote]) -> Vote:
    """For properties that may not be broken even once: the first fail, else the first doubt."""
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS):
        for vote in votes:
            if vote.verdict is verdict:
                return vote
    return Vote(verdict=Verdict.NOT_APPLICABLE)


def finding_of(vote: Vote, expected: str, held: str, figures: Figures = ()) -> Finding:
    """The vote as a finding; `held` is what is said of a pass."""
    if vote.verdict is Verdict.FAIL and vote.symptom is not None:
        return failed(
            expected,
            vote.actual,
            vote.symptom,
            vote.culprit,
            evidence=vote.evidence,
            figures=figures,
        )
    if vote.verdict is Verdict.UNKNOWN and vote.cause is not None:
        return unknown(vote.cause, expected, vote.actual, figures)
    if vote.verdict is Verdict.PASS:
        return passed(expected, held, figures)
    return not_applicable(vote.actual or "no stream of this run can show it")


def uncrossed(recording: Recording, expected: str) -> Finding:
    """What a check of the proxies says where no stream crossed one between two vantages."""
    scenario = recording.scenario
    if scenario.stack.engine_index == 0:
        return not_applicable("no node stands between client and engine")
    if Lane.THROUGH not in scenario.workload.lanes:
        return not_applicable("no stream is sent through the stack")
    if not recording.lane(Lane.THROUGH):
        return unknown(Cause.TOO_FEW, expected, "no stream was recorded")
    return unknown(Cause.WITNESS_MISSING, expected, "no tap saw what entered the nodes")


def unrecorded(expected: str) -> Finding:
    """What every check says of a recording without streams."""
    return unknown(Cause.TOO_FEW, expected, "no stream was recorded")
