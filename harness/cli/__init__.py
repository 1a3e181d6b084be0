"""The command line, one file per command. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the command `streamchaos`; ends the process with its exit code."""
    from harness.cli.app import run

    sys.exit(run(sys.argv[1:]))
