"""What a person sees: a line for each scenario while a run lasts, and the report at its end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from harness.model import Outcome, Report
from reports import exit_code, table, words
from reports.paragraphs import about, repeat_command
from reports.text import BLANK, Line, counted, labelled, one_line, styled, whole, wrapped

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_PIPED = 80
NEEDS_A_LOOK = (words.Result.HARNESS_ERROR, words.Result.NOT_AS_TOLD, words.Result.UNDECIDED)
CLEAR_LINE = "\r\x1b[K"

Repeat = Callable[[Report, str], str]
"""(report, scenario id) → the command that repeats it."""


def is_terminal(stream: TextIO) -> bool:
    """A terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def wants_colour(stream: TextIO, *, colour: bool | None) -> bool:
    """What was asked for; where nothing was (None): on a terminal, and not against NO_COLOR."""
    if colour is not None:
        return colour
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def width_of(stream: TextIO) -> int:
    """Columns of the terminal behind the stream, 80 where there is none."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return WIDTH_PIPED
    return columns or WIDTH_PIPED


def console(stream: TextIO, *, colour: bool | None = None) -> Console:
    """A console of rich on the stream: no escape at all unless colour is wanted."""
    from rich.console import Console

    coloured = wants_colour(stream, colour=colour)
    return Console(
        file=stream,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        no_color=not coloured,
        width=width_of(stream),
        highlight=False,
        markup=False,
        emoji=False,
    )


def encodable(text: str, encoding: str | None) -> str:
    """The text in what the encoding holds: symbols become ASCII ones, the rest question marks."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(words.ASCII).encode(encoding, "replace").decode(encoding)
    return text


def show(lines: Iterable[Line], console: Console) -> None:
    """Prints the lines as they are; they were made for the console's width."""
    from rich.text import Text

    for line in lines:
        fragments = ((encodable(text, console.encoding), style) for text, style in line)
        console.print(Text.assemble(*fragments), soft_wrap=True)


# -------------------------------------------------------------------------------------- progress


class ProgressLines:
    """Called with a scenario's id at its start (None) and at its end (its outcome).

    Each end is one line. A terminal also gets a last line that tells what is running, which is
    taken away when nothing is, or by `clear`.

    Args:
        stream: where to; standard error, as a rule.
        colour: None leaves it to the stream and to NO_COLOR.
        total: how many scenarios there will be; 0 where nobody knows.
    """

    def __init__(self, stream: TextIO, colour: bool | None = None, *, total: int = 0) -> None:  # noqa: FBT001
        self._stream = stream
        self._live = is_terminal(stream)
        self._console = console(stream, colour=colour)
        self._total = total
        self._done_count = 0
        self._running: list[str] = []

    def __call__(self, scenario_id: str, outcome: Outcome | None) -> None:
        """Takes note of a start or an end."""
        self.clear()
        if outcome is None:
            self._running.append(scenario_id)
        else:
            if scenario_id in self._running:
                self._running.remove(scenario_id)
            self._done_count += 1
            show([self._line(outcome)], self._console)
        if self._live and self._running:
            self._stream.write(encodable(self._status(), self._stream.encoding))
        self._stream.flush()

    def clear(self) -> None:
        """Takes the line of what is running away."""
        if self._live:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()

    def _line(self, outcome: Outcome) -> Line:
        word = words.word(outcome)
        count = f"{self._done_count:>{len(str(self._total))}}"
        count = f"[{count}/{self._total}] " if self._total else ""
        time = f"{outcome.duration_ms / 1000:6.1f} s" if not outcome.skipped else " " * 8
        again = f" (attempt {outcome.attempts})" if outcome.attempts > 1 else ""
        rest = f" {time}  {one_line(outcome.scenario)}{again}"
        return ((count, "dim"), (f"{word!s:<15}", word.style), (rest, ""))

    def _status(self) -> str:
        """It is gone in a moment, so it may be cut: a line that wraps could not be taken away."""
        text = f"{len(self._running)} running: {', '.join(self._running)}"
        width = width_of(self._stream) - 1
        return text if len(text) <= width else f"{text[: width - 1]}…"


# ---------------------------------------------------------------------------------------- report


def render(report: Report, console: Console, *, repeat: Repeat = repeat_command) -> None:
    """Prints the report: head, table, what needs a look, counts, and the closing line."""
    show(_head(report, console.width), console)
    show(summary(report, console.width, repeat=repeat), console)


def _head(report: Report, width: int) -> Iterator[Line]:
    yield styled(one_line(report.title), "bold")
    scale = "real time" if report.time_divisor == 1 else f"timers / {report.time_divisor}"
    facts = (f"seed {report.seed}", f"engine {report.engine}", scale, report.started_utc)
    versions = (f"{name} {version}" for name, version in report.versions)
    yield from _dim(", ".join(filter(None, (*facts, *versions))), width)
    yield BLANK


def _dim(text: str, width: int) -> Iterator[Line]:
    return (styled(line, "dim") for line in wrapped(text, width))


def summary(report: Report, width: int, *, repeat: Repeat = repeat_command) -> Iterator[Line]:
    """Table, a paragraph on each outcome that needs a look, counts, and the closing line."""
    yield from table.lines(report.outcomes, width)
    for kind in NEEDS_A_LOOK:
        for outcome in report.outcomes:
            if words.result(outcome) is kind:
                yield BLANK
                yield from about(report, outcome, width, repeat(report, outcome.scenario))
    yield from _skipped(report, width)
    yield BLANK
    yield _counts(report)
    yield from _closing(report, width)


def _skipped(report: Report, width: int) -> Iterator[Line]:
    """Each reason once, with the scenarios it kept from running."""
    reasons: dict[str, list[str]] = {}
    for outcome in report.outcomes:
        if words.result(outcome) is words.Result.SKIPPED:
            reasons.setdefault(outcome.skipped, []).append(one_line(outcome.scenario))
    word = words.RESULTS[words.Result.SKIPPED]
    for reason, ids in reasons.items():
        yield BLANK
        yield styled(f"{word}, {counted(len(ids), 'scenario')}", word.style)
        yield from labelled("because", reason, width)
        yield from labelled("not run", ", ".join(ids), width)


def _counts(report: Report) -> Line:
    seen = Counter(words.result(outcome) for outcome in report.outcomes)
    fragments = [(counted(len(report.outcomes), "scenario"), "bold")]
    for kind, word in words.RESULTS.items():
        if seen[kind]:
            fragments += [(", " if len(fragments) > 1 else ": ", "")]
            fragments += [(f"{seen[kind]} {word.text}", word.style)]
    return tuple(fragments)


CLOSINGS = {
    exit_code.ALL_AS_TOLD: ("All that ran came out as told.", "bold green"),
    exit_code.NOT_AS_TOLD: ("Not everything came out as told.", "bold red"),
    exit_code.NOTHING_RUN: ("Nothing was run.", "bold yellow"),
    exit_code.HARNESS_ERROR: (
        "The harness itself failed: what it could not judge is open.",
        "bold magenta",
    ),
    exit_code.ONLY_UNKNOWN: (
        "Nothing came out against what was told, but not everything could be decided.",
        "bold yellow",
    ),
}


def _closing(report: Report, width: int) -> Iterator[Line]:
    yield from whole("kept in", report.folder, width, 0)
    yield from whole("again", report.command, width, 0)
    text, style = CLOSINGS[exit_code.exit_code(report)]
    yield styled(text, style)
