"""A scenario's folder: written whole, read back, refused when it is newer or damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import record
from harness.errors import RecordingError
from harness.model import (
    AccessEntry,
    Fault,
    Injection,
    Layer,
    LedgerEntry,
    MetricSample,
    NodeRun,
    Outcome,
    Told,
)
from harness.record import FORMAT, Facts, ScenarioFolder, require_format, scenario_folders
from tests.unit.limits import files_of_at_most
from tests.unit.recordings import Case

FAULT = Fault(name="limit-data", layer=Layer.STREAM, parameters=(("limit_bytes", 3),))
SCENARIO = Case(injections=(Injection(fault=FAULT, hop=1),)).scenario()
ENTRY = LedgerEntry(at_ns=1, what="received", key="k", request="r")


@pytest.fixture
def folder(tmp_path: Path) -> ScenarioFolder:
    """A folder with a scenario in it, and nothing else."""
    return ScenarioFolder.create(tmp_path / "unit/case/attempt-1", SCENARIO)


def scenario_json(folder: ScenarioFolder) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder.path / "scenario.json").read_bytes())
    return found


def rewrite(folder: ScenarioFolder, value: object, name: str = "scenario.json") -> None:
    (folder.path / name).write_text(json.dumps(value), encoding="utf-8")


def test_folder_created_holds_its_scenario(folder: ScenarioFolder) -> None:
    """What was planned is read back as it was, and a person can read it too."""
    assert folder.scenario() == SCENARIO
    assert (folder.path / "scenario.json").read_bytes().count(b"\n") > 10
    assert scenario_json(folder)["format"] == FORMAT == "streamchaos.recording/1"


def test_folder_facts_are_read_back(folder: ScenarioFolder) -> None:
    """Nodes, oracle, metrics and notes survive the disk."""
    facts = Facts(
        run="r1",
        nodes=(NodeRun(name="nginx", kind="nginx", version="1.22", errors=("[error] x",)),),
        oracle={"r1.unit_case.direct.0": ("a", "b")},
        metrics=(MetricSample(at_ns=3, poked=True, values=(("running", 1.5),)),),
        notes=("a note",),
    )
    folder.write("facts.json", facts)
    assert folder.facts() == facts


def test_folder_of_a_killed_run_says_what_it_lacks(folder: ScenarioFolder) -> None:
    """What the runner did not get to write is a note, or told as absent; never an exception."""
    assert folder.facts().notes == ("facts.json is missing: the run did not get to its end",)
    assert folder.ledger() is None
    assert folder.access() == ()
    assert folder.streams() is None


def test_folder_lines_are_read_back_without_the_broken_ones(folder: ScenarioFolder) -> None:
    """A log that a killed process left cut off is read as far as it is whole."""
    folder.write_lines("engine.jsonl", (ENTRY, ENTRY))
    folder.write_lines("access.jsonl", (AccessEntry(node="nginx", key="k", status=200),))
    path = folder.path / "engine.jsonl"
    path.write_bytes(path.read_bytes() + b'{"at_ns":2,"what":"fr\n\xff\n7')
    assert folder.ledger() == (ENTRY, ENTRY)
    assert folder.access() == (AccessEntry(node="nginx", key="k", status=200),)


def test_folder_outcome_is_read_back(folder: ScenarioFolder) -> None:
    """What was found last."""
    outcome = Outcome(scenario=SCENARIO.id, title="t", told=Told.AS_TOLD, attempts=2)
    folder.write("findings.json", outcome)
    assert folder.outcome() == outcome


# ------------------------------------------------------------------------------ formats and damage


@pytest.mark.parametrize(
    "told",
    [
        "streamchaos.recording/2",
        "streamchaos.recording/10",
        "streamchaos.report/1",
        "streamchaos.recording",
        "streamchaos.recording/x",
        "streamchaos.recording/²",
        "",
        "x/1",
    ],
)
def test_folder_of_another_format_is_refused_in_one_line(folder: ScenarioFolder, told: str) -> None:
    """A newer major, or no format of ours, is named beside the one that is read; before anything
    else of the file is looked at."""
    rewrite(folder, {"format": told, "scenario": {"shape": "of the future"}})
    with pytest.raises(RecordingError) as caught:
        folder.scenario()
    assert caught.value.what == (
        f"is written in the format {told!r}; this version reads 'streamchaos.recording/1'"
    )
    assert caught.value.where == str(folder.path / "scenario.json")
    assert "version of streamchaos" in caught.value.todo


def test_require_format_of_an_older_major_is_read(tmp_path: Path) -> None:
    """Old recordings can be judged again."""
    require_format("x/1", "x/3", tmp_path)
    require_format("x/3", "x/3", tmp_path)
    with pytest.raises(RecordingError):
        require_format("x/4", "x/3", tmp_path)


def test_folder_unknown_keys_are_ignored(folder: ScenarioFolder) -> None:
    """Additions within a major are read over, at each depth."""
    raw = scenario_json(folder)
    raw["later"] = 1
    scenario = raw["scenario"]
    assert isinstance(scenario, dict)
    scenario["weather"] = {"rain": True}
    scenario["stack"]["nodes"][0]["colour"] = "red"
    rewrite(folder, raw)
    assert folder.scenario() == SCENARIO


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"format":"%s"}'])
def test_folder_damaged_scenario_is_refused(folder: ScenarioFolder, content: bytes) -> None:
    """What is no JSON, or not of this shape, is named with its file."""
    path = folder.path / "scenario.json"
    path.write_bytes(content.replace(b"%s", FORMAT.encode()))
    with pytest.raises(RecordingError, match="is damaged: ") as caught:
        folder.scenario()
    assert caught.value.where == str(path)


def test_folder_cut_off_scenario_is_refused_at_each_length(folder: ScenarioFolder) -> None:
    """No part of the file passes for the whole."""
    path = folder.path / "scenario.json"
    content = path.read_bytes().rstrip()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(RecordingError, match="is damaged: "):
            folder.scenario()


def test_folder_scenario_with_an_impossible_id_is_damaged(folder: ScenarioFolder) -> None:
    """What a scenario refuses to be made of is damage like any other."""
    raw = scenario_json(folder)
    scenario = raw["scenario"]
    assert isinstance(scenario, dict)
    scenario["id"] = "No such id"
    rewrite(folder, raw)
    with pytest.raises(RecordingError, match=r"is damaged: .*No such id"):
        folder.scenario()


@pytest.mark.parametrize("name", ["facts.json", "streams.json"])
def test_folder_damaged_part_is_refused(folder: ScenarioFolder, name: str) -> None:
    """A part that is there must be whole: nothing is judged on half of it."""
    (folder.path / name).write_bytes(b"{")
    with pytest.raises(RecordingError, match="is damaged: "):
        folder.facts() if name == "facts.json" else folder.streams()


def test_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    """A wrong path is told as such, with what to name instead."""
    with pytest.raises(RecordingError, match="cannot be read: No such file") as caught:
        ScenarioFolder(tmp_path / "nowhere").scenario()
    assert "chaos-results" in caught.value.todo


# ----------------------------------------------------------------------------------------- writing


def test_write_refused_leaves_what_was_there(folder: ScenarioFolder) -> None:
    """The disk's no comes as our failure; the old file stands and no draft is left."""
    before = (folder.path / "scenario.json").read_bytes()
    with (
        files_of_at_most(10),
        pytest.raises(RecordingError, match="cannot be written: File too large") as caught,
    ):
        folder.write("scenario.json", {"a": "longer than ten bytes"})
    assert "free space" in caught.value.todo
    assert (folder.path / "scenario.json").read_bytes() == before
    assert [p.name for p in folder.path.iterdir()] == ["scenario.json"]


def test_create_below_a_file_is_refused(tmp_path: Path) -> None:
    """A folder that cannot be made is our failure."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RecordingError, match="cannot be written"):
        ScenarioFolder.create(tmp_path / "file" / "a", SCENARIO)
    with pytest.raises(RecordingError, match="cannot be written"):
        record.write_whole(tmp_path / "file" / "a.json", b"")


def test_compact_keeps_streams_and_drops_the_raw_reads(folder: ScenarioFolder) -> None:
    """Traces are read back as they were; the rare events stay, the bytes go."""
    for name in ("client", "relay"):
        (folder.path / f"{name}.reads.bin").write_bytes(b"raw")
        (folder.path / f"{name}.events.jsonl").write_bytes(b"")
    recording = Case().recording()
    folder.compact(recording.streams)
    assert folder.streams() == recording.streams
    assert not list(folder.path.glob("*.reads.bin"))
    assert len(list(folder.path.glob("*.events.jsonl"))) == 2
    folder.compact(recording.streams)
    assert folder.streams() == recording.streams


def test_compact_refused_keeps_the_raw_reads(folder: ScenarioFolder) -> None:
    """Bytes go only once what stands for them is on the disk."""
    raw = folder.path / "client.reads.bin"
    raw.write_bytes(b"raw")
    with files_of_at_most(10), pytest.raises(RecordingError, match="File too large"):
        folder.compact(Case().recording().streams)
    assert raw.read_bytes() == b"raw"
    assert folder.streams() is None


# --------------------------------------------------------------------------------------- many


def test_scenario_folders_are_found_in_order_without_controls(tmp_path: Path) -> None:
    """Each attempt of each scenario, by name; what stands for nothing but itself is left out."""
    for path in ("b/attempt-1", "a/x/attempt-2", "a/x/attempt-1", "a/x/attempt-1/control"):
        ScenarioFolder.create(tmp_path / path, SCENARIO)
    found = [str(f.path.relative_to(tmp_path)) for f in scenario_folders(tmp_path)]
    assert found == ["a/x/attempt-1", "a/x/attempt-2", "b/attempt-1"]


def test_scenario_folders_of_none_is_refused(tmp_path: Path) -> None:
    """Nothing to judge is not a pass."""
    with pytest.raises(RecordingError, match="holds no recording"):
        scenario_folders(tmp_path)
