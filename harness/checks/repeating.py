"""Whether one question is asked once."""

from __future__ import annotations

from harness.check import check
from harness.checks.segments import engine_name, node_name
from harness.checks.verdicts import Vote, finding_of, unanimous, unrecorded
from harness.model import (
    Cause,
    EndReason,
    Evidence,
    Finding,
    Lane,
    Recording,
    Stream,
    SymptomKind,
    Verdict,
)


@check(source="RFC 9110 §9.2.2")
def one_request_one_engine_request(evidence: Evidence) -> Finding:
    """Each request of a client reaches the engine exactly once.

    Counted in the engine's ledger, else by the tap in front of it. Generation is not idempotent: a
    repeated request costs its work twice. The node behind which the number first differs from one
    is to blame.
    """
    expected = "one request at the engine for each of the client's"
    recording = evidence.subject
    if not recording.streams:
        return unrecorded(expected)
    vote = unanimous([_vote(stream, recording) for stream in recording.streams])
    return finding_of(vote, expected, f"{len(recording.streams)} requests, each arrived once")


def _vote(stream: Stream, recording: Recording) -> Vote:
    if stream.client is None:
        actual = f"{stream.key} has no client's trace"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.WITNESS_MISSING, actual=actual)
    count = _arrivals(stream, recording)
    if count is None:
        actual = "neither a ledger nor a tap in front of the engine"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.WITNESS_MISSING, actual=actual)
    if count == 1:
        return Vote(verdict=Verdict.PASS)
    if not count and stream.client.end.reason is EndReason.CLIENT_CANCEL:
        return Vote(verdict=Verdict.NOT_APPLICABLE, actual="the client left before it was asked")
    culprit = _culprit(stream, recording)
    return Vote(
        verdict=Verdict.FAIL,
        actual=f"{stream.key} arrived {count} times at the engine, by way of {culprit}",
        symptom=SymptomKind.REQUEST_REPEATED if count else SymptomKind.REQUEST_LOST,
        culprit=culprit,
    )


def _arrivals(stream: Stream, recording: Recording) -> int | None:
    """How often the request arrived at the engine; None where nobody counted."""
    if any(one.ledger for one in recording.streams):
        return sum(1 for entry in stream.ledger if entry.what == "received")
    engine = recording.scenario.stack.engine_index
    if any(trace.hop == engine for one in recording.streams for trace in one.taps):
        return sum(1 for trace in stream.taps if trace.hop == engine)
    return None


def _culprit(stream: Stream, recording: Recording) -> str:
    """The nodes between the last vantage that saw one request and the first that did not."""
    engine = recording.scenario.stack.engine_index
    if stream.key.lane is not Lane.THROUGH:
        return engine_name(recording)
    watched = {trace.hop for one in recording.lane(Lane.THROUGH) for trace in one.taps}
    first = 0
    for hop in sorted(watched):
        if sum(1 for trace in stream.taps if trace.hop == hop) != 1:
            between = [node_name(recording, index) for index in range(first, hop)]
            return "+".join(between) or f"hop{hop}"
        first = hop
    return "+".join(node_name(recording, index) for index in range(first, engine + 1))
