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

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import HarnessError
from harness.plugin.fixture import Chaos
from harness.plugin.options import ChaosOptions, add_options
from harness.plugin.session import PARAMETER, SESSION, CaseCollector, ChaosSession, undecided

if TYPE_CHECKING:
    from harness.model import Scenario
    from harness.parts import Parts

__all__ = ["Chaos", "ChaosOptions", "ChaosSession"]

MARKERS = {
    "chaos": "a scenario of streamchaos, run on real parts",
    "quick": "of the quick tier",
    "full": "of the full tier",
    "vllm": "needs a vLLM server",
    "gpu": "needs a GPU",
    "docker": "needs Docker",
    "netns": "needs network namespaces",
}


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
    """Registers the options."""
    add_options(parser)


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    """Runs a scenario (`run`), judges a recording (`judge`), asserts on it (`assert_as_told`)."""
    return Chaos(request.config.stash[SESSION], request.node)


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reads what is known to fail, where there is anything that could."""
    if any(map(is_chaos, items)):
        config.stash[SESSION].load_known()


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
