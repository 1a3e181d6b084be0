"""Runs make targets as stages, then prints their wall times: `python tools/stages.py STAGE...`.

A stage is `target`, `target?` (its failure is only a warning) or `target:folder` (passed over while
the folder holds no tests). A failing stage does not stop the others, except `setup`. The exit code
is 1 where a stage failed, 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# All the others need it.
FIRST = "setup"
TESTS = "test_*.py"


class Interrupt:
    """Remembers Ctrl-C. The running stage gets the signal too, and is left to end in order."""

    def __init__(self) -> None:
        self.seen = False
        signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        self.seen = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A make target, the folder of its tests ("" where it has none), and whether it may fail."""

    target: str
    folder: str
    may_fail: bool

    @classmethod
    def parse(cls, text: str) -> Stage:
        """The stage that an argument names."""
        target, _, folder = text.partition(":")
        return cls(target=target.rstrip("?"), folder=folder, may_fail=target.endswith("?"))

    def is_empty(self) -> bool:
        """True while its folder holds no tests."""
        return bool(self.folder) and not any(Path(self.folder).rglob(TESTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How a stage came out, and after how long."""

    target: str
    result: str
    wall_s: float


def say(text: str) -> None:
    """Print a line ahead of what the next stage prints."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(stage: Stage) -> str:
    """Run one stage with its output shown; `ok`, `FAILED (exit n)`, or why neither."""
    if stage.is_empty():
        return f"no tests in {stage.folder} yet"
    argv = (os.environ.get("MAKE", "make"), "--no-print-directory", stage.target)
    code = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL).returncode
    if not code:
        return "ok"
    return f"warning (exit {code})" if stage.may_fail else f"FAILED (exit {code})"


def run_all(stages: list[Stage], interrupt: Interrupt) -> list[Row]:
    """Run the stages in order, up to a failing set-up or Ctrl-C; a row for each one that ended."""
    rows: list[Row] = []
    for stage in stages:
        say(f"\n=== {stage.target}")
        begun_s = time.monotonic()
        result = run(stage)
        wall_s = time.monotonic() - begun_s
        result = "interrupted" if interrupt.seen else result
        rows.append(Row(target=stage.target, result=result, wall_s=wall_s))
        if interrupt.seen or (stage.target == FIRST and result != "ok"):
            break
    return rows


def table(rows: list[Row]) -> str:
    """Names, wall times and results in columns, with the sum below."""
    total = Row(target="all", result="", wall_s=sum(row.wall_s for row in rows))
    lines = [f"{row.target:<14}{row.wall_s:>8.1f} s  {row.result}" for row in (*rows, total)]
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: list[str]) -> int:
    """Run the stages that `arguments` name; the exit code."""
    interrupt = Interrupt()
    rows = run_all([Stage.parse(text) for text in arguments], interrupt)
    say(f"\n=== stages\n{table(rows)}")
    if interrupt.seen:
        return 130
    return int(any(row.result.startswith("FAILED") for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
