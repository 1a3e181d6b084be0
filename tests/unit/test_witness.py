"""The engine's metrics, read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from harness import witness
from harness.model import MetricSample

PAGE = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
# TYPE vllm:request_success counter
vllm:request_success_total{model_name="m",finished_reason="abort"} 2.0
# TYPE python_gc gauge
python_gc 1.0
"""


@asynccontextmanager
async def engine(page: bytes, status: str = "200 OK") -> AsyncIterator[tuple[int, list[str]]]:
    """A server whose /metrics is `page`; its port, and what was asked of it."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(" ".join(head.split(" ")[:2]))
        body = page if "GET /metrics" in head else b"{}"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


async def test_sample_holds_the_engines_metrics_with_their_labels() -> None:
    """Nothing else of the page."""
    async with engine(PAGE) as (port, asked):
        sample = await witness.sample("127.0.0.1", port)
    assert sample is not None
    assert not sample.poked
    assert dict(sample.values) == {
        'vllm:num_requests_running{model_name="m"}': 3.0,
        'vllm:request_success_total{finished_reason="abort",model_name="m"}': 2.0,
    }
    assert asked == ["GET /metrics"]


async def test_poke_goes_before_the_reading() -> None:
    """Gauges may move only when the engine steps."""
    async with engine(PAGE) as (port, asked):
        sample = await witness.poke_and_sample("127.0.0.1", port)
    assert sample is not None
    assert sample.poked
    assert asked == ["POST /v1/completions", "GET /metrics"]


async def test_engine_without_metrics_gives_none() -> None:
    """No page, or nobody there: not a sample of zeros."""
    async with engine(b"", "404 Not Found") as (port, _):
        assert await witness.sample("127.0.0.1", port) is None
    assert await witness.sample("127.0.0.1", port) is None
    assert await witness.poke_and_sample("127.0.0.1", port) is None


async def test_labels_are_read_as_they_were_meant() -> None:
    """In the order of their names, whatever stands in them."""
    page = b'vllm:x{z="1",a="b,c}d\\"e"} 4\n'
    async with engine(page) as (port, _):
        sample = await witness.sample("127.0.0.1", port)
    assert sample is not None
    assert sample.values == (('vllm:x{a="b,c}d"e",z="1"}', 4.0),)


async def test_values_that_are_no_numbers_are_left_out() -> None:
    """A recording with one of them in it could not be read again."""
    page = b"vllm:a NaN\nvllm:b +Inf\nvllm:c 1\n"
    async with engine(page) as (port, _):
        sample = await witness.sample("127.0.0.1", port)
    assert sample is not None
    assert sample.values == (("vllm:c", 1.0),)
    assert msgspec.json.decode(msgspec.json.encode(sample), type=MetricSample) == sample


@pytest.mark.parametrize("page", [b"vllm:a", b'vllm:a{b="c} 1\n', b"<html>no</html>\n"])
async def test_page_that_is_no_metrics_gives_none(page: bytes) -> None:
    """What the engine does wrong is data, and a broken page is no sample."""
    async with engine(page) as (port, _):
        assert await witness.sample("127.0.0.1", port) is None
        assert await witness.poke_and_sample("127.0.0.1", port) is None
