"""Clients that leave: each at a time at which the checks can tell what becomes of it."""

from __future__ import annotations

import pytest

from harness.checks.accounting import FREE_LIMIT_MS
from harness.checks.cancelling import ABORT_LIMIT_MS, REACH_LIMIT_MS
from harness.drive import DRAIN_S
from harness.model import Cancel, Defects, Leave, Load, Scenario, Workload
from harness.suite.cancels import scenarios

ALL = scenarios(10, 0)
BY_ID = {scenario.id: scenario for scenario in ALL}


def cancel_of(workload: Workload) -> Cancel:
    assert workload.cancel is not None
    return workload.cancel


@pytest.mark.parametrize("scenario", ALL, ids=lambda s: s.id)
def test_engine_has_much_left_to_send_when_its_client_leaves(scenario: Scenario) -> None:
    """Else it would end by itself before a lost cancel could be told from one in time."""
    script = scenario.workload.script
    last = cancel_of(scenario.workload).after_events - 1
    left_ms = script.due_ms(script.event_count - 1) - script.due_ms(last)
    assert left_ms > REACH_LIMIT_MS + ABORT_LIMIT_MS


def test_ignored_abort_is_a_cancel_within_a_silence() -> None:
    """While tokens flow nginx finds out by writing; only in a silence is it deaf."""
    workload = BY_ID["cancel/nginx-ignores-abort"].workload
    (pause,) = workload.script.pauses
    assert pause.after_events == cancel_of(workload).after_events
    assert pause.silence_ms > 2 * (REACH_LIMIT_MS + ABORT_LIMIT_MS)


def test_clients_elsewhere_leave_while_tokens_flow() -> None:
    """A silence would have another cause of being late."""
    others = [s for s in ALL if s.id != "cancel/nginx-ignores-abort"]
    assert all(s.workload.script.pauses == () for s in others)


def test_each_way_to_leave_is_tried() -> None:
    """close_notify where there is TLS to send it in, and nowhere else."""
    ways = {cancel_of(s.workload).how for s in ALL}
    assert ways == set(Leave)
    for scenario in ALL:
        notified = cancel_of(scenario.workload).how is Leave.CLOSE_NOTIFY
        assert scenario.stack.nodes[0].tls is notified


def test_engine_of_a_red_arm_has_the_flaw_that_is_told() -> None:
    """By request, or from its start."""
    red = {s.id for s in ALL if s.expectations}
    flawed = {
        s.id
        for s in ALL
        if s.workload.defects != Defects()
        or "dead_abort_counter" in s.stack.nodes[-1].lines
        or "proxy_ignore_client_abort on;" in s.stack.nodes[0].lines
    }
    assert red == flawed


def test_metrics_are_read_alone_and_only_where_they_are_judged() -> None:
    """Gauges belong to all requests of an engine."""
    for scenario in ALL:
        judged = "metrics_agree_with_ledger" in scenario.checks
        assert scenario.workload.sample_metrics is judged
        assert (scenario.load is Load.MEASURES) is judged


def test_drain_outlasts_the_time_that_an_engine_has() -> None:
    """What is freed later than that is late by any limit."""
    assert DRAIN_S * 1000 > 2 * (ABORT_LIMIT_MS + FREE_LIMIT_MS)
