"""What a proxy logged against what the wire saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.testimony import CLIENT_CLOSED, access_log_agrees
from harness.model import AccessEntry, Evidence, Finding, Lane, Verdict
from tests.unit.recordings import Case

THROUGH = (Lane.THROUGH, Lane.THROUGH)


def judged(case: Case, status: int, node: str = "nginx") -> Finding:
    """The finding where each through stream was logged with this status."""
    recording = case.recording()
    streams = tuple(
        replace(s, access=(AccessEntry(node=node, key=str(s.key), status=status),))
        for s in recording.streams
    )
    return access_log_agrees(Evidence(subject=replace(recording, streams=streams)))


def test_log_that_tells_the_status_of_the_wire_is_green() -> None:
    """200 was sent, 200 was logged."""
    assert judged(Case(lanes=THROUGH), 200).verdict is Verdict.PASS


def test_log_that_tells_another_status_blames_its_node() -> None:
    """The reader of that log would look in the wrong place."""
    finding = judged(Case(lanes=THROUGH), 502)
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "nginx")


def test_client_closed_in_the_log_needs_a_client_that_left() -> None:
    """499 is nginx's word for a client that went away, and no other."""
    assert judged(Case(lanes=THROUGH, cancel_ms=120), CLIENT_CLOSED).verdict is Verdict.PASS
    assert judged(Case(lanes=THROUGH), CLIENT_CLOSED).verdict is Verdict.FAIL


def test_inner_node_is_held_against_the_tap_on_its_clients_side() -> None:
    """Not against the client, who never met it."""
    nodes = ("outer", "inner", "engine")
    assert judged(Case(nodes=nodes, lanes=THROUGH), 200, "inner").verdict is Verdict.PASS
    assert judged(Case(nodes=nodes, lanes=THROUGH), 404, "inner").culprit == "inner"


@pytest.mark.parametrize("node", ["nobody", ""])
def test_log_of_an_unknown_node_says_nothing(node: str) -> None:
    """Nothing is guessed."""
    assert judged(Case(lanes=THROUGH), 500, node).verdict is Verdict.NOT_APPLICABLE


def test_log_that_is_not_there_does_not_apply() -> None:
    """A stack without access logs has no testimony."""
    finding = access_log_agrees(Evidence(subject=Case(lanes=THROUGH).recording()))
    assert finding.verdict is Verdict.NOT_APPLICABLE
