"""The words and symbols of a report. What each means stands in reports/README.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from harness.model import EndReason, Outcome, Told, Verdict


class Result(StrEnum):
    """How a scenario is shown: what is told of it, with the skipped apart from the undecided."""

    AS_TOLD = "as_told"
    NOT_AS_TOLD = "not_as_told"
    UNDECIDED = "undecided"
    HARNESS_ERROR = "harness_error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A symbol and a word, so that colour is never needed; `style` is rich's."""

    symbol: str
    text: str
    style: str

    def __str__(self) -> str:
        """Symbol and word."""
        return f"{self.symbol} {self.text}"


RESULTS = {
    Result.AS_TOLD: Word(symbol="✓", text="as told", style="green"),
    Result.NOT_AS_TOLD: Word(symbol="✗", text="NOT AS TOLD", style="bold red"),
    Result.UNDECIDED: Word(symbol="?", text="undecided", style="yellow"),
    Result.HARNESS_ERROR: Word(symbol="!", text="harness error", style="bold magenta"),
    Result.SKIPPED: Word(symbol="-", text="skipped", style="dim"),
}

VERDICTS = {
    Verdict.PASS: Word(symbol="✓", text="pass", style="green"),
    Verdict.FAIL: Word(symbol="✗", text="fail", style="red"),
    Verdict.UNKNOWN: Word(symbol="?", text="unknown", style="yellow"),
    Verdict.NOT_APPLICABLE: Word(symbol="-", text="not applicable", style="dim"),
}

# Short enough for a column; the second is what it means, for the line below the table.
ENDS = {
    EndReason.TERMINATOR: ("done", "ended by its terminator"),
    EndReason.ERROR_EVENT: ("error", "ended by an error event inside the stream"),
    EndReason.CLEAN_EOF_WITHOUT_TERMINATOR: ("eof", "closed in order, but without a terminator"),
    EndReason.INCOMPLETE_FRAMING: ("cut", "closed inside a body that had announced more"),
    EndReason.RESET: ("reset", "the connection was reset"),
    EndReason.RST_STREAM: ("rst-stream", "the stream was reset by RST_STREAM"),
    EndReason.GOAWAY: ("goaway", "the connection was given up by GOAWAY"),
    EndReason.CLOSE_CODE: ("close-code", "closed by a WebSocket close frame"),
    EndReason.IDLE_TIMEOUT: ("idle", "given up after a silence"),
    EndReason.CLIENT_CANCEL: ("left", "the client left, as it was asked to"),
    EndReason.DEADLINE: ("deadline", "not ended when its time was over"),
}

# For streams that cannot carry the symbols.
ASCII = str.maketrans(
    {"✓": "+", "✗": "x", "–": "-", "−": "-", "×": "x", "·": "*", "→": ">", "…": "...", "’": "'"}
)

ABSENT = "–"


def result(outcome: Outcome) -> Result:
    """How the outcome is shown."""
    if outcome.skipped and outcome.told is Told.UNDECIDED:
        return Result.SKIPPED
    return Result(outcome.told.value)


def word(outcome: Outcome) -> Word:
    """Symbol and word of the outcome."""
    return RESULTS[result(outcome)]


def number(outcome: Outcome, name: str) -> str:
    """A figure rounded to a whole number, or a dash where nobody measured it."""
    value = dict(outcome.figures).get(name)
    return ABSENT if value is None or not math.isfinite(value) else str(round(value))


def ends(outcome: Outcome) -> tuple[tuple[EndReason, int], ...]:
    """How the streams ended, and how many of them, the most frequent first."""
    figures = dict(outcome.figures)
    found = ((reason, figures.get(f"end_{reason}_count", 0.0)) for reason in ENDS)
    seen = [(reason, int(count)) for reason, count in found if math.isfinite(count) and count > 0]
    return tuple(sorted(seen, key=lambda one: -one[1]))


def end_text(outcome: Outcome) -> str:
    """`done`, or `done 3, cut 1` where the streams ended in different ways."""
    seen = ends(outcome)
    if len(seen) == 1:
        return ENDS[seen[0][0]][0]
    return ", ".join(f"{ENDS[reason][0]} {count}" for reason, count in seen) or ABSENT
