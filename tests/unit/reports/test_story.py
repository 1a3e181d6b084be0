"""A story as it is printed: words, arms, remarks, summary."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.model import Expectation, Report, Scenario, Verdict
from reports import terminal
from reports.story import StoryText, render_story, told_text
from tests.unit.reports import samples as s

TEXT = StoryText(
    title="nginx holds the stream",
    paragraphs=("A team puts nginx in front of its model server. " * 4, "Nothing is logged."),
    closing=("`proxy_buffering off` cures every red arm. " * 3, "The 30 s need gzip or TLS."),
)


def told(
    report: Report = s.KNOWN, scenarios: Sequence[Scenario] = s.ARMS, text: StoryText = TEXT
) -> str:
    """The story as it goes into a pipe."""
    stream = io.StringIO()
    render_story(report, scenarios, text, terminal.console(stream))
    return stream.getvalue()


def arm(title: str, text: str) -> str:
    """The paragraph of an arm, without its line breaks."""
    paragraphs = text.split("\n\n")
    return next(" ".join(p.split()) for p in paragraphs if p.startswith(f"{title}\n"))


@pytest.mark.parametrize(
    "part",
    [
        "scenario story1/nginx-131-http10-short-answer",
        "told red: first_event_not_held and events_not_coalesced fail at nginx",
        "why the old default, set by hand: the engine closes to delimit its answer",
        "measured TTFT 21 ms direct, 765 ms through; held 744 ms; biggest burst 17; end done",
        "before +743 ms, 17",
        "found first_event_not_held fails at nginx: nginx held the first event until 744 ms",
        "directive nginx.conf:41 proxy_http_version 1.0; (proven: this run was green without it)",
        "partner story1/nginx-131-as-shipped, told green: as told",
        "differs proxy_http_version 1.0; engine: X-Accel-Buffering: no",
        "came out ✓ as told",
    ],
)
def test_red_arm_shows_told_measured_and_blamed(part: str) -> None:
    """A red arm names what was told, its figures, the line to blame and its green partner."""
    assert part in arm(s.RED_ARM.title, told())


def test_green_arm_shows_no_blame() -> None:
    """A green arm has figures and a reason, and neither culprit nor partner."""
    text = arm(s.GREEN_ARM.title, told())
    assert "told green: nothing fails" in text
    assert "TTFT 21 ms direct, 23 ms through; held 1 ms; biggest burst 1; end done" in text
    for label in ("found", "directive", "partner", "differs"):
        assert label not in text


def test_skipped_arm_shows_why_and_no_figures() -> None:
    """An arm that did not run has nothing measured."""
    text = arm(s.SKIPPED_ARM.title, told())
    assert text.endswith("came out - skipped nginx 1.22 is not on this machine: make nginx-debian")
    assert "measured" not in text


def test_arm_not_as_told_shows_its_reason() -> None:
    """What came out otherwise is said at the arm, without what is only observed."""
    text = arm(s.UNTOLD_ARM.title, told())
    assert "came out ✗ NOT AS TOLD first_event_not_held is fail at nginx" in text
    assert "engine_on_schedule" not in text


def test_arm_whose_partner_did_not_run_says_so() -> None:
    """A red arm alone has no green one to be held against."""
    text = told(s.report(s.RED_AS_TOLD))
    assert "told green: not in this run" in arm(s.RED_ARM.title, text)
    assert s.GREEN_ARM.title not in text


def test_story_fits_80_columns_in_plain_text() -> None:
    """It can be mailed as it is."""
    text = told()
    assert not [line for line in s.too_wide(text, 80) if not s.is_whole(line)]
    assert "\x1b" not in text


def test_story_stands_in_its_order() -> None:
    """Title, words, arms as they were given, remarks, table, closing line."""
    text = told()
    marks = [
        "nginx holds the stream\n======",
        "A team puts nginx",
        "Nothing is logged.",
        *(f"{one.title}\n" for one in s.ARMS),
        "What the source says, and what was measured\n-----",
        "- `proxy_buffering off` cures",
        "- The 30 s need gzip or TLS.",
        "told            scenario",
        "6 scenarios: 2 as told",
        "The harness itself failed",
    ]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_story_without_remarks_has_no_heading_for_them() -> None:
    """An empty section is left out."""
    assert "What the source says" not in told(text=replace(TEXT, closing=()))


@pytest.mark.parametrize(
    ("expectations", "text"),
    [
        ((), "green: nothing fails"),
        ((("a", Verdict.FAIL, ""),), "red: a fails"),
        ((("a", Verdict.PASS, ""),), "green: a passes"),
        ((("a", Verdict.PASS, ""), ("b", Verdict.PASS, "")), "green: a and b pass"),
        (
            (("a", Verdict.FAIL, "x"), ("b", Verdict.FAIL, "y"), ("c", Verdict.UNKNOWN, "")),
            "red: a fails at x; b fails at y; c stays unknown",
        ),
    ],
)
def test_told_is_said_in_one_line(
    expectations: tuple[tuple[str, Verdict, str], ...], text: str
) -> None:
    """Checks with one verdict at one place are told together."""
    told_here = tuple(Expectation(check=c, verdict=v, culprit=p) for c, v, p in expectations)
    assert told_text(replace(s.GREEN_ARM, expectations=told_here)) == text
