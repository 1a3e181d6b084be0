"""`streamchaos warstory N`: a production story, red, then green, with figures."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.output import RESULTS, ReportFormat, json_text, note, say
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.model import Report, Scenario
    from harness.suite.parts import SuiteParts
    from harness.suite.stories import Story

TIME_DIVISOR = 10
JOBS = 8

EPILOG = """Examples:

  streamchaos warstory 1

  streamchaos warstory 1 --arm '*gzip*' --arm direct --seed 7

  streamchaos warstory 1 --dry-run

  streamchaos warstory 1 --format json > report.json"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How a story is to be told."""

    number: int
    seed: int
    time_divisor: int
    jobs: int
    results: Path
    format: ReportFormat

    def command(self, *options: str) -> str:
        """The command that tells the story so, with more options."""
        argv = ["streamchaos", "warstory", str(self.number), *options, "--seed", str(self.seed)]
        return shlex.join([*argv, *(["--real-time"] if self.time_divisor == 1 else [])])

    def repeat(self, _report: Report, scenario_id: str) -> str:
        """The command that runs one arm again as it ran."""
        return self.command("--arm", scenario_id)


def warstory(
    number: int = typer.Argument(..., metavar="N", help="The story's number."),
    *,
    real_time: bool = typer.Option(False, "--real-time", help="Timers as they are, not scaled."),
    seed: int | None = typer.Option(
        None, min=0, help="Repeats a run; drawn where it is not given."
    ),
    results: Path = typer.Option(RESULTS, help="The folder that gets this run's folder."),
    jobs: int = typer.Option(JOBS, min=1, help="At most so many scenarios side by side."),
    arm: list[str] = typer.Option(
        [], metavar="PATTERN", help="Only arms whose id fits. Repeatable."
    ),
    format_: ReportFormat = typer.Option(ReportFormat.TEXT, "--format", help="What stdout gets."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be started and sent."),
) -> None:
    """Tell a war story: run its arms, and hold what was told against what was measured."""
    from harness.cli import plan
    from harness.cli.session import fresh_seed
    from harness.suite.parts import SuiteParts
    from harness.suite.stories import STORIES

    if number not in STORIES:
        known = ", ".join(f"{s.number} ({s.title})" for s in STORIES.values())
        raise UsageError(f"there is no story {number}", todo=f"there are: {known}")
    telling = Telling(
        number=number,
        seed=fresh_seed() if seed is None else seed,
        time_divisor=1 if real_time else TIME_DIVISOR,
        jobs=jobs,
        results=results,
        format=format_,
    )
    note(f"seed {telling.seed}")
    story = STORIES[number]
    arms = plan.selected(story.arms(telling.time_divisor, telling.seed), tuple(arm))
    parts = SuiteParts(environ=os.environ)
    if dry_run:
        plans = tuple(plan.planned(s, parts) for s in arms)
        say(json_text(plans) if format_ is ReportFormat.JSON else plan.text(plans))
        return
    report = measure(story, arms, parts, telling)
    write(report, story, arms, telling)

    from reports.exit_code import exit_code

    raise typer.Exit(exit_code(report))


def measure(
    story: Story, arms: tuple[Scenario, ...], parts: SuiteParts, telling: Telling
) -> Report:
    """Runs the arms; progress goes to stderr."""
    from harness.cli import interrupt
    from harness.cli.session import SessionOptions, run_session
    from harness.run import RunOptions
    from reports.terminal import ProgressLines

    folders: list[Path] = []
    options = SessionOptions(
        title=f"War story {story.number}: {story.title}",
        run=RunOptions(
            results=telling.results,
            seed=telling.seed,
            jobs=telling.jobs,
            progress=ProgressLines(sys.stderr, total=len(arms)),
        ),
        time_divisor=telling.time_divisor,
        argv=given(telling),
        repeat=telling.repeat,
    )
    return interrupt.run(
        run_session(arms, parts, options, opened=folders.append),
        note=lambda: f"partial results: {folders[0]}" if folders else "nothing was run yet",
    )


def given(telling: Telling) -> tuple[str, ...]:
    """The command that was given, with the seed that was drawn for it."""
    argv = sys.argv[1:]
    is_seeded = any(one.partition("=")[0] == "--seed" for one in argv)
    return ("streamchaos", *argv, *([] if is_seeded else ["--seed", str(telling.seed)]))


def write(report: Report, story: Story, arms: tuple[Scenario, ...], telling: Telling) -> None:
    """The one document on stdout."""
    if telling.format is ReportFormat.JSON:
        from reports import json_report

        say(json_report.dumps(report).decode().rstrip())
    elif telling.format is ReportFormat.JUNIT:
        from reports import junit

        say(junit.dumps(report, repeat=telling.repeat).decode().rstrip())
    else:
        from reports.story import StoryText, render_story
        from reports.terminal import console

        text = StoryText(title=story.title, paragraphs=story.paragraphs, closing=story.closing)
        render_story(report, arms, text, console(sys.stdout), repeat=telling.repeat)
