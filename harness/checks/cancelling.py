"""Whether a client that leaves stops the work that was done for it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.check import check
from harness.checks.segments import engine_name, engine_tap, node_name, position
from harness.checks.verdicts import Vote, finding_of, majority, not_applicable, unrecorded
from harness.model import (
    Cause,
    EndReason,
    Evidence,
    Finding,
    Lane,
    Recording,
    Stream,
    StreamTrace,
    SymptomKind,
    Verdict,
)

REACH_LIMIT_MS = 100
ABORT_LIMIT_MS = 250
DONE = ("finished", "aborted")


@check(source="the checklist: a disconnect cancels within 100 ms", timing=True)
def cancel_reaches_engine(evidence: Evidence) -> Finding:
    """A client's leaving reaches the engine within 100 ms, which aborts within 250 ms more.

    The proxy is to blame where the tap in front of the engine saw the closing late or never, the
    engine where the tap saw it in time and the ledger's abort is late or missing.
    """
    expected = f"closed toward the engine in {REACH_LIMIT_MS} ms, aborted {ABORT_LIMIT_MS} ms later"
    recording = evidence.subject
    if recording.scenario.workload.cancel is None:
        return not_applicable("no client leaves")
    if not recording.streams:
        return unrecorded(expected)
    votes = [(stream.key.lane, _vote(stream, recording)) for stream in recording.streams]
    vote = _common(votes)
    figures = _figures(recording)
    reached = dict(figures).get("cancel_latency_ms")
    held = "aborted at once" if reached is None else f"reached the engine in {reached:.1f} ms"
    return finding_of(vote, expected, held, figures)


def _common(votes: Sequence[tuple[Lane, Vote]]) -> Vote:
    """One lost cancel is a fail; a late one needs the majority of its lane, through or direct."""
    everyone = [vote for _, vote in votes]
    through = [vote for lane, vote in votes if lane is Lane.THROUGH]
    direct = [vote for lane, vote in votes if lane is not Lane.THROUGH]
    lost = [vote for vote in everyone if vote.symptom is SymptomKind.CANCEL_LOST]
    late = [vote for vote in (majority(through), majority(direct)) if vote.symptom]
    return (*lost, *late, majority(everyone))[0]


def closed_ns(tap: StreamTrace) -> int:
    """When the client's side of a tap went away, 0 for never."""
    if tap.client_closed_ns:
        return tap.client_closed_ns
    return tap.end.at_ns if tap.end.reason is EndReason.CLIENT_CANCEL else 0


def cancel_latency_ms(stream: Stream, recording: Recording) -> float | None:
    """From the client's leaving to the closing in front of the engine; None without both."""
    tap = engine_tap(stream, recording)
    if tap is None or not closed_ns(tap) or not _cancelled(stream):
        return None
    return (closed_ns(tap) - _left_ns(stream)) / 1e6


def _cancelled(stream: Stream) -> bool:
    return stream.client is not None and stream.client.end.reason is EndReason.CLIENT_CANCEL


def _left_ns(stream: Stream) -> int:
    return stream.client.end.at_ns if stream.client is not None else 0


def _figures(recording: Recording) -> tuple[tuple[str, float], ...]:
    latencies = [
        latency_ms
        for stream in recording.lane(Lane.THROUGH)
        if (latency_ms := cancel_latency_ms(stream, recording)) is not None
    ]
    wasted = [
        sum(1 for event in tap.content_events() if event.arrived.earliest_ns > _left_ns(stream))
        for stream in recording.streams
        if _cancelled(stream) and (tap := engine_tap(stream, recording))
    ]
    found: tuple[tuple[str, float], ...] = (("events_after_cancel", max(wasted, default=0)),)
    return (("cancel_latency_ms", median(latencies)), *found) if latencies else found


def _vote(stream: Stream, recording: Recording) -> Vote:
    if not _cancelled(stream):
        actual = f"{stream.key} ended before its client left"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.TOO_FEW, actual=actual)
    tap = engine_tap(stream, recording)
    if tap is None:
        return _without_tap(stream, recording)
    left_ns = _left_ns(stream)
    if _over(stream, tap, left_ns + REACH_LIMIT_MS * 1_000_000):
        actual = f"{stream.key}: the engine had ended by the time its client left"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.TOO_FEW, actual=actual)
    if stream.key.lane is Lane.THROUGH:
        reach = _reach_vote(stream, recording, left_ns)
        if reach is not None:
            return reach
    return _abort_vote(stream, recording, closed_ns(tap) or left_ns)


def _without_tap(stream: Stream, recording: Recording) -> Vote:
    """A request that its client gave up before it was passed on needs no cancel."""
    if any(one.taps for one in recording.streams) and not stream.ledger:
        return Vote(verdict=Verdict.NOT_APPLICABLE, actual="the request had not reached the engine")
    actual = "no tap in front of the engine"
    return Vote(verdict=Verdict.UNKNOWN, cause=Cause.WITNESS_MISSING, actual=actual)


def _over(stream: Stream, tap: StreamTrace, by_ns: int) -> bool:
    """Whether the engine had ended its answer by then, so that there was nothing left to cancel."""
    ended = tap.end.reason not in (EndReason.CLIENT_CANCEL, EndReason.DEADLINE)
    finished = any(entry.what == "finished" and entry.at_ns <= by_ns for entry in stream.ledger)
    return (ended and tap.end.at_ns <= by_ns) or finished


def _reach_vote(stream: Stream, recording: Recording, left_ns: int) -> Vote | None:
    """The proxies' part: None where the closing went all the way in time."""
    first = 0
    for hop in sorted({trace.hop for trace in stream.taps}):
        tap = next(one for one in stream.taps if one.hop == hop)
        late_ms = (closed_ns(tap) - left_ns) / 1e6
        lost = not closed_ns(tap)
        if lost or late_ms > REACH_LIMIT_MS:
            names = [node_name(recording, index) for index in range(first, hop)]
            culprit = "+".join(names) or f"hop{hop}"
            actual = f"{culprit} closed toward the engine {late_ms:.0f} ms after the client left"
            never = f"{culprit} never closed toward the engine"
            return _fail(never if lost else actual, culprit, tap, lost=lost)
        first = hop
    return None


def _abort_vote(stream: Stream, recording: Recording, told_ns: int) -> Vote:
    """The engine's part, from when it could know."""
    if not any(one.ledger for one in recording.streams):
        actual = "the closing reached the engine; without a ledger nobody saw the abort"
        return Vote(verdict=Verdict.UNKNOWN, cause=Cause.WITNESS_MISSING, actual=actual)
    engine, tap = engine_name(recording), engine_tap(stream, recording)
    done: Sequence[int] = [entry.at_ns for entry in stream.ledger if entry.what in DONE]
    late_ms = (min(done) - told_ns) / 1e6 if done else 0.0
    aborted = any(entry.what == "aborted" for entry in stream.ledger)
    if (done and late_ms <= ABORT_LIMIT_MS) or not stream.ledger:
        return Vote(verdict=Verdict.PASS)
    actual = f"{engine} aborted {late_ms:.0f} ms after the closing reached it"
    return _fail(actual if aborted else f"{engine} never aborted", engine, tap, lost=not aborted)


def _fail(actual: str, culprit: str, tap: StreamTrace | None, *, lost: bool) -> Vote:
    return Vote(
        verdict=Verdict.FAIL,
        actual=actual,
        symptom=SymptomKind.CANCEL_LOST if lost else SymptomKind.CANCEL_LATE,
        culprit=culprit,
        evidence=(position(tap, len(tap.events)),) if tap is not None else (),
    )
