"""What the harness itself can get wrong. What a stack does wrong is data, never one of these.

    HarnessError
    ├── UsageError        an option or argument that cannot be meant          exit 2
    ├── ConfigError       a file of the user's that cannot be read            exit 2
    ├── PlanError         scenarios that cannot be run as asked               exit 2
    ├── MissingPart       a binary or capability that is not on this machine  skipped, or exit 2
    ├── StackError        a node that could not be run                        exit 3
    │   ├── StackStartError     did not start, or never got ready
    │   └── PortTakenError      somebody else holds its port (retried)
    ├── InjectionError    a fault that could not be armed                     exit 3
    └── RecordingError    a recording that cannot be written or read          exit 3 (reading: 2)

Each carries what happened, where, and what to do; the text is built from the fields.
"""

from __future__ import annotations


class HarnessError(Exception):
    """Our own failure. `what` happened, `where`, and what `todo`; `exit_code` for the command
    line."""

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        self.what = what
        self.where = where
        self.todo = todo
        super().__init__(what)

    def __str__(self) -> str:
        """One message, at most three lines: what and where, then what to do."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  {self.todo}" if self.todo else text


class UsageError(HarnessError):
    """An option or argument that cannot be meant."""

    exit_code = 2


class ConfigError(HarnessError):
    """A file of the user's that cannot be read."""

    exit_code = 2


class PlanError(HarnessError):
    """Scenarios that cannot be run as asked: no case selected, a timer below its node's grain."""

    exit_code = 2


class MissingPart(HarnessError):
    """A binary or capability that is not on this machine; `todo` is the command that gets it."""

    exit_code = 2


class StackError(HarnessError):
    """A node that could not be run."""


class StackStartError(StackError):
    """A node that did not start or never got ready; `where` names it, `todo` holds its last log
    lines."""


class PortTakenError(StackError):
    """Somebody else holds a port that was picked for a node. The launcher tries again with
    another."""


class InjectionError(HarnessError):
    """A fault that could not be armed, healed or proven."""


class RecordingError(HarnessError):
    """A recording that cannot be written (disk full) or read (cut off, newer format)."""
