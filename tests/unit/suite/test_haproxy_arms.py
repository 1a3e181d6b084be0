"""HAProxy's rows: each red one has a green partner that differs by what it names."""

from __future__ import annotations

import pytest

from harness.checks.cancelling import ABORT_LIMIT_MS, REACH_LIMIT_MS
from harness.model import Cancel, Defects, Node, Scenario, StreamScript
from harness.suite.haproxy_arms import cancels, rows
from harness.suite.nginx_buffers import Arm

ROWS = {arm.slug: arm for arm in rows(StreamScript())}
CANCELS = {scenario.id: scenario for scenario in cancels(10, 0)}
RED = [arm for arm in ROWS.values() if arm.red]


def lines_of(nodes: tuple[Node, ...]) -> set[str]:
    return {line for node in nodes for line in node.lines}


@pytest.mark.parametrize("arm", RED, ids=lambda a: a.slug)
def test_red_row_differs_from_its_green_partner_by_its_lines(arm: Arm) -> None:
    """Version, listener and engine are the same: only the named lines can make the difference."""
    partner = ROWS[arm.partner]
    assert not partner.red
    assert lines_of(partner.nodes) - lines_of(arm.nodes) == set(arm.differs)
    assert [(n.version, n.tls) for n in partner.nodes] == [(n.version, n.tls) for n in arm.nodes]
    assert partner.defects == arm.defects == Defects()


def test_rows_tell_what_each_version_holds_as_shipped() -> None:
    """Chunks are held by both in plaintext, over TLS by 2.8 alone; a closing engine by neither."""
    assert {arm.slug for arm in RED} == {
        "haproxy-28-as-shipped",
        "haproxy-28-tls",
        "haproxy-26-as-shipped",
    }
    closing = [arm for arm in ROWS.values() if arm.defects.close_delimited]
    assert [arm.slug for arm in closing] == [
        "haproxy-28-close-delimited",
        "haproxy-26-close-delimited",
    ]


@pytest.mark.parametrize("scenario", CANCELS.values(), ids=lambda s: s.id)
def test_client_leaves_within_a_silence_that_hides_it(scenario: Scenario) -> None:
    """While tokens flow a deaf HAProxy finds out by writing, and would be in time."""
    (pause,) = scenario.workload.script.pauses
    assert isinstance(scenario.workload.cancel, Cancel)
    assert pause.after_events == scenario.workload.cancel.after_events
    assert pause.silence_ms > 2 * (REACH_LIMIT_MS + ABORT_LIMIT_MS)


def test_deaf_scenario_has_a_partner_that_hears() -> None:
    """Only the clients of those without the option are told to be heard of too late."""
    deaf = {key for key, scenario in CANCELS.items() if scenario.expectations}
    assert deaf == {"cancel/haproxy-28-fin", "cancel/haproxy-26-fin"}
    for key in deaf:
        partner = CANCELS[CANCELS[key].partner]
        assert not partner.expectations
        assert partner.workload == CANCELS[key].workload
        assert CANCELS[key].expectations[0].culprit == "haproxy"
