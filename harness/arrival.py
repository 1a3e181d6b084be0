"""How early the bytes of a read can have arrived: the bound that goes with each stamp.

A descriptor that is polled and not found ready was empty when that poll was entered, so what the
next poll finds came later (measurement.md §5). That holds only for a poll that watched for it, and
only where the read before took everything; in all other cases an older moment is carried on.
"""

from __future__ import annotations

from harness.reactor import Reactor

NEVER_NS = 1 << 63


class Arrival:
    """Follows one source of reads. Starts paused: `earliest_ns` is then the moment given here."""

    __slots__ = ("_floor_ns", "_reactor", "_since_ns")

    def __init__(self, reactor: Reactor, floor_ns: int) -> None:
        self._reactor = reactor
        self._floor_ns = floor_ns
        self._since_ns = NEVER_NS

    @property
    def earliest_ns(self) -> int:
        """Nothing that is unread now arrived before this."""
        previous_ns = self._reactor.previous_poll_entry_ns
        return previous_ns if self._since_ns <= previous_ns else self._floor_ns

    def resume(self, at_ns: int) -> None:
        """The source is watched for reading from now on; harmless when it is already."""
        if self._since_ns == NEVER_NS:
            self._since_ns = at_ns

    def pause(self) -> None:
        """It is not watched any more."""
        self._floor_ns = self.earliest_ns
        self._since_ns = NEVER_NS

    def taken(self, at_ns: int, *, drained: bool) -> None:
        """A read was made. `drained` says that it left nothing behind."""
        self._floor_ns = self._reactor.poll_entry_ns if drained else self.earliest_ns
        if self._since_ns != NEVER_NS:
            self._since_ns = at_ns
