"""Small chaos sessions for the tests of the plugin: scenarios whose ids tell how they come out.

The stand-in takes the place of the runner only: what is tested is what pytest makes of outcomes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

from harness.model import (
    Cause,
    Directive,
    Finding,
    Node,
    Outcome,
    Scenario,
    Stack,
    SymptomKind,
    Told,
    Verdict,
)
from harness.parts import Parts
from harness.run import RunOptions, new_run_folder

ROOT = Path(__file__).parents[2]
IS_INSTALLED = any(point.name == "streamchaos" for point in entry_points(group="pytest11"))
# A second mention of an installed plugin would register it twice.
OURS = () if IS_INSTALLED else ("-p", "harness.plugin")
ARGS = (*OURS, "-p", "no:cacheprovider", "-p", "no:asyncio")

LINE = Directive(
    file="nginx.conf",
    line=36,
    text="proxy_buffering on;",
    explains=(SymptomKind.HELD,),
    cure="proxy_buffering off;",
)
HELD = Finding(
    check="first_event_not_held",
    verdict=Verdict.FAIL,
    expected="at most 100 ms",
    actual="held for 747 ms",
    culprit="nginx",
    directive=LINE,
)

CONFTEST = """
from tests.unit.plugin_sessions import scenarios

def pytest_streamchaos_scenarios():
    return scenarios({ids!r})
"""
# For processes that the test does not share: workers of xdist.
PATCH = """
from harness.cli import background
from tests.unit.plugin_sessions import StandIn

background.Runner = StandIn
"""
TEST = """
def test_it(chaos, chaos_scenario):
    chaos.assert_as_told(chaos.run(chaos_scenario))
"""


def scenarios(ids: Iterable[str]) -> list[Scenario]:
    """A scenario for each id; `a=b` gives a the partner b."""
    stack = Stack(id="engine", nodes=(Node(kind="reference"),))
    return [
        Scenario(
            id=one.partition("=")[0],
            title="a title",
            stack=stack,
            partner=one.partition("=")[2],
            tiers=("quick", "full"),
        )
        for one in ids
    ]


def outcome(scenario: Scenario) -> Outcome:
    """How a scenario comes out, by the second part of its id: a cause, `bad`, `broken`, …"""
    end = scenario.id.split("/")[1].replace("-", "_")
    blank = Outcome(scenario=scenario.id, title=scenario.title, told=Told.AS_TOLD)
    if end == "bad":
        reason = f"{HELD.check} is fail; nobody told so"
        return replace(blank, told=Told.NOT_AS_TOLD, reasons=(reason,), findings=(HELD,))
    if end == "broken":
        return replace(blank, told=Told.HARNESS_ERROR, error="the keeper is gone")
    if end == "missing":
        return replace(blank, told=Told.UNDECIDED, skipped="no nginx\n  make nginx-debian")
    if end == "unjudged":
        return replace(blank, told=Told.UNDECIDED, reasons=("nothing: was told, and not judged",))
    if end in Cause._value2member_map_:
        finding = replace(HELD, verdict=Verdict.UNKNOWN, cause=Cause(end))
        reason = f"{HELD.check} is unknown ({end})"
        return replace(blank, told=Told.UNDECIDED, reasons=(reason,), findings=(finding,))
    return blank


class StandIn:
    """A runner that runs nothing: an outcome is known by the scenario's id; `hang` has none."""

    def __init__(self, folder: Path, options: RunOptions) -> None:
        self.folder = folder
        self._options = options

    @classmethod
    @asynccontextmanager
    async def open(cls, _parts: Parts, options: RunOptions) -> AsyncIterator[StandIn]:
        """A stand-in with a real folder."""
        yield cls(new_run_folder(options.results, options.seed), options)

    async def run(self, scenario: Scenario) -> Outcome:
        """The outcome that the id tells."""
        self._options.progress(scenario.id, None)
        if scenario.id.endswith("hang"):
            await asyncio.Event().wait()
        found = outcome(scenario)
        self._options.progress(scenario.id, found)
        return found

    async def run_all(self, scenarios: Iterable[Scenario]) -> list[Outcome]:
        """Their outcomes, one after the other."""
        return [await self.run(scenario) for scenario in scenarios]
