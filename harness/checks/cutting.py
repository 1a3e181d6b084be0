"""Whether an answer was let run to the end that the engine gave it."""

from __future__ import annotations

from harness.check import check
from harness.checks.segments import (
    LEFT_BY_ITSELF,
    SEEN_AS_CUT,
    Segment,
    closed_by_client,
    engine_name,
    engine_tap,
    position,
    segments,
)
from harness.checks.verdicts import Vote, finding_of, unanimous, unrecorded
from harness.model import (
    Cause,
    EndReason,
    Evidence,
    Finding,
    Position,
    Recording,
    Stream,
    StreamTrace,
    SymptomKind,
    Verdict,
)

# A node answers a connection that was cut under it within this; its own timers are longer.
FOLLOWS_WITHIN_NS = 100_000_000


@check(source="RFC 9112 §9.5; nginx proxy_read_timeout; Envoy route timeout")
def not_cut_before_engine_ended(evidence: Evidence) -> Finding:
    """No part of the stack ends an answer while the engine still has something to send.

    The node whose engine's side was closed by it, and whose client's side did not leave, is to
    blame; the engine is where the tap in front of it saw it close or reset an unfinished answer.
    Where a fault of ours fired on a hop and the answer ended right behind that, the hop is named.
    """
    expected = "no stream ends before the engine ended it"
    recording = evidence.subject
    if not recording.streams:
        return unrecorded(expected)
    vote = unanimous([_vote(stream, recording) for stream in recording.streams])
    return finding_of(vote, expected, "each stream ran until the engine ended it")


def _vote(stream: Stream, recording: Recording) -> Vote:
    tap, client = engine_tap(stream, recording), stream.client
    if client is not None and client.end.reason in LEFT_BY_ITSELF:
        return Vote(verdict=Verdict.NOT_APPLICABLE)
    if tap is None or client is None:
        actual = f"{stream.key}: no trace in front of the engine or at the client"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.WITNESS_MISSING, actual=actual)
    count = len(tap.content_events())
    if _cut_by_engine(stream, tap):
        actual = f"the engine cut its answer after {count} events ({tap.end.reason})"
        return _cut(engine_name(recording), actual, position(tap, count))
    for segment in segments(stream, recording):
        if _cut_in(segment):
            seen = len(segment.egress.content_events())
            reason = segment.egress.end.reason
            culprit = _faulted_hop(segment, recording) or segment.node
            actual = f"{culprit} ended the stream after {seen} events ({reason})"
            return _cut(culprit, actual, segment.at(seen))
    return Vote(verdict=Verdict.PASS)


def _cut(culprit: str, actual: str, where: Position) -> Vote:
    return Vote(
        verdict=Verdict.FAIL,
        actual=actual,
        symptom=SymptomKind.CUT,
        culprit=culprit,
        evidence=(where,),
    )


def _faulted_hop(segment: Segment, recording: Recording) -> str:
    """The hop in front of the segment, if a fault that fired there is what ended the answer."""
    ingress, injections = segment.ingress, recording.scenario.injections
    if ingress is None:
        return ""
    closed_ns = ingress.client_closed_ns or ingress.end.at_ns
    for firing in recording.fired:
        here = injections[firing.injection].hop == ingress.hop
        ours = firing.key in ("", str(ingress.key))
        if here and ours and 0 <= closed_ns - firing.at_ns <= FOLLOWS_WITHIN_NS:
            return f"hop{ingress.hop}"
    return ""


def _cut_by_engine(stream: Stream, tap: StreamTrace) -> bool:
    """Whether the origin's side went first, with the answer unfinished."""
    if closed_by_client(tap) or tap.end.terminators:
        return False
    short = len(tap.content_events()) < len(stream.oracle_digests)
    clean = tap.end.reason is EndReason.CLEAN_EOF_WITHOUT_TERMINATOR
    return tap.end.reason in SEEN_AS_CUT or (clean and short)


def _let_go(trace: StreamTrace) -> bool:
    """Whether the client's side of a vantage left an unfinished answer."""
    finished = trace.end.terminators or trace.end.last_chunk_seen
    answered = finished or trace.end.reason is EndReason.ERROR_EVENT
    return not answered and (closed_by_client(trace) or trace.end.reason in LEFT_BY_ITSELF)


def _cut_in(segment: Segment) -> bool:
    if segment.ingress is None or _let_go(segment.egress):
        return False
    entered = segment.entered()
    missing = len(segment.egress.content_events()) < len(entered)
    early = missing and segment.egress.end.at_ns < entered[-1][1].at_ns
    return early or _let_go(segment.ingress)
