"""Whether the engine keeps to its script."""

from __future__ import annotations

from collections.abc import Iterator

from harness.check import check
from harness.checks.segments import (
    LEFT_BY_ITSELF,
    Segment,
    closed_by_client,
    engine_segments,
    scripted,
)
from harness.checks.verdicts import (
    Vote,
    finding_of,
    majority,
    not_applicable,
    unknown,
    unrecorded,
)
from harness.model import (
    Cause,
    Evidence,
    Finding,
    Recording,
    Stamp,
    StreamScript,
    StreamTrace,
    SymptomKind,
    Verdict,
)

# Several batching steps, and less than any stall that a person would call one.
LATE_LIMIT_MS = 250


@check(source="the script that the engine was given", timing=True)
def engine_on_schedule(evidence: Evidence) -> Finding:
    """The engine's head and events leave it within 250 ms of their due time.

    Seen by the tap in front of it, and never by what the engine claims. Only lateness counts. It is
    the engine's fault only beyond the jitter that the instrument felt itself.
    """
    recording = evidence.subject
    expected = f"head and events leave the engine at most {LATE_LIMIT_MS} ms late"
    if not recording.streams:
        return unrecorded(expected)
    if not scripted(recording):
        return not_applicable("the engine plays no script")
    ways = engine_segments(evidence)
    if not ways:
        return unknown(Cause.WITNESS_MISSING, expected, "no tap in front of the engine")
    script = recording.scenario.workload.script
    worst_ms = max(late_ms for way in ways for _, _, late_ms in _lateness(way, script))
    vote = majority([_vote(way, recording) for way in ways])
    return finding_of(vote, expected, f"at most {worst_ms:.0f} ms late", (("late_ms", worst_ms),))


def _lateness(segment: Segment, script: StreamScript) -> Iterator[tuple[int, float, float]]:
    """Event index (-1: the head) with the least and the greatest time it was late, in ms.

    An event that never came was late at least until somebody else ended the stream.
    """
    tap = segment.egress
    yield -1, 0.0, 0.0
    if tap.head is not None:
        yield -1, *_since_request_ms(tap, tap.head)
    events = tap.content_events()
    for index, event in enumerate(events):
        least_ms, greatest_ms = _since_request_ms(tap, event.arrived)
        yield index, least_ms - script.due_ms(index), greatest_ms - script.due_ms(index)
    abandoned = tap.end.reason in LEFT_BY_ITSELF or closed_by_client(tap)
    if len(events) < len(segment.stream.oracle_digests) and abandoned:
        waited_ms = (tap.end.at_ns - tap.request_ns) / 1e6 - script.due_ms(len(events))
        yield len(events), waited_ms, waited_ms


def _since_request_ms(tap: StreamTrace, stamp: Stamp) -> tuple[float, float]:
    return (stamp.earliest_ns - tap.request_ns) / 1e6, (stamp.at_ns - tap.request_ns) / 1e6


def _vote(segment: Segment, recording: Recording) -> Vote:
    script = recording.scenario.workload.script
    jitter_ms = recording.self_check.sleep_jitter_ns_max / 1e6
    late = list(_lateness(segment, script))
    index, least_ms, _ = max(late, key=lambda one: one[1])
    what = "its head" if index < 0 else f"event {index}"
    if least_ms > LATE_LIMIT_MS + jitter_ms and jitter_ms <= LATE_LIMIT_MS:
        return Vote(
            verdict=Verdict.FAIL,
            actual=f"{what} left {segment.node} {least_ms:.0f} ms late",
            symptom=SymptomKind.OFF_SCHEDULE,
            culprit=segment.node,
            evidence=(segment.at(max(index, 0)),),
        )
    if max(greatest_ms for _, _, greatest_ms in late) <= LATE_LIMIT_MS:
        return Vote(verdict=Verdict.PASS)
    actual = f"{what} was {least_ms:.0f} ms late, and the machine up to {jitter_ms:.0f} ms"
    return Vote(verdict=Verdict.UNKNOWN, cause=Cause.NOISE, actual=actual)
