"""The options `--chaos-*`, and what they come to."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ENGINES = ("reference",)
TIME_DIVISOR = 10
JOBS = 8
RESULTS = "chaos-results"


def add_options(parser: pytest.Parser) -> None:
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
