"""An instrument in the test's own process and thread, its peers on the same loop: what happens
between two polls is the test's to say."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from harness.clock import now_ns
from harness.control import HelperControl
from harness.errors import HarnessError
from harness.instrument import Instrument
from harness.trace import TraceFile, read_trace

I = TypeVar("I", bound=Instrument)  # noqa: E741

PATIENCE_NS = 10_000_000_000
MS = 1_000_000


@contextmanager
def configured(make: Callable[[HelperControl], I], folder: Path, **fields: object) -> Iterator[I]:
    """An instrument that records into `folder`; its loop runs when the test runs it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = make(HelperControl(theirs))
        made._obey({"verb": "configure", "folder": str(folder), "secrets": [], **fields})
        yield made
        made.abandon()
        made.reactor.close()


def run_until(instrument: Instrument, condition: Callable[[], object]) -> None:
    """Runs the loop until the condition holds."""
    end_ns = now_ns() + PATIENCE_NS
    reactor = instrument.reactor

    def look() -> None:
        if condition():
            reactor.stop()
            return
        if now_ns() > end_ns:
            raise HarnessError("not within the test's patience")
        reactor.at(now_ns() + MS // 2, look)

    if not condition():
        reactor.at(now_ns(), look)
        reactor.run()


def trace_of(instrument: Instrument, folder: Path) -> TraceFile:
    """What it has written, closed."""
    instrument.abandon()
    instrument._close_trace()
    return read_trace(folder, instrument.name)


def listening() -> socket.socket:
    """A listening socket on loopback, without blocking."""
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    return sock


def pending(sock: socket.socket) -> bytes:
    """What has arrived, left where it is."""
    with suppress(BlockingIOError):
        return sock.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return b""
