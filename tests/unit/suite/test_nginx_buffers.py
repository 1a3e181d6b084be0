"""The first story as data: its arms hold together."""

from __future__ import annotations

import pytest

from harness.model import Scenario, Verdict
from harness.suite.nginx_buffers import arms

ARMS = {arm.id: arm for arm in arms()}
RED = [arm for arm in ARMS.values() if arm.expectations]


def configuration(arm: Scenario) -> set[str]:
    """What an arm sets, line by line, the engine's switches too."""
    lines = {line for node in arm.stack.nodes for line in node.lines}
    defects = arm.workload.defects
    lines |= {f"engine: {name}" for name in defects.__slots__ if getattr(defects, name) is True}
    lines |= {
        f"engine: {name} {getattr(defects, name)}"
        for name in ("clump_events", "stall_ms")
        if getattr(defects, name) > 1
    }
    if arm.workload.script.accel_buffering:
        lines.add(f"engine: X-Accel-Buffering: {arm.workload.script.accel_buffering}")
    return lines


@pytest.mark.parametrize("arm", RED, ids=lambda arm: arm.id)
def test_red_arm_names_a_green_partner(arm: Scenario) -> None:
    """Its partner exists and is told to be green."""
    assert not ARMS[arm.partner].expectations


@pytest.mark.parametrize("arm", RED, ids=lambda arm: arm.id)
def test_red_arm_names_exactly_the_lines_that_differ(arm: Scenario) -> None:
    """No more and no fewer than what stands on one side only."""
    assert set(arm.differs) == configuration(arm) ^ configuration(ARMS[arm.partner])


@pytest.mark.parametrize("arm", RED, ids=lambda arm: arm.id)
def test_red_arm_blames_a_node_of_its_stack(arm: Scenario) -> None:
    """Each told failure has a culprit."""
    kinds = {node.kind for node in arm.stack.nodes}
    for told in arm.expectations:
        assert told.verdict is Verdict.FAIL
        assert told.culprit.split("-")[0] in kinds


def test_arms_each_have_a_reason() -> None:
    """An arm without a reason teaches nothing."""
    assert all(arm.because and arm.measured_before for arm in ARMS.values())


def test_arms_in_real_time_are_longer_but_no_slower() -> None:
    """The scale shortens the stream; it does not touch the gap or the size of an event."""
    real = {arm.id: arm for arm in arms(time_divisor=1)}
    scaled, full = (a["story1/direct"].workload.script for a in (ARMS, real))
    assert (scaled.event_count, full.event_count) == (60, 600)
    assert (scaled.first_token_ms, full.first_token_ms) == (20, 200)
    assert (scaled.gap_ms, scaled.event_bytes) == (full.gap_ms, full.event_bytes)
