"""What a test does with a scenario: run it, judge it, assert on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from harness.errors import HarnessError
from harness.plugin.session import CASE, ChaosSession

if TYPE_CHECKING:
    from harness.model import Outcome, Recording, Scenario

COLUMNS = 100

SKIPPING = frozenset({"noise", "too_few"})
"""Causes that another run may settle. All others are the scenario's fault, or our own."""


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

        known = known_failing.find(self._session.known, outcome.scenario)
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
