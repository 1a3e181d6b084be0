"""The report as JUnit XML, for CI: failure, error and skipped are three different things.

A failure says that the stack is not what was told, an error that the harness failed, skipped that
nothing is known of it. Tools read `message` as the short text and the content as the long one.
"""

from __future__ import annotations

from collections import Counter
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from harness.model import Outcome, Report
from reports import words
from reports.paragraphs import about, repeat_command
from reports.terminal import Repeat
from reports.text import one_line, plain, visible

SUITE = "streamchaos"
TEXT_COLUMNS = 100

TAGS = {
    words.Result.NOT_AS_TOLD: "failure",
    words.Result.HARNESS_ERROR: "error",
    words.Result.UNDECIDED: "skipped",
    words.Result.SKIPPED: "skipped",
}


def dumps(report: Report, *, repeat: Repeat = repeat_command) -> bytes:
    """One testsuite with a testcase for each scenario, in UTF-8."""
    root = Element("testsuites")
    suite = SubElement(root, "testsuite", _counts(report))
    if report.started_utc:
        suite.set("timestamp", visible(report.started_utc))
    facts = (
        ("seed", str(report.seed)),
        ("engine", report.engine),
        ("time_divisor", str(report.time_divisor)),
        ("run", report.run),
        ("command", report.command),
        *((f"version.{name}", version) for name, version in report.versions),
    )
    _properties(suite, facts)
    for outcome in report.outcomes:
        _case(suite, report, outcome, repeat)
    indent(root, " ")
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _counts(report: Report) -> dict[str, str]:
    seen = Counter(TAGS.get(words.result(outcome), "") for outcome in report.outcomes)
    return {
        "name": SUITE,
        "tests": str(len(report.outcomes)),
        "failures": str(seen["failure"]),
        "errors": str(seen["error"]),
        "skipped": str(seen["skipped"]),
        "time": _seconds(sum(outcome.duration_ms for outcome in report.outcomes)),
    }


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.3f}"


def _properties(parent: Element, facts: tuple[tuple[str, str], ...]) -> None:
    properties = SubElement(parent, "properties")
    for name, value in facts:
        SubElement(properties, "property", name=visible(name), value=visible(value))


def _case(suite: Element, report: Report, outcome: Outcome, repeat: Repeat) -> None:
    case = SubElement(
        suite,
        "testcase",
        classname=".".join([SUITE, *one_line(outcome.scenario).split("/")[:-1]]),
        name=one_line(outcome.scenario),
        time=_seconds(outcome.duration_ms),
    )
    if outcome.figures:
        _properties(case, tuple((name, f"{value:.10g}") for name, value in outcome.figures))
    tag = TAGS.get(words.result(outcome))
    if tag is not None:
        mark = SubElement(case, tag, message=message(outcome), type=words.result(outcome).value)
        lines = about(report, outcome, TEXT_COLUMNS, repeat(report, outcome.scenario))
        mark.text = plain(lines)


def message(outcome: Outcome) -> str:
    """Why it is not green, on one line; the cause first where nothing could be decided."""
    if words.result(outcome) is words.Result.SKIPPED:
        return one_line(outcome.skipped)
    causes = sorted({str(f.cause) for f in outcome.findings if f.cause is not None})
    undecided = words.result(outcome) is words.Result.UNDECIDED and causes
    cause = f"undecided ({', '.join(causes)})" if undecided else ""
    error = one_line(visible(outcome.error).strip().split("\n")[0])
    reasons = (one_line(reason) for reason in outcome.reasons)
    text = "; ".join(filter(None, (cause, error, *reasons)))
    return text or words.word(outcome).text
