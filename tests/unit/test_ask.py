"""One request of the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from harness.ask import PROBE_HEADER, ask

Server = Callable[[bytes], bytes]


@asynccontextmanager
async def serving(answer: bytes, *, asked: list[bytes] | None = None) -> AsyncIterator[int]:
    """A server that gives this answer to whatever head it gets, and closes; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if asked is not None:
            asked.append(head)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_answer_of_any_framing_is_whole(answer: bytes) -> None:
    """Status and body."""
    async with serving(answer) as port:
        assert await ask("GET", "/", "127.0.0.1", port) == (200, b"ok")


async def test_request_is_marked_as_a_probe() -> None:
    """Taps tell it from traffic by that."""
    asked: list[bytes] = []
    async with serving(b"HTTP/1.1 204 No\r\n\r\n", asked=asked) as port:
        await ask("POST", "/x", "127.0.0.1", port, body=b"{}")
    assert f"{PROBE_HEADER}: 1".encode() in asked[0]
    assert b"Content-Length: 2" in asked[0]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
    ],
)
async def test_answer_that_is_cut_is_an_error(answer: bytes) -> None:
    """Half a page of metrics would be read as one that lacks the rest."""
    async with serving(answer) as port:
        with pytest.raises((OSError, ValueError)):
            await ask("GET", "/", "127.0.0.1", port)


async def test_garbage_and_silence_are_errors() -> None:
    """Nothing that is no answer is taken for one."""
    async with serving(b"hello\r\n\r\n") as port:
        with pytest.raises(ValueError, match="not one"):
            await ask("GET", "/", "127.0.0.1", port)
    async with serving(b"") as port:
        with pytest.raises(OSError, match="without an answer"):
            await ask("GET", "/", "127.0.0.1", port)
    with pytest.raises(OSError, match="Connect"):
        await ask("GET", "/", "127.0.0.1", port)


async def test_answer_that_does_not_come_is_a_timeout() -> None:
    """Each wait has its end."""

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    async with server:
        with pytest.raises(TimeoutError):
            await ask("GET", "/", "127.0.0.1", server.sockets[0].getsockname()[1], within_s=0.05)
