"""All built-in scenarios."""

from __future__ import annotations

from harness.errors import PlanError
from harness.model import Scenario
from harness.suite import cancels, endings, requests
from harness.suite.stories import STORIES


def scenarios(time_divisor: int = 10, seed: int = 0) -> tuple[Scenario, ...]:
    """Each built-in scenario once, stories first.

    Raises:
        PlanError: two of them share an id.
    """
    found: list[Scenario] = []
    for story in STORIES.values():
        found += story.arms(time_divisor, seed)
    found += cancels.scenarios(time_divisor, seed)
    found += endings.scenarios(time_divisor, seed)
    found += requests.scenarios(time_divisor, seed)
    ids = [s.id for s in found]
    twice = {i for i in ids if ids.count(i) > 1}
    if twice:
        raise PlanError(f"scenario ids stand twice: {', '.join(sorted(twice))}")
    return tuple(found)
