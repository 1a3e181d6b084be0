"""Votes of streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.verdicts import Vote, finding_of, majority, unanimous
from harness.model import Cause, SymptomKind, Verdict

VOTES = {
    "f": Vote(verdict=Verdict.FAIL, symptom=SymptomKind.HELD, culprit="nginx"),
    "p": Vote(verdict=Verdict.PASS),
    "u": Vote(verdict=Verdict.UNKNOWN, cause=Cause.TOO_FEW),
    "-": Vote(verdict=Verdict.NOT_APPLICABLE),
}
EXPECTED = {
    "f": Verdict.FAIL,
    "p": Verdict.PASS,
    "u": Verdict.UNKNOWN,
    "-": Verdict.NOT_APPLICABLE,
}


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ("", "-"), ("--", "-"), ("f", "f"), ("p", "p"), ("u", "u"), ("ff", "f"), ("fp", "u"),
        ("fu", "u"), ("pu", "p"), ("uu", "u"), ("ffp", "f"), ("fpp", "p"), ("fpu", "u"),
        ("f-", "f"), ("p-u-", "p"), ("fppp", "p"), ("ffpp", "u"), ("puuu", "u"), ("ppuf", "u"),
    ],
)  # fmt: skip
def test_majority_of_votes_decides(votes: str, expected: str) -> None:
    """More than half for a fail; for a pass too, or half against nobody."""
    vote = majority([VOTES[letter] for letter in votes])
    assert vote.verdict is EXPECTED[expected]
    assert (vote.cause is not None) == (vote.verdict is Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("votes", "cause"),
    [("uu", Cause.TOO_FEW), ("uf", Cause.NOISE), ("uup", Cause.NOISE), ("fp", Cause.NOISE)],
)
def test_majority_that_is_none_tells_noise_where_streams_disagree(votes: str, cause: Cause) -> None:
    """Only where all are in doubt is their doubt the common one."""
    assert majority([VOTES[letter] for letter in votes]).cause is cause


@given(st.text("fpu-", max_size=8))
def test_unanimous_votes_need_no_second_fail(votes: str) -> None:
    """One fail is enough, then one doubt."""
    vote = unanimous([VOTES[letter] for letter in votes])
    first = next((letter for letter in "fup" if letter in votes), "-")
    assert vote.verdict is EXPECTED[first]


@given(st.permutations("ffppu-"))
def test_majority_does_not_depend_on_order(votes: list[str]) -> None:
    """Streams have no rank."""
    assert majority([VOTES[letter] for letter in votes]).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("letter", VOTES)
def test_finding_of_a_vote_keeps_its_verdict(letter: str) -> None:
    """Cause and what settles it are there exactly when the verdict is unknown."""
    finding = finding_of(VOTES[letter], "expected", "held")
    assert finding.verdict is EXPECTED[letter]
    assert bool(finding.cause) == bool(finding.settle) == (letter == "u")
    assert bool(finding.culprit) == (letter == "f")
