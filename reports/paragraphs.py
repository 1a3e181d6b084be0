"""What is said of one outcome in full: the reasons, the findings that matter, where to look."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from harness.model import (
    Directive,
    Finding,
    Outcome,
    Position,
    Report,
    StreamKey,
    Strength,
    Verdict,
)
from reports import words
from reports.text import BLANK, Line, labelled, one_line, styled, whole, wrapped

TIME_DIVISOR_DEFAULT = 10
ENGINE_DEFAULT = "reference"


def repeat_command(report: Report, scenario: str) -> str:
    """The command line that runs this scenario again as it ran."""
    argv = ["pytest", "-m", "chaos", "-k", scenario, "--chaos-seed", str(report.seed)]
    if report.engine != ENGINE_DEFAULT:
        argv += ["--chaos-engine", report.engine]
    if report.time_divisor == 1:
        argv += ["--chaos-real-time"]
    elif report.time_divisor != TIME_DIVISOR_DEFAULT:
        argv += ["--chaos-time-scale", str(report.time_divisor)]
    return shlex.join(argv)


def place(report: Report, outcome: Outcome) -> str:
    """The folder with what was recorded of the outcome; empty where nothing was."""
    if not outcome.folder:
        return ""
    return f"{report.folder.rstrip('/')}/{outcome.folder}" if report.folder else outcome.folder


def about(report: Report, outcome: Outcome, width: int, repeat: str) -> Iterator[Line]:
    """A paragraph on an outcome that needs a look. `repeat` is the command that repeats it."""
    word = words.word(outcome)
    yield ((str(word), word.style), (f"  {one_line(outcome.scenario)}", "bold"))
    yield from map(styled, wrapped(outcome.title, width, first="  ", rest="  "))
    for reason in outcome.reasons:
        yield from labelled("because", reason, width)
    if outcome.error:
        yield from labelled("error", outcome.error, width)
    for finding in mattering(outcome):
        yield BLANK
        yield from about_finding(finding, width)
    yield BLANK
    if outcome.attempts > 1:
        yield from labelled("attempts", f"{outcome.attempts}, all of them kept", width)
    yield from whole("look into", place(report, outcome), width)
    yield from whole("repeat", repeat, width)


def mattering(outcome: Outcome) -> tuple[Finding, ...]:
    """The findings that a reader needs: those that a reason names, then fails and unknowns."""
    named = [f for f in outcome.findings if any(f.check in r.split() for r in outcome.reasons)]
    others = [
        finding
        for finding in outcome.findings
        if finding not in named
        and finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN)
        and finding.strength is not Strength.OBSERVE
    ]
    return (*named, *others)


def about_finding(finding: Finding, width: int, indent: int = 2) -> Iterator[Line]:
    """Everything that a finding holds, each under its label; what is empty is left out."""
    word = words.VERDICTS[finding.verdict]
    cause = f" ({finding.cause})" if finding.cause else ""
    head = f"{word}{cause}: {one_line(finding.check)}"
    yield ((" " * indent, ""), (head, word.style), (f" ({finding.strength})", "dim"))
    rows = (
        ("expected", finding.expected),
        ("actual", finding.actual),
        ("culprit", finding.culprit),
        ("directive", directive_text(finding)),
        ("cure", finding.advice),
        ("settle", finding.settle),
        ("without", _without_fault(finding)),
        ("evidence", "; ".join(map(position_text, finding.evidence))),
        ("figures", ", ".join(f"{name} {value:.10g}" for name, value in finding.figures)),
        ("source", finding.source),
    )
    for label, text in rows:
        yield from labelled(label, text, width, indent + 2)


def _without_fault(finding: Finding) -> str:
    return "the fault it fails too: the configuration is to blame" * finding.also_without_fault


def directive_text(finding: Finding) -> str:
    """`nginx.conf:41 proxy_http_version 1.0; (proven: …)`, or nothing where none is known."""
    directive = finding.directive
    if directive is None:
        return ""
    other = "with it" if directive.missing else "without it"
    proven = f"proven: this run was green {other}"
    hint = f"hint: this run has not shown green {other}"
    return f"{directive_line(directive)} ({proven if finding.directive_proven else hint})"


def directive_line(directive: Directive) -> str:
    """File, line and text; a line whose absence bites is told from one that stands there."""
    where = f"{directive.file}:{directive.line}"
    return f"{where} {'lacks ' * directive.missing}{directive.text}"


def position_text(position: Position) -> str:
    """`client, event 17 of through.0`: run and scenario of the stream are known to the reader."""
    key = StreamKey.parse(position.key)
    stream = f"{key.lane}.{key.n}" if key else position.key
    return f"{position.vantage}, event {position.event_index} of {stream}"
