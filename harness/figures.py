"""The figures of an arm: each the median over the streams of its lane, unless it says otherwise.

`ttft_ms` request's first byte written → the read that completed the first event with content ·
`ttfb_ms` → the read that completed the head · `tpot_ms` (last - first content event) / (n - 1) ·
`gap_ms_p50` between content events at the client · `e2e_ms` → the end · `hold_ms` the first event's
arrival at the client - its departure from the tap before the engine, of the same stream ·
`biggest_burst` most content events in one of the client's reads · `coalesced_gap_*` proven gaps, by
node summed · `cancel_latency_ms` the client's leaving → the closing in front of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median

from harness.checks.cancelling import cancel_latency_ms
from harness.checks.coalescing import crossed, squeeze
from harness.checks.segments import crossings, engine_tap, passed_on
from harness.model import Evidence, Lane, Recording, Stream, StreamTrace

Figures = tuple[tuple[str, float], ...]


def figures(recording: Recording) -> Figures:
    """Name and value of each figure that this recording can give; what nobody saw is left out."""
    through = _clients(recording.lane(Lane.THROUGH))
    direct = _clients(recording.lane(Lane.DIRECT, Lane.AA))
    clients = through or direct
    found: list[tuple[str, float]] = []
    for lane, traces in (("direct", direct), ("through", through)):
        for name, measure in TIMES.items():
            found += _median(f"{name}_{lane}", map(measure, traces))
    holds = (_hold_ms(stream, recording) for stream in recording.lane(Lane.THROUGH))
    found += _median("hold_ms", holds)
    found += _median("gap_ms_p50", (gap for trace in clients for gap in gaps_ms(trace)))
    found += _shape(recording, clients)
    latencies = (cancel_latency_ms(s, recording) for s in recording.lane(Lane.THROUGH))
    found += _median("cancel_latency_ms", latencies)
    ends = Counter(trace.end.reason for trace in clients)
    found += [(f"end_{reason}_count", float(count)) for reason, count in sorted(ends.items())]
    return tuple(found)


def ttft_ms(trace: StreamTrace) -> float | None:
    """Request's first byte written → the read that completed the first content event."""
    events = trace.content_events()
    return (events[0].arrived.at_ns - trace.request_ns) / 1e6 if events else None


def ttfb_ms(trace: StreamTrace) -> float | None:
    """Request's first byte written → the read that completed the head."""
    return (trace.head.at_ns - trace.request_ns) / 1e6 if trace.head else None


def tpot_ms(trace: StreamTrace) -> float | None:
    """(Last - first content event) / (n - 1); None below two events."""
    events = trace.content_events()
    if len(events) < 2:
        return None
    return (events[-1].arrived.at_ns - events[0].arrived.at_ns) / (len(events) - 1) / 1e6


def e2e_ms(trace: StreamTrace) -> float | None:
    """Request's first byte written → the end of the stream."""
    return (trace.end.at_ns - trace.request_ns) / 1e6 if trace.end.at_ns else None


def gaps_ms(trace: StreamTrace) -> Iterator[float]:
    """Each gap between two content events; 0 for events of one read."""
    for before, after in pairwise(trace.content_events()):
        yield (after.arrived.at_ns - before.arrived.at_ns) / 1e6


TIMES: dict[str, Callable[[StreamTrace], float | None]] = {
    "ttft_ms": ttft_ms,
    "ttfb_ms": ttfb_ms,
    "tpot_ms": tpot_ms,
    "e2e_ms": e2e_ms,
}


def _clients(streams: Iterable[Stream]) -> list[StreamTrace]:
    return [stream.client for stream in streams if stream.client is not None]


def _median(name: str, values: Iterable[float | None]) -> Figures:
    known = [value for value in values if value is not None]
    return ((name, median(known)),) if known else ()


def _hold_ms(stream: Stream, recording: Recording) -> float | None:
    tap = engine_tap(stream, recording)
    sent = passed_on(tap) if tap else ()
    seen = stream.client.content_events() if stream.client else ()
    if not sent or not seen:
        return None
    # Our stamp is taken behind the write, so a quick node's answer may carry an earlier one.
    return max(seen[0].arrived.at_ns - sent[0][1].at_ns, 0) / 1e6


def _shape(recording: Recording, clients: Sequence[StreamTrace]) -> Figures:
    """Bursts, proven gaps and how much arrived; nothing where no client's trace is there."""
    if not clients:
        return ()
    bursts = [squeeze((), trace.content_events()).biggest_burst for trace in clients]
    ways = [way for one in crossings(Evidence(subject=recording)).values() for way in one]
    squeezes = [crossed(way) for way in ways]
    gaps, proven = sum(s.gaps for s in squeezes), sum(len(s.proven) for s in squeezes)
    shares: Figures = ()
    if gaps:
        shares = (("coalesced_gap_count", float(proven)), ("coalesced_gap_share", proven / gaps))
    received = sum(len(trace.content_events()) for trace in clients)
    keys = {trace.key for trace in clients}
    asked = sum(len(s.oracle_digests) for s in recording.streams if s.key in keys)
    counts: Figures = (("biggest_burst", float(max(bursts))), ("events_received", float(received)))
    return (*counts, *shares, *((("events_expected", float(asked)),) if asked else ()))
