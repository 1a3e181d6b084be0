"""The table of a run: one row for each scenario, grouped by the folder part of its id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from harness.model import EndReason, Outcome
from reports import words
from reports.text import Line, one_line, styled, wrapped

HEADINGS_BY_LEVEL = (
    ("", "", "ttft ms", "ttft ms", "hold", "max", ""),
    ("told", "scenario", "direct", "through", "ms", "burst", "end"),
)
TOLD, SCENARIO, END = 0, 1, 6
LEFT_ALIGNED = (TOLD, SCENARIO, END)
SCENARIO_COLUMNS_MIN = 12

LEGEND = (
    "ttft: request's first byte → first event with content, median, direct to the engine and "
    "through the stack. hold: the first event's arrival at the client − its departure from "
    "the engine. burst: most events in one read."
)


def lines(outcomes: Sequence[Outcome], width: int) -> Iterator[Line]:
    """The table and its legend; nothing without outcomes.

    A name too long for its column stands alone, its figures below it.
    """
    if not outcomes:
        return
    rows = [_cells(outcome) for outcome in outcomes]
    widths = _widths(rows, width)
    for cells in HEADINGS_BY_LEVEL:
        yield styled(_joined(cells, widths), "dim")
    pairs = zip(outcomes, rows, strict=True)
    for folder, group in groupby(pairs, key=lambda pair: _folder(pair[0].scenario)):
        if folder:
            indent = min(widths[TOLD] + 1, max(width - len(folder), 0))
            yield styled(" " * indent + folder, "bold")
        for outcome, row in group:
            yield from _row(outcome, row, widths)
    yield ()
    yield from _legend(outcomes, width)


def _folder(scenario: str) -> str:
    return "".join(one_line(scenario).rpartition("/")[:2])


def _cells(outcome: Outcome) -> tuple[str, ...]:
    return (
        str(words.word(outcome)),
        one_line(outcome.scenario).rpartition("/")[2],
        words.number(outcome, "ttft_ms_direct"),
        words.number(outcome, "ttft_ms_through"),
        words.number(outcome, "hold_ms"),
        words.number(outcome, "biggest_burst"),
        words.end_text(outcome),
    )


def _ends(cell: str) -> list[str]:
    """Different ends of one scenario stand below each other."""
    return cell.replace(", ", ",\n").split("\n")


def _widths(rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    columns = zip(*HEADINGS_BY_LEVEL, *rows, strict=True)
    widths = [max(len(part) for cell in column for part in _ends(cell)) for column in columns]
    left = width - (sum(widths) - widths[SCENARIO]) - len(widths) + 1
    widths[SCENARIO] = min(widths[SCENARIO], max(left, SCENARIO_COLUMNS_MIN))
    return widths


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.ljust(width) if column in LEFT_ALIGNED else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return " ".join(padded).rstrip()


def _row(outcome: Outcome, row: tuple[str, ...], widths: Sequence[int]) -> Iterator[Line]:
    told = (row[TOLD].ljust(widths[TOLD]), words.word(outcome).style)
    first, *others = _ends(row[END])
    figures = (*row[SCENARIO + 1 : END], first)
    if len(row[SCENARIO]) <= widths[SCENARIO]:
        rest = _joined(("", row[SCENARIO], *figures), widths)
        yield (told, (rest[widths[TOLD] :], ""))
    else:
        yield (told, (f" {row[SCENARIO]}", ""))
        yield styled(_joined(("", "", *figures), widths))
    for end in others:
        yield styled(_joined((*[""] * END, end), widths))


def _legend(outcomes: Sequence[Outcome], width: int) -> Iterator[Line]:
    seen = {reason for outcome in outcomes for reason, _ in words.ends(outcome)}
    meanings = [
        f"{short}: {meaning}."
        for reason, (short, meaning) in words.ENDS.items()
        if reason in seen and reason is not EndReason.TERMINATOR
    ]
    for text in wrapped(" ".join([LEGEND, *meanings]), width):
        yield styled(text, "dim")
