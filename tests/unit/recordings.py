"""Recordings made by hand: an engine, nodes that do one thing to a flow, observers that poll.

A `Case` says who does what; `Case().recording()` plays it in integers and gives the Recording that
truthful taps and a truthful client would have made of it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from harness.model import (
    Cancel,
    Directive,
    EndReason,
    EventKind,
    Fired,
    Injection,
    Lane,
    LedgerEntry,
    MetricSample,
    Node,
    NodeRun,
    Recording,
    Scenario,
    SelfCheck,
    Stack,
    Stamp,
    Stream,
    StreamEnd,
    StreamEvent,
    StreamKey,
    StreamScript,
    StreamTrace,
    Workload,
)

MS = 1_000_000
START_NS = 1_000_000_000
STAGGER_MS = 120
HOP_US = 50
SCRIPT = StreamScript(event_count=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """An answer on a hop: what leaves for the client and when, and how it ends.

    `cut_ns` is when the node on the client's side closed its connection toward the engine, 0 where
    it did not.
    """

    events: tuple[tuple[str, int], ...]
    end_ns: int
    reason: EndReason = EndReason.TERMINATOR
    terminators: int = 1
    after_bytes: int = 0
    body_digest: str = "body"
    cut_ns: int = 0


Behaviour = Callable[[Flow], Flow]


def digest(index: int) -> str:
    """Digest of the script's event `index`."""
    return hashlib.sha256(str(index).encode()).hexdigest()[:32]


# ------------------------------------------------------------------------------------- behaviours


def passing(residence_ms: float = 0.2) -> Behaviour:
    """Passes everything on after `residence_ms`."""
    return lambda flow: _later(flow, [int(at + residence_ms * MS) for _, at in flow.events])


def bursting(count: int) -> Behaviour:
    """Holds events until `count` of them are together, or the answer ends."""

    def act(flow: Flow) -> Flow:
        times = [at for _, at in flow.events]
        ends = [(i // count + 1) * count - 1 for i in range(len(times))]
        return _later(flow, [times[e] if e < len(times) else flow.end_ns for e in ends])

    return act


def holding_first(held_ms: float) -> Behaviour:
    """Holds the first event, and those behind it that would overtake it."""

    def act(flow: Flow) -> Flow:
        first = flow.events[0][1] + int(held_ms * MS)
        return _later(flow, [max(at, first) for _, at in flow.events])

    return act


def holding_all() -> Behaviour:
    """Passes the whole answer on at its end."""
    return lambda flow: _later(flow, [flow.end_ns for _ in flow.events])


def cutting(after_events: int, reason: EndReason = EndReason.RESET) -> Behaviour:
    """Ends the answer after some events, toward both sides."""

    def act(flow: Flow) -> Flow:
        at = flow.events[after_events - 1][1] + MS
        events = flow.events[:after_events]
        return replace(flow, events=events, end_ns=at, reason=reason, terminators=0, cut_ns=at)

    return act


def laundering() -> Behaviour:
    """Presents whatever ended the answer as a clean end."""
    clean = EndReason.CLEAN_EOF_WITHOUT_TERMINATOR
    return lambda flow: replace(flow, reason=clean if not flow.terminators else flow.reason)


def ending(
    reason: EndReason = EndReason.TERMINATOR, *, terminators: int = 1, after_bytes: int = 0
) -> Behaviour:
    """Ends the whole answer in another way."""
    return lambda flow: replace(
        flow, reason=reason, terminators=terminators, after_bytes=after_bytes
    )


def repeating(index: int) -> Behaviour:
    """Sends event `index` twice."""
    return lambda flow: replace(
        flow, events=(*flow.events[: index + 1], flow.events[index], *flow.events[index + 1 :])
    )


def altering(index: int) -> Behaviour:
    """Changes event `index`."""

    def act(flow: Flow) -> Flow:
        events = list(flow.events)
        events[index] = ("altered", events[index][1])
        return replace(flow, events=tuple(events))

    return act


def dropping(index: int) -> Behaviour:
    """Leaves event `index` out."""
    return lambda flow: replace(flow, events=(*flow.events[:index], *flow.events[index + 1 :]))


def rewriting() -> Behaviour:
    """Keeps the events and changes what lies between them."""
    return lambda flow: replace(flow, body_digest="rewritten")


def stalling(after_events: int, stall_ms: int) -> Behaviour:
    """Everything from event `after_events` on comes later by `stall_ms`."""

    def act(flow: Flow) -> Flow:
        late = [at + stall_ms * MS * (i >= after_events) for i, (_, at) in enumerate(flow.events)]
        return _later(flow, late)

    return act


def catching_up(after_events: int, stall_ms: int) -> Behaviour:
    """A stall of the process: what was due in it comes behind it at once."""

    def act(flow: Flow) -> Flow:
        until = flow.events[after_events][1] + stall_ms * MS
        late = [
            max(at, until) if i >= after_events else at for i, (_, at) in enumerate(flow.events)
        ]
        return _later(flow, late)

    return act


def chained(*behaviours: Behaviour) -> Behaviour:
    """One after the other."""

    def act(flow: Flow) -> Flow:
        for behaviour in behaviours:
            flow = behaviour(flow)
        return flow

    return act


def _later(flow: Flow, times: Sequence[int]) -> Flow:
    events = tuple((name, at) for (name, _), at in zip(flow.events, times, strict=True))
    return replace(flow, events=events, end_ns=max([flow.end_ns, *times]))


# -------------------------------------------------------------------------------------- observers


@dataclass(frozen=True, slots=True, kw_only=True)
class Polls:
    """When an observer looks: every `every_us`, but it sleeps `asleep_ms` of each `period_ms`.

    `grid_ms` gives the looks themselves instead, in ms after the start; behind the last it looks on
    as usual.
    """

    every_us: int = 1000
    asleep_ms: int = 0
    period_ms: int = 400
    kernel: bool = True
    grid_ms: tuple[int, ...] = ()

    def looks(self, until_ns: int) -> list[int]:
        """Entries of the polls from the start until one is behind `until_ns`."""
        found = [START_NS - MS, *(START_NS + ms * MS for ms in self.grid_ms)]
        while found[-1] <= until_ns:
            at_ns = found[-1] + self.every_us * 1000
            phase_ms = (at_ns - START_NS) // MS % self.period_ms
            if phase_ms < self.asleep_ms:
                at_ns += (self.asleep_ms - phase_ms) * MS
            found.append(at_ns)
        return found


def observed(flow: Flow, polls: Polls) -> tuple[tuple[StreamEvent, ...], list[int]]:
    """The events with truthful bounds as this observer stamps them, and when it read each."""
    looks = polls.looks(max([flow.end_ns, *(at for _, at in flow.events)]))
    reads = [bisect_left(looks, at) for _, at in flow.events]
    last = {look: index for index, look in enumerate(reads)}
    events: list[StreamEvent] = []
    for index, ((name, at), look) in enumerate(zip(flow.events, reads, strict=True)):
        newest_ns = flow.events[last[look]][1]
        if polls.kernel and last[look] == index:
            stamp = Stamp(at_ns=at, earliest_ns=at, kernel=True)
        elif polls.kernel:
            stamp = Stamp(at_ns=newest_ns, earliest_ns=looks[look - 1], kernel=True)
        else:
            stamp = Stamp(at_ns=looks[look], earliest_ns=looks[look - 1])
        events.append(
            StreamEvent(
                index=index,
                kind=EventKind.CONTENT,
                end_offset=250 * (index + 1),
                size_bytes=250,
                digest=name,
                read_index=look,
                arrived=stamp,
            )
        )
    return tuple(events), [looks[look] for look in reads]


TAP_POLLS = Polls(every_us=200)


# ------------------------------------------------------------------------------------------- case


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Who does what; `behaviours` are by node name, and only the through lane meets the proxies.

    `reach_ms` and `abort_ms` say when a cancel arrives in front of the engine and in its ledger,
    None for never. `received` is how often each request arrives. `untapped` lists hops without a
    tap.
    """

    nodes: tuple[str, ...] = ("nginx", "engine")
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    script: StreamScript = SCRIPT
    lanes: tuple[Lane, ...] = (Lane.DIRECT, Lane.THROUGH, Lane.THROUGH, Lane.DIRECT)
    client: Polls = field(default_factory=Polls)
    tap: Polls = TAP_POLLS
    tap_residence_ns: int = 20_000
    untapped: tuple[int, ...] = ()
    oracle: bool = True
    ledger: bool = True
    received: int = 1
    cancel_ms: int = 0
    reach_ms: float | None = 1.0
    abort_ms: float | None = 1.0
    free_ms: float | None = 1.0
    double_free: bool = False
    head_ms: float = 1.0
    injections: tuple[Injection, ...] = ()
    fired: tuple[Fired, ...] = ()
    metrics: tuple[MetricSample, ...] = ()
    sample_metrics: bool = False
    self_check: SelfCheck = field(default_factory=SelfCheck)
    directives: dict[str, tuple[Directive, ...]] = field(default_factory=dict)

    def scenario(self) -> Scenario:
        """The scenario of which this is a run."""
        return Scenario(
            id="unit/case",
            title="a case made by hand",
            stack=Stack(id="unit", nodes=tuple(Node(kind=name, name=name) for name in self.nodes)),
            workload=Workload(
                script=self.script,
                lanes=self.lanes,
                sample_metrics=self.sample_metrics,
                cancel=Cancel(after_ms=self.cancel_ms) if self.cancel_ms else None,
            ),
            injections=self.injections,
        )

    def recording(self) -> Recording:
        """What was seen of it."""
        numbers: Counter[Lane] = Counter()
        streams = []
        for place, lane in enumerate(self.lanes):
            key = StreamKey(run="r", scenario="unit/case", lane=lane, n=numbers[lane])
            numbers[lane] += 1
            streams.append(self._stream(key, START_NS + place * STAGGER_MS * MS))
        return Recording(
            scenario=self.scenario(),
            nodes=tuple(
                NodeRun(name=n, kind=n, version="1", directives=self.directives.get(n, ()))
                for n in self.nodes
            ),
            streams=tuple(streams),
            fired=self.fired,
            metrics=self.metrics,
            self_check=self.self_check,
        )

    # ----------------------------------------------------------------------------- one stream

    def _stream(self, key: StreamKey, asked_ns: int) -> Stream:
        engine = len(self.nodes) - 1
        script = self.script
        times = [asked_ns + script.due_ms(i) * MS for i in range(script.event_count)]
        events = tuple((digest(i), at) for i, at in enumerate(times))
        flow = Flow(events=events, end_ns=times[-1] + MS)
        flow = self.behaviours.get(self.nodes[engine], passing(0))(flow)
        flow, engine_cut = replace(flow, cut_ns=0), flow.cut_ns
        left_ns = asked_ns + self.cancel_ms * MS
        reach_ns = left_ns + int(self.reach_ms * MS) if self.reach_ms is not None else 0
        if self.cancel_ms:
            flow = self._cancelled(flow, reach_ns)
        hops = range(engine, 0, -1) if key.lane is Lane.THROUGH else (engine,)
        taps: list[StreamTrace] = []
        for hop in hops if engine else (0,):
            trace, flow = self._tapped(flow, key, hop, asked_ns, engine_cut)
            if key.lane is Lane.THROUGH and hop:
                flow = self.behaviours.get(self.nodes[hop - 1], passing())(flow)
                trace = self._closed(trace, flow.cut_ns)
                engine_cut, flow = flow.cut_ns, replace(flow, cut_ns=0)
            if self.cancel_ms:
                trace = replace(trace, client_closed_ns=reach_ns, origin_closed_ns=0)
            taps.append(trace)
        client = self._client(flow, key, asked_ns, left_ns)
        kept = [t for t in reversed(taps) if t.hop not in self.untapped]
        return Stream(
            key=key,
            client=client,
            taps=tuple(t for t in kept for _ in range(self.received)),
            ledger=self._ledger(key, asked_ns, taps[0].end.at_ns, reach_ns),
            oracle_digests=tuple(map(digest, range(script.event_count))) if self.oracle else (),
        )

    def _tapped(
        self, flow: Flow, key: StreamKey, hop: int, asked_ns: int, origin_cut_ns: int
    ) -> tuple[StreamTrace, Flow]:
        """The tap's trace, and the flow as the tap passes it on."""
        events, reads = observed(flow, self.tap)
        gone = [read + self.tap_residence_ns for read in reads]
        events = tuple(
            replace(event, left=Stamp(at_ns=out, earliest_ns=read))
            for event, read, out in zip(events, reads, gone, strict=True)
        )
        trace = replace(
            _trace(flow, key, events, hop, asked_ns),
            head=Stamp(at_ns=asked_ns + int(self.head_ms * MS), earliest_ns=asked_ns),
            origin_closed_ns=origin_cut_ns or flow.end_ns + 2 * MS,
        )
        sent = tuple((n, at) for (n, _), at in zip(flow.events, gone, strict=True))
        return trace, replace(flow, events=sent, end_ns=max([flow.end_ns, *gone]))

    def _closed(self, trace: StreamTrace, cut_ns: int) -> StreamTrace:
        """The trace of a tap whose neighbour on the client's side closed at `cut_ns`."""
        if not cut_ns or cut_ns > trace.end.at_ns:
            return trace
        events = tuple(e for e in trace.events if e.arrived.at_ns <= cut_ns)
        end = StreamEnd(reason=EndReason.CLIENT_CANCEL, at_ns=cut_ns)
        return replace(trace, events=events, end=end, client_closed_ns=cut_ns, origin_closed_ns=0)

    def _cancelled(self, flow: Flow, reach_ns: int) -> Flow:
        """The engine's answer up to where a cancel reached it."""
        if not reach_ns:
            return flow
        events = tuple(e for e in flow.events if e[1] <= reach_ns)
        reason = EndReason.CLIENT_CANCEL
        return replace(flow, events=events, end_ns=reach_ns, reason=reason, terminators=0)

    def _client(self, flow: Flow, key: StreamKey, asked_ns: int, left_ns: int) -> StreamTrace:
        hop_us = HOP_US * 1000
        arriving = _later(flow, [at + hop_us for _, at in flow.events])
        if self.cancel_ms:
            kept = tuple(e for e in arriving.events if e[1] <= left_ns)
            arriving = replace(
                arriving, events=kept, end_ns=left_ns, reason=EndReason.CLIENT_CANCEL, terminators=0
            )
        events, reads = observed(arriving, self.client)
        end_ns = left_ns if self.cancel_ms else max([arriving.end_ns, *reads])
        trace = _trace(replace(arriving, end_ns=end_ns), key, events, 0, asked_ns)
        head = Stamp(at_ns=asked_ns + int(self.head_ms * MS), earliest_ns=asked_ns)
        return replace(trace, client=True, head=head)

    def _ledger(
        self, key: StreamKey, asked_ns: int, end_ns: int, reach_ns: int
    ) -> tuple[LedgerEntry, ...]:
        if not self.ledger:
            return ()
        done: list[tuple[str, int, int]] = [("finished", end_ns, 0)]
        if self.cancel_ms:
            reached = reach_ns or end_ns
            done = [("aborted", reached + int(self.abort_ms * MS), 0)] if self.abort_ms else []
        over_ns = done[0][1] if done else end_ns
        told = [("received", asked_ns, 0)] * self.received
        told += [("admitted", asked_ns, 0), ("allocated", asked_ns, 3), *done]
        if self.free_ms is not None:
            told.append(("freed", over_ns + int(self.free_ms * MS), 3))
        if self.double_free:
            told.append(("double_freed", over_ns + int((self.free_ms or 0) * MS), 3))
        return tuple(
            LedgerEntry(at_ns=at, what=what, key=str(key), request=f"cmpl-{key}", blocks=blocks)
            for what, at, blocks in told
        )


def _trace(
    flow: Flow, key: StreamKey, events: tuple[StreamEvent, ...], hop: int, asked_ns: int
) -> StreamTrace:
    return StreamTrace(
        key=key,
        hop=hop,
        client=False,
        request_ns=asked_ns,
        status=200,
        events=events,
        end=StreamEnd(
            reason=flow.reason,
            at_ns=flow.end_ns,
            terminators=flow.terminators,
            after_terminator_bytes=flow.after_bytes,
            last_chunk_seen=flow.reason is EndReason.TERMINATOR,
        ),
        body_bytes=250 * len(events),
        body_digest=flow.body_digest,
    )
