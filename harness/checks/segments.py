"""The path of one answer, from the engine to the client, cut where somebody watched.

A segment is what lies between two neighbouring vantages: the engine in front of its tap, a proxy
between two taps, or a run of proxies (`a+b`) where the hop between them has no tap. What entered it
is what the vantage upstream passed on (`left`); what left it is what the vantage downstream saw
arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.model import (
    EndReason,
    Evidence,
    Lane,
    Position,
    Recording,
    Stamp,
    Stream,
    StreamEvent,
    StreamTrace,
)

# The neighbour on the client's side went away by itself, so the end says nothing of who stands
# behind.
LEFT_BY_ITSELF = frozenset({EndReason.CLIENT_CANCEL, EndReason.DEADLINE, EndReason.IDLE_TIMEOUT})

# Ends in which a client that looks can see that the answer is not whole (RFC 9112 §8, RFC 9113
# §5.4).
SEEN_AS_CUT = frozenset(
    {
        EndReason.INCOMPLETE_FRAMING,
        EndReason.RESET,
        EndReason.RST_STREAM,
        EndReason.GOAWAY,
        EndReason.CLOSE_CODE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One part of the way; `ingress` is None where it holds the engine, `nodes` 0 for a link."""

    stream: Stream
    node: str
    nodes: int
    ingress: StreamTrace | None
    egress: StreamTrace

    def entered(self) -> tuple[tuple[StreamEvent, Stamp], ...]:
        """Content events that were passed on to this segment, each with when."""
        return () if self.ingress is None else passed_on(self.ingress)

    def at(self, event_index: int) -> Position:
        """A place in what left this segment."""
        return position(self.egress, event_index)


def passed_on(trace: StreamTrace) -> tuple[tuple[StreamEvent, Stamp], ...]:
    """Content events that a vantage passed on toward the client, each with when."""
    events = trace.content_events()
    return tuple((event, event.left) for event in events if event.left is not None)


def position(trace: StreamTrace, event_index: int) -> Position:
    """A place in a trace."""
    vantage = "client" if trace.client else f"hop{trace.hop}"
    return Position(key=str(trace.key), vantage=vantage, event_index=event_index)


def closed_by_client(trace: StreamTrace) -> bool:
    """Whether the neighbour on the client's side closed a tap's connection first."""
    origin_closed_ns, client_closed_ns = trace.origin_closed_ns, trace.client_closed_ns
    return bool(client_closed_ns) and not 0 < origin_closed_ns <= client_closed_ns


def node_name(recording: Recording, index: int) -> str:
    """The name of a node as it ran, else as the stack names it."""
    if index < len(recording.nodes):
        return recording.nodes[index].name
    node = recording.scenario.stack.nodes[index]
    return node.name or node.kind


def engine_name(recording: Recording) -> str:
    """The name of the last node."""
    return node_name(recording, recording.scenario.stack.engine_index)


def scripted(recording: Recording) -> bool:
    """Whether the engine plays a script: what it is to send is known beforehand."""
    return any(stream.oracle_digests for stream in recording.streams)


def engine_tap(stream: Stream, recording: Recording) -> StreamTrace | None:
    """What left the engine: the trace of the tap in front of it."""
    return fullest(stream, recording.scenario.stack.engine_index)


def fullest(stream: Stream, hop: int) -> StreamTrace | None:
    """The trace on a hop that saw most of an answer: of a request sent twice, what counts."""
    traces = [trace for trace in stream.taps if trace.hop == hop]
    return max(traces, key=lambda trace: len(trace.content_events()), default=None)


def segments(stream: Stream, recording: Recording) -> tuple[Segment, ...]:
    """The way of one answer, the engine's segment first. Empty where nobody watched."""
    engine = recording.scenario.stack.engine_index
    hops = sorted({trace.hop for trace in stream.taps}, reverse=True)
    watched = [(hop, trace) for hop in hops if (trace := fullest(stream, hop)) is not None]
    if stream.client is not None:
        # Direct to the engine, the client stands on the engine's own hop.
        watched.append((0 if stream.key.lane is Lane.THROUGH else engine, stream.client))
    found: list[Segment] = []
    ingress, last = None, engine + 1
    for hop, trace in watched:
        names = [node_name(recording, index) for index in range(hop, last)]
        name = "+".join(names) or f"hop{hop}"
        found.append(
            Segment(stream=stream, node=name, nodes=len(names), ingress=ingress, egress=trace)
        )
        ingress, last = trace, hop
    return tuple(found)


def crossings(evidence: Evidence) -> dict[str, list[Segment]]:
    """Each node between two vantages with its segments, from the engine to the client."""
    found: dict[str, list[Segment]] = {}
    for segment in _all(evidence.subject, (Lane.THROUGH,)):
        if segment.ingress is not None and segment.nodes:
            found.setdefault(segment.node, []).append(segment)
    return found


def engine_segments(evidence: Evidence) -> list[Segment]:
    """The engine's own segment of each stream whose engine has a tap of its own, in all lanes."""
    engine = evidence.subject.scenario.stack.engine_index
    found = _all(evidence.subject, tuple(Lane))
    return [
        s for s in found if s.ingress is None and not s.egress.client and s.egress.hop == engine
    ]


def _all(recording: Recording, lanes: tuple[Lane, ...]) -> Iterator[Segment]:
    for stream in recording.lane(*lanes):
        yield from segments(stream, recording)
