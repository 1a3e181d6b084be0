"""The exit code of a run, from its report."""

from __future__ import annotations

from harness.model import Report
from reports.words import Result, result

ALL_AS_TOLD, NOT_AS_TOLD, NOTHING_RUN, HARNESS_ERROR, ONLY_UNKNOWN = 0, 1, 2, 3, 4

HEAVIEST_FIRST = (
    (Result.HARNESS_ERROR, HARNESS_ERROR),
    (Result.NOT_AS_TOLD, NOT_AS_TOLD),
    (Result.UNDECIDED, ONLY_UNKNOWN),
)


def exit_code(report: Report) -> int:
    """0 all as told, skipped ones aside · 1 one is not as told · 2 there is no outcome at all ·
    3 the harness failed somewhere · 4 only what is unknown stands in the way.

    The harness' own failure outweighs everything: with it, the rest was not fully judged.
    """
    if not report.outcomes:
        return NOTHING_RUN
    seen = {result(outcome) for outcome in report.outcomes}
    return next((code for one, code in HEAVIEST_FIRST if one in seen), ALL_AS_TOLD)
