"""Joins what the vantage points saw: traces by stream key, taps by connection and request index.

Nothing is guessed by time: an exchange without a key is listed as such.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.answers import Answer, answers, ending, read_pieces, written_pieces
from harness.model import (
    AccessEntry,
    Direction,
    EndReason,
    Fired,
    LedgerEntry,
    Recording,
    SelfCheck,
    Stamp,
    Stream,
    StreamEnd,
    StreamEvent,
    StreamKey,
    StreamTrace,
)
from harness.record import Facts, ScenarioFolder
from harness.trace import Record, TraceFile, read_trace
from harness.wire.http1 import End, Head, RequestReader

KEY_HEADERS = ("x-streamchaos-id", "x-request-id")
PROBE_HEADER = "x-streamchaos-probe"

CLIENT_ENDS: Mapping[str, EndReason | None] = {
    "complete": None,
    "eof": None,
    "reset": EndReason.RESET,
    "left": EndReason.CLIENT_CANCEL,
    "deadline": EndReason.DEADLINE,
    "abandoned": EndReason.DEADLINE,
    "connect_failed": EndReason.RESET,
    "tls_failed": EndReason.RESET,
}


@dataclass(frozen=True, slots=True)
class Closing:
    """When a neighbour of a tap was seen to go away, and whether other than by a FIN."""

    at_ns: int
    reset: bool


@dataclass(slots=True)
class Seen:
    """All that one vantage point has of one connection."""

    events: list[dict[str, Any]] = field(default_factory=list)
    reads: dict[Direction, list[Record]] = field(default_factory=lambda: defaultdict(list))
    writes: dict[Direction, list[Record]] = field(default_factory=lambda: defaultdict(list))

    def first_ns(self, *kinds: str) -> int:
        """When the first event of these kinds happened, 0 for never."""
        return next((int(e["at_ns"]) for e in self.events if e["kind"] in kinds), 0)

    def closing(self, side: Direction) -> Closing | None:
        """How the neighbour that sends in the direction `side` went away, None if it did not."""
        for event in self.events:
            if event["kind"] in ("eof", "reset"):
                gone = event.get("direction") == side
            else:
                gone = event["kind"] == "write_failed" and event.get("direction") != side
            if gone:
                return Closing(event["at_ns"], event["kind"] != "eof")
        return None


def _by_connection(trace: TraceFile, name: str) -> dict[int, Seen]:
    seen: dict[int, Seen] = defaultdict(Seen)
    for event in trace.events:
        if name in event:
            seen[event[name]].events.append(event)
    for record in trace.records:
        side = seen[record.connection].writes if record.write else seen[record.connection].reads
        side[record.direction].append(record)
    return seen


def load(folder: ScenarioFolder) -> Recording:
    """The recording in `folder`, joined.

    Raises:
        RecordingError: a file is missing or of a newer format.
    """
    scenario = folder.scenario()
    facts = folder.facts()
    ledger = folder.ledger()
    joined = folder.streams()
    notes = list(facts.notes)
    relay_events: tuple[dict[str, Any], ...] = ()
    unkeyed: list[str] = []
    if joined is None:
        client = read_trace(folder.path, "client")
        relay = read_trace(folder.path, "relay")
        notes += [*client.notes, *relay.notes]
        traces = [*_client_traces(client), *_tap_traces(relay, unkeyed)]
        joined = _join(traces, ledger, folder.access(), facts)
        relay_events, client_events = relay.events, client.events
    else:
        relay_events, client_events = _events(folder, "relay"), _events(folder, "client")
    return Recording(
        scenario=scenario,
        nodes=facts.nodes,
        streams=joined,
        unkeyed=tuple(unkeyed),
        fired=_fired(relay_events),
        metrics=facts.metrics,
        self_check=_self_check(joined, (*client_events, *relay_events)),
        broken_off=_broken_off(client_events),
        notes=tuple(notes),
    )


def _broken_off(client_events: Iterable[dict[str, Any]]) -> bool:
    """A sampler that came to its end says so last, and has no stream that it had to abandon."""
    kinds = {event["kind"] for event in client_events}
    return "self_check" not in kinds or "abandoned" in kinds


def _events(folder: ScenarioFolder, name: str) -> tuple[dict[str, Any], ...]:
    return read_trace(folder.path, name, records=False).events


# ----------------------------------------------------------------------------------- vantage points


def _client_traces(trace: TraceFile) -> Iterable[StreamTrace]:
    for seen in _by_connection(trace, "stream").values():
        planned = next((e for e in seen.events if "key" in e), None)
        key = StreamKey.parse(planned["key"]) if planned else None
        if key is not None:
            yield _client_trace(key, seen)


def _client_trace(key: StreamKey, seen: Seen) -> StreamTrace:
    reads = seen.reads[Direction.TOWARD_CLIENT]
    found = answers(read_pieces(reads), ["POST"])
    end_event = next((e for e in seen.events if e["kind"] in CLIENT_ENDS), None)
    return _trace(
        key,
        found[0] if found else None,
        _client_end(found[0] if found else None, end_event),
        hop=0,
        client=True,
        request_ns=seen.first_ns("request") or seen.first_ns("start", "planned"),
    )


def _client_end(answer: Answer | None, event: dict[str, Any] | None) -> StreamEnd:
    if event is None:
        return _end(answer, EndReason.DEADLINE, 0, "the trace breaks off")
    reason = CLIENT_ENDS[event["kind"]]
    how = event.get("how") or event.get("detail") or ""
    detail = f"{event['kind']} {how}".strip()
    if reason is None:
        if answer is None:
            reason = EndReason.INCOMPLETE_FRAMING
        else:
            reason, why = ending(answer, eof=event["kind"] == "eof", reset=False)
            detail = why or detail
    return _end(answer, reason, event["at_ns"], detail)


def _end(answer: Answer | None, reason: EndReason, at_ns: int, detail: str = "") -> StreamEnd:
    if answer is None:
        return StreamEnd(reason=reason, at_ns=at_ns, detail=detail)
    return StreamEnd(
        reason=reason,
        at_ns=at_ns,
        detail=detail,
        terminators=answer.reader.terminators,
        after_terminator_bytes=answer.reader.after_terminator_bytes,
        last_chunk_seen=answer.reader.last_chunk_seen,
    )


def _trace(
    key: StreamKey,
    answer: Answer | None,
    end: StreamEnd,
    *,
    hop: int,
    client: bool,
    request_ns: int,
    request_version: str = "",
    left: Answer | None = None,
    origin_closed_ns: int = 0,
    client_closed_ns: int = 0,
) -> StreamTrace:
    if answer is None:
        return StreamTrace(
            key=key,
            hop=hop,
            client=client,
            request_ns=request_ns,
            end=end,
            request_http_version=request_version,
            origin_closed_ns=origin_closed_ns,
            client_closed_ns=client_closed_ns,
        )
    reader = answer.reader
    return StreamTrace(
        key=key,
        hop=hop,
        client=client,
        request_ns=request_ns,
        status=reader.status,
        http_version=reader.http_version,
        framing=reader.framing,
        headers=reader.headers,
        head=answer.head,
        head_left=left.head if left else None,
        events=_with_left(answer.events, left.events if left else []),
        end=end,
        wire_bytes=reader.wire_bytes,
        body_bytes=reader.body_bytes,
        body_digest=reader.body_digest(),
        request_http_version=request_version,
        origin_closed_ns=origin_closed_ns,
        client_closed_ns=client_closed_ns,
    )


def _with_left(arrived: list[StreamEvent], left: list[StreamEvent]) -> tuple[StreamEvent, ...]:
    """Arrivals with the stamps of the writes that passed the same event on."""
    stamps: list[Stamp | None] = [event.arrived for event in left]
    stamps += [None] * (len(arrived) - len(left))
    return tuple(
        StreamEvent(
            index=event.index,
            kind=event.kind,
            end_offset=event.end_offset,
            size_bytes=event.size_bytes,
            digest=event.digest,
            read_index=event.read_index,
            arrived=event.arrived,
            left=stamp,
        )
        for event, stamp in zip(arrived, stamps, strict=False)
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a tap saw it."""

    key: StreamKey | None
    probe: bool
    method: str
    target: str
    version: str
    at_ns: int


def _requests(reads: list[Record]) -> list[Asked]:
    """The requests whose heads are whole; each began with the read that held its first byte."""
    reader = RequestReader()
    found: list[Asked] = []
    begun_ns = 0
    for record in reads:
        at_ns = record.kernel_ns or record.user_ns
        begun_ns = begun_ns or at_ns
        for item in reader.feed(record.data):
            if isinstance(item, Head):
                found.append(_asked(item, begun_ns))
            elif isinstance(item, End):
                begun_ns = at_ns
        if not reader.in_message:
            begun_ns = 0
    return found


def _asked(head: Head, at_ns: int) -> Asked:
    headers = dict(head.headers)
    texts = (headers.get(name, "") for name in KEY_HEADERS)
    keys = (StreamKey.parse(text) for text in texts if text.isascii())
    return Asked(
        key=next((k for k in keys if k is not None), None),
        probe=PROBE_HEADER in headers,
        method=head.method,
        target=head.target,
        version=head.version,
        at_ns=at_ns,
    )


def _tap_traces(trace: TraceFile, unkeyed: list[str]) -> Iterable[StreamTrace]:
    for number, seen in _by_connection(trace, "connection").items():
        opened = next((e for e in seen.events if e["kind"] == "opened"), None)
        if opened is None:
            continue
        asked = _requests(seen.reads[Direction.TOWARD_ORIGIN])
        methods = [a.method for a in asked]
        reads = seen.reads[Direction.TOWARD_CLIENT]
        arrived = answers(read_pieces(reads), methods)
        left = answers(written_pieces(reads, seen.writes[Direction.TOWARD_CLIENT]), methods)
        for index, request in enumerate(asked):
            if request.key is None:
                if not request.probe:
                    unkeyed.append(f"hop {opened['hop']}: {request.method} {request.target}")
                continue
            answer = arrived[index] if index < len(arrived) else None
            gone = left[index] if index < len(left) else None
            yield _tap_trace(request, request.key, opened["hop"], seen, answer, gone, number)


def _tap_trace(
    request: Asked,
    key: StreamKey,
    hop: int,
    seen: Seen,
    answer: Answer | None,
    left: Answer | None,
    connection: int,
) -> StreamTrace:
    finished_ns = answer.finished_ns if answer is not None else 0
    origin = _before(seen.closing(Direction.TOWARD_CLIENT), finished_ns)
    client = _before(seen.closing(Direction.TOWARD_ORIGIN), finished_ns)
    return _trace(
        key,
        answer,
        _tap_end(seen, answer, origin, client, f"connection {connection}"),
        hop=hop,
        client=False,
        request_ns=request.at_ns,
        request_version=request.version,
        left=left,
        origin_closed_ns=origin.at_ns if origin else 0,
        client_closed_ns=client.at_ns if client else 0,
    )


def _before(closing: Closing | None, finished_ns: int) -> Closing | None:
    """What is closed behind the end of an answer says nothing of it."""
    return None if closing and finished_ns and closing.at_ns >= finished_ns else closing


def _tap_end(
    seen: Seen,
    answer: Answer | None,
    origin: Closing | None,
    client: Closing | None,
    detail: str,
) -> StreamEnd:
    if answer is not None and answer.finished_ns:
        reason, why = ending(answer, eof=False, reset=False)
        return _end(answer, reason, answer.finished_ns, why or detail)
    if client and (not origin or client.at_ns <= origin.at_ns):
        return _end(answer, EndReason.CLIENT_CANCEL, client.at_ns, detail)
    if not origin:
        return _end(answer, EndReason.DEADLINE, seen.first_ns("closed"), "still open at the end")
    if answer is None:
        reason = EndReason.RESET if origin.reset else EndReason.INCOMPLETE_FRAMING
        return _end(None, reason, origin.at_ns, "no response")
    reason, why = ending(answer, eof=not origin.reset, reset=origin.reset)
    return _end(answer, reason, origin.at_ns, why or detail)


# ------------------------------------------------------------------------------------------ joining


def _join(
    traces: list[StreamTrace],
    ledger: tuple[LedgerEntry, ...] | None,
    access: tuple[AccessEntry, ...],
    facts: Facts,
) -> tuple[Stream, ...]:
    by_key: dict[StreamKey, list[StreamTrace]] = defaultdict(list)
    for trace in traces:
        by_key[trace.key].append(trace)
    told: dict[str, list[LedgerEntry]] = defaultdict(list)
    for entry in ledger or ():
        told[entry.key].append(entry)
    logged: dict[str, list[AccessEntry]] = defaultdict(list)
    for line in access:
        logged[line.key].append(line)
    return tuple(
        Stream(
            key=key,
            client=next((t for t in mine if t.client), None),
            taps=tuple(sorted((t for t in mine if not t.client), key=lambda t: t.request_ns)),
            ledger=tuple(told[str(key)]),
            access=tuple(logged[str(key)]),
            oracle_digests=facts.oracle.get(str(key), ()),
        )
        for key, mine in sorted(by_key.items())
    )


def _fired(events: Iterable[dict[str, Any]]) -> tuple[Fired, ...]:
    return tuple(
        Fired(
            injection=e["injection"],
            connection=e["connection"],
            at_ns=e["at_ns"],
            byte_offset=e.get("byte_offset", 0),
            event_index=e.get("event_index", 0),
            planned_ns=e.get("planned_ns", 0),
        )
        for e in events
        if e["kind"] == "fired"
    )


def _self_check(streams: tuple[Stream, ...], events: Iterable[dict[str, Any]]) -> SelfCheck:
    own = [e for e in events if e["kind"] == "self_check"]
    residence = sorted(
        max(event.left.at_ns - event.arrived.at_ns, 0)
        for stream in streams
        for trace in stream.taps
        for event in trace.events
        if event.left is not None
    )
    return SelfCheck(
        sleep_jitter_ns_p99=max((e.get("sleep_jitter_ns_p99", 0) for e in own), default=0),
        sleep_jitter_ns_max=max((e.get("sleep_jitter_ns_max", 0) for e in own), default=0),
        clock_steps=sum(e.get("clock_steps", 0) for e in own),
        tap_residence_ns_p99=residence[int(len(residence) * 0.99)] if residence else 0,
        tap_residence_ns_max=residence[-1] if residence else 0,
    )
