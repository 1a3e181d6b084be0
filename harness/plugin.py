"""The pytest plugin: scenarios as tests. It adds nothing to a session without chaos tests.

A catalogue is handed in by a hook, in a conftest.py; a test that takes `chaos_scenario` is run once
for each scenario of it, and the fixture `chaos` runs and judges:

    def pytest_streamchaos_scenarios(time_divisor, seed):
        return my_scenarios(time_divisor, seed)

    def test_stack_in_each_scenario_comes_out_as_told(chaos, chaos_scenario):
        chaos.assert_as_told(chaos.run(chaos_scenario))

All selected scenarios run side by side as far as their loads allow, from the first chaos test on;
a worker of xdist runs its own one after the other. Reports are left in `--chaos-results`.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.cli.background import BackgroundRunner
    from harness.model import Outcome, Recording, Report, Scenario
    from harness.parts import Parts

MARKERS = {
    "chaos": "a scenario of streamchaos, run on real parts",
    "quick": "of the quick tier",
    "full": "of the full tier",
    "vllm": "needs a vLLM server",
    "gpu": "needs a GPU",
    "docker": "needs Docker",
    "netns": "needs network namespaces",
}
ENGINES = ("reference",)
TIME_DIVISOR = 10
JOBS = 8
RESULTS = "chaos-results"
UNDECIDED_LIMIT = 5
"""So many percent of a session's cases may stay undecided."""

SKIPPING = frozenset({"noise", "too_few"})
"""Causes that another run may settle. All others are the scenario's fault, or our own."""

COLUMNS = 100
PARAMETER = "chaos_scenario"
CASE = "chaos_case"


# ----------------------------------------------------------------------------------------- hooks


class Hooks:
    """What a conftest.py may implement."""

    @pytest.hookspec
    def pytest_streamchaos_scenarios(
        self, config: pytest.Config, time_divisor: int, seed: int
    ) -> Iterable[Scenario]:
        """Scenarios for the tests below this conftest.py that take `chaos_scenario`."""
        raise NotImplementedError

    @pytest.hookspec(firstresult=True)
    def pytest_streamchaos_parts(self, config: pytest.Config, engine: str) -> Parts | None:
        """What nodes, requests and faults are made of; by default the built-in catalogues."""
        raise NotImplementedError


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Registers the hooks of ours."""
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Registers the options; None as a default tells what was not given."""
    group = parser.getgroup("streamchaos", "chaos and fault injection (streamchaos)")
    group.addoption("--chaos-engine", metavar="NAME", help=f"one of: {', '.join(ENGINES)}")
    group.addoption("--chaos-seed", metavar="N", help="repeats a run; drawn and printed if absent")
    group.addoption(
        "--chaos-time-scale", metavar="N", help=f"divides timers (default {TIME_DIVISOR})"
    )
    group.addoption("--chaos-real-time", action="store_true", help="timers as they are")
    group.addoption(
        "--chaos-unknown", metavar="skip|fail", help="what an undecided scenario is (default skip)"
    )
    group.addoption(
        "--chaos-results", metavar="DIR", help=f"gets this run's folder (default {RESULTS})"
    )
    group.addoption("--chaos-jobs", metavar="N", help=f"side by side at most (default {JOBS})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """The options, checked."""

    engine: str
    seed: int
    time_divisor: int
    unknown_fails: bool
    results: Path
    jobs: int
    given: bool

    @classmethod
    def of(cls, config: pytest.Config) -> ChaosOptions:
        """Those of this session.

        Raises:
            pytest.UsageError: a value that cannot be meant; the text lists those that can.
        """
        names = ("engine", "seed", "time_scale", "real_time", "unknown", "results", "jobs")
        given = {name: config.getoption(f"chaos_{name}") for name in names}
        real_time = bool(given["real_time"])
        if real_time and given["time_scale"]:
            raise pytest.UsageError("--chaos-real-time and --chaos-time-scale exclude each other")
        scale = _whole("--chaos-time-scale", given["time_scale"], TIME_DIVISOR, least=1)
        results = Path(given["results"] or RESULTS)
        return cls(
            engine=_one_of("--chaos-engine", given["engine"] or ENGINES[0], ENGINES),
            seed=_seed(config, given["seed"]),
            time_divisor=1 if real_time else scale,
            unknown_fails=_one_of("--chaos-unknown", given["unknown"] or "skip", ("skip", "fail"))
            == "fail",
            results=results if results.is_absolute() else config.invocation_params.dir / results,
            jobs=_whole("--chaos-jobs", given["jobs"], JOBS, least=1),
            given=any(given.values()),
        )

    def repeat(self, scenario_id: str) -> str:
        """The command that runs one scenario again as it ran."""
        argv = ["pytest", "-m", "chaos", "-k", f"[{scenario_id}]", "--chaos-seed", str(self.seed)]
        if self.engine != ENGINES[0]:
            argv += ["--chaos-engine", self.engine]
        if self.time_divisor == 1:
            argv += ["--chaos-real-time"]
        elif self.time_divisor != TIME_DIVISOR:
            argv += ["--chaos-time-scale", str(self.time_divisor)]
        return shlex.join(argv)


def _one_of(option: str, value: str, valid: Sequence[str]) -> str:
    if value not in valid:
        raise pytest.UsageError(f"{option} {value!r}: one of {', '.join(valid)}")
    return value


def _whole(option: str, value: str | None, default: int, *, least: int) -> int:
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and int(value) >= least):
        raise pytest.UsageError(f"{option} {value!r}: a whole number from {least}")
    return int(value)


def _seed(config: pytest.Config, given: str | None) -> int:
    """The one given, else the controller's, else a fresh one."""
    worker_input = getattr(config, "workerinput", {})
    if given is None and "chaos_seed" in worker_input:
        return int(worker_input["chaos_seed"])
    return _whole("--chaos-seed", given, int.from_bytes(os.urandom(4)), least=0)


# --------------------------------------------------------------------------------------- session


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
        self._config = config
        self._runner: BackgroundRunner | None = None
        self._folder = Path()
        self._failed: HarnessError | None = None
        self._terminate: Any = None

    @property
    def is_worker(self) -> bool:
        """True in a worker of xdist, which runs only some of the items that it collects."""
        return hasattr(self._config, "workerinput")

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
    """Ends the session in good order, as Ctrl-C does."""
    name = signal.Signals(signum).name
    pytest.exit(f"stopped by {name}", returncode=128 + signum)


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


# --------------------------------------------------------------------------------------- fixture


class Chaos:
    """Runs scenarios, judges what was recorded, and makes a test's result of it."""

    def __init__(self, session: ChaosSession, item: pytest.Item) -> None:
        self._session = session
        self._item = item

    def run(self, scenario: Scenario) -> Outcome:
        """How the scenario came out; whatever the stack does is in there.

        A failure of the harness itself is an outcome too. Two scenarios must not share an id.
        """
        from harness.model import Outcome, Told

        try:
            outcome = self._session.outcome(scenario, self._item.session.items)
        except HarnessError as error:
            outcome = Outcome(
                scenario=scenario.id,
                title=scenario.title,
                told=Told.HARNESS_ERROR,
                error=str(error),
            )
        if not outcome.skipped:
            case = {"scenario": scenario.id, "told": str(outcome.told), "partner": scenario.partner}
            self._item.user_properties.append((CASE, case))
        return outcome

    def recording(self, outcome: Outcome) -> Recording:
        """Everything that was observed, joined, of the outcome's last attempt.

        Raises:
            RecordingError: nothing was recorded.
        """
        from harness import correlate
        from harness.record import ScenarioFolder

        return correlate.load(ScenarioFolder(self._session.path(outcome)))

    def judge(self, recorded: Outcome | Path) -> Outcome:
        """The outcome of a recording (a scenario's folder, or what an outcome came from), anew.

        Raises:
            RecordingError: it cannot be read.
        """
        from harness import run
        from harness.record import ScenarioFolder

        path = recorded if isinstance(recorded, Path) else self._session.path(recorded)
        return run.judge(ScenarioFolder(path))[0]

    def assert_as_told(self, outcome: Outcome) -> None:
        """Passes where the outcome is as told; skips or fails where it could not be decided.

        What `known_failing.toml` lists is expected to fail, and fails where it does not.
        """
        from harness import known_failing
        from harness.model import Told

        entries = known_failing.load(self._item.config.rootpath / known_failing.FILE)
        known = known_failing.find(entries, outcome.scenario)
        if outcome.skipped:
            pytest.skip(outcome.skipped)
        elif outcome.told is Told.HARNESS_ERROR:
            self._fail(outcome, "harness error")
        elif outcome.told is Told.UNDECIDED:
            self._undecided(outcome)
        elif outcome.told is Told.NOT_AS_TOLD:
            if known is not None:
                pytest.xfail(f"{known.reason} ({known.link})")
            self._fail(outcome, "not as told")
        elif known is not None:
            where = f"the entry {known.pattern!r} of {known_failing.FILE}"
            self._fail(outcome, f"no longer failing: remove {where}")

    def _undecided(self, outcome: Outcome) -> None:
        causes = causes_of(outcome)
        text = f"undecided ({', '.join(sorted(causes)) or 'not judged'})"
        if self._session.options.unknown_fails or not causes or causes - SKIPPING:
            self._fail(outcome, text)
        pytest.skip("; ".join([text, *outcome.reasons]))

    def _fail(self, outcome: Outcome, what: str) -> NoReturn:
        pytest.fail(f"{what}\n{self._described(outcome)}", pytrace=False)

    def _described(self, outcome: Outcome) -> str:
        """Findings with what was expected and seen, who is to blame, the folder, the repetition."""
        from reports.paragraphs import about
        from reports.text import plain

        repeat = self._session.options.repeat(outcome.scenario)
        return plain(about(self._session.report(), outcome, COLUMNS, repeat))


def causes_of(outcome: Outcome) -> frozenset[str]:
    """Why an outcome is undecided: the causes of the unknowns that its reasons name."""
    unknown = [f for f in outcome.findings if f.cause is not None]
    named = {str(f.cause) for f in unknown if any(f.check in r.split() for r in outcome.reasons)}
    # Where nothing could be judged at all, the reason begins with its cause.
    starts = {reason.partition(":")[0] for reason in outcome.reasons}
    return frozenset(named | (starts & SKIPPING))


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    """Runs a scenario (`run`), judges a recording (`judge`), asserts on it (`assert_as_told`)."""
    return Chaos(request.config.stash[SESSION], request.node)


# --------------------------------------------------------------------------- what pytest calls


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers and checks the options."""
    for name, help_text in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {help_text}")
    session = config.stash[SESSION] = ChaosSession(config)
    config.pluginmanager.register(CaseCollector(session), "streamchaos-cases")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each scenario of the catalogues that reach it."""
    if PARAMETER not in metafunc.fixturenames:
        return
    options = metafunc.config.stash[SESSION].options
    try:
        catalogues = metafunc.definition.ihook.pytest_streamchaos_scenarios(
            config=metafunc.config, time_divisor=options.time_divisor, seed=options.seed
        )
        found = [scenario for catalogue in catalogues for scenario in catalogue]
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error
    has_timeout = metafunc.config.pluginmanager.hasplugin("timeout")
    metafunc.parametrize(
        PARAMETER,
        [pytest.param(s, id=s.id, marks=_marks(s, has_timeout=has_timeout)) for s in found],
    )


def _marks(scenario: Scenario, *, has_timeout: bool) -> list[pytest.MarkDecorator]:
    names = {"chaos", *scenario.tiers, *(need.partition("@")[0] for need in scenario.needs)}
    marks = [getattr(pytest.mark, name) for name in MARKERS if name in names]
    # A test waits for the scenarios before it too; each of them has its own deadline.
    return [*marks, pytest.mark.timeout(0)] if has_timeout else marks


def pytest_report_header(config: pytest.Config) -> str | None:
    """Seed and engine at the very start, where an option asks for chaos."""
    session = config.stash[SESSION]
    return _header(session.options) if session.options.given else None


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> str | None:
    """Seed and engine once it is known that there are chaos tests."""
    session = config.stash[SESSION]
    is_news = not session.options.given and any(map(is_chaos, items))
    return _header(session.options) if is_news else None


def is_chaos(item: pytest.Item) -> bool:
    """True for a test of a scenario."""
    return item.get_closest_marker("chaos") is not None


def _header(options: ChaosOptions) -> str:
    scale = "real time" if options.time_divisor == 1 else f"timers / {options.time_divisor}"
    return f"streamchaos: seed {options.seed}, engine {options.engine}, {scale}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 - a type of xdist's
    """All workers of xdist get one seed."""
    node.workerinput["chaos_seed"] = node.config.stash[SESSION].options.seed


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - a type of xdist's
    """A worker of xdist tells where its reports are."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[SESSION].folders += output.get("chaos_folders", [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stops the runner, leaves the reports, and fails a session that says too little."""
    chaos_session = session.config.stash[SESSION]
    try:
        chaos_session.close()
    except HarnessError as error:
        chaos_session.refusals += (str(error),)
    if chaos_session.is_worker:
        session.config.workeroutput["chaos_folders"] = chaos_session.folders  # type: ignore[attr-defined]
        return
    chaos_session.refusals += undecided(chaos_session.cases)
    if chaos_session.refusals and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Names the reports, and why the session as a whole fails where it does."""
    session = config.stash[SESSION]
    if not session.folders and not session.refusals:
        return
    terminalreporter.section("streamchaos")
    terminalreporter.line(_header(session.options))
    for refusal in session.refusals:
        terminalreporter.line(f"the session fails: {refusal}", red=True)
    for folder in session.folders:
        terminalreporter.line(f"report: {folder}")
