"""What the engine took and gave back, and what it tells of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.accounting import kv_blocks_return, metrics_agree_with_ledger
from harness.model import (
    Cause,
    Evidence,
    Finding,
    MetricSample,
    Strength,
    SymptomKind,
    Verdict,
)
from tests.unit.recordings import Case

CANCELLED = Case(cancel_ms=500)


def blocks(case: Case) -> Finding:
    return kv_blocks_return(Evidence(subject=case.recording()))


def sample(
    *, poked: bool, running: float = 0, waiting: float = 0, usage: float = 0.25, aborted: float = 0
) -> MetricSample:
    """A reading of /metrics with the names that vLLM gives them."""
    label = 'model_name="m"'
    return MetricSample(
        at_ns=1,
        poked=poked,
        values=(
            (f"vllm:num_requests_running{{{label}}}", running),
            (f"vllm:num_requests_waiting{{{label}}}", waiting),
            (f"vllm:kv_cache_usage_perc{{{label}}}", usage),
            (f'vllm:request_success_total{{finished_reason="stop",{label}}}', 7),
            (f'vllm:request_success_total{{finished_reason="abort",{label}}}', aborted),
        ),
    )


def metrics(case: Case, *samples: MetricSample) -> Finding:
    sampled = replace(case, metrics=samples, sample_metrics=True)
    return metrics_agree_with_ledger(Evidence(subject=sampled.recording()))


# ----------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("case", [Case(), CANCELLED, Case(free_ms=250)])
def test_blocks_that_come_back_in_time_are_green(case: Case) -> None:
    """Finished or aborted, each block is freed once."""
    finding = blocks(case)
    assert finding.verdict is Verdict.PASS
    assert dict(finding.figures) == {"blocks_allocated": 12.0, "blocks_leaked": 0.0}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case(free_ms=None), "never freed"),
        (Case(free_ms=251), "251 ms after its end"),
        (Case(double_free=True), "freed again (1 times more)"),
        (replace(CANCELLED, free_ms=None), "never freed"),
    ],
)
def test_blocks_that_do_not_come_back_once_and_in_time_are_red(case: Case, words: str) -> None:
    """Leaked, late, freed twice: each is the engine's."""
    finding = blocks(case)
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "engine")
    assert finding.symptom is not None
    assert finding.symptom.kind is SymptomKind.BLOCKS_LEAKED
    assert words in finding.actual
    assert "3 requests more" in finding.actual


def test_blocks_freed_by_more_than_were_allocated_are_red() -> None:
    """A second release under the name of the first is one too."""
    recording = Case().recording()
    first = recording.streams[0]
    freed = next(entry for entry in first.ledger if entry.what == "freed")
    twice = replace(first, ledger=(*first.ledger, freed))
    finding = kv_blocks_return(Evidence(subject=replace(recording, streams=(twice,))))
    assert "freed twice" in finding.actual


@pytest.mark.parametrize(
    ("case", "verdict", "cause"),
    [
        (Case(lanes=()), Verdict.UNKNOWN, Cause.TOO_FEW),
        (Case(ledger=False), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (Case(ledger=False, oracle=False), Verdict.NOT_APPLICABLE, None),
    ],
)
def test_blocks_without_a_ledger_are_not_judged(
    case: Case, verdict: Verdict, cause: Cause | None
) -> None:
    """An engine of ours must testify, another one cannot."""
    finding = blocks(case)
    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_blocks_that_were_never_allocated_show_nothing() -> None:
    """Answers without a block in the ledger prove no return."""
    recording = Case().recording()
    bare = tuple(
        replace(s, ledger=tuple(e for e in s.ledger if not e.blocks)) for s in recording.streams
    )
    finding = kv_blocks_return(Evidence(subject=replace(recording, streams=bare)))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.TOO_FEW)


# ---------------------------------------------------------------------------------------- metrics


def test_metrics_that_return_and_count_are_green() -> None:
    """Gauges at rest, and the aborts of the ledger counted."""
    before, after = sample(poked=False, aborted=2), sample(poked=True, aborted=6)
    finding = metrics(CANCELLED, before, after)
    assert (finding.verdict, finding.strength) == (Verdict.PASS, Strength.SHOULD)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (sample(poked=True, aborted=4, running=1), "running is 1"),
        (sample(poked=True, aborted=4, waiting=2), "waiting is 2"),
        (sample(poked=True, aborted=4, usage=0.5), "was 0.25 and is 0.5"),
        (sample(poked=True, aborted=0), "0 aborts counted, 4 in the ledger"),
    ],
)
def test_metrics_that_disagree_are_red(after: MetricSample, words: str) -> None:
    """A stale gauge and a dead counter are the engine's."""
    finding = metrics(CANCELLED, sample(poked=False), after)
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "engine")
    assert words in finding.actual


@pytest.mark.parametrize(
    ("case", "samples", "verdict", "cause"),
    [
        (Case(lanes=()), (), Verdict.UNKNOWN, Cause.TOO_FEW),
        (
            Case(ledger=False),
            (sample(poked=False), sample(poked=True)),
            Verdict.UNKNOWN,
            Cause.WITNESS_MISSING,
        ),
        (Case(), (), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (Case(), (sample(poked=False),), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (
            Case(),
            (MetricSample(at_ns=1, poked=False), MetricSample(at_ns=2, poked=True)),
            Verdict.UNKNOWN,
            Cause.WITNESS_MISSING,
        ),
    ],
)
def test_metrics_without_samples_are_not_judged(
    case: Case, samples: tuple[MetricSample, ...], verdict: Verdict, cause: Cause | None
) -> None:
    """A sample before, one after a poke, and a ledger are needed."""
    finding = metrics(case, *samples)
    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_metrics_that_nobody_asked_for_do_not_apply() -> None:
    """A workload that takes no samples is not missing any."""
    finding = metrics_agree_with_ledger(Evidence(subject=Case().recording()))
    assert finding.verdict is Verdict.NOT_APPLICABLE
