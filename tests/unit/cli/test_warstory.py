"""`streamchaos warstory` up to the point where something is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.cli import plan
from harness.cli.output import ReportFormat
from harness.cli.warstory import Telling, given
from harness.errors import PlanError
from harness.suite.parts import SuiteParts
from harness.suite.stories import STORIES
from tests.unit.cli.commands import streamchaos
from tests.unit.plugin_sessions import scenarios

IDS = ("story/direct", "story/nginx-gzip", "story/nginx-gzip-off", "alone")
TELLING = Telling(
    number=1,
    seed=7,
    time_divisor=1,
    jobs=8,
    results=Path("chaos-results"),
    format=ReportFormat.TEXT,
)


@pytest.mark.parametrize(
    ("patterns", "ids"),
    [
        ((), IDS),
        (("direct",), ("story/direct",)),
        (("story/direct",), ("story/direct",)),
        (("*gzip*",), ("story/nginx-gzip", "story/nginx-gzip-off")),
        (("nginx-gzip",), ("story/nginx-gzip",)),
        (("alone", "direct"), ("story/direct", "alone")),
    ],
)
def test_selected_by_patterns_keeps_the_order_of_the_story(
    patterns: tuple[str, ...], ids: tuple[str, ...]
) -> None:
    """A pattern speaks of a whole id or of the end of one."""
    found = plan.selected(tuple(scenarios(IDS)), patterns)
    assert tuple(s.id for s in found) == ids


def test_selected_by_a_pattern_that_fits_nothing_lists_what_there_is() -> None:
    """A typing error does not run a smaller story than was asked for."""
    with pytest.raises(PlanError) as caught:
        plan.selected(tuple(scenarios(IDS)), ("direct", "gzip"))
    assert "'gzip'" in caught.value.what
    assert all(one in caught.value.todo for one in IDS)


def test_dry_run_as_json_tells_each_arm_and_starts_nothing(tmp_path: Path) -> None:
    """One document with what would be started and sent; no folder is made."""
    done = streamchaos(tmp_path, "warstory", "1", "--dry-run", "--format", "json", "--seed", "7")
    assert (done.code, done.err) == (0, "seed 7\n")
    arms = json.loads(done.out)
    assert [arm["id"] for arm in arms] == [s.id for s in STORIES[1].arms(10, 7)]
    assert all(arm["nodes"][-1]["kind"] == "reference" for arm in arms)
    assert all(arm["request"].startswith("POST /v1/") for arm in arms)
    assert list(tmp_path.iterdir()) == []


def test_dry_run_as_text_shows_command_and_request(tmp_path: Path) -> None:
    """What would run is said as a command line."""
    out = streamchaos(tmp_path, "warstory", "1", "--dry-run", "--arm", "direct").out
    assert "stacks.reference" in out
    assert "POST /v1/completions HTTP/1.1" in out


def test_planned_with_a_secret_masks_it() -> None:
    """A key of the environment is not shown, although it would be sent."""
    parts = SuiteParts(environ={"STREAMCHAOS_API_KEY": "sk-planted"})
    arm = plan.planned(STORIES[1].arms(10, 0)[0], parts)
    assert "sk-planted" not in str(arm)
    assert "Bearer ***" in arm.request


def test_seed_that_was_not_given_is_drawn_and_printed_first(tmp_path: Path) -> None:
    """The run can be repeated from its first line."""
    args = ("warstory", "1", "--dry-run", "--arm", "direct")
    lines = {streamchaos(tmp_path, *args).err for _ in range(2)}
    assert len(lines) == 2
    assert all(line.startswith("seed ") for line in lines)


def test_results_that_cannot_be_written_are_one_message(tmp_path: Path) -> None:
    """A file in the place of the folder: exit 3, what and where, no traceback."""
    (tmp_path / "results").touch()
    done = streamchaos(tmp_path, "warstory", "1", "--arm", "direct", "--results", "results")
    assert (done.code, done.out) == (3, "")
    assert "results: cannot be written" in done.err
    assert "Traceback" not in done.err


def test_given_without_a_seed_gets_the_drawn_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in the report repeats the run."""
    monkeypatch.setattr(sys, "argv", ["x", "warstory", "1"])
    assert given(TELLING) == ("streamchaos", "warstory", "1", "--seed", "7")
    monkeypatch.setattr(sys, "argv", ["x", "warstory", "1", "--seed=7"])
    assert given(TELLING) == ("streamchaos", "warstory", "1", "--seed=7")


def test_command_of_an_arm_repeats_it_in_its_own_time() -> None:
    """Seed, arm and scale are in the command that a report shows."""
    text = TELLING.command("--arm", "a/b")
    assert text == "streamchaos warstory 1 --arm a/b --seed 7 --real-time"
