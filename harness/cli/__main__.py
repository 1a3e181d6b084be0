"""`python -m harness.cli`: the command, where it is not installed."""

from __future__ import annotations

from harness.cli import main

main()
