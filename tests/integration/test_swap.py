"""Red arms turned green and green ones red by swapping just what differs: the arms prove what they
tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Outcome, Scenario, Told, Verdict
from harness.run import Runner, RunOptions
from harness.suite.nginx_buffers import arms
from harness.suite.parts import SuiteParts

SWAP_TIMEOUT_S = 400


def pairs() -> Iterator[tuple[Scenario, Scenario]]:
    """Each red arm with its green partner."""
    every = {arm.id: arm for arm in arms()}
    return ((arm, every[arm.partner]) for arm in every.values() if arm.partner)


def swapped(told: Scenario, run: Scenario) -> Scenario:
    """What is told of one arm, run as the other."""
    return replace(
        told,
        id=f"swap/{told.id.rpartition('/')[2]}/{run.id.rpartition('/')[2]}",
        stack=run.stack,
        workload=run.workload,
    )


def failing(outcome: Outcome) -> dict[str, str]:
    """Checks that fail, and whom they blame."""
    return {f.check: f.culprit for f in outcome.findings if f.verdict is Verdict.FAIL}


@pytest.mark.timeout(SWAP_TIMEOUT_S)
async def test_arms_swapped_by_their_differing_lines_swap_their_verdicts(tmp_path: Path) -> None:
    """Told red and run green, nothing fails; told green and run red, the told checks do."""
    found = [p for p in pairs() if _can_run(p)]
    assert found
    calmed = [swapped(red, green) for red, green in found]
    spoilt = [swapped(green, red) for red, green in found]
    async with Runner.open(SuiteParts({}), RunOptions(results=tmp_path)) as runner:
        outcomes = await runner.run_all([*calmed, *spoilt])
    for (red, _), calm, spoil in zip(
        found, outcomes[: len(found)], outcomes[len(found) :], strict=True
    ):
        assert calm.told is Told.NOT_AS_TOLD, (red.id, calm.error, calm.reasons)
        assert failing(calm) == {}, red.id
        assert spoil.told is Told.NOT_AS_TOLD, (red.id, spoil.error, spoil.reasons)
        assert failing(spoil) == {e.check: e.culprit for e in red.expectations}, red.id


def _can_run(pair: tuple[Scenario, Scenario]) -> bool:
    parts = SuiteParts({})
    return not any(parts.available(node) for arm in pair for node in arm.stack.nodes)
