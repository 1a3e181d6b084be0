"""Trace files: what one measuring process saw, appended as it happened.

Two files a process: `NAME.events.jsonl`, one JSON object a line for what is rare, and
`NAME.reads.bin` for bytes: a magic line, then records of a fixed head and the data. Both stay
readable after SIGKILL: a record that was cut off at the end is dropped and said so. Secrets are
masked before the first byte reaches the disk.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.clock import now_ns
from harness.errors import RecordingError
from harness.model import Direction
from harness.record import require_format
from harness.wire.redaction import Redactor

MAGIC = b"streamchaos.reads/1\n"
HEAD = struct.Struct("<BBxxIQQQI")
READ, WRITE = 0, 1
DIRECTIONS = (Direction.TOWARD_ORIGIN, Direction.TOWARD_CLIENT)
FLUSH_BYTES = 256 * 1024
NOT_OPEN = -1


@dataclass(frozen=True, slots=True)
class Record:
    """Bytes read or written on a connection.

    A read: `user_ns` our stamp behind it, `kernel_ns` the kernel's of its last segment (0: none),
    `earliest_ns` the bound. A write: `earliest_ns` before, `user_ns` behind it; its data is the
    next `size` bytes read in the same direction unless `data` is there.
    """

    write: bool
    direction: Direction
    connection: int
    user_ns: int
    kernel_ns: int
    earliest_ns: int
    size: int
    data: bytes


class TraceWriter:
    """Appends to a process's trace. `failed` holds the reason once the disk refuses, be it to open
    or to write; nothing is written after that, and nothing is raised."""

    def __init__(self, folder: Path, name: str, secrets: tuple[bytes, ...] = ()) -> None:
        self.failed = ""
        self._events_fd = self._open(folder / f"{name}.events.jsonl")
        self._reads_fd = self._open(folder / f"{name}.reads.bin")
        self._events: list[bytes] = []
        self._reads: list[bytes] = [MAGIC]
        self._size = 0
        self._secrets = secrets
        self._redactors: dict[tuple[int, int], Redactor] = {}

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.failed = _text(error)
            return NOT_OPEN

    def event(self, kind: str, fields: Mapping[str, object], at_ns: int = 0) -> None:
        """One rare thing that happened: `kind`, its time (now, if 0) and whatever describes it."""
        line = {"kind": kind, "at_ns": at_ns or now_ns(), **fields}
        self._events.append(msgspec.json.encode(line) + b"\n")

    def read(
        self,
        connection: int,
        direction: int,
        user_ns: int,
        kernel_ns: int,
        earliest_ns: int,
        data: bytes,
    ) -> None:
        """Bytes that arrived; `direction` is an index into DIRECTIONS."""
        redactor = self._redactors.get((connection, direction))
        if redactor is None:
            redactor = self._redactors[connection, direction] = Redactor(secrets=self._secrets)
        masked = redactor.feed(data)
        head = HEAD.pack(READ, direction, connection, user_ns, kernel_ns, earliest_ns, len(masked))
        self._append(head, masked)

    def write(
        self, connection: int, direction: int, before_ns: int, after_ns: int, size: int
    ) -> None:
        """`size` bytes of those read in this direction were handed to the kernel."""
        self._append(HEAD.pack(WRITE, direction, connection, after_ns, 0, before_ns, size), b"")

    def _append(self, head: bytes, data: bytes) -> None:
        self._reads.append(head)
        self._reads.append(data)
        self._size += len(head) + len(data)
        if self._size > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands everything to the kernel. A refusal (disk full) is kept in `failed`, never raised
        on the hot path."""
        self._write(self._events_fd, b"".join(self._events))
        self._write(self._reads_fd, b"".join(self._reads))
        self._events.clear()
        self._reads.clear()
        self._size = 0

    def _write(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.failed:
            try:
                view = view[os.write(fd, view) :]
            except OSError as error:
                self.failed = _text(error)

    def close(self) -> None:
        """Flushes and closes."""
        self.flush()
        for fd in (self._events_fd, self._reads_fd):
            if fd != NOT_OPEN:
                os.close(fd)


def _text(error: OSError) -> str:
    return f"{error.strerror} ({error.errno})"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace as read back: events in order, records in order, notes on what was cut off."""

    events: tuple[dict[str, Any], ...]
    records: tuple[Record, ...]
    notes: tuple[str, ...]


def read_trace(folder: Path, name: str, *, records: bool = True) -> TraceFile:
    """The trace of process `name`, as much of it as is whole; without `records` the rare events
    only.

    Raises:
        RecordingError: a file is missing, or written in a newer format.
    """
    notes: list[str] = []
    events = _read_events(folder / f"{name}.events.jsonl", notes)
    found = _read_records(folder / f"{name}.reads.bin", notes) if records else ()
    return TraceFile(events, found, tuple(notes))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        todo = "the recording is incomplete; run the scenario again"
        raise RecordingError(
            f"cannot be read: {error.strerror}", where=str(path), todo=todo
        ) from error


def _read_events(path: Path, notes: list[str]) -> tuple[dict[str, Any], ...]:
    events: list[dict[str, Any]] = []
    for number, line in enumerate(_read_bytes(path).split(b"\n"), start=1):
        if not line:
            continue
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = None
        if _is_event(event):
            events.append(event)
        else:
            notes.append(f"{path.name}:{number}: not a whole event, left out")
    return tuple(events)


def _is_event(event: object) -> bool:
    if not isinstance(event, dict):
        return False
    return isinstance(event.get("kind"), str) and isinstance(event.get("at_ns"), int)


def _read_records(path: Path, notes: list[str]) -> tuple[Record, ...]:
    content = _read_bytes(path)
    if not content.startswith(MAGIC):
        if not MAGIC.startswith(content):
            found = content.split(b"\n", 1)[0][:40].decode("ascii", "replace")
            require_format(found, MAGIC.strip().decode(), path)
        notes.append(f"{path.name}: cut off at byte {len(content)}, within its first line")
        return ()
    records, position = _whole_records(content)
    if position != len(content):
        notes.append(f"{path.name}: cut off or damaged at byte {position} of {len(content)}")
    return tuple(records)


def _whole_records(content: bytes) -> tuple[list[Record], int]:
    """The records that are whole, and where in `content` the last of them ends."""
    records: list[Record] = []
    position = len(MAGIC)
    while position + HEAD.size <= len(content):
        kind, direction, connection, user_ns, kernel_ns, earliest_ns, size = HEAD.unpack_from(
            content, position
        )
        end = position + HEAD.size + (size if kind == READ else 0)
        if kind > WRITE or direction > 1 or end > len(content):
            break
        data = content[position + HEAD.size : end]
        records.append(
            Record(
                kind == WRITE,
                DIRECTIONS[direction],
                connection,
                user_ns,
                kernel_ns,
                earliest_ns,
                size,
                data,
            )
        )
        position = end
    return records, position
