"""The command line as a whole: help, start-up, and what becomes of an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import app
from harness.errors import HarnessError, RecordingError
from tests.unit.cli.commands import ARGV, environment, streamchaos

COMMANDS = ("warstory", "list", "rejudge", "schema")
# What makes a start slow, and nobody needs for a version or a help.
HEAVY = ("asyncio", "rich", "httpx", "jinja2", "msgspec", "psutil", "trustme", "harness.model")


@pytest.mark.parametrize("args", ["--version", "--help", "warstory --help", "list --nothing"])
def test_start_without_a_run_imports_nothing_heavy(args: str) -> None:
    """A command that runs nothing starts without what a run needs."""
    code = (
        "import sys; from harness.cli.app import run; run(sys.argv[1:]);"
        f"found = {{*{HEAVY!r}}} & {{*sys.modules}}; sys.exit(f'heavy: {{found}}' if found else 0)"
    )
    argv = (sys.executable, "-c", code, *args.split())
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


def test_version_is_one_line(tmp_path: Path) -> None:
    """The name and the version."""
    done = streamchaos(tmp_path, "--version")
    assert (done.code, done.out.split()[0], done.out.count("\n")) == (0, "streamchaos", 1)


def test_command_alone_prints_its_help(tmp_path: Path) -> None:
    """Whoever types the bare name is told what there is, and that is no error."""
    done = streamchaos(tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out == streamchaos(tmp_path, "--help").out
    assert all(name in done.out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_has_an_example(command: str, tmp_path: Path) -> None:
    """Each command shows how it is used."""
    done = streamchaos(tmp_path, command, "--help")
    assert done.code == 0
    assert f"streamchaos {command} " in done.out.partition("Example")[2]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("warstory 1 --nothing", "--nothing"),
        ("nothing", "nothing"),
        ("warstory", "N"),
        ("warstory one", "valid integer"),
        ("warstory 1 --jobs 0", "jobs"),
        ("warstory 1 --seed x", "seed"),
        ("warstory 1 --format yaml", "yaml"),
        ("warstory 99", "there is no story 99"),
        ("warstory 1 --arm nothing --dry-run", "no arm fits 'nothing'"),
        ("list nothing", "nothing"),
        ("schema nothing", "nothing"),
        ("rejudge nothing", "there is no such folder"),
    ],
)
def test_usage_that_cannot_be_meant_is_one_message(args: str, said: str, tmp_path: Path) -> None:
    """Exit 2, nothing on stdout, on stderr what is wrong; never a traceback."""
    done = streamchaos(tmp_path, *args.split())
    assert (done.code, done.out) == (2, "")
    message = done.err[done.err.index("streamchaos: ") :]
    assert said in message
    assert "Traceback" not in done.err


def test_output_that_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    """A reader that goes away, as `head` does, is told nothing."""
    process = subprocess.Popen(
        (*ARGV, "schema", "report"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(),
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert err == b""


def test_run_with_our_error_in_a_group_tells_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure in a task of ours is told as one message too, with its own exit code."""

    def fail(*_args: object, **_options: object) -> None:
        error = RecordingError("cannot be written", where="x", todo="free space")
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [error])])

    monkeypatch.setattr(app, "application", lambda: fail)
    assert app.run(["warstory", "1"]) == RecordingError.exit_code
    assert capsys.readouterr().err == "streamchaos: x: cannot be written\n  free space\n"


def test_run_with_an_error_of_nobody_known_raises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug keeps its traceback, also where an error of ours stands beside it."""

    def fail(*_args: object, **_options: object) -> None:
        raise ExceptionGroup("tasks", [HarnessError("ours"), KeyError("bug")])

    monkeypatch.setattr(app, "application", lambda: fail)
    with pytest.raises(ExceptionGroup, match="tasks"):
        app.run(["warstory", "1"])
