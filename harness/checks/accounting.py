"""Whether the engine gives back what it took, and tells so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from harness.check import check
from harness.checks.segments import engine_name, scripted
from harness.checks.verdicts import failed, not_applicable, passed, unknown, unrecorded
from harness.model import (
    Cause,
    Evidence,
    Finding,
    LedgerEntry,
    MetricSample,
    Recording,
    Strength,
    SymptomKind,
)

FREE_LIMIT_MS = 250
USAGE_TOLERANCE = 1e-6
DONE = ("finished", "aborted")

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
SUCCESS = "vllm:request_success"


@check(source="the checklist: a cancel frees the KV slot, exactly once")
def kv_blocks_return(evidence: Evidence) -> Finding:
    """Each KV block that a request got is freed once, within 250 ms of the request's end.

    By the engine's own ledger; an engine that keeps none cannot be judged.
    """
    expected = f"all blocks freed once, within {FREE_LIMIT_MS} ms"
    recording = evidence.subject
    if not recording.streams:
        return unrecorded(expected)
    entries = _ledger(recording)
    if not entries:
        return _unkept(recording, expected)
    requests: dict[str, list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        requests[entry.request].append(entry)
    allocated = _blocks(entries, "allocated")
    figures = (
        ("blocks_allocated", float(allocated)),
        ("blocks_leaked", float(allocated - _blocks(entries, "freed"))),
    )
    wrongs = [wrong for one in requests.values() if (wrong := _wrong(one))]
    if wrongs:
        engine = engine_name(recording)
        more = f"; {len(wrongs) - 1} requests more" if len(wrongs) > 1 else ""
        kind = SymptomKind.BLOCKS_LEAKED
        return failed(expected, wrongs[0] + more, kind, engine, figures=figures)
    if not allocated and any(entry.what == "finished" for entry in entries):
        return unknown(Cause.TOO_FEW, expected, "the ledger shows no allocation", figures)
    return passed(expected, f"{allocated} blocks of {len(requests)} requests came back", figures)


def _ledger(recording: Recording) -> list[LedgerEntry]:
    return [entry for stream in recording.streams for entry in stream.ledger]


def _unkept(recording: Recording, expected: str) -> Finding:
    if scripted(recording):
        return unknown(Cause.WITNESS_MISSING, expected, "the engine's ledger is missing")
    return not_applicable("the engine keeps no ledger")


def _blocks(entries: Sequence[LedgerEntry], what: str) -> int:
    return sum(entry.blocks for entry in entries if entry.what == what)


def _wrong(entries: Sequence[LedgerEntry]) -> str:
    """What is wrong with one request's blocks, in words; empty where nothing is."""
    request = entries[0].request
    left = _blocks(entries, "allocated") - _blocks(entries, "freed")
    twice = sum(1 for entry in entries if entry.what == "double_freed")
    if twice:
        return f"the blocks of {request} were freed again ({twice} times more)"
    if left:
        return f"{left} blocks of {request} were {'never freed' if left > 0 else 'freed twice'}"
    done = [entry.at_ns for entry in entries if entry.what in DONE]
    freed = [entry.at_ns for entry in entries if entry.what == "freed"]
    late_ms = (max(freed) - min(done)) / 1e6 if freed and done else 0.0
    if late_ms > FREE_LIMIT_MS:
        return f"the blocks of {request} were freed {late_ms:.0f} ms after its end"
    return ""


# ---------------------------------------------------------------------------------------- metrics


@check(strength=Strength.SHOULD, source="vLLM, production metrics")
def metrics_agree_with_ledger(evidence: Evidence) -> Finding:
    """When all is over the gauges are back, and the abort counter tells the ledger's aborts.

    Read after one more request, since an engine may set its gauges only when it steps.
    """
    expected = "nothing running or waiting, KV usage as before, each abort counted"
    recording = evidence.subject
    if not recording.streams:
        return unrecorded(expected)
    entries = _ledger(recording)
    if not recording.scenario.workload.sample_metrics:
        return not_applicable("the workload does not ask for the metrics")
    before = next((sample for sample in recording.metrics if not sample.poked), None)
    after = next((sample for sample in reversed(recording.metrics) if sample.poked), None)
    if before is None or after is None or not entries:
        return unknown(Cause.WITNESS_MISSING, expected, "no sample before and after, or no ledger")
    aborts = len({entry.request for entry in entries if entry.what == "aborted"})
    wrongs = _metric_wrongs(before, after, aborts)
    if wrongs is None:
        return unknown(Cause.WITNESS_MISSING, expected, "the engine exports none of these metrics")
    figures = (("aborts", float(aborts)),)
    if wrongs:
        kind, engine = SymptomKind.METRICS_WRONG, engine_name(recording)
        return failed(expected, "; ".join(wrongs), kind, engine, figures=figures)
    return passed(expected, f"the gauges are back, {aborts} aborts counted", figures)


def _metric_wrongs(before: MetricSample, after: MetricSample, aborts: int) -> list[str] | None:
    """Each metric that disagrees with the ledger, in words; None where there is no metric."""
    wrongs: list[str] = []
    known = False
    for name in (RUNNING, WAITING):
        value = _value(after, name)
        known |= value is not None
        if value:
            wrongs.append(f"{name} is {value:g}")
    for name in KV_USAGE:
        first, last = _value(before, name), _value(after, name)
        if first is not None and last is not None and abs(last - first) > USAGE_TOLERANCE:
            wrongs.append(f"{name} was {first:g} and is {last:g}")
    counted = (_value(after, SUCCESS, "abort") or 0) - (_value(before, SUCCESS, "abort") or 0)
    if known and counted != aborts:
        wrongs.append(f"{counted:g} aborts counted, {aborts} in the ledger")
    return wrongs if known else None


def _value(sample: MetricSample, name: str, label: str = "") -> float | None:
    """The sum over a metric's series with `label` in their labels; None where there is none."""
    found = [
        value
        for series, value in sample.values
        if series.split("{", 1)[0].removesuffix("_total") == name and label in series
    ]
    return sum(found) if found else None
