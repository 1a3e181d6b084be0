"""limit-data: the connection ends after so many bytes.

Toward the client: exactly `limit_bytes` more bytes pass once the trigger is met, then the client
sees FIN and nothing behind it. The origin sees nothing until the client closes in turn; what it
still sends is swallowed. Stands for a proxy or balancer that gives up in the middle of an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.link.stage import Command, Data, Eof, Event, Fire
from harness.link.trigger import TriggerWatch
from harness.model import Injection, Layer

NAME = "limit-data"
LAYER = Layer.STREAM
PARAMETERS = {"limit_bytes": 0}
SOURCE = "Toxiproxy limit_data"


class LimitData:
    """Counts from the trigger on; swallows what comes after the limit."""

    def __init__(self, injection: Injection, number: int, opened_ns: int) -> None:
        self._number = number
        self._limit_bytes = injection.fault.parameter("limit_bytes")
        self._watch = TriggerWatch(injection.trigger, opened_ns)
        self._passed_bytes = 0
        self._allowed_bytes: int | None = None
        self._over = False

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        """Passes what is allowed, then ends the direction."""
        if not isinstance(event, Data):
            return () if self._over else (event,)
        return () if self._over else tuple(self._on_data(event.data, now_ns))

    def _on_data(self, data: bytes, now_ns: int) -> Iterator[Command]:
        if self._allowed_bytes is None:
            offset = self._watch.met_at(data, now_ns)
            if offset is not None:
                self._allowed_bytes = self._passed_bytes + offset + self._limit_bytes
        allowed = self._allowed_bytes
        if allowed is None or self._passed_bytes + len(data) < allowed:
            self._passed_bytes += len(data)
            yield Data(data)
            return
        kept = data[: allowed - self._passed_bytes]
        self._passed_bytes += len(kept)
        self._over = True
        if kept:
            yield Data(kept)
        yield Fire(self._number, self._passed_bytes, self._watch.event_count, now_ns)
        yield Eof()


def stage(injection: Injection, number: int, connection: int, opened_ns: int) -> LimitData:
    """The stage for one connection."""
    return LimitData(injection, number, opened_ns)
