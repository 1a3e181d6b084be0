"""One request of the control plane: readiness, metrics, a poke. Never on the measured path."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from harness.wire.http1 import Body, End, Head, Malformed, ResponseReader

ASK_S = 5.0
PROBE_HEADER = "X-Streamchaos-Probe"


async def ask(
    method: str,
    path: str,
    host: str,
    port: int,
    *,
    body: bytes = b"",
    context: ssl.SSLContext | None = None,
    within_s: float = ASK_S,
) -> tuple[int, bytes]:
    """Status and body of the answer. It carries a header by which taps tell it from traffic.

    Raises:
        OSError, TimeoutError: nobody answered in time, or not to the end. ValueError: what was
            answered is not HTTP.
    """
    async with asyncio.timeout(within_s):
        name = "localhost" if context else None
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=name
        )
        try:
            writer.write(_request(method, path, f"{host}:{port}", body))
            return await _answer(reader, method)
        finally:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()


def _request(method: str, path: str, host: str, body: bytes) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        f"{PROBE_HEADER}: 1",
        "Connection: close",
    ]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _answer(reader: asyncio.StreamReader, method: str) -> tuple[int, bytes]:
    http = ResponseReader()
    http.expect(method)
    status, pieces = 0, []
    while True:
        data = await reader.read(1 << 16)
        for item in http.feed(data) if data else http.eof():
            match item:
                case Head(status=told):
                    status = told
                case Body(data=piece):
                    pieces.append(piece)
                case End(complete=True):
                    return status, b"".join(pieces)
                case End():
                    raise ConnectionError("closed in the middle of its answer")
                case Malformed(what=what):
                    raise ValueError(what)
        if not data:
            raise ConnectionError("closed without an answer")
