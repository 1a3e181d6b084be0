"""The figures of an arm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.figures import figures
from harness.model import Lane, StreamScript
from tests.unit.recordings import Case, Polls, bursting, cutting


def of(case: Case) -> dict[str, float]:
    return dict(figures(case.recording()))


def test_figures_of_a_plain_arm_follow_their_formulas() -> None:
    """The script's own numbers, plus what the way takes."""
    found = of(Case())
    assert found["ttft_ms_direct"] == pytest.approx(20, abs=1)
    assert found["ttft_ms_through"] == pytest.approx(20, abs=1)
    assert found["ttfb_ms_through"] == pytest.approx(1)
    assert found["tpot_ms_through"] == pytest.approx(50, abs=1)
    assert found["gap_ms_p50"] == pytest.approx(50, abs=1)
    assert found["e2e_ms_through"] == pytest.approx(20 + 39 * 50, abs=5)
    assert found["hold_ms"] == pytest.approx(0.25, abs=0.1)
    assert found["biggest_burst"] == 1
    assert found["coalesced_gap_share"] == 0
    assert (found["events_received"], found["events_expected"]) == (80, 80)
    assert found["end_terminator_count"] == 2
    assert "cancel_latency_ms" not in found


def test_figures_of_a_buffering_node_show_hold_and_burst() -> None:
    """Sixteen gaps held, seventeen events in a read."""
    found = of(Case(behaviours={"nginx": bursting(17)}))
    assert found["hold_ms"] == pytest.approx(800, abs=2)
    assert found["ttft_ms_through"] - found["ttft_ms_direct"] == pytest.approx(800, abs=2)
    assert found["biggest_burst"] == 17
    assert found["coalesced_gap_share"] > 0.9
    assert found["coalesced_gap_count"] == 2 * 37
    assert found["gap_ms_p50"] == 0


def test_figures_of_a_clumping_engine_leave_the_hold_at_nothing() -> None:
    """What the engine keeps back, no node holds."""
    found = of(Case(behaviours={"engine": bursting(5)}))
    assert found["hold_ms"] < 1
    assert found["coalesced_gap_count"] == 0
    assert found["biggest_burst"] == 5


def test_figures_of_a_cut_arm_count_what_arrived() -> None:
    """Five events of forty, in each of two streams, and how they ended."""
    found = of(Case(behaviours={"nginx": cutting(5)}))
    assert (found["events_received"], found["events_expected"]) == (10, 80)
    assert found["end_reset_count"] == 2


def test_figures_of_a_cancelled_arm_hold_its_latency() -> None:
    """From the client's leaving to the closing in front of the engine."""
    assert of(Case(cancel_ms=500, reach_ms=12))["cancel_latency_ms"] == pytest.approx(12)


def test_figures_of_a_direct_arm_are_those_of_its_clients() -> None:
    """Without streams through the stack the direct ones are described."""
    found = of(Case(lanes=(Lane.DIRECT, Lane.AA)))
    assert found["events_received"] == 80
    assert not {"hold_ms", "coalesced_gap_share", "ttft_ms_through"} & set(found)


@pytest.mark.parametrize("missing", ["streams", "clients", "events", "heads", "oracle"])
def test_figures_that_nobody_saw_are_left_out(missing: str) -> None:
    """No figure is made up."""
    recording = Case(oracle=missing != "oracle", client=Polls()).recording()
    streams = recording.streams
    if missing == "streams":
        streams = ()
    elif missing == "clients":
        streams = tuple(replace(s, client=None) for s in streams)
    else:
        clients = [s.client for s in streams if s.client]
        if missing == "events":
            clients = [replace(c, events=(), end=replace(c.end, at_ns=0)) for c in clients]
        if missing == "heads":
            clients = [replace(c, head=None) for c in clients]
        streams = tuple(replace(s, client=c) for s, c in zip(streams, clients, strict=True))
    found = dict(figures(replace(recording, streams=streams)))
    absent = {
        "streams": "events_received",
        "clients": "biggest_burst",
        "events": "ttft_ms_through",
        "heads": "ttfb_ms_direct",
        "oracle": "events_expected",
    }
    assert absent[missing] not in found
    assert all(value == value for value in found.values())


def test_figures_of_one_event_have_no_pace() -> None:
    """One event has no gap."""
    found = of(Case(script=StreamScript(event_count=1)))
    assert not {"tpot_ms_through", "gap_ms_p50"} & set(found)
