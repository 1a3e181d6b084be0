"""Whether a node squeezes together what entered it apart: the loop-poll bound.

An event surely arrived behind the poll that did not find it yet, and the next one surely had
arrived when the read that holds it was stamped. If even between these two there is less than half
of the gap with which they were sent, they were squeezed before they reached the observer: proven.
If only the stamps are too close, the observer was late: counted only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.check import check
from harness.checks.segments import Segment, crossings, engine_segments
from harness.checks.verdicts import (
    Vote,
    finding_of,
    majority,
    unanimous,
    uncrossed,
    unrecorded,
)
from harness.model import (
    Cause,
    Evidence,
    Finding,
    Recording,
    StreamEvent,
    StreamScript,
    SymptomKind,
    Verdict,
)

PROVEN_MINIMUM = 3
PROVEN_SHARE = 0.05
LATE_SHARE = 0.5
EVENTS_NEEDED = 4

# Below this a gap is of the size of a scheduler's own lateness, and its half proves nothing.
SEND_GAP_MINIMUM_NS = 10_000_000

# One burst in up to a quarter of the answer is what a single stall looks like.
HICCUP_SHARE = 0.25
STALL_NS = 50_000_000

# When an event was sent: not before the first, not after the second.
Sent = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Squeeze:
    """The gaps of one stream: which are proven squeezed, how many only look so, biggest burst."""

    proven: tuple[int, ...] = ()
    late: int = 0
    gaps: int = 0
    biggest_burst: int = 0

    @property
    def bursts(self) -> int:
        """Runs of neighbouring proven gaps."""
        return sum(1 for index in self.proven if index - 1 not in self.proven)


@check(source="nginx proxy_buffering, gzip; HAProxy option http-no-delay", timing=True)
def events_not_coalesced(evidence: Evidence) -> Finding:
    """No node, nor the engine, sends events in bursts that entered it apart.

    Each node is judged by what entered it, the engine by its script. Coalesced means that in the
    majority of the streams at least 3 gaps and 5 % of all gaps are proven to have been squeezed to
    less than half.
    """
    recording = evidence.subject
    expected = "events leave each node as far apart as they entered it"
    if not recording.streams:
        return unrecorded(expected)
    measured = _measured(evidence)
    if not measured:
        return uncrossed(recording, expected)
    votes = [
        majority([_vote(segment, squeeze, recording) for segment, squeeze in ways])
        for ways in measured.values()
    ]
    vote = unanimous(votes)
    worst = measured.get(vote.culprit) or max(measured.values(), key=_squeezed)
    squeezes = [squeeze for _, squeeze in worst]
    figures = _figures(squeezes)
    late = sum(s.late for s in squeezes)
    return finding_of(vote, expected, f"no burst proven, {late} gaps of a late client", figures)


def squeeze(sent: Sequence[Sent], arrived: Sequence[StreamEvent]) -> Squeeze:
    """The verdict on each gap between events that were sent at `sent` and seen as `arrived`."""
    proven: list[int] = []
    late = 0
    count = min(len(sent), len(arrived))
    for i in range(count - 1):
        before, after = arrived[i].arrived, arrived[i + 1].arrived
        sent_gap_ns = sent[i + 1][1] - sent[i][1]
        sent_apart_ns = sent[i + 1][0] - sent[i][1]
        if sent_gap_ns < SEND_GAP_MINIMUM_NS:
            continue
        if 2 * (after.at_ns - before.earliest_ns) < sent_apart_ns:
            proven.append(i + 1)
        elif 2 * (after.at_ns - before.at_ns) < sent_gap_ns:
            late += 1
    reads = Counter(event.read_index for event in arrived)
    return Squeeze(
        proven=tuple(proven),
        late=late,
        gaps=max(count - 1, 0),
        biggest_burst=max(reads.values(), default=0),
    )


def crossed(segment: Segment) -> Squeeze:
    """How the gaps of a stream crossed a segment that stands between two vantages."""
    sent = [(stamp.earliest_ns, stamp.at_ns) for _, stamp in segment.entered()]
    return squeeze(sent, segment.egress.content_events())


def _played(segment: Segment, script: StreamScript) -> Squeeze:
    """How the engine kept the gaps of its script."""
    events = segment.egress.content_events()
    due = [script.due_ms(index) * 1_000_000 for index in range(script.event_count)]
    return squeeze([(due_ns, due_ns) for due_ns in due], events)


def _measured(evidence: Evidence) -> dict[str, list[tuple[Segment, Squeeze]]]:
    """Each node's streams with what became of their gaps, the engine first."""
    script = evidence.subject.scenario.workload.script
    found: dict[str, list[tuple[Segment, Squeeze]]] = {}
    for segment in engine_segments(evidence):
        if segment.stream.oracle_digests:
            found.setdefault(segment.node, []).append((segment, _played(segment, script)))
    for node, ways in crossings(evidence).items():
        found.setdefault(node, []).extend((segment, crossed(segment)) for segment in ways)
    return found


def _squeezed(ways: list[tuple[Segment, Squeeze]]) -> tuple[int, int]:
    return sum(len(s.proven) for _, s in ways), sum(s.late for _, s in ways)


def _figures(squeezes: Sequence[Squeeze]) -> tuple[tuple[str, float], ...]:
    gaps = sum(s.gaps for s in squeezes)
    proven = sum(len(s.proven) for s in squeezes)
    return (
        ("proven_gap_count", proven),
        ("proven_gap_share", proven / gaps if gaps else 0.0),
        ("late_gap_count", sum(s.late for s in squeezes)),
        ("biggest_burst", max((s.biggest_burst for s in squeezes), default=0)),
    )


def _vote(segment: Segment, squeeze: Squeeze, recording: Recording) -> Vote:
    workload = recording.scenario.workload
    if squeeze.gaps + 1 < EVENTS_NEEDED:
        if workload.cancel is not None or workload.script.event_count < EVENTS_NEEDED:
            return Vote(verdict=Verdict.NOT_APPLICABLE)
        actual = f"fewer than {EVENTS_NEEDED} events crossed {segment.node}"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.TOO_FEW, actual=actual)
    proven = len(squeeze.proven)
    words = f"{proven} of {squeeze.gaps} gaps at {segment.node} were squeezed"
    if proven >= PROVEN_MINIMUM and proven >= PROVEN_SHARE * squeeze.gaps:
        if _hiccup(squeeze, segment, recording):
            actual = f"{words}, in one burst, as after a stall"
            return Vote(verdict=Verdict.UNKNOWN, cause=Cause.NOISE, actual=actual)
        return Vote(
            verdict=Verdict.FAIL,
            actual=f"{words}, {squeeze.biggest_burst} events in one read",
            symptom=SymptomKind.COALESCED,
            culprit=segment.node,
            evidence=tuple(segment.at(index) for index in squeeze.proven),
        )
    if squeeze.late > LATE_SHARE * squeeze.gaps:
        actual = f"the observer was late for {squeeze.late} of {squeeze.gaps} gaps"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.NOISE, actual=actual)
    return Vote(verdict=Verdict.PASS)


def _hiccup(squeeze: Squeeze, segment: Segment, recording: Recording) -> bool:
    """Whether a stall explains the burst: at a proxy one that the instrument felt itself.

    An engine that catches up after a stall of its own is late, and that is another check's matter.
    """
    doubts = recording.self_check
    stalled = max(doubts.sleep_jitter_ns_max, doubts.poll_lag_ns_max) >= STALL_NS
    once = squeeze.bursts == 1 and len(squeeze.proven) <= HICCUP_SHARE * squeeze.gaps
    return once and (stalled or segment.ingress is None)
