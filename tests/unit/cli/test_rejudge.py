"""`streamchaos rejudge` on recordings of a run that saw next to nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness import run
from harness.cli.rejudge import Judged, Repeat, differences, exit_code
from harness.model import Outcome, Told
from harness.record import Facts, ScenarioFolder
from tests.unit.cli.commands import Done, streamchaos
from tests.unit.plugin_sessions import HELD, scenarios

TRACES = ("client.events.jsonl", "relay.events.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> ScenarioFolder:
    """A recording below `chaos-results/latest`, judged once."""
    results = tmp_path / "chaos-results"
    (scenario,) = scenarios(["a/b"])
    folder = ScenarioFolder.create(results / "one" / "a" / "b" / "attempt-1", scenario)
    folder.write("facts.json", Facts())
    folder.write("streams.json", ())
    for name in TRACES:
        (folder.path / name).touch()
    folder.write("findings.json", run.judge(folder)[0])
    (results / "latest").symlink_to("one")
    return folder


def rejudge(tmp_path: Path, *args: str) -> tuple[Done, list[dict[str, object]]]:
    """What the command left, and its rows."""
    done = streamchaos(tmp_path, "rejudge", *args, "--format", "json")
    return done, json.loads(done.out)


def alter(folder: ScenarioFolder) -> Outcome:
    """Findings that no judgement would repeat."""
    altered = replace(folder.outcome(), told=Told.NOT_AS_TOLD)
    folder.write("findings.json", altered)
    return altered


def test_rejudge_of_an_unchanged_run_repeats(folder: ScenarioFolder, tmp_path: Path) -> None:
    """Judging is a pure reading: the same recording gives the same verdicts."""
    done, (row,) = rejudge(tmp_path, "latest")
    assert (done.code, row["repeat"], row["folder"]) == (0, "repeats", "a/b/attempt-1")


def test_rejudge_of_one_scenarios_folder_judges_it(folder: ScenarioFolder, tmp_path: Path) -> None:
    """A run need not be judged as a whole."""
    done, rows = rejudge(tmp_path, str(folder.path))
    assert (done.code, len(rows)) == (0, 1)


def test_rejudge_with_other_findings_differs_and_writes_nothing(
    folder: ScenarioFolder, tmp_path: Path
) -> None:
    """What was found before is kept unless it is asked to go."""
    altered = alter(folder)
    done, (row,) = rejudge(tmp_path, "latest")
    assert (done.code, row["repeat"]) == (1, "differs")
    assert "told: was not_as_told" in str(row["differences"])
    assert folder.outcome() == altered


def test_rejudge_with_write_makes_findings_anew(folder: ScenarioFolder, tmp_path: Path) -> None:
    """From then on they repeat."""
    alter(folder)
    assert rejudge(tmp_path, "latest", "--write")[0].code == 1
    assert rejudge(tmp_path, "latest")[0].code == 0


def test_rejudge_without_findings_judges_for_the_first_time(
    folder: ScenarioFolder, tmp_path: Path
) -> None:
    """Findings may be deleted and rebuilt."""
    (folder.path / "findings.json").unlink()
    done, (row,) = rejudge(tmp_path, "latest", "--write")
    assert (done.code, row["repeat"]) == (0, "new")
    assert rejudge(tmp_path, "latest")[1][0]["repeat"] == "repeats"


@pytest.mark.parametrize("gone", [(), TRACES])
def test_rejudge_of_a_cut_off_run_says_so(
    gone: tuple[str, ...], folder: ScenarioFolder, tmp_path: Path
) -> None:
    """A recording that did not get to its end is read, and no verdict is expected of it."""
    for name in ("findings.json", "facts.json", *gone):
        (folder.path / name).unlink()
    done, (row,) = rejudge(tmp_path, "latest")
    assert (done.code, row["repeat"]) == (0, "cut off")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("scenario.json", '{"format": "streamchaos.recording/9"}', "streamchaos.recording/9"),
        ("scenario.json", "{", "is damaged"),
        ("findings.json", "", "is damaged"),
    ],
)
def test_rejudge_of_what_cannot_be_read_says_which_file(
    name: str, text: str, said: str, folder: ScenarioFolder, tmp_path: Path
) -> None:
    """Exit 2, the file and what to do, and no traceback."""
    (folder.path / name).write_text(text, encoding="utf-8")
    done, (row,) = rejudge(tmp_path, "latest")
    assert (done.code, row["repeat"], done.err) == (2, "unreadable", "")
    assert said in str(row["error"])
    assert name in str(row["error"])


def test_rejudge_of_a_folder_without_recordings_is_bad_usage(tmp_path: Path) -> None:
    """Nothing to judge is told, not passed."""
    done = streamchaos(tmp_path, "rejudge", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "holds no recording" in done.err


def test_rejudge_as_text_has_a_line_for_each_recording(
    folder: ScenarioFolder, tmp_path: Path
) -> None:
    """The verdict's repetition first, the counts last."""
    lines = streamchaos(tmp_path, "rejudge", "latest").out.splitlines()
    assert lines[0].split()[0] == "repeats"
    assert lines[0].endswith("a/b/attempt-1")
    assert lines[-1] == "1 repeats"


@pytest.mark.parametrize(
    ("repeats", "code"),
    [
        ([Repeat.REPEATS, Repeat.NEW, Repeat.CUT_OFF], 0),
        ([Repeat.REPEATS, Repeat.DIFFERS], 1),
        ([Repeat.DIFFERS, Repeat.UNREADABLE], 2),
    ],
)
def test_exit_code_is_the_heaviest(repeats: list[Repeat], code: int) -> None:
    """What cannot be read weighs more than what differs."""
    assert exit_code([Judged(folder="x", repeat=one) for one in repeats]) == code


def test_differences_name_verdict_cause_and_culprit() -> None:
    """A check that blames another node does not repeat its verdict."""
    before = Outcome(scenario="a", title="t", told=Told.AS_TOLD, findings=(HELD,))
    now = replace(before, findings=(replace(HELD, culprit="engine"),))
    assert differences(before, now) == (
        "first_event_not_held: was fail at nginx, is fail at engine",
    )
    assert differences(before, before) == ()
    assert differences(before, replace(before, findings=())) == (
        "first_event_not_held: was fail at nginx, is not judged",
    )
