"""The built-in scenarios, each on real parts."""

from __future__ import annotations

from harness.model import Scenario
from harness.plugin import Chaos


def test_stack_in_each_scenario_comes_out_as_told(chaos: Chaos, chaos_scenario: Scenario) -> None:
    """What was told of a scenario beforehand is what is measured."""
    chaos.assert_as_told(chaos.run(chaos_scenario))
