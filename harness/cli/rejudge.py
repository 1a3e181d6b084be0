"""`streamchaos rejudge RUN`: the verdicts of recordings, made again from disk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.output import RESULTS, Format, json_text, say
from harness.errors import HarnessError, RecordingError, UsageError

if TYPE_CHECKING:
    from harness.model import Outcome
    from harness.record import ScenarioFolder

EPILOG = """Examples:

  streamchaos rejudge latest

  streamchaos rejudge chaos-results/20260102T030405Z-7 --format json

Exit codes: 0 all verdicts repeat, 1 one differs, 2 a recording cannot be read."""

UNREADABLE_EXIT = 2
DIFFERS_EXIT = 1
# Without it no stream was ever begun.
TRACE = "client.events.jsonl"


class Repeat(StrEnum):
    """How the verdicts of a recording compare with those found before.

    `new` was never judged; `cut off` is of a run that did not get to its end.
    """

    REPEATS = "repeats"
    DIFFERS = "differs"
    NEW = "new"
    CUT_OFF = "cut off"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One recording, judged again. `differences` say what was and what is; `error` why not."""

    folder: str
    repeat: Repeat
    scenario: str = ""
    told: str = ""
    differences: tuple[str, ...] = ()
    error: str = ""


def rejudge(
    run: str = typer.Argument(
        ..., metavar="RUN", help="A run's folder, one scenario's folder in it, or `latest`."
    ),
    *,
    results: Path = typer.Option(RESULTS, help="Where `latest` is looked for."),
    write: bool = typer.Option(False, "--write", help="Write findings.json anew."),
    format_: Format = typer.Option(Format.TEXT, "--format", help="How it is written."),
) -> None:
    """Judge the recordings of a run again, from disk, and say whether the verdicts repeat."""
    from harness.record import scenario_folders

    path = results / "latest" if run == "latest" else Path(run)
    if not path.is_dir():
        raise UsageError(
            "there is no such folder", where=str(path), todo="name a run: chaos-results/latest"
        )
    path = path.resolve()
    try:
        folders = scenario_folders(path)
    except RecordingError as error:
        raise UsageError(error.what, where=error.where, todo=error.todo) from error
    judged = [judge_again(folder, below=path, write=write) for folder in folders]
    say(json_text(judged) if format_ is Format.JSON else text(judged))
    raise typer.Exit(exit_code(judged))


def judge_again(folder: ScenarioFolder, *, below: Path, write: bool = False) -> Judged:
    """The recording's verdicts now, held against those in its findings.json.

    Raises:
        RecordingError: findings.json cannot be written.
    """
    from harness.run import judge

    name = str(folder.path.relative_to(below))
    try:
        before = folder.outcome() if (folder.path / "findings.json").exists() else None
        if not (folder.path / TRACE).exists() and before is None:
            return Judged(folder=name, repeat=Repeat.CUT_OFF, scenario=folder.scenario().id)
        now, _ = judge(folder)
    except HarnessError as error:
        return Judged(folder=name, repeat=Repeat.UNREADABLE, error=str(error))
    if write:
        folder.write("findings.json", now)
    changed = differences(before, now) if before else ()
    return Judged(
        folder=name,
        repeat=_repeat(folder, before, changed),
        scenario=now.scenario,
        told=now.told.value,
        differences=changed,
    )


def _repeat(folder: ScenarioFolder, before: Outcome | None, changed: tuple[str, ...]) -> Repeat:
    if before is None:
        ended = (folder.path / "facts.json").exists()
        return Repeat.NEW if ended else Repeat.CUT_OFF
    return Repeat.DIFFERS if changed else Repeat.REPEATS


def differences(before: Outcome, now: Outcome) -> tuple[str, ...]:
    """What the judgements differ in, one line for each check."""
    was, is_ = _verdicts(before), _verdicts(now)
    names = [name for name in sorted(was | is_) if was.get(name) != is_.get(name)]
    return tuple(
        f"{n}: was {was.get(n, 'not judged')}, is {is_.get(n, 'not judged')}" for n in names
    )


def _verdicts(outcome: Outcome) -> dict[str, str]:
    """Verdict, cause and culprit by check; the outcome itself under `told`."""
    found = {
        f.check: " ".join(
            [
                f.verdict,
                *([f"({f.cause})"] if f.cause else []),
                *([f"at {f.culprit}"] if f.culprit else []),
            ]
        )
        for f in outcome.findings
    }
    return {**found, "told": outcome.told.value}


def exit_code(judged: list[Judged]) -> int:
    """What cannot be read weighs more than what differs."""
    seen = {one.repeat for one in judged}
    if Repeat.UNREADABLE in seen:
        return UNREADABLE_EXIT
    return DIFFERS_EXIT if Repeat.DIFFERS in seen else 0


def text(judged: list[Judged]) -> str:
    """A line for each recording, its differences below it, and how many of each kind."""
    lines = []
    for one in judged:
        lines.append(f"{one.repeat:<10}  {one.told or '-':<12}  {one.folder}")
        lines += [f"            {line}" for line in one.differences]
        lines += [f"            {line}" for line in one.error.splitlines()]
    counts = ((kind, sum(one.repeat is kind for one in judged)) for kind in Repeat)
    lines.append(", ".join(f"{count} {kind}" for kind, count in counts if count))
    return "\n".join(lines)
