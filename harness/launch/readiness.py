"""True readiness: a real request that is answered, by the node itself and nobody else."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import psutil

from harness.model import Readiness

PROBE_S = 2.0


async def probe(
    readiness: Readiness, host: str, port: int, context: ssl.SSLContext | None
) -> str:
    """Empty when the request was answered as wanted, else what was seen."""
    try:
        async with asyncio.timeout(PROBE_S):
            status = await _status(readiness.path, host, port, context)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, ssl.SSLError) as error:
        return str(error) or type(error).__name__
    return "" if status == readiness.status else f"status {status} instead of {readiness.status}"


async def _status(path: str, host: str, port: int, context: ssl.SSLContext | None) -> int:
    name = "localhost" if context else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nX-Streamchaos-Probe: 1\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        words = (await reader.readline()).split()
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


def listens(pid: int, port: int) -> bool:
    """Whether this process, or one below it, holds a listener on the port."""
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        return any(_holds(process, port) for process in [root, *root.children(recursive=True)])
    return False


def _holds(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.Error):
        return any(
            c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port
            for c in process.net_connections("tcp")
        )
    return False
