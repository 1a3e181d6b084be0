"""The golden recordings, judged again: each check is seen to fail and to pass on real runs."""

from __future__ import annotations

import re

import pytest

from harness import check
from harness.model import Finding, Verdict
from harness.record import ScenarioFolder
from harness.run import judge
from tests.recordings.golden import FOLDER, GOLDEN, slug

BYTES_MAX = 1_500_000
MACHINE_PATH = re.compile(rb"/(?:tmp|root|home|work|usr)/[a-z]")


def finding(scenario_id: str, name: str) -> Finding:
    """What the check says of the recording today."""
    outcome, _ = judge(ScenarioFolder(FOLDER / slug(scenario_id)))
    return next(f for f in outcome.findings if f.check == name)


def test_golden_for_each_check_exists() -> None:
    """No check goes without a recording that it must fail on and one that it must pass on."""
    assert set(GOLDEN) == set(check.names())


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_check_on_bad_recording_fails(name: str) -> None:
    """It fails, and blames who is to be blamed."""
    found = finding(GOLDEN[name].fails, name)
    assert (found.verdict, found.culprit) == (Verdict.FAIL, GOLDEN[name].culprit), found.actual


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_check_on_good_recording_passes(name: str) -> None:
    """It passes."""
    found = finding(GOLDEN[name].passes, name)
    assert found.verdict is Verdict.PASS, found.actual


def test_golden_duplicate_is_told_from_altered() -> None:
    """A repeated event is named as such."""
    found = finding("golden/engine-duplicates", "payload_intact")
    assert found.symptom is not None
    assert found.symptom.kind == "duplicated"


def test_golden_recordings_name_no_machine() -> None:
    """They are small, and hold no path of the machine that made them."""
    files = [p for p in FOLDER.rglob("*") if p.suffix in (".json", ".jsonl", ".bin")]
    assert files
    assert sum(p.stat().st_size for p in files) < BYTES_MAX
    for path in files:
        assert not MACHINE_PATH.search(path.read_bytes()), path
