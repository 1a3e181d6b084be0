"""From stamped pieces of one direction of a connection to the answers in it, event by event.

Used for what a client read, what a tap read and what a tap wrote: the same bytes, cut and stamped
differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.model import EndReason, Stamp, StreamEvent
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
    head: Stamp | None = None
    events: list[StreamEvent] = field(default_factory=list)
    finished_ns: int = 0


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
    """The answers on a connection in order; `methods` are those of its requests.

    Behind a malformed one nothing more is found: nobody knows where the next would begin.
    """
    found: list[Answer] = []
    for index, piece in enumerate(pieces):
        data = piece.data
        while data:
            if not found or found[-1].reader.complete:
                method = methods[len(found)] if len(found) < len(methods) else "GET"
                found.append(Answer(AnswerReader(method=method)))
            data = _feed(found[-1], data, piece, index)
    return found


def _feed(answer: Answer, data: bytes, piece: Piece, index: int) -> bytes:
    """Feeds one answer; gives the bytes behind its end."""
    reader = answer.reader
    was_finished = reader.finished
    items = reader.feed(data)
    loose = Stamp(at_ns=piece.at_ns, earliest_ns=piece.earliest_ns, kernel=piece.kernel)
    stamps = [loose] * len(items)
    if items and piece.kernel and not reader.pending_bytes and not reader.leftover:
        # The kernel stamps a read's last bytes, so only what it ends with is exact.
        stamps[-1] = Stamp(at_ns=piece.at_ns, earliest_ns=piece.at_ns, kernel=True)
    for item, stamp in zip(items, stamps, strict=True):
        if isinstance(item, Head) and not item.interim:
            answer.head = stamp
        elif isinstance(item, Told):
            answer.events.append(_event(len(answer.events), item, index, stamp))
    if reader.finished and not was_finished:
        answer.finished_ns = piece.at_ns
    return reader.leftover


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
