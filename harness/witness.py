"""The engine's metrics as a witness: read as they are, then again after a poke.

Gauges may be set only when the engine steps (vllm#22545), so a one-token request goes before the
reading that counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from harness.ask import ask
from harness.clock import now_ns
from harness.model import MetricSample

PREFIX = "vllm:"
POKE = {"prompt": "poke", "max_tokens": 1, "stream": False}


async def sample(host: str, port: int) -> MetricSample | None:
    """What /metrics says now; None where there is none, or none that can be read."""
    return await _read(host, port, poked=False)


async def poke_and_sample(host: str, port: int) -> MetricSample | None:
    """What /metrics says after one more request has made the engine step."""
    body = msgspec.json.encode(POKE)
    try:
        await ask("POST", "/v1/completions", host, port, body=body)
    except (OSError, ValueError):
        return None
    return await _read(host, port, poked=True)


async def _read(host: str, port: int, *, poked: bool) -> MetricSample | None:
    try:
        status, text = await ask("GET", "/metrics", host, port)
        values = tuple(_values(text.decode("utf-8", "replace")))
    except (OSError, ValueError):
        return None
    return MetricSample(at_ns=now_ns(), poked=poked, values=values) if status == 200 else None


def _values(text: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            # NaN and infinity count nothing, and JSON has no word for them.
            if one.name.startswith(PREFIX) and math.isfinite(one.value):
                labels = ",".join(f'{k}="{v}"' for k, v in sorted(one.labels.items()))
                yield f"{one.name}{{{labels}}}" if labels else one.name, one.value
