"""A war story: told in words, then arm by arm in figures, then held against its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.model import Expectation, Finding, Outcome, Report, Scenario, Strength, Verdict
from reports import words
from reports.paragraphs import directive_text, repeat_command
from reports.terminal import Repeat, show, summary
from reports.text import BLANK, Line, labelled, one_line, styled, wrapped

if TYPE_CHECKING:
    from rich.console import Console

REMARKS = "What the source says, and what was measured"

VERBS = {
    Verdict.PASS: ("passes", "pass"),
    Verdict.FAIL: ("fails", "fail"),
    Verdict.UNKNOWN: ("stays unknown", "stay unknown"),
    Verdict.NOT_APPLICABLE: ("does not apply", "do not apply"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryText:
    """The words of a story: its paragraphs, and the remarks that close it."""

    title: str
    paragraphs: tuple[str, ...]
    closing: tuple[str, ...] = ()


def render_story(
    report: Report,
    scenarios: Sequence[Scenario],
    text: StoryText,
    console: Console,
    *,
    repeat: Repeat = repeat_command,
) -> None:
    """Prints the story, each arm with its figures and reasons, the remarks, and the summary.

    An outcome whose scenario is not given is still in the summary.
    """
    width = console.width
    show(_told(text, width), console)
    outcomes = {outcome.scenario: outcome for outcome in report.outcomes}
    for scenario in scenarios:
        if scenario.id in outcomes:
            show(arm(scenario, outcomes, width), console)
    show(_remarks(text, width), console)
    show(summary(report, width, repeat=repeat), console)


def _told(text: StoryText, width: int) -> Iterator[Line]:
    title = one_line(text.title)
    yield styled(title, "bold")
    yield styled("=" * min(len(title), width), "bold")
    for paragraph in text.paragraphs:
        yield BLANK
        yield from map(styled, wrapped(one_line(paragraph), width))
    yield BLANK


def _remarks(text: StoryText, width: int) -> Iterator[Line]:
    if not text.closing:
        return
    yield styled(REMARKS, "bold")
    yield styled("-" * len(REMARKS), "bold")
    for remark in text.closing:
        yield from map(styled, wrapped(one_line(remark), width, first="- ", rest="  "))
    yield BLANK


def arm(scenario: Scenario, outcomes: Mapping[str, Outcome], width: int) -> Iterator[Line]:
    """What was told of an arm, what was measured, how it came out and why, who is to blame."""
    outcome = outcomes[scenario.id]
    word = words.word(outcome)
    for number, line in enumerate(wrapped(scenario.title, width)):
        yield styled(line, "bold" if number == 0 else "")
    yield from labelled("scenario", scenario.id, width)
    yield from labelled("told", told_text(scenario), width)
    yield from labelled("why", scenario.because, width)
    if not outcome.skipped:
        yield from labelled("measured", figures_text(outcome), width)
        yield from labelled("before", scenario.measured_before, width)
    fails = _fails(scenario, outcome)
    for finding in fails:
        yield from labelled("found", _found_text(finding), width)
    for directive in dict.fromkeys(map(directive_text, fails)):
        yield from labelled("directive", directive, width)
    yield from labelled("partner", _partner_text(scenario, outcomes), width)
    yield from labelled("differs", "\n".join(scenario.differs), width)
    yield (("  came out   ", "dim"), (str(word), word.style))
    for reason in (*outcome.reasons, outcome.error, outcome.skipped):
        yield from labelled("", reason, width)
    yield BLANK


def told_text(scenario: Scenario) -> str:
    """`red: a, b fail at nginx`, or `green: nothing fails`."""
    by_place: dict[tuple[Verdict, str], list[Expectation]] = {}
    for expectation in scenario.expectations:
        by_place.setdefault((expectation.verdict, expectation.culprit), []).append(expectation)
    parts = [
        f"{' and '.join(e.check for e in group)} {_come_out(verdict, culprit, len(group))}"
        for (verdict, culprit), group in by_place.items()
    ]
    if not parts:
        return "green: nothing fails"
    colour = "red" if any(v is Verdict.FAIL for v, _ in by_place) else "green"
    return f"{colour}: {'; '.join(parts)}"


def _come_out(verdict: Verdict, culprit: str, count: int) -> str:
    verb = VERBS[verdict][0 if count == 1 else 1]
    return f"{verb} at {culprit}" if culprit else verb


def figures_text(outcome: Outcome) -> str:
    """TTFT direct and through, hold, biggest burst, end; a dash for what nobody measured."""
    return (
        f"TTFT {_ms(outcome, 'ttft_ms_direct')} direct, {_ms(outcome, 'ttft_ms_through')} through; "
        f"held {_ms(outcome, 'hold_ms')}; "
        f"biggest burst {words.number(outcome, 'biggest_burst')}; end {words.end_text(outcome)}"
    )


def _ms(outcome: Outcome, name: str) -> str:
    value = words.number(outcome, name)
    return value if value == words.ABSENT else f"{value} ms"


def _fails(scenario: Scenario, outcome: Outcome) -> list[Finding]:
    """What failed, without what is only observed and nobody told."""
    told = {expectation.check for expectation in scenario.expectations}
    return [
        finding
        for finding in outcome.findings
        if finding.verdict is Verdict.FAIL
        and (finding.strength is not Strength.OBSERVE or finding.check in told)
    ]


def _found_text(finding: Finding) -> str:
    where = f" at {finding.culprit}" if finding.culprit else ""
    seen = f": {finding.actual}" if finding.actual else ""
    return f"{finding.check} fails{where}{seen}"


def _partner_text(scenario: Scenario, outcomes: Mapping[str, Outcome]) -> str:
    if not scenario.partner:
        return ""
    partner = outcomes.get(scenario.partner)
    came_out = words.word(partner).text if partner else "not in this run"
    return f"{scenario.partner}, told green: {came_out}"
