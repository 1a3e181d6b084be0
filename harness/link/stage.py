"""What passes through one direction of a link, and the chain of stages that it passes.

Each stage takes an event and gives commands of the same vocabulary; what a stage gives is the next
one's event. `Wake` asks to be woken (the same stage gets it back when due); `Fire` is evidence that
something was done on purpose. The empty chain is a tap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes that move on."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Eof:
    """The direction ended properly (FIN)."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The connection was reset (RST)."""


@dataclass(frozen=True, slots=True)
class Wake:
    """As a command: wake me at `due_ns`. As an event: it is due; `stage` is the chain's own."""

    due_ns: int
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Fire:
    """The injection numbered `injection` did its work here, `byte_offset` bytes into the
    direction."""

    injection: int
    byte_offset: int
    event_index: int = 0
    planned_ns: int = 0


Event = Data | Eof | Abort | Wake
Command = Data | Eof | Abort | Wake | Fire


class Stage(Protocol):
    """A fault's behaviour on one direction of one connection."""

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        """What becomes of `event`."""
        ...


@dataclass(slots=True)
class Chain:
    """Stages in a row, first to see the bytes first."""

    stages: Sequence[Stage] = field(default_factory=tuple)

    def push(self, event: Event, now_ns: int) -> list[Command]:
        """Sends `event` through; gives what comes out, wakes and evidence included."""
        if isinstance(event, Wake):
            return self._through(event, event.stage, now_ns)
        return self._through(event, 0, now_ns)

    def _through(self, event: Event, first: int, now_ns: int) -> list[Command]:
        moving: list[Event] = [event]
        aside: list[Command] = []
        for index in range(first, len(self.stages)):
            behind: list[Event] = []
            for item in moving:
                for command in self.stages[index].on_event(item, now_ns):
                    if isinstance(command, Fire):
                        aside.append(command)
                    elif isinstance(command, Wake):
                        aside.append(Wake(command.due_ns, index))
                    else:
                        behind.append(command)
            moving = behind
        return [*aside, *moving]
