"""The engine's log: one LedgerEntry as JSON per line."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from harness.model import LedgerEntry

FLUSH_EVERY_S = 0.1


class Log:
    """Appends entries to a file. What was recorded is on the disk after `flush`, at the latest
    after `close`.

    Raises OSError where the file cannot be opened or written.
    """

    __slots__ = ("_encoder", "_file", "pending")

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._encoder = msgspec.json.Encoder()
        self.pending: list[LedgerEntry] = []

    def flush(self) -> None:
        """Writes what is pending."""
        entries, self.pending = self.pending, []
        data = memoryview(self._encoder.encode_lines(entries))
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Writes what is pending and closes the file."""
        try:
            self.flush()
        finally:
            os.close(self._file)


def read(path: Path) -> tuple[LedgerEntry, ...]:
    """The entries of a log, up to a last line that was cut off while it was written."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return tuple(msgspec.json.decode(line, type=LedgerEntry) for line in lines)
