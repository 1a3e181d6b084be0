"""What goes to stdout, and what to stderr."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path

RESULTS = Path("chaos-results")
MASK = "***"


class Format(StrEnum):
    """How a list or a judgement is written."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"


def say(text: str) -> None:
    """One line (or more) of the document itself, on stdout."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """One line about the document's making, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def json_text(value: object) -> str:
    """`value` as indented JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows as left-aligned columns, the last as wide as it likes."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]
        ).rstrip()
        for row in rows
    )
