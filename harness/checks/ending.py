"""How an answer ended, judged apart from what it held."""

from __future__ import annotations

from harness.check import check
from harness.checks.segments import (
    LEFT_BY_ITSELF,
    SEEN_AS_CUT,
    closed_by_client,
    engine_tap,
    segments,
)
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

ERROR_STATUS = 400


@check(source="RFC 9112 §8")
def no_silent_truncation(evidence: Evidence) -> Finding:
    """An answer that did not arrive whole ends in a way that the client can see.

    Visible are a broken framing, a reset, an error event, an error status. The first part of the
    way behind which an answer that is not whole ends cleanly is to blame.
    """
    expected = "what is not whole does not end cleanly"
    streams = evidence.subject.streams
    if not streams:
        return unrecorded(expected)
    vote = unanimous([_truncation_vote(stream, evidence.subject) for stream in streams])
    return finding_of(vote, expected, "no answer that is not whole ended cleanly")


@check(source="OpenAI API reference, streaming: data: [DONE]")
def terminator_exactly_once(evidence: Evidence) -> Finding:
    """An answer that is neither cancelled nor cut ends with one terminator, nothing behind it."""
    expected = "one terminator, and nothing behind it"
    streams = evidence.subject.streams
    if not streams:
        return unrecorded(expected)
    vote = unanimous([_terminator_vote(stream, evidence.subject) for stream in streams])
    return finding_of(vote, expected, "each answer ended with its one terminator")


def _truncation_vote(stream: Stream, recording: Recording) -> Vote:
    tap = engine_tap(stream, recording)
    whole = len(stream.oracle_digests) or (len(tap.content_events()) if tap else 0)
    if stream.client is None or not whole:
        return _unwitnessed(stream, tap)
    if stream.client.end.reason in LEFT_BY_ITSELF:
        return Vote(verdict=Verdict.NOT_APPLICABLE)
    if not _silent(stream.client, whole):
        return Vote(verdict=Verdict.PASS)
    found = next(s for s in segments(stream, recording) if _silent(s.egress, whole))
    count = len(found.egress.content_events())
    return Vote(
        verdict=Verdict.FAIL,
        actual=f"behind {found.node} {count} of {whole} events end with {found.egress.end.reason}",
        symptom=SymptomKind.TRUNCATED_SILENTLY,
        culprit=found.node,
        evidence=(found.at(max(count - 1, 0)),),
    )


def _unwitnessed(stream: Stream, tap: StreamTrace | None) -> Vote:
    """What is said of a stream whose length nobody knows."""
    cancelled = stream.client and stream.client.end.reason is EndReason.CLIENT_CANCEL
    if cancelled:
        return Vote(verdict=Verdict.NOT_APPLICABLE)
    cause = Cause.TOO_FEW if tap is not None and stream.client else Cause.WITNESS_MISSING
    actual = f"{stream.key}: nobody saw what the engine was to send"
    return Vote(verdict=Verdict.UNKNOWN, cause=cause, actual=actual)


def _silent(trace: StreamTrace, whole: int) -> bool:
    """Whether a trace holds less than the whole answer and ends as if it were all."""
    clean = trace.end.reason in (EndReason.TERMINATOR, EndReason.CLEAN_EOF_WITHOUT_TERMINATOR)
    return clean and trace.status < ERROR_STATUS and len(trace.content_events()) < whole


def _terminator_vote(stream: Stream, recording: Recording) -> Vote:
    if stream.client is None:
        actual = f"{stream.key} has no client's trace"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.WITNESS_MISSING, actual=actual)
    tap = engine_tap(stream, recording)
    faulted = bool(recording.scenario.injections) and stream.client.end.reason in SEEN_AS_CUT
    cancelled = stream.client.end.reason is EndReason.CLIENT_CANCEL
    if cancelled or faulted or (tap is not None and _cut_before_its_end(tap)):
        return Vote(verdict=Verdict.NOT_APPLICABLE)
    for segment in segments(stream, recording):
        wrong = _wrong_end(segment.egress)
        if wrong:
            return Vote(
                verdict=Verdict.FAIL,
                actual=f"behind {segment.node}: {wrong}",
                symptom=SymptomKind.ENDED_WRONG,
                culprit=segment.node,
                evidence=(segment.at(max(len(segment.egress.events) - 1, 0)),),
            )
    return Vote(verdict=Verdict.PASS)


def _cut_before_its_end(tap: StreamTrace) -> bool:
    cut = tap.end.reason in SEEN_AS_CUT | LEFT_BY_ITSELF
    return (
        not tap.end.terminators
        and tap.end.reason is not EndReason.ERROR_EVENT
        and (cut or closed_by_client(tap))
    )


def _wrong_end(trace: StreamTrace) -> str:
    """What is wrong with the end of a trace, in words; empty where nothing is."""
    end = trace.end
    if end.reason is EndReason.ERROR_EVENT:
        return "an error event in place of the terminator"
    if not end.terminators:
        status = f", status {trace.status}" if trace.status >= ERROR_STATUS else ""
        return f"no terminator ({end.reason}{status})"
    if end.terminators > 1:
        return f"{end.terminators} terminators"
    if end.after_terminator_bytes:
        return f"{end.after_terminator_bytes} bytes behind the terminator"
    return ""
