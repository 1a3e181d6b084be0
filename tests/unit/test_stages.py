"""The runner of named stages, on a Makefile of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[2] / "tools" / "stages.py"
MAKEFILE = "setup good late:\n\t@echo in $@\nbad:\n\t@exit 3\n"


def run(folder: Path, *stages: str, makefile: str = MAKEFILE) -> tuple[int, list[str], list[str]]:
    """Run stages on the Makefile; exit code, what they printed, and the lines of the table."""
    (folder / "Makefile").write_text(makefile, encoding="utf-8")
    argv = (sys.executable, str(RUNNER), *stages)
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder)
    output, _, table = done.stdout.partition("=== stages\n")
    return done.returncode, output.splitlines(), table.splitlines()


def test_stages_that_pass_exit_0_with_a_row_each(tmp_path: Path) -> None:
    """Each stage is announced, shows its output, and gets a row with its wall time."""
    code, output, table = run(tmp_path, "setup", "good")
    assert code == 0
    assert [line for line in output if line] == ["=== setup", "in setup", "=== good", "in good"]
    assert [line.split()[0] for line in table] == ["setup", "good", "all"]
    assert all(line.endswith("s  ok") for line in table[:-1])


def test_stages_with_a_failing_one_go_on_and_exit_1(tmp_path: Path) -> None:
    """A failing stage hides nothing behind it, and decides the exit code."""
    code, output, table = run(tmp_path, "bad", "late")
    assert code == 1
    assert "in late" in output
    assert table[0].endswith("FAILED (exit 2)")


def test_stages_with_a_failing_setup_stop(tmp_path: Path) -> None:
    """Nothing can run without the set-up."""
    makefile = "setup:\n\t@exit 2\ngood:\n\t@echo in $@\n"
    code, output, table = run(tmp_path, "setup", "good", makefile=makefile)
    assert code == 1
    assert "in good" not in output
    assert [line.split()[0] for line in table] == ["setup", "all"]


def test_stages_with_an_optional_one_failing_exit_0(tmp_path: Path) -> None:
    """A stage with a question mark only warns."""
    code, _, table = run(tmp_path, "bad?", "good")
    assert code == 0
    assert table[0].endswith("warning (exit 2)")


@pytest.mark.parametrize(
    ("file", "result"), [("notes.md", "no tests in cases yet"), ("deep/test_a.py", "ok")]
)
def test_stages_with_a_folder_run_once_it_holds_tests(
    file: str, result: str, tmp_path: Path
) -> None:
    """An empty folder is told and passed over; a folder with one test module is run."""
    (tmp_path / "cases" / file).parent.mkdir(parents=True)
    (tmp_path / "cases" / file).touch()
    code, _, table = run(tmp_path, "good:cases")
    assert code == 0
    assert table[0].endswith(result)
