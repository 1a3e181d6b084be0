"""All built-in scenarios hold together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import check
from harness.drive import node_names, stream_keys
from harness.errors import PlanError
from harness.model import Scenario, StreamKey, TriggerKind, Verdict
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


@pytest.mark.parametrize("scenario", [s for s in ALL if s.partner], ids=lambda s: s.id)
def test_partner_is_green_by_the_checks_that_are_told_red(scenario: Scenario) -> None:
    """Else it could not prove what the lines do that differ."""
    partner = BY_ID[scenario.partner]
    assert scenario.expectations
    assert not partner.expectations
    told = {e.check for e in scenario.expectations}
    assert told <= set(partner.checks or check.names())


@pytest.mark.parametrize("scenario", ALL, ids=lambda s: s.id)
def test_scenario_blames_a_node_or_a_hop_of_its_own(scenario: Scenario) -> None:
    """Names as they will stand in its findings."""
    hops = {f"hop{n}" for n in range(scenario.stack.engine_index + 1)}
    places = {*node_names(scenario), *hops, ""}
    assert {e.culprit for e in scenario.expectations} <= places
    assert all(i.hop <= scenario.stack.engine_index for i in scenario.injections)


def test_keys_of_all_streams_are_told_apart() -> None:
    """Ids are each their own, also in the form that goes on the wire."""
    keys = [key for s in ALL for key in stream_keys("r-1", s)]
    assert len({str(key) for key in keys}) == len(keys)
    assert [StreamKey.parse(str(key)) for key in keys] == keys


@pytest.mark.parametrize("divisor", [1, 10])
def test_scenario_knows_its_scale(divisor: int) -> None:
    """The same scenarios in both."""
    scaled = catalogue.scenarios(time_divisor=divisor)
    assert {s.time_divisor for s in scaled} == {divisor}
    assert [s.id for s in scaled] == list(BY_ID)


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


def test_injections_trigger_on_progress() -> None:
    """Seconds are the last resort."""
    triggers = [i.trigger for s in ALL for i in s.injections]
    assert triggers
    assert all(t.kind is not TriggerKind.ELAPSED for t in triggers)


def test_triggers_on_events_are_reached() -> None:
    """One that the script is too short for would leave its scenario undecided for ever."""
    counted = [
        (injection.trigger.count, scenario.workload.script.event_count)
        for scenario in ALL
        for injection in scenario.injections
        if injection.trigger.kind is TriggerKind.EVENTS
    ]
    assert counted
    assert all(0 < count < events for count, events in counted)


def test_flaws_of_an_answer_lie_within_it() -> None:
    """An engine that is to cut after the end does not cut."""
    for scenario in ALL:
        defects, events = scenario.workload.defects, scenario.workload.script.event_count
        places = (defects.cut_after_events, defects.error_event_after, defects.alter_event)
        assert all(place < events for place in places), scenario.id


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
