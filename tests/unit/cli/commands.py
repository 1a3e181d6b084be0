"""The command, run as a process of its own, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
ARGV = (sys.executable, "-W", "error", "-m", "harness.cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command left."""

    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    """One in which the command finds its own sources."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def streamchaos(folder: Path, *args: str | Path) -> Done:
    """Run the command in a folder."""
    done = subprocess.run(
        (*ARGV, *map(str, args)),
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)
