"""The JSON report: there and back, foreign and newer ones, schemas."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError, RecordingError, UsageError
from harness.model import Directive, Finding, Outcome, Report
from reports import json_report
from tests.unit.reports import samples as s

FIGURES = st.lists(
    st.tuples(st.text(), st.floats(allow_nan=False, allow_infinity=False)), max_size=3
).map(tuple)
WHOLE = st.integers(min_value=0, max_value=2**63 - 1)
LINES = st.builds(Directive, line=WHOLE)
FINDINGS = st.builds(Finding, figures=FIGURES, directive=st.none() | LINES, evidence=st.just(()))
OUTCOMES = st.builds(
    Outcome,
    figures=FIGURES,
    findings=st.lists(FINDINGS, max_size=2).map(tuple),
    attempts=WHOLE,
    duration_ms=WHOLE,
)
REPORTS = st.builds(
    Report,
    format=st.just(json_report.FORMAT),
    seed=WHOLE,
    time_divisor=WHOLE,
    outcomes=st.lists(OUTCOMES, max_size=2).map(tuple),
)


def test_report_of_all_kinds_comes_back_equal() -> None:
    """Nothing is lost between writing and reading."""
    assert json_report.loads(json_report.dumps(s.KNOWN)) == s.KNOWN


@given(REPORTS)
def test_report_of_any_content_comes_back_equal(report: Report) -> None:
    """Whatever texts, figures and enums a report holds, it comes back."""
    assert json_report.loads(json_report.dumps(report)) == report


def test_report_as_json_has_the_known_fields() -> None:
    """Names and values as they are published, format first."""
    found = json.loads(json_report.dumps(s.KNOWN))
    assert next(iter(found.items())) == ("format", "streamchaos.report/1")
    assert (found["seed"], found["engine"], found["time_divisor"]) == (7, "reference", 10)
    bad = found["outcomes"][2]
    assert (bad["scenario"], bad["told"]) == ("story1/nginx-122-off", "not_as_told")
    fail = bad["findings"][2]
    assert (fail["check"], fail["verdict"], fail["culprit"]) == (
        "first_event_not_held",
        "fail",
        "nginx",
    )
    assert (fail["directive"]["line"], fail["directive"]["missing"]) == (38, True)
    assert fail["evidence"][1] == {
        "key": "r1.story1_a.through.1",
        "vantage": "hop1",
        "event_index": 17,
    }
    assert bad["findings"][3]["cause"] == "noise"


def test_report_with_unknown_keys_is_read() -> None:
    """Additions within the major do no harm, wherever they stand."""
    raw = json.loads(json_report.dumps(s.KNOWN))
    raw["mood"] = "good"
    raw["outcomes"][0]["findings"][0]["colour"] = [1, {"a": None}]
    assert json_report.loads(json.dumps(raw).encode()) == s.KNOWN


@pytest.mark.parametrize("major", ["2", "10", "9" * 5000])
def test_report_of_a_newer_major_is_refused_in_one_line(major: str) -> None:
    """Its other fields may mean anything, so they are not even looked at."""
    data = json.dumps({"format": f"streamchaos.report/{major}", "seed": []}).encode()
    with pytest.raises(RecordingError, match="use a newer one") as caught:
        json_report.loads(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"format": 1}',
        b'{"format": "streamchaos.recording/1"}',
        b'{"format": "streamchaos.report/x"}',
        b'{"format": "streamchaos.report/1"}',
        b'{"format": "\xff"}',
        b"[" * 100_000,
        json_report.dumps(s.KNOWN)[:-40],
        json_report.dumps(s.KNOWN).replace(b'"as_told"', b'"as_hoped"'),
    ],
)
def test_report_that_is_none_is_refused_in_one_line(data: bytes) -> None:
    """Foreign, damaged and cut off files are told apart from reports."""
    with pytest.raises(RecordingError) as caught:
        json_report.loads(data)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=60))
def test_report_of_any_bytes_is_refused_or_read(data: bytes) -> None:
    """No bytes raise anything but the one error."""
    with pytest.raises(HarnessError):
        json_report.loads(data)


def test_report_with_what_json_cannot_hold_is_still_readable() -> None:
    """Figures that are no number are left out, lone surrogates escaped."""
    odd = replace(
        s.AS_TOLD, title="a\udcffb", figures=(("a", math.nan), ("b", math.inf), ("c", 1.5))
    )
    (back,) = json_report.loads(json_report.dumps(s.report(odd))).outcomes
    assert back.figures == (("c", 1.5),)
    assert back.title == "a\\udcffb"


@pytest.mark.parametrize("name", ["report", "recording", "scenario", "outcome"])
def test_schema_of_a_name_resolves_all_its_references(name: str) -> None:
    """A validator finds everything that the schema points to."""
    text = json_report.schema(name).decode()
    found = json.loads(text)
    references = {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert references <= found["$defs"].keys()
    assert "streamchaos." in found["title"]


def test_schema_of_the_report_asks_for_its_fields() -> None:
    """Required are the fields without default, and nothing forbids more of them."""
    report = json.loads(json_report.schema("report"))["$defs"]["Report"]
    assert {"format", "seed", "outcomes"} <= set(report["required"])
    assert "folder" not in report["required"]
    assert report.get("additionalProperties", True) is True


def test_schema_of_an_unknown_name_lists_those_that_exist() -> None:
    """The answer to a typo is the list."""
    with pytest.raises(UsageError, match="report, recording"):
        json_report.schema("reprot")
