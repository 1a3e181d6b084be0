"""True readiness: a real request that is answered, by the node itself and nobody else."""

from __future__ import annotations

import ssl
from contextlib import suppress

import psutil

from harness.ask import ask
from harness.model import Readiness

PROBE_S = 2.0


async def probe(readiness: Readiness, host: str, port: int, context: ssl.SSLContext | None) -> str:
    """Empty when the request was answered as wanted, else what was seen."""
    try:
        status, _ = await ask("GET", readiness.path, host, port, context=context, within_s=PROBE_S)
    except (OSError, TimeoutError, ValueError) as error:
        return str(error) or type(error).__name__
    return "" if status == readiness.status else f"status {status} instead of {readiness.status}"


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
