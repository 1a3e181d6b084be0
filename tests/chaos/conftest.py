"""The built-in catalogue, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import Scenario
from harness.suite import catalogue


def pytest_streamchaos_scenarios(time_divisor: int, seed: int) -> Iterable[Scenario]:
    """Every built-in scenario."""
    return catalogue.scenarios(time_divisor, seed)
