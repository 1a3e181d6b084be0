"""From stamped pieces of one direction of a connection to the answers in it, event by event.

Used for what a client read, what a tap read and what a tap wrote: the same bytes, cut and stamped
differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.model import EndReason, Framing, Stamp, StreamEvent
from harness.trace import Record
from harness.wire.answer import AnswerReader, Told
from harness.wire.http1 import Head


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that became known together, with the stamp of the last of them."""

    data: bytes
    at_ns: int
    earliest_ns: int
    kernel: bool


@dataclass(slots=True)
class Answer:
    """One answer as read from pieces. `finished_ns` is 0 while its end has not been seen."""

    reader: AnswerReader
    begun_ns: int = 0
    head: Stamp | None = None
    events: list[StreamEvent] = field(default_factory=list)
    finished_ns: int = 0

    def framing(self) -> Framing:
        """How the body was delimited."""
        return self.reader.framing


def read_pieces(records: Iterable[Record]) -> Iterator[Piece]:
    """What was read, each read a piece with the kernel's stamp where there is one."""
    for record in records:
        if record.kernel_ns:
            earliest_ns = min(record.earliest_ns, record.kernel_ns)
            yield Piece(record.data, record.kernel_ns, earliest_ns, True)
        else:
            yield Piece(record.data, record.user_ns, record.earliest_ns, False)


def written_pieces(read: Iterable[Record], written: Iterable[Record]) -> Iterator[Piece]:
    """What was written: the bytes that were read, cut as they were handed to the kernel."""
    content = b"".join(record.data for record in read)
    position = 0
    for record in written:
        data = content[position : position + record.size]
        position += record.size
        yield Piece(data, record.user_ns, record.earliest_ns, False)


def answers(pieces: Iterable[Piece], methods: Sequence[str]) -> list[Answer]:
    """The answers on a connection in order; `methods` are those of its requests."""
    found: list[Answer] = []
    current: Answer | None = None
    for index, piece in enumerate(pieces):
        data = piece.data
        while data:
            if current is None:
                method = methods[len(found)] if len(found) < len(methods) else "GET"
                current = Answer(AnswerReader(method=method), begun_ns=piece.at_ns)
                found.append(current)
            data = _feed(current, data, piece, index)
            if current.reader.finished:
                current.finished_ns = piece.at_ns
                current = None
            else:
                data = b""
    return found


def _feed(answer: Answer, data: bytes, piece: Piece, index: int) -> bytes:
    """Feeds one answer; gives the bytes behind its end."""
    loose = Stamp(at_ns=piece.at_ns, earliest_ns=piece.earliest_ns, kernel=piece.kernel)
    items = answer.reader.feed(data)
    last = next((i for i in reversed(items) if isinstance(i, Told)), None)
    for item in items:
        if isinstance(item, Head) and not item.interim:
            answer.head = loose
        elif isinstance(item, Told):
            exact = piece.kernel and item is last and not answer.reader.pending_bytes
            stamp = (
                Stamp(at_ns=piece.at_ns, earliest_ns=piece.at_ns, kernel=True) if exact else loose
            )
            answer.events.append(_event(len(answer.events), item, index, stamp))
    return answer.reader.leftover


def _event(index: int, item: Told, read_index: int, stamp: Stamp) -> StreamEvent:
    return StreamEvent(
        index=index,
        kind=item.kind,
        end_offset=item.event.end_offset,
        size_bytes=len(item.event.raw),
        digest=hashlib.sha256(item.event.raw).hexdigest(),
        read_index=read_index,
        arrived=stamp,
    )


def ending(answer: Answer, *, eof: bool, reset: bool) -> tuple[EndReason, str]:
    """How this answer ended at this vantage point."""
    return answer.reader.ending(eof=eof, reset=reset)
