"""The life of a run, without one: what is tried again, what is proven, where it is kept."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.drive import Bench
from harness.errors import HarnessError, RecordingError
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
from harness.run import (
    Runner,
    RunOptions,
    conclude,
    in_words,
    judge,
    new_run_folder,
    prove,
    run_id,
    worth_another,
)
from harness.suite.parts import SuiteParts
from tests.recordings.golden import FOLDER

LINE = Directive(file="x.conf", line=1, text="x on;", explains=(SymptomKind.HELD,), cure="x off")
RED = Finding(check="held", verdict=Verdict.FAIL, culprit="x", directive=LINE)
GREEN = Finding(check="held", verdict=Verdict.PASS)
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
        (outcome("green", Told.AS_TOLD, GREEN), True),
        (outcome("green", Told.NOT_AS_TOLD, GREEN), False),
        (outcome("green", Told.UNDECIDED, GREEN), False),
        (outcome("green", Told.AS_TOLD, skipped="no such part"), False),
        (outcome("green", Told.AS_TOLD, RED), False),
        (outcome("green", Told.AS_TOLD, replace(GREEN, check="another")), False),
        (outcome("other", Told.AS_TOLD, GREEN), False),
    ],
)
def test_directive_is_proven_by_a_green_partner_of_the_same_run(
    green: Outcome, proven: bool
) -> None:
    """Only there has the run shown red with the line and, by the same check, green without it."""
    scenarios = [Scenario(id="red", title="red", stack=STACK, partner="green")]
    red, _ = prove(scenarios, [outcome("red", Told.AS_TOLD, RED), green])
    assert red.findings[0].directive_proven is proven


def test_directive_of_an_arm_that_is_not_as_told_stays_a_hint() -> None:
    """It did not show what it was to show."""
    scenarios = [Scenario(id="red", title="red", stack=STACK, partner="green")]
    outcomes = [outcome("red", Told.NOT_AS_TOLD, RED), outcome("green", Told.AS_TOLD, GREEN)]
    assert not prove(scenarios, outcomes)[0].findings[0].directive_proven


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (HarnessError("is gone", where="keeper"), "keeper: is gone"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "a/b: cannot be written: No space left on device\n"
            "  free space there, or name another folder for the results",
        ),
        (
            OSError(errno.EACCES, "Permission denied", "/x/y"),
            "/x/y: cannot be written: Permission denied\n"
            "  free space there, or name another folder for the results",
        ),
        (OSError(errno.EMFILE, "Too many"), "a/b: the system refuses: Too many"),
        (TimeoutError(), "a/b: the system refuses: TimeoutError"),
    ],
)
def test_failure_of_ours_is_told_in_words(error: Exception, said: str) -> None:
    """What, where, and what to do where that is known."""
    assert in_words(error, Path("a/b")) == said


def failing_with(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Coroutine[Any, Any, Outcome]:
    """A scenario whose attempt raises this."""

    async def attempt(*_: object) -> None:
        raise error

    monkeypatch.setattr("harness.run.attempt", attempt)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bench = cast("Bench", SimpleNamespace(run="r", parts=SuiteParts({})))
    runner = Runner(bench, RunOptions(), tmp_path)
    return runner.run(Scenario(id="a/b", title="t", stack=STACK))


@pytest.mark.parametrize(
    "error",
    [
        HarnessError("no room"),
        OSError(errno.EMFILE, "no room"),
        ExceptionGroup("", [ExceptionGroup("", [OSError(errno.EMFILE, "no room")])]),
    ],
)
async def test_failure_of_ours_is_an_outcome(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also one that comes in a group; the other scenarios go on."""
    outcome = await failing_with(error, monkeypatch, tmp_path)
    assert outcome.told is Told.HARNESS_ERROR
    assert outcome.error.endswith("no room")
    assert (outcome.attempts, outcome.folder) == (1, "a/b/attempt-1")


@pytest.mark.parametrize(
    "error",
    [TypeError("a bug"), ExceptionGroup("", [HarnessError("no room"), TypeError("a bug")])],
)
async def test_bug_is_not_told_as_trouble_with_the_machine(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever is to mend it needs the traceback."""
    with pytest.raises(type(error)):
        await failing_with(error, monkeypatch, tmp_path)


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
    copy = ScenarioFolder(tmp_path / "copy")
    shutil.copytree(FOLDER / "ending_engine-no-terminator", copy.path)
    conclude(copy)
    assert (copy.path / "relay.reads.bin").stat().st_size > 0
    assert os.listdir(copy.path).count("streams.json") == 0  # noqa: PTH208
