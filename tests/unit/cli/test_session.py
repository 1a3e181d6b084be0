"""What a session leaves at the top of its folder, with a stand-in for the runner."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from harness.cli import session
from harness.cli.session import Papers, SessionOptions, fresh_seed, run_session, without
from harness.errors import RecordingError
from harness.model import AccessEntry, Outcome, Told
from harness.run import RunOptions
from harness.suite.parts import SuiteParts
from reports import json_report
from tests.unit.plugin_sessions import StandIn, scenarios

SECRET = 'sk-"planted&<key>'
ENVIRON = {"STREAMCHAOS_API_KEY": SECRET, "OPENAI_API_KEY": "sk-other-planted"}


def options(folder: Path, *argv: str) -> SessionOptions:
    """Options of a session that leaves its run in `folder`."""
    return SessionOptions(title="a title", run=RunOptions(results=folder, seed=7), argv=argv)


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Runner", StandIn)


async def test_session_at_its_end_leaves_manifest_and_reports(tmp_path: Path) -> None:
    """Versions, seed, options, host and command are in the manifest; the report is what came."""
    opened: list[Path] = []
    parts = SuiteParts(environ={})
    found = scenarios(["a/good", "a/bad"])
    report = await run_session(found, parts, options(tmp_path, "streamchaos"), opened.append)
    (folder,) = opened
    assert report == json_report.loads((folder / "report.json").read_bytes())
    assert (folder / "report.xml").read_bytes().startswith(b"<?xml")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["seed"] == report.seed == 7
    assert manifest["argv"] == ["streamchaos"]
    assert manifest["scenarios"] == ["a/good", "a/bad"]
    assert manifest["started_utc"] == report.started_utc
    assert all(manifest["host"].values())
    assert {name for name, _ in manifest["versions"]} == {"streamchaos", "python"}


async def test_session_cancelled_leaves_a_report_of_what_had_ended(tmp_path: Path) -> None:
    """An interrupt costs what still ran, not what was known."""
    hangs = asyncio.Event()

    def progress(scenario_id: str, outcome: Outcome | None) -> None:
        if scenario_id == "a/hang" and outcome is None:
            hangs.set()

    found = scenarios(["a/good", "a/hang"])
    run = RunOptions(results=tmp_path, progress=progress)
    work = run_session(found, SuiteParts(environ={}), SessionOptions(title="a title", run=run))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        await hangs.wait()
        task.cancel()
    report = json_report.loads((tmp_path / "latest" / "report.json").read_bytes())
    assert [o.scenario for o in report.outcomes] == ["a/good"]


def test_session_with_a_secret_in_its_command_writes_it_nowhere(tmp_path: Path) -> None:
    """A key of the environment is in no file of the run, whatever it was typed or said in."""
    argv = ("streamchaos", "--key", SECRET, f"--key=x{ENVIRON['OPENAI_API_KEY']}")
    found = scenarios([])
    asyncio.run(run_session(found, SuiteParts(environ=ENVIRON), options(tmp_path, *argv)))
    papers = Papers(tmp_path, options(tmp_path, *argv), ENVIRON.values())
    error = Outcome(scenario="a", title=SECRET, told=Told.HARNESS_ERROR, error=f"log: {SECRET}")
    papers.write_report([error])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 5
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert "planted" not in text
    assert "log: ***" in text


def test_papers_on_a_disk_that_refuses_are_a_recording_error(tmp_path: Path) -> None:
    """A folder that is gone is told with its path, not as a traceback."""
    papers = Papers(tmp_path / "gone", options(tmp_path), ())
    with pytest.raises(RecordingError) as caught:
        papers.write_manifest([])
    assert caught.value.where.endswith("gone/manifest.json")


def test_without_masks_every_text_of_a_value() -> None:
    """Texts inside of tuples are masked, and nothing else is changed."""
    entry = AccessEntry(node="a key b", key="key", status=200, fields=(("x", "the key"),))
    masked = AccessEntry(node="a *** b", key="***", status=200, fields=(("x", "the ***"),))
    assert without(entry, ("key",)) == masked
    assert without(entry, ()) == entry


def test_fresh_seed_is_another_each_time() -> None:
    """Two runs that are given no seed do not share one."""
    assert len({fresh_seed() for _ in range(4)}) > 1
