"""Runs a command that leaves a report and names it: `python tools/report.py COMMAND...`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

LATEST = Path("chaos-results/latest")


def newest() -> Path | None:
    """The folder that the newest run left, or None before the first."""
    return LATEST.resolve() if LATEST.exists() else None


def main(argv: list[str]) -> int:
    """The command's exit code. Only a run of its own is named, never the one before."""
    # Ctrl-C goes to the command too, which is left to end in order.
    signal.signal(signal.SIGINT, lambda *_: None)
    before = newest()
    code = subprocess.run(argv, check=False).returncode
    reports = [] if newest() == before else sorted(LATEST.glob("report.*"))
    lines = [f"report: {path}" for path in reports] or ["no report was written"]
    sys.stdout.write("\n".join(lines) + "\n")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
