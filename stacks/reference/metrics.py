"""The text of /metrics (Prometheus exposition format 0.0.4) with vLLM's names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stacks.reference.scheduler import Counters, Gauges

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie (nearest rank); 0 of none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def render(
    model: str, gauges: Gauges, counters: Counters, lateness_ns: Sequence[int], steps: int
) -> bytes:
    """The page. `lateness_ns` are the latest steps' delays (planned → last write done), `steps`
    counts all of them.
    """
    label = f'model_name="{_escaped(model)}"'
    lines = [
        *_metric("vllm:num_requests_running", "gauge", {label: gauges.running}),
        *_metric("vllm:num_requests_waiting", "gauge", {label: gauges.waiting}),
        *_metric("vllm:kv_cache_usage_perc", "gauge", {label: gauges.kv_usage}),
        *_metric("vllm:prompt_tokens_total", "counter", {label: counters.prompt_tokens}),
        *_metric("vllm:generation_tokens_total", "counter", {label: counters.generation_tokens}),
        *_metric(
            "vllm:request_success_total",
            "counter",
            {f'finished_reason="{r}",{label}': n for r, n in counters.success.items()},
        ),
        *_lateness(label, sorted(lateness_ns), steps),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _metric(name: str, kind: str, samples: dict[str, float]) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    for labels, value in samples.items():
        yield f"{name}{{{labels}}} {float(value)!r}"


def _lateness(label: str, ordered_ns: Sequence[int], steps: int) -> Iterator[str]:
    name = "reference:step_lateness_seconds"
    yield f"# TYPE {name} summary"
    for share in (0.5, 0.99, 1.0):
        seconds = quantile(ordered_ns, share) / 1e9
        yield f'{name}{{quantile="{share:g}",{label}}} {seconds:.6f}'
    yield f"{name}_count{{{label}}} {steps}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
