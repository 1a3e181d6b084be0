"""The life of a run: many scenarios, each with its control, its attempts, its judgement; one folder
for all of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from harness import blame, check, correlate
from harness.drive import Bench, EnginePool, attempt
from harness.errors import HarnessError, RecordingError
from harness.figures import figures
from harness.launch.certificates import Certificates
from harness.launch.process import ProcessLauncher
from harness.launch.processes import Keeper
from harness.launch.sandbox import HostSandbox
from harness.model import (
    Cause,
    Evidence,
    Outcome,
    Recording,
    Scenario,
    Told,
    Verdict,
)
from harness.parts import Parts
from harness.record import ScenarioFolder, refused
from harness.schedule import Schedule

ATTEMPTS_MAX = 3
"""An undecided scenario is run again at most twice; a fail is never run again into green."""

DISK_REFUSALS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
)
WORTH_ANOTHER = frozenset({Cause.NOISE, Cause.TOO_FEW})
RUN_ID_BITS = 32

Progress = Callable[[str, Outcome | None], None]
"""Called with a scenario's id at its start (None) and at its end (its outcome)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a person may choose of a run."""

    results: Path = Path("chaos-results")
    seed: int = 0
    jobs: int = 8
    keep_raw: bool = False
    progress: Progress = field(default=lambda _id, _outcome: None)


class Runner:
    """Runs scenarios on one bench. Use `Runner.open`."""

    def __init__(self, bench: Bench, options: RunOptions, folder: Path) -> None:
        self._bench = bench
        self._options = options
        self._schedule = Schedule(options.jobs)
        self.folder = folder

    @classmethod
    @asynccontextmanager
    async def open(cls, parts: Parts, options: RunOptions) -> AsyncIterator[Runner]:
        """A runner with its keeper and folder; at the end nothing of it is left but the folder.

        Raises:
            RecordingError: the folder cannot be made.
        """
        folder = new_run_folder(options.results, options.seed)
        async with Keeper() as keeper:
            launcher = ProcessLauncher(keeper, HostSandbox())
            work = folder / "engines"
            engines = EnginePool(launcher, work)
            certificates = Certificates(folder / "certificates")
            # A private key is not left behind, however we end.
            await keeper.keep_folder(folder / "certificates")
            bench = Bench(
                run=run_id(options.seed, folder),
                parts=parts,
                keeper=keeper,
                launcher=launcher,
                certificates=certificates,
                engines=engines,
            )
            try:
                yield cls(bench, options, folder)
            finally:
                await engines.close()
                certificates.remove()

    async def run_all(self, scenarios: Sequence[Scenario]) -> list[Outcome]:
        """Outcomes in the order of the scenarios; directives are marked as proven where a partner
        shows it."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.run(s)) for s in scenarios]
        return prove(scenarios, [t.result() for t in tasks])

    async def run(self, scenario: Scenario) -> Outcome:
        """One scenario, as often as it is worth it; our own failures become an outcome."""
        skipped = self._why_skipped(scenario)
        if skipped:
            outcome = Outcome(
                scenario=scenario.id, title=scenario.title, told=Told.UNDECIDED, skipped=skipped
            )
            self._options.progress(scenario.id, outcome)
            return outcome
        async with self._schedule.place(scenario.load):
            self._options.progress(scenario.id, None)
            outcome = await self._attempts(scenario)
        self._options.progress(scenario.id, outcome)
        return outcome

    def _why_skipped(self, scenario: Scenario) -> str:
        reasons = (self._bench.parts.available(node) for node in scenario.stack.nodes)
        return next((r for r in reasons if r), "")

    async def _attempts(self, scenario: Scenario) -> Outcome:
        begun_ns = time.monotonic_ns()
        outcome = Outcome(scenario=scenario.id, title=scenario.title, told=Told.UNDECIDED)
        for number in range(1, ATTEMPTS_MAX + 1):
            path = self.folder / scenario.id / f"attempt-{number}"
            outcome = await self._once(scenario, path, f"{self._bench.run}-{number}")
            outcome = replace(
                outcome,
                attempts=number,
                folder=str(path.relative_to(self.folder)),
                duration_ms=(time.monotonic_ns() - begun_ns) // 1_000_000,
            )
            if not worth_another(outcome):
                break
        return outcome

    async def _once(self, scenario: Scenario, path: Path, run: str) -> Outcome:
        try:
            folder = ScenarioFolder.create(path, scenario)
            if scenario.injections:
                quiet = replace(scenario, injections=(), expectations=())
                control = ScenarioFolder.create(path / "control", quiet)
                await attempt(self._bench, quiet, control, f"{run}-control")
            await attempt(self._bench, scenario, folder, run)
            return conclude(folder, keep_raw=self._options.keep_raw)
        except (HarnessError, OSError) as error:
            return _harness_error(scenario, in_words(error, path))
        except ExceptionGroup as group:
            ours, bugs = group.split((HarnessError, OSError))
            if ours is None or bugs is not None:
                raise
            return _harness_error(scenario, in_words(_first_of(ours), path))


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


def in_words(error: Exception, path: Path) -> str:
    """Our own failure as one clear message. A refusal of the system names the file, else `path`."""
    if not isinstance(error, OSError):
        return str(error)
    where = Path(os.fsdecode(error.filename)) if error.filename else path
    if error.errno in DISK_REFUSALS:
        return str(refused(where, error))
    what = f"the system refuses: {error.strerror or str(error) or type(error).__name__}"
    return str(HarnessError(what, where=str(where)))


def _harness_error(scenario: Scenario, text: str) -> Outcome:
    return Outcome(scenario=scenario.id, title=scenario.title, told=Told.HARNESS_ERROR, error=text)


# ------------------------------------------------------------------------------------------ judging


def judge(folder: ScenarioFolder) -> tuple[Outcome, Recording]:
    """What the recording in `folder` means. A pure reading: it can be done again at any time.

    Raises:
        RecordingError: it cannot be read.
    """
    subject = correlate.load(folder)
    control = folder.path / "control"
    evidence = Evidence(
        subject=subject,
        control=correlate.load(ScenarioFolder(control)) if control.exists() else None,
    )
    scenario = subject.scenario
    evaluation = check.evaluate(evidence, scenario.checks or None)
    findings = tuple(blame.blame(f, subject) for f in evaluation.findings)
    evaluation = replace(evaluation, findings=findings)
    told, reasons = check.judge(scenario, evaluation)
    outcome = Outcome(
        scenario=scenario.id,
        title=scenario.title,
        told=told,
        reasons=tuple(reasons),
        findings=findings,
        figures=figures(subject),
        error="\n".join(text for _, text in evaluation.errors),
    )
    return outcome, subject


def conclude(folder: ScenarioFolder, *, keep_raw: bool = False) -> Outcome:
    """Judges, writes findings.json, and lets raw reads go where every verdict is a pass."""
    outcome, recording = judge(folder)
    folder.write("findings.json", outcome)
    if not keep_raw and all(
        f.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE) for f in outcome.findings
    ):
        folder.compact(recording.streams)
    return outcome


def worth_another(outcome: Outcome) -> bool:
    """Whether noise, or too little of it all, is what stands in the way."""
    if outcome.told is not Told.UNDECIDED:
        return False
    causes = {f.cause for f in outcome.findings if f.verdict is Verdict.UNKNOWN}
    return bool(causes) and causes <= WORTH_ANOTHER


def prove(scenarios: Iterable[Scenario], outcomes: list[Outcome]) -> list[Outcome]:
    """Marks directives as proven where this run showed red with the line and, by the same check,
    green without it."""
    green = {
        (outcome.scenario, finding.check)
        for outcome in outcomes
        if outcome.told is Told.AS_TOLD and not outcome.skipped
        for finding in outcome.findings
        if finding.verdict is Verdict.PASS
    }
    partners = {s.id: s.partner for s in scenarios}

    def proven(outcome: Outcome) -> Outcome:
        red = outcome.told is Told.AS_TOLD
        partner = partners.get(outcome.scenario, "")
        findings = (
            blame.prove(f, green_as_told=red and (partner, f.check) in green)
            for f in outcome.findings
        )
        return replace(outcome, findings=tuple(findings))

    return [proven(o) for o in outcomes]


# ------------------------------------------------------------------------------------------- folder


def new_run_folder(results: Path, seed: int) -> Path:
    """`<results>/<utc>-<seed>`, and `latest` pointing to it.

    Raises:
        RecordingError: the disk refuses.
    """
    # A folder is named by the time of day, and nothing is measured by it.
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")  # noqa: TID251
    try:
        folder = _fresh(results.absolute(), f"{stamp}-{seed}")
        latest = folder.parent / "latest"
        draft = folder.parent / f".latest-{folder.name}"
        draft.symlink_to(folder.name)
        draft.replace(latest)
    except OSError as error:
        raise refused(results, error) from error
    return folder


def _fresh(results: Path, name: str) -> Path:
    """Two runs of one second get folders of their own."""
    results.mkdir(parents=True, exist_ok=True)
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        folder = results / f"{name}{suffix}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise RecordingError("holds too many runs of this second", where=str(results))


def run_id(seed: int, folder: Path) -> str:
    """Short, and its own for each run: two runs on one engine must not share keys."""
    from harness.seeds import derive

    return f"r{derive(seed, folder.name) % (1 << RUN_ID_BITS):08x}"
