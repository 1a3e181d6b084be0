"""All built-in scenarios hold together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import check
from harness.errors import PlanError
from harness.model import Scenario, TriggerKind, Verdict
from harness.suite import cancels, catalogue, endings, requests
from harness.suite.stories import STORIES

ALL = catalogue.scenarios(seed=3)
BY_ID = {scenario.id: scenario for scenario in ALL}


@pytest.mark.parametrize("scenario", ALL, ids=lambda s: s.id)
def test_scenario_names_checks_and_partners_that_exist(scenario: Scenario) -> None:
    """A typo would make it pass without being judged."""
    known = set(check.names())
    assert set(scenario.checks) <= known
    told = {e.check for e in scenario.expectations}
    assert told <= (set(scenario.checks) or known)
    assert not scenario.partner or scenario.partner in BY_ID
    assert scenario.because
    assert scenario.seed == scenario.workload.script.seed == 3


@pytest.mark.parametrize("module", [cancels, endings, requests])
def test_family_has_red_and_green(module: object) -> None:
    """A family that is never red proves nothing."""
    scenarios: list[Scenario] = module.scenarios(10, 0)  # type: ignore[attr-defined]
    red = [s for s in scenarios if s.expectations]
    assert red
    assert len(red) < len(scenarios)
    assert all(e.verdict is Verdict.FAIL for s in red for e in s.expectations)


def test_every_check_is_told_to_fail_somewhere_or_has_a_golden_fail() -> None:
    """Between scenarios and golden recordings nothing is only ever green."""
    from tests.recordings.golden import GOLDEN

    told = {e.check for s in ALL for e in s.expectations}
    assert told | set(GOLDEN) == set(check.names())


def test_ignored_abort_is_a_cancel_within_a_silence() -> None:
    """While tokens flow nginx finds out by writing; only in a silence is it deaf."""
    workload = BY_ID["cancel/nginx-ignores-abort"].workload
    assert workload.cancel is not None
    (pause,) = workload.script.pauses
    assert pause.after_events == workload.cancel.after_events


def test_injections_trigger_on_progress() -> None:
    """Seconds are the last resort."""
    triggers = [i.trigger for s in ALL for i in s.injections]
    assert triggers
    assert all(t.kind is not TriggerKind.ELAPSED for t in triggers)


def test_scenarios_that_share_an_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would share a folder and a verdict."""
    twin = replace(ALL[0])
    monkeypatch.setattr(requests, "scenarios", lambda _divisor, _seed: (twin,))
    with pytest.raises(PlanError, match=twin.id):
        catalogue.scenarios()


def test_stories_are_numbered_as_they_are_listed() -> None:
    """`warstory 1` tells story 1."""
    assert all(number == story.number for number, story in STORIES.items())
    assert all(story.paragraphs and story.closing for story in STORIES.values())
