"""Whether the proxies' own logs say what was seen on the wire."""

from __future__ import annotations

from harness.check import check
from harness.checks.segments import node_name
from harness.checks.verdicts import Vote, finding_of, unanimous, unrecorded
from harness.model import (
    AccessEntry,
    EndReason,
    Evidence,
    Finding,
    Lane,
    Recording,
    Stream,
    StreamTrace,
    Strength,
    SymptomKind,
    Verdict,
)

CLIENT_CLOSED = 499
"""nginx's own status for a client that went away; nothing with this number is ever sent."""


@check(strength=Strength.SHOULD, source="nginx, module ngx_http_log_module")
def access_log_agrees(evidence: Evidence) -> Finding:
    """A proxy's access log tells the status that its client's side saw.

    Who reads the log of a proxy that tells another story than the wire looks in the wrong place.
    """
    expected = "the status that was logged is the status that was sent"
    recording = evidence.subject
    if not recording.streams:
        return unrecorded(expected)
    through = recording.lane(Lane.THROUGH)
    votes = [_vote(stream, entry, recording) for stream in through for entry in stream.access]
    return finding_of(unanimous(votes), expected, f"{len(votes)} lines of access logs agree")


def _vote(stream: Stream, entry: AccessEntry, recording: Recording) -> Vote:
    seen = _client_side(stream, entry.node, recording)
    if seen is None or not seen.status:
        return Vote(verdict=Verdict.NOT_APPLICABLE)
    left = seen.client_closed_ns or seen.end.reason is EndReason.CLIENT_CANCEL
    if entry.status == seen.status or (entry.status == CLIENT_CLOSED and left):
        return Vote(verdict=Verdict.PASS)
    return Vote(
        verdict=Verdict.FAIL,
        actual=f"{entry.node} logged {entry.status} for {stream.key}, and sent {seen.status}",
        symptom=SymptomKind.CONTRADICTED,
        culprit=entry.node,
    )


def _client_side(stream: Stream, node: str, recording: Recording) -> StreamTrace | None:
    """What was seen on the client's side of the node."""
    names = [node_name(recording, i) for i in range(len(recording.scenario.stack.nodes))]
    if node not in names:
        return None
    hop = names.index(node)
    return stream.client if hop == 0 else stream.tap(hop)
