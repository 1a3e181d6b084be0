"""What `make chaos` says at its end, with commands of our own in place of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "report.py"


def leave_report(root: Path, run: str) -> None:
    """Leave the folder of a run behind, with `latest` pointing to it."""
    folder = root / "chaos-results" / run
    folder.mkdir(parents=True)
    (folder / "report.json").touch()
    latest = folder.parent / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(run)


def run(folder: Path, code: str) -> tuple[int, str]:
    """Run Python code under the tool; its exit code and what was printed."""
    argv = (sys.executable, str(TOOL), sys.executable, "-c", code)
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout


def test_report_of_a_failing_run_is_named_with_its_exit_code(tmp_path: Path) -> None:
    """The report counts most where something failed."""
    leave_report(tmp_path, "old")
    code = (
        "import os; os.chdir('chaos-results'); os.mkdir('new')\n"
        "open('new/report.json', 'w').close(); os.unlink('latest'); os.symlink('new', 'latest')\n"
        "exit(1)"
    )
    assert run(tmp_path, code) == (1, "report: chaos-results/latest/report.json\n")


def test_report_of_an_earlier_run_is_not_named(tmp_path: Path) -> None:
    """A run that left nothing must not pass off the report before it as its own."""
    leave_report(tmp_path, "old")
    assert run(tmp_path, "exit(5)") == (5, "no report was written\n")


def test_report_of_a_killed_run_exits_as_a_shell_would(tmp_path: Path) -> None:
    """An end by signal is no success."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run(tmp_path, code) == (137, "no report was written\n")
