"""JUnit XML, read back by a parser of its own."""

from __future__ import annotations

from dataclasses import replace
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import Outcome, Report
from reports import junit
from tests.unit.reports import samples as s

MARKS = ("failure", "error", "skipped")
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))


def suite_of(report: Report) -> Element:
    """The one suite of the report."""
    (suite,) = fromstring(junit.dumps(report))
    assert suite.tag == "testsuite"
    return suite


def case_of(outcome: Outcome) -> Element:
    """The one case of a report of this outcome."""
    (case,) = suite_of(s.report(outcome)).findall("testcase")
    return case


@pytest.mark.parametrize(
    ("outcome", "tag", "kind"),
    [
        (s.NOT_AS_TOLD, "failure", "not_as_told"),
        (s.HARNESS_ERROR, "error", "harness_error"),
        (s.UNDECIDED, "skipped", "undecided"),
        (s.SKIPPED, "skipped", "skipped"),
    ],
)
def test_case_of_each_kind_has_its_own_mark(outcome: Outcome, tag: str, kind: str) -> None:
    """The stack's failure, the harness' error and what is not known are never mixed up."""
    case = case_of(outcome)
    marks = [child for child in case if child.tag in MARKS]
    assert [mark.tag for mark in marks] == [tag]
    assert marks[0].get("type") == kind
    assert marks[0].get("message")
    assert outcome.scenario in (marks[0].text or "")


@pytest.mark.parametrize("outcome", [s.AS_TOLD, s.RED_AS_TOLD])
def test_case_as_told_has_no_mark(outcome: Outcome) -> None:
    """A red arm that is told to be red passes."""
    assert [child.tag for child in case_of(outcome)] == ["properties"]


def test_case_of_a_failure_holds_the_finding_in_full() -> None:
    """Who reads only the CI's page sees check, culprit, directive, cure and command."""
    failure = case_of(s.NOT_AS_TOLD).find("failure")
    assert failure is not None
    text = " ".join((failure.text or "").split())
    for part in (
        "first_event_not_held",
        "nginx held the first event until 744 ms after its arrival",
        "nginx.conf:38 lacks proxy_buffering off;",
        "Set proxy_buffering off in the location.",
        "unknown (noise): events_not_coalesced",
        "a run on a quieter machine",
        "pytest -m chaos -k story1/nginx-122-off --chaos-seed 7",
        "story1/nginx-122-off/attempt-1",
    ):
        assert part in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (s.UNDECIDED, "undecided (noise); events_not_coalesced is unknown (noise)"),
        (s.SKIPPED, "nginx 1.22 is not on this machine: make nginx-debian"),
        (s.HARNESS_ERROR, "nginx: did not get ready within 20 s"),
        (replace(s.NOT_AS_TOLD, reasons=()), "NOT AS TOLD"),
    ],
)
def test_message_of_a_mark_is_one_line_that_says_why(outcome: Outcome, message: str) -> None:
    """What a list of failures shows is enough to know whom to ask."""
    assert junit.message(outcome).startswith(message)
    assert "\n" not in junit.message(outcome)


def test_suite_of_all_kinds_counts_what_it_holds() -> None:
    """The counts of the suite are those of its cases."""
    suite = suite_of(s.KNOWN)
    cases = suite.findall("testcase")
    assert suite.get("tests") == str(len(cases)) == "6"
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.get(attribute) == str(len(suite.findall(f"testcase/{tag}")))
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("1", "1", "2")
    assert suite.get("time") == "49.521"


def test_suite_and_case_bear_names_properties_and_times() -> None:
    """Seed and engine stand at the suite; id, folder part, time and figures at the case."""
    suite = suite_of(s.report(s.AS_TOLD))
    found = {p.get("name"): p.get("value") for p in suite.findall("properties/property")}
    assert (found["seed"], found["engine"], found["version.nginx"]) == ("7", "reference", "1.31.3")
    (case,) = suite.findall("testcase")
    assert case.attrib == {
        "classname": "streamchaos.story1",
        "name": "story1/nginx-131-as-shipped",
        "time": "4.321",
    }
    figures = {p.get("name"): p.get("value") for p in case.findall("properties/property")}
    assert figures["ttft_ms_through"] == "23.25"


@pytest.mark.parametrize("count", [0, 1, 40])
def test_suite_of_any_size_holds_a_case_for_each(count: int) -> None:
    """None is left out or merged."""
    names = [case.get("name") for case in suite_of(s.many(count)).findall("testcase")]
    assert names == [outcome.scenario for outcome in s.many(count).outcomes]


@pytest.mark.parametrize(
    "code", [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xD800, 0xDFFF, 0xFFFE, 0xFFFF]
)
def test_text_with_a_character_xml_forbids_is_shown_as_an_escape(code: int) -> None:
    """XML 1.0 §2.2 allows none of them, not even as a reference."""
    error = case_of(replace(s.HARNESS_ERROR, error=f"a{chr(code)}b")).find("error")
    assert error is not None
    escape = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    assert error.get("message") == f"a{escape}b"
    assert f"a{escape}b" in (error.text or "")


@given(ANY_TEXT, ANY_TEXT)
def test_report_of_any_text_is_well_formed(name: str, text: str) -> None:
    """Whatever a log or a title holds, a parser reads the report."""
    odd = replace(
        s.NOT_AS_TOLD, scenario=name, title=text, reasons=(text,), error=text, folder=name
    )
    report = replace(s.report(odd, replace(s.SKIPPED, skipped=text)), command=text)
    assert len(suite_of(report).findall("testcase")) == 2
