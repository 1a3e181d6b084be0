"""Whether a node lets the first event through."""

from __future__ import annotations

from statistics import median

from harness.check import check
from harness.checks.segments import Segment, crossings
from harness.checks.verdicts import Vote, finding_of, majority, unanimous, uncrossed
from harness.model import Cause, EndReason, Evidence, Finding, SymptomKind, Verdict

# Well above what a node needs to pass an event on, well below what a person notices.
HELD_LIMIT_MS = 100


@check(source="nginx, ngx_http_proxy_module, proxy_buffering; RFC 9112 §7.1", timing=True)
def first_event_not_held(evidence: Evidence) -> Finding:
    """No node holds the first content event for more than 100 ms.

    The hold is the arrival behind the node minus the write in front of it, of the same stream. By
    the stamps' bounds it is proven, disproven or neither; the majority of the streams through the
    stack decides for each node.
    """
    expected = f"each node passes the first event on within {HELD_LIMIT_MS} ms"
    nodes = crossings(evidence)
    if not nodes:
        return uncrossed(evidence.subject, expected)
    cancelled = evidence.subject.scenario.workload.cancel is not None
    votes = [
        majority([_vote(segment, cancelled=cancelled) for segment in crossed])
        for crossed in nodes.values()
    ]
    holds = {node: _median_ms(crossed) for node, crossed in nodes.items()}
    held = ", ".join(f"{node} {hold_ms:.1f} ms" for node, hold_ms in holds.items())
    figures = (("hold_ms", max(holds.values())),)
    return finding_of(unanimous(votes), expected, f"held by {held}", figures)


def hold_ns(segment: Segment) -> tuple[int, int] | None:
    """Least and greatest time that the segment held the first event; None where none entered.

    An event that never came out was held until its stream ended, at least.
    """
    entered = segment.entered()
    if not entered:
        return None
    sent = entered[0][1]
    seen = segment.egress.content_events()
    if not seen:
        waited_ns = segment.egress.end.at_ns - sent.at_ns
        return waited_ns, max(waited_ns, 0)
    arrived = seen[0].arrived
    return arrived.earliest_ns - sent.at_ns, arrived.at_ns - sent.earliest_ns


def _median_ms(crossed: list[Segment]) -> float:
    """Median over the streams of the hold between the two stamps themselves."""
    holds = [
        (seen[0].arrived.at_ns - entered[0][1].at_ns) / 1e6
        for segment in crossed
        if (entered := segment.entered()) and (seen := segment.egress.content_events())
    ]
    return median(holds) if holds else 0.0


def _vote(segment: Segment, *, cancelled: bool) -> Vote:
    hold = hold_ns(segment)
    unseen = not segment.egress.content_events()
    left = cancelled or segment.egress.end.reason is EndReason.CLIENT_CANCEL
    if unseen and left:
        return Vote(verdict=Verdict.NOT_APPLICABLE)
    if hold is None:
        actual = f"no event entered {segment.node}"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.TOO_FEW, actual=actual)
    least_ms, greatest_ms = hold[0] / 1e6, hold[1] / 1e6
    if least_ms > HELD_LIMIT_MS:
        until = "the end, and never passed on" if unseen else f"{least_ms:.0f} ms after its arrival"
        return Vote(
            verdict=Verdict.FAIL,
            actual=f"{segment.node} held the first event until {until}",
            symptom=SymptomKind.HELD,
            culprit=segment.node,
            evidence=(segment.at(0),),
        )
    if greatest_ms <= HELD_LIMIT_MS and not unseen:
        return Vote(verdict=Verdict.PASS)
    actual = f"{segment.node} held the first event for {least_ms:.0f} to {greatest_ms:.0f} ms"
    return Vote(verdict=Verdict.UNKNOWN, cause=Cause.NOISE, actual=actual)
