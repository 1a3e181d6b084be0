"""Whether the content that went in is the content that came out."""

from __future__ import annotations

from collections.abc import Sequence

from harness.check import check
from harness.checks.segments import Segment, segments
from harness.checks.verdicts import Vote, finding_of, unanimous, unrecorded
from harness.model import (
    Cause,
    EndReason,
    Evidence,
    Finding,
    Recording,
    Stream,
    StreamTrace,
    SymptomKind,
    Verdict,
)


@check(source="RFC 9110 §7.7; WHATWG HTML §9.2.6")
def payload_intact(evidence: Evidence) -> Finding:
    """Each event arrives as it was sent: byte-identical, in order, none twice.

    What left each vantage is compared with what entered it, and the engine with its script, up to
    where the answer ended; an answer that ends early is the matter of other checks. The first part
    of the way that changed something is to blame.
    """
    expected = "the same events, in the same order, each once, at each vantage"
    streams = evidence.subject.streams
    if not streams:
        return unrecorded(expected)
    vote = unanimous([_vote(stream, evidence.subject) for stream in streams])
    count = sum(len(s.client.content_events()) for s in streams if s.client is not None)
    return finding_of(vote, expected, f"{count} events in {len(streams)} streams are intact")


def difference(sent: Sequence[str], seen: Sequence[str]) -> tuple[int, SymptomKind] | None:
    """Where `seen` first differs from the beginning of `sent`, and how; None where it does not."""
    for index, digest in enumerate(seen):
        if index < len(sent) and digest == sent[index]:
            continue
        twice = digest in seen[:index] and digest not in sent[index:]
        return index, SymptomKind.DUPLICATED if twice else SymptomKind.ALTERED
    return None


def _vote(stream: Stream, recording: Recording) -> Vote:
    if stream.client is None:
        actual = f"{stream.key} has no client's trace"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.WITNESS_MISSING, actual=actual)
    compared = 0
    for segment in segments(stream, recording):
        sent = _sent(segment)
        if not sent:
            continue
        seen = [event.digest for event in segment.egress.content_events()]
        compared += len(seen)
        found = difference(sent, seen)
        if found is None and _rewritten(segment):
            found = len(seen), SymptomKind.ALTERED
        if found is not None:
            return _changed(segment, *found)
    if compared:
        return Vote(verdict=Verdict.PASS)
    if stream.client.end.reason is EndReason.CLIENT_CANCEL:
        return Vote(verdict=Verdict.NOT_APPLICABLE)
    seen_by_client = bool(stream.client.content_events())
    cause = Cause.WITNESS_MISSING if seen_by_client else Cause.TOO_FEW
    actual = f"{stream.key}: nothing to compare with" if seen_by_client else "no event arrived"
    return Vote(verdict=Verdict.UNKNOWN, cause=cause, actual=actual)


def _sent(segment: Segment) -> Sequence[str]:
    if segment.ingress is None:
        return segment.stream.oracle_digests
    return [event.digest for event, _ in segment.entered()]


def _rewritten(segment: Segment) -> bool:
    """Whether two whole answers with the same content events differ in what lies between these."""
    traces = [segment.egress, *([segment.ingress] if segment.ingress else [])]
    bodies = {_body(trace) for trace in traces if trace.end.reason is EndReason.TERMINATOR}
    return len(traces) == 2 and len(bodies) == 2 and None not in bodies


def _body(trace: StreamTrace) -> tuple[int, str] | None:
    return (trace.body_bytes, trace.body_digest) if trace.body_digest else None


def _changed(segment: Segment, index: int, kind: SymptomKind) -> Vote:
    words = {
        SymptomKind.DUPLICATED: f"event {index} is an earlier one again",
        SymptomKind.ALTERED: f"what stands at event {index} was not sent there",
    }
    return Vote(
        verdict=Verdict.FAIL,
        actual=f"behind {segment.node} {words[kind]}",
        symptom=kind,
        culprit=segment.node,
        evidence=(segment.at(index),),
    )
