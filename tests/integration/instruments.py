"""The measuring processes, started and driven by a test as the harness does it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from harness.control import FD_VARIABLE, MessageReader, encode

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20.0


class Instrument:
    """A helper process and our end of its control socket."""

    def __init__(self, module: str, folder: Path) -> None:
        self.folder = folder
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(PATIENCE_S)
        self._reader = MessageReader()
        self._waiting: list[dict[str, Any]] = []
        with theirs:
            self.process = subprocess.Popen(
                (sys.executable, "-m", module),
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": str(ROOT), FD_VARIABLE: str(theirs.fileno())},
                stderr=subprocess.PIPE,
            )

    def send(self, verb: str, **fields: object) -> Self:
        """Gives an order."""
        self.socket.sendall(encode({"verb": verb, **fields}))
        return self

    def until(self, kind: str) -> dict[str, Any]:
        """The next notice of this kind; others are passed over."""
        while True:
            while not self._waiting:
                data = self.socket.recv(1 << 16)
                assert data, self.process.communicate()[1].decode()
                self._waiting += self._reader.feed(data)
            notice = self._waiting.pop(0)
            if notice["kind"] == kind:
                return notice

    def stop(self) -> None:
        """Its trace is whole after this."""
        self.send("stop").until("done")
        assert self.process.wait(PATIENCE_S) == 0


@contextmanager
def started(module: str, folder: Path) -> Iterator[Instrument]:
    """A configured instrument that is gone afterwards."""
    instrument = Instrument(module, folder)
    try:
        yield instrument
    finally:
        instrument.socket.close()
        if instrument.process.poll() is None:
            instrument.process.wait(PATIENCE_S)
        if instrument.process.stderr is not None:
            instrument.process.stderr.close()


def listen(relay: Instrument, target: tuple[str, int], hop: int = 1) -> tuple[str, int]:
    """Opens a hop of the relay toward `target`; the address that it listens on."""
    entry = {"number": hop, "listen_host": "127.0.0.1", "host": target[0], "port": target[1]}
    return "127.0.0.1", int(relay.send("listen", hop=entry).until("ready")["port"])
