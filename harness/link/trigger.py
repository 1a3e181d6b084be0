"""When a fault starts: a watch follows a copy of the bytes of one direction and says where in them
it is time.

Progress is counted at this place of the link: bytes of the direction, the end of the first
response's head, content events of the answer at hand. It does not depend on how the bytes were
split.
"""

from __future__ import annotations

import re
from typing import assert_never

from harness.model import EventKind, Trigger, TriggerKind
from harness.wire.answer import AnswerReader

LINE_END = re.compile(rb"[\r\n]")


class TriggerWatch:
    """Tells after how many bytes of the data at hand the trigger is met; met once, met for good.

    `event_count` is the number of content events in the answer at hand, as far as it was followed:
    up to where the trigger was met.
    """

    __slots__ = ("_answer", "_bytes", "_opened_ns", "_trigger", "event_count", "met")

    def __init__(self, trigger: Trigger, opened_ns: int) -> None:
        self._trigger = trigger
        self._opened_ns = opened_ns
        self._bytes = 0
        self._answer = AnswerReader()
        self.event_count = 0
        self.met = trigger.kind is TriggerKind.CONNECT

    @property
    def due_ns(self) -> int | None:
        """When a trigger by time is met; None for the others."""
        if self._trigger.kind is TriggerKind.ELAPSED:
            return self._opened_ns + self._trigger.after_ms * 1_000_000
        return None

    def met_at(self, data: bytes, now_ns: int) -> int | None:
        """How many bytes of `data` pass before the trigger is met: 0 for already met, None for not
        within `data`."""
        if self.met:
            return 0
        offset = self._offset(data, now_ns)
        self._bytes += len(data)
        self.met = offset is not None
        return offset

    def _offset(self, data: bytes, now_ns: int) -> int | None:
        match self._trigger.kind:
            case TriggerKind.CONNECT:
                return 0
            case TriggerKind.ELAPSED:
                due_ns = self.due_ns
                return 0 if due_ns is not None and now_ns >= due_ns else None
            case TriggerKind.BYTES:
                wanted = self._trigger.count - self._bytes
                return max(wanted, 0) if wanted <= len(data) else None
            case TriggerKind.HEADERS | TriggerKind.EVENTS:
                return self._follow(data)
            case _:
                assert_never(self._trigger.kind)

    def _follow(self, data: bytes) -> int | None:
        """Step by step, because the reader tells that an event is whole, not where in the raw
        bytes."""
        position = 0
        while position < len(data):
            end = self._next_step(data, position)
            self._feed(data[position:end])
            position = end
            if self._reached():
                return position
        return None

    def _next_step(self, data: bytes, position: int) -> int:
        """An event ends with a line's end; in a coded body it may become whole at any byte."""
        if self._answer.content_encoding:
            return position + 1
        found = LINE_END.search(data, position)
        return found.end() if found else len(data)

    def _feed(self, data: bytes) -> None:
        if self._answer.complete:
            data = self._answer.leftover + data
            self._answer = AnswerReader()
            self.event_count = 0
        items = self._answer.feed(data)
        self.event_count += sum(getattr(i, "kind", None) is EventKind.CONTENT for i in items)

    def _reached(self) -> bool:
        if self._trigger.kind is TriggerKind.HEADERS:
            return self._answer.status != 0
        return self.event_count >= self._trigger.count > 0
