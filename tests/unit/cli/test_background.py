"""The runner in a thread of its own, with a stand-in for the runner itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import background
from harness.cli.background import BackgroundRunner
from harness.cli.session import SessionOptions
from harness.errors import HarnessError, PlanError, StackError
from harness.model import Outcome, Scenario, Told
from harness.run import RunOptions
from harness.suite.parts import SuiteParts
from tests.unit.plugin_sessions import StandIn, scenarios


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundRunner]:
    """A runner that was not started, and is closed at the end."""
    monkeypatch.setattr(background, "Runner", StandIn)
    options = SessionOptions(title="t", run=RunOptions(results=tmp_path, seed=7))
    runner = BackgroundRunner(SuiteParts(environ={}), options)
    yield runner
    runner.close()


def test_outcome_of_a_scenario_behind_one_that_hangs_comes(runner: BackgroundRunner) -> None:
    """What is submitted runs side by side."""
    runner.start()
    hang, good = scenarios(["a/hang", "a/good"])
    runner.submit([hang, good])
    assert runner.outcome(good).told is Told.AS_TOLD


def test_outcome_asked_for_twice_is_run_once(
    runner: BackgroundRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario is run once for each session, however often it is submitted."""
    runs: list[str] = []
    run = StandIn.run

    async def counted(self: StandIn, scenario: Scenario) -> Outcome:
        runs.append(scenario.id)
        return await run(self, scenario)

    monkeypatch.setattr(StandIn, "run", counted)
    runner.start()
    found = scenarios(["a/good"])
    runner.submit(found)
    assert runner.outcome(found[0]) is runner.outcome(found[0])
    assert runs == ["a/good"]


def test_submit_of_another_scenario_with_the_same_id_is_refused(
    runner: BackgroundRunner,
) -> None:
    """Their recordings would lie in one folder."""
    runner.start()
    (one,) = scenarios(["a/good"])
    runner.submit([one])
    with pytest.raises(PlanError, match="share this id"):
        runner.submit([replace(one, title="another")])


def test_outcome_after_the_close_is_our_own_error(runner: BackgroundRunner) -> None:
    """Whoever still waits is told, and does not wait for ever."""
    runner.start()
    (hang,) = scenarios(["a/hang"])
    runner.submit([hang])
    runner.close()
    with pytest.raises(HarnessError, match="was stopped"):
        runner.outcome(hang)


def test_outcome_of_a_runner_that_breaks_is_its_error(
    runner: BackgroundRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure that the runner lets out reaches the test that waits, and those behind it."""

    async def broken(_self: StandIn, scenario: Scenario) -> Outcome:
        raise StackError("is gone", where=scenario.id)

    monkeypatch.setattr(StandIn, "run", broken)
    runner.start()
    first, second = scenarios(["a/good", "a/good/b"])
    with pytest.raises(StackError, match="is gone"):
        runner.outcome(first)
    with pytest.raises(HarnessError):
        runner.outcome(second)


def test_start_of_a_runner_that_does_not_open_raises_why(
    runner: BackgroundRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is the runner's own, and there is nothing to report."""

    @asynccontextmanager
    async def broken(*_args: object) -> AsyncIterator[StandIn]:
        raise StackError("no keeper")
        yield

    monkeypatch.setattr(StandIn, "open", broken)
    with pytest.raises(StackError, match="no keeper"):
        runner.start()
    assert runner.close() is None


def test_close_leaves_a_report_of_what_had_ended(runner: BackgroundRunner) -> None:
    """What still runs is stopped and left out."""
    folder = runner.start()
    hang, good = scenarios(["a/hang", "a/good"])
    runner.submit([hang, good])
    runner.outcome(good)
    report = runner.close()
    assert report is not None
    assert [o.scenario for o in report.outcomes] == ["a/good"]
    assert (folder / "report.json").exists()
