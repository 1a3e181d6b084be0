"""A run as both shells start it: scenarios in, a folder with a manifest and the reports out."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets as entropy
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.cli.output import MASK
from harness.cli.version import version
from harness.errors import RecordingError
from harness.model import Outcome, Report, Scenario
from harness.parts import Parts
from harness.record import ScenarioFolder, write_whole
from harness.run import Runner, RunOptions, prove, run_id
from reports import json_report, junit
from reports.paragraphs import repeat_command
from reports.terminal import Repeat

MANIFEST_FORMAT = "streamchaos.manifest/1"
T = TypeVar("T")

SEED_BITS = 32


Opened = Callable[[Path], None]
"""Called with the run's folder as soon as it exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How a session runs, and what is written of it.

    `argv` is the command that asked for it; `repeat` gives the command for one scenario of it.
    """

    title: str
    run: RunOptions
    engine: str = "reference"
    time_divisor: int = 10
    argv: tuple[str, ...] = ()
    repeat: Repeat = repeat_command


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine of a run."""

    kernel: str
    python: str
    cpu: str
    cpu_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run was asked and where it ran. `started_utc`: the only time of day in it."""

    format: str
    run: str
    title: str
    seed: int
    engine: str
    time_divisor: int
    jobs: int
    started_utc: str
    argv: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    host: Host
    scenarios: tuple[str, ...]


def fresh_seed() -> int:
    """A seed for a run that was given none. It is printed, so that the run can be repeated."""
    return entropy.randbits(SEED_BITS)


async def run_session(
    scenarios: Sequence[Scenario],
    parts: Parts,
    options: SessionOptions,
    opened: Opened = lambda _folder: None,
) -> Report:
    """Runs the scenarios and leaves manifest and reports in a new folder; the report.

    Where it is cancelled, a report of those that had come to their end is left.

    Raises:
        RecordingError: the disk refuses.
    """
    finished: dict[str, Outcome] = {}

    def progress(scenario_id: str, outcome: Outcome | None) -> None:
        if outcome is not None:
            finished[scenario_id] = outcome
        options.run.progress(scenario_id, outcome)

    async with Runner.open(parts, replace(options.run, progress=progress)) as runner:
        papers = Papers(runner.folder, options, parts.secrets)
        papers.write_manifest(scenarios)
        opened(runner.folder)
        try:
            outcomes = await runner.run_all(scenarios)
        except asyncio.CancelledError:
            papers.write_report(prove(scenarios, list(finished.values())))
            raise
    return papers.write_report(outcomes)


class Papers:
    """What stands at the top of a run's folder: manifest.json, report.json, report.xml."""

    def __init__(self, folder: Path, options: SessionOptions, secrets: Iterable[str]) -> None:
        self.folder = folder
        self._options = options
        self._secrets = tuple(secrets)
        self._run = run_id(options.run.seed, folder)
        self._started_utc = _now_utc()

    def write_manifest(self, scenarios: Sequence[Scenario]) -> None:
        """Raises RecordingError where the disk refuses."""
        options = self._options
        manifest = Manifest(
            format=MANIFEST_FORMAT,
            run=self._run,
            title=options.title,
            seed=options.run.seed,
            engine=options.engine,
            time_divisor=options.time_divisor,
            jobs=options.run.jobs,
            started_utc=self._started_utc,
            argv=options.argv,
            versions=_versions(),
            host=_host(),
            scenarios=tuple(s.id for s in scenarios),
        )
        text = msgspec.json.encode(without(manifest, self._secrets))
        write_whole(self.folder / "manifest.json", msgspec.json.format(text, indent=1) + b"\n")

    def write_report(self, outcomes: Sequence[Outcome]) -> Report:
        """The report of these outcomes, written as JSON and JUnit.

        Raises:
            RecordingError: the disk refuses.
        """
        options = self._options
        report = Report(
            format=json_report.FORMAT,
            run=self._run,
            title=options.title,
            seed=options.run.seed,
            engine=options.engine,
            time_divisor=options.time_divisor,
            started_utc=self._started_utc,
            command=shlex.join(options.argv),
            versions=(*_versions(), *self._node_versions(outcomes)),
            outcomes=tuple(outcomes),
            folder=str(self.folder),
        )
        report = without(report, self._secrets)
        write_whole(self.folder / "report.json", json_report.dumps(report))
        write_whole(self.folder / "report.xml", junit.dumps(report, repeat=options.repeat))
        return report

    def _node_versions(self, outcomes: Iterable[Outcome]) -> tuple[tuple[str, str], ...]:
        """Each kind of node with each version that one of them told."""
        found: set[tuple[str, str]] = set()
        for outcome in outcomes:
            if not outcome.folder:
                continue
            try:
                nodes = ScenarioFolder(self.folder / outcome.folder).facts().nodes
            except RecordingError:
                continue
            found.update((node.kind, node.version) for node in nodes if node.version)
        return tuple(sorted(found))


def without(value: T, secrets: tuple[str, ...]) -> T:
    """`value` with each secret masked in each of its texts."""
    return msgspec.convert(_masked(msgspec.to_builtins(value), secrets), type(value))


def _masked(value: object, secrets: tuple[str, ...]) -> object:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, dict):
        return {key: _masked(one, secrets) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(one, secrets) for one in value]
    return value


def _versions() -> tuple[tuple[str, str], ...]:
    return (("streamchaos", version()), ("python", platform.python_version()))


def _host() -> Host:
    return Host(
        kernel=platform.release(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        cpu=_cpu(),
        cpu_count=os.cpu_count() or 0,
    )


def _cpu() -> str:
    """The processor's name as Linux tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()


def _now_utc() -> str:
    # The manifest tells the time of day; nothing is measured by it.
    return datetime.now(UTC).isoformat(timespec="seconds")  # noqa: TID251
