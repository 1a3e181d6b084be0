"""What the chaos tests of one pytest process share: a runner, and what became of the scenarios."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from harness.errors import HarnessError
from harness.plugin.options import ChaosOptions

if TYPE_CHECKING:
    from harness.cli.background import BackgroundRunner
    from harness.known_failing import Known
    from harness.model import Outcome, Report, Scenario

UNDECIDED_LIMIT = 5
"""So many percent of a session's cases may stay undecided."""

PARAMETER = "chaos_scenario"
CASE = "chaos_case"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A scenario that was run, as its test's report carries it from process to process."""

    scenario: str
    told: str
    partner: str


class ChaosSession:
    """What the chaos tests of one pytest process share."""

    def __init__(self, config: pytest.Config) -> None:
        self.options = ChaosOptions.of(config)
        self.cases: list[Case] = []
        self.folders: list[str] = []
        self.refusals: tuple[str, ...] = ()
        self.known: tuple[Known, ...] = ()
        self._config = config
        self._runner: BackgroundRunner | None = None
        self._folder = Path()
        self._failed: HarnessError | None = None
        self._terminate: Any = None

    @property
    def is_worker(self) -> bool:
        """True in a worker of xdist, which runs only some of the items that it collects."""
        return hasattr(self._config, "workerinput")

    def load_known(self) -> None:
        """Reads what is known to fail.

        Raises:
            pytest.UsageError: the list cannot be read.
        """
        from harness import known_failing

        try:
            self.known = known_failing.load(self._config.rootpath / known_failing.FILE)
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from error

    def outcome(self, scenario: Scenario, items: Iterable[pytest.Item]) -> Outcome:
        """How the scenario came out. The first call begins those of all `items` too.

        Raises:
            HarnessError: the runner cannot be opened, or ended before it.
        """
        runner = self._opened()
        if not self.is_worker:
            runner.submit(planned(items))
        return runner.outcome(scenario)

    def path(self, outcome: Outcome) -> Path:
        """The folder with the recording of this outcome."""
        return self._folder / outcome.folder

    def report(self) -> Report:
        """The report's head, for texts on one of its outcomes."""
        from harness.model import Report

        options = self.options
        return Report(
            format="",
            run="",
            title="",
            seed=options.seed,
            engine=options.engine,
            time_divisor=options.time_divisor,
            started_utc="",
            command="",
            versions=(),
            outcomes=(),
            folder=str(self._folder),
        )

    def close(self) -> None:
        """Stops what still runs and leaves the reports.

        Raises:
            RecordingError: the disk refuses.
        """
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        if self._terminate is not None:
            signal.signal(signal.SIGTERM, self._terminate)
        self.folders.append(str(self._folder))
        runner.close()

    def _opened(self) -> BackgroundRunner:
        if self._failed is not None:
            raise self._failed
        if self._runner is None:
            runner = self._made()
            try:
                self._folder = runner.start()
            except HarnessError as error:
                self._failed = error
                raise
            self._runner = runner
            if threading.current_thread() is threading.main_thread():
                self._terminate = signal.signal(signal.SIGTERM, _terminated)
        return self._runner

    def _made(self) -> BackgroundRunner:
        from harness.cli.background import BackgroundRunner
        from harness.cli.session import SessionOptions
        from harness.run import RunOptions

        options = self.options
        parts = self._config.hook.pytest_streamchaos_parts(
            config=self._config, engine=options.engine
        )
        if parts is None:
            from harness.suite.parts import SuiteParts

            parts = SuiteParts(environ=os.environ)
        session = SessionOptions(
            title="pytest -m chaos",
            run=RunOptions(results=options.results, seed=options.seed, jobs=options.jobs),
            engine=options.engine,
            time_divisor=options.time_divisor,
            argv=("pytest", *map(str, self._config.invocation_params.args)),
            repeat=lambda _report, scenario_id: options.repeat(scenario_id),
        )
        return BackgroundRunner(parts, session)


def _terminated(signum: int, _frame: FrameType | None) -> NoReturn:
    """Ends the session in good order, as Ctrl-C does, with its exit code and its summary."""
    pytest.exit(f"stopped by {signal.Signals(signum).name}")


SESSION = pytest.StashKey[ChaosSession]()


class CaseCollector:
    """Takes the cases out of the tests' reports, whichever process they come from."""

    def __init__(self, session: ChaosSession) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The cases of a test that has run."""
        if report.when == "call":
            found = [value for name, value in report.user_properties if name == CASE]
            self._session.cases += [Case(**value) for value in found if isinstance(value, dict)]


def planned(items: Iterable[pytest.Item]) -> list[Scenario]:
    """The scenarios of the items that have one, in their order."""
    calls = (getattr(item, "callspec", None) for item in items)
    return [call.params[PARAMETER] for call in calls if call and PARAMETER in call.params]


def undecided(cases: Sequence[Case]) -> tuple[str, ...]:
    """Why the session as a whole says too little, one line each; nothing where it says enough."""
    open_ids = {case.scenario for case in cases if case.told == "undecided"}
    lines = []
    if len(open_ids) * 100 > UNDECIDED_LIMIT * len(cases):
        lines.append(
            f"{len(open_ids)} of {len(cases)} scenarios stay undecided, more than "
            f"{UNDECIDED_LIMIT} %: {', '.join(sorted(open_ids))}"
        )
    pairs = {
        tuple(sorted((case.scenario, case.partner)))
        for case in cases
        if {case.scenario, case.partner} <= open_ids
    }
    lines += [f"both arms of a pair stay undecided: {' and '.join(pair)}" for pair in sorted(pairs)]
    return tuple(lines)
