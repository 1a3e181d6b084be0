"""The life of a run, without one: what is tried again, what is proven, where it is kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import RecordingError
from harness.model import (
    Cause,
    Directive,
    Finding,
    Node,
    Outcome,
    Scenario,
    Stack,
    SymptomKind,
    Told,
    Verdict,
)
from harness.record import ScenarioFolder
from harness.run import conclude, judge, new_run_folder, prove, run_id, worth_another
from tests.recordings.golden import FOLDER

LINE = Directive(file="x.conf", line=1, text="x on;", explains=(SymptomKind.HELD,), cure="x off")
RED = Finding(check="held", verdict=Verdict.FAIL, culprit="x", directive=LINE)
STACK = Stack(id="s", nodes=(Node(kind="reference"),))


def outcome(name: str, told: Told, *findings: Finding, skipped: str = "") -> Outcome:
    return Outcome(scenario=name, title=name, told=told, findings=findings, skipped=skipped)


def unknown(cause: Cause) -> Finding:
    return Finding(check="c", verdict=Verdict.UNKNOWN, cause=cause)


@pytest.mark.parametrize("cause", list(Cause))
def test_undecided_is_tried_again_for_noise_and_too_few_only(cause: Cause) -> None:
    """Nothing else may come out differently for no reason."""
    undecided = outcome("a", Told.UNDECIDED, unknown(cause))
    assert worth_another(undecided) is (cause in (Cause.NOISE, Cause.TOO_FEW))


@pytest.mark.parametrize("told", [Told.AS_TOLD, Told.NOT_AS_TOLD, Told.HARNESS_ERROR])
def test_what_is_decided_is_never_tried_again(told: Told) -> None:
    """A fail is never run again into green."""
    assert not worth_another(outcome("a", told, unknown(Cause.NOISE)))


def test_mixed_causes_are_not_tried_again() -> None:
    """Another run cannot settle a fault that does not fire."""
    mixed = outcome("a", Told.UNDECIDED, unknown(Cause.NOISE), unknown(Cause.NOT_FIRED))
    assert not worth_another(mixed)


@pytest.mark.parametrize(
    ("green", "proven"),
    [
        (outcome("green", Told.AS_TOLD), True),
        (outcome("green", Told.NOT_AS_TOLD), False),
        (outcome("green", Told.AS_TOLD, skipped="no such part"), False),
        (outcome("other", Told.AS_TOLD), False),
    ],
)
def test_directive_is_proven_by_a_green_partner_of_the_same_run(
    green: Outcome, proven: bool
) -> None:
    """Only there has the run shown red with the line and green without it."""
    scenarios = [Scenario(id="red", title="red", stack=STACK, partner="green")]
    red, _ = prove(scenarios, [outcome("red", Told.AS_TOLD, RED), green])
    assert red.findings[0].directive_proven is proven


def test_directive_of_an_arm_that_is_not_as_told_stays_a_hint() -> None:
    """It did not show what it was to show."""
    scenarios = [Scenario(id="red", title="red", stack=STACK, partner="green")]
    outcomes = [outcome("red", Told.NOT_AS_TOLD, RED), outcome("green", Told.AS_TOLD)]
    assert not prove(scenarios, outcomes)[0].findings[0].directive_proven


def test_run_folders_of_one_second_are_apart_and_latest_is_the_newest(tmp_path: Path) -> None:
    """Nothing is overwritten."""
    folders = [new_run_folder(tmp_path / "results", 7) for _ in range(3)]
    assert len(set(folders)) == 3
    assert (tmp_path / "results" / "latest").resolve() == folders[-1].resolve()
    assert len({run_id(7, folder) for folder in folders}) == 3


def test_results_that_cannot_be_written_are_one_clear_error(tmp_path: Path) -> None:
    """A file in the way stands for every refusal; root is refused by nothing else."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RecordingError, match="cannot be written") as caught:
        new_run_folder(tmp_path / "file", 1)
    assert "another folder" in caught.value.todo


def test_compact_recording_is_judged_as_the_raw_one(tmp_path: Path) -> None:
    """Offsets, stamps and digests are enough for a rejudge."""
    import shutil

    source = FOLDER / "ending_complete"
    copy = ScenarioFolder(tmp_path / "copy")
    shutil.copytree(source, copy.path)
    raw, _ = judge(ScenarioFolder(source))
    concluded = conclude(copy)
    assert not (copy.path / "client.reads.bin").exists()
    compact, _ = judge(copy)
    assert compact == concluded == raw
    assert copy.outcome() == replace(raw)


def test_failing_recording_keeps_its_raw_bytes(tmp_path: Path) -> None:
    """Who looks into a fail wants to see what was on the wire."""
    import shutil

    copy = ScenarioFolder(tmp_path / "copy")
    shutil.copytree(FOLDER / "ending_engine-no-terminator", copy.path)
    conclude(copy)
    assert (copy.path / "relay.reads.bin").stat().st_size > 0
    assert os.listdir(copy.path).count("streams.json") == 0  # noqa: PTH208
