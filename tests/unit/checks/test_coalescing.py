"""Bursts: proven, or only the look of a late client."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.coalescing import events_not_coalesced, squeeze
from harness.model import (
    Cancel,
    Cause,
    Evidence,
    Finding,
    Lane,
    SelfCheck,
    StreamScript,
    Verdict,
)
from tests.unit.recordings import (
    MS,
    Behaviour,
    Case,
    Polls,
    bursting,
    catching_up,
    chained,
    cutting,
    holding_all,
    passing,
    stalling,
)

CHAIN = ("outer", "inner", "engine")
STALLED = SelfCheck(sleep_jitter_ns_max=80 * MS)


def judged(case: Case) -> Finding:
    return events_not_coalesced(Evidence(subject=case.recording()))


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("squeeze", [bursting(2), bursting(17), holding_all()])
def test_bursts_of_a_node_are_red(squeeze: Behaviour, kernel: bool) -> None:
    """Events that entered apart and left together are proven, by either stamp."""
    finding = judged(Case(behaviours={"nginx": squeeze}, client=Polls(kernel=kernel)))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, "nginx")
    assert dict(finding.figures)["biggest_burst"] >= 2


def test_bursts_of_seventeen_are_counted() -> None:
    """The biggest burst is the most events of one read."""
    finding = judged(Case(behaviours={"nginx": bursting(17)}))
    assert dict(finding.figures)["biggest_burst"] == 17
    assert 1 <= len(finding.evidence) <= 5


@pytest.mark.parametrize("pace", [passing(), passing(90), stalling(7, 700)])
def test_bursts_of_a_node_that_passes_on_are_none(pace: Behaviour) -> None:
    """A constant delay and a pause squeeze nothing."""
    assert judged(Case(behaviours={"nginx": pace})).verdict is Verdict.PASS


@pytest.mark.parametrize("guilty", CHAIN)
def test_bursts_in_a_chain_blame_where_they_arose(guilty: str) -> None:
    """A burst that entered a node as one is not that node's."""
    finding = judged(Case(nodes=CHAIN, behaviours={guilty: bursting(5)}))
    assert (finding.verdict, finding.culprit) == (Verdict.FAIL, guilty)


def test_bursts_in_a_pause_of_the_client_are_late_gaps() -> None:
    """A sleeping client sees bursts that prove nothing, and they are counted."""
    finding = judged(Case(client=Polls(asleep_ms=170)))
    assert finding.verdict is Verdict.PASS
    assert dict(finding.figures)["late_gap_count"] > 0


def test_bursts_for_a_client_that_hardly_looks_are_unknown() -> None:
    """Where most gaps are the client's own doing, silence is no proof."""
    finding = judged(Case(client=Polls(asleep_ms=390)))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.NOISE)


def test_bursts_below_the_threshold_are_green() -> None:
    """Two proven gaps are below what is called coalesced."""
    case = Case(behaviours={"nginx": catching_up(5, 120)})
    finding = judged(case)
    assert finding.verdict is Verdict.PASS
    assert 0 < dict(finding.figures)["proven_gap_count"] / 2 < 3


def test_burst_of_a_node_after_a_stall_of_the_machine_is_unknown() -> None:
    """One burst is a node's fault, unless the instrument felt a stall itself."""
    case = Case(behaviours={"nginx": catching_up(5, 240)})
    assert judged(case).culprit == "nginx"
    stalled = judged(replace(case, self_check=STALLED))
    assert (stalled.verdict, stalled.cause) == (Verdict.UNKNOWN, Cause.NOISE)


def test_bursts_again_and_again_are_red_on_a_stalled_machine() -> None:
    """A stall explains one burst, never a pattern."""
    case = Case(behaviours={"nginx": bursting(5)}, self_check=STALLED)
    assert judged(case).verdict is Verdict.FAIL


def test_burst_of_an_engine_that_catches_up_once_is_unknown() -> None:
    """An engine that stalled and catches up is late, which is judged elsewhere."""
    finding = judged(Case(behaviours={"engine": catching_up(5, 240)}))
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, Cause.NOISE)


def test_bursts_of_an_engine_without_a_proxy_are_red() -> None:
    """The engine is judged in the direct lane too."""
    case = Case(nodes=("engine",), lanes=(Lane.DIRECT,), behaviours={"engine": bursting(5)})
    assert judged(case).culprit == "engine"


def test_bursts_of_an_engine_without_a_script_are_nobodys() -> None:
    """Without a script nobody knows how an engine was to send."""
    case = Case(behaviours={"engine": bursting(5)}, oracle=False)
    assert judged(case).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("case", "verdict", "cause"),
    [
        (Case(lanes=()), Verdict.UNKNOWN, Cause.TOO_FEW),
        (Case(script=StreamScript(event_count=3)), Verdict.NOT_APPLICABLE, None),
        (Case(cancel_ms=100), Verdict.NOT_APPLICABLE, None),
        (Case(behaviours={"engine": cutting(3)}), Verdict.UNKNOWN, Cause.TOO_FEW),
        (Case(untapped=(1,)), Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (Case(nodes=("engine",), oracle=False), Verdict.NOT_APPLICABLE, None),
    ],
)
def test_bursts_of_too_little_are_not_judged(
    case: Case, verdict: Verdict, cause: Cause | None
) -> None:
    """Three gaps are the least that can be coalesced."""
    finding = judged(case)
    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_bursts_of_a_cancelled_answer_are_still_red() -> None:
    """A client that leaves later has seen the burst."""
    case = Case(behaviours={"nginx": bursting(5)}, cancel_ms=1500)
    assert case.scenario().workload.cancel == Cancel(after_ms=1500)
    assert judged(case).culprit == "nginx"


def test_squeeze_of_gaps_below_the_least_proves_nothing() -> None:
    """Gaps of a few milliseconds are too small to be halved provably."""
    case = Case(script=StreamScript(event_count=40, gap_ms=5), behaviours={"nginx": holding_all()})
    assert judged(case).verdict is Verdict.PASS
    assert squeeze((), ()).gaps == 0


@settings(max_examples=50, deadline=None)
@given(
    grid_ms=st.lists(st.integers(1, 3000), unique=True, max_size=40).map(sorted),
    asleep_ms=st.integers(0, 399),
    kernel=st.booleans(),
    residence_ms=st.floats(0, 300),
)
def test_bursts_seen_by_any_slow_client_are_never_red(
    grid_ms: list[int], asleep_ms: int, kernel: bool, residence_ms: float
) -> None:
    """However late a truthful client looks, nothing is proven against a passing node."""
    client = Polls(grid_ms=tuple(grid_ms), asleep_ms=asleep_ms, kernel=kernel)
    finding = judged(Case(client=client, behaviours={"nginx": passing(residence_ms)}))
    assert finding.verdict is not Verdict.FAIL
    assert dict(finding.figures)["proven_gap_count"] == 0


@settings(max_examples=50, deadline=None)
@given(count=st.integers(4, 40), stall_ms=st.integers(0, 400), every_us=st.integers(200, 20_000))
def test_bursts_of_a_clumping_engine_are_never_a_proxys(
    count: int, stall_ms: int, every_us: int
) -> None:
    """Whatever an engine does to its events, a proxy that passes them on is not blamed."""
    engine = chained(bursting(count), stalling(7, stall_ms))
    case = Case(behaviours={"engine": engine}, client=Polls(every_us=every_us))
    assert judged(case).culprit == "engine"


@settings(max_examples=50, deadline=None)
@given(asleep_ms=st.integers(0, 120), kernel=st.booleans())
def test_bursts_of_a_node_are_seen_by_a_client_that_pauses(asleep_ms: int, kernel: bool) -> None:
    """Pauses of the client do not hide a buffer."""
    client = Polls(asleep_ms=asleep_ms, kernel=kernel)
    assert judged(Case(client=client, behaviours={"nginx": bursting(17)})).culprit == "nginx"


@pytest.mark.parametrize(
    ("proven", "event_count", "verdict"),
    [(3, 40, Verdict.FAIL), (3, 61, Verdict.FAIL), (3, 62, Verdict.PASS), (2, 40, Verdict.PASS)],
)
def test_bursts_at_the_threshold_count_from_three_and_five_percent(
    proven: int, event_count: int, verdict: Verdict
) -> None:
    """Three gaps are coalesced, unless they are less than a twentieth."""
    script = StreamScript(event_count=event_count)
    case = Case(script=script, behaviours={"nginx": catching_up(5, 50 * proven + 5)})
    finding = judged(case)
    assert dict(finding.figures)["proven_gap_count"] == 2 * proven
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert [p.event_index for p in finding.evidence] == [6, 7, 8]


def test_bursts_of_four_events_are_enough_to_be_judged() -> None:
    """Four events have three gaps."""
    script = StreamScript(event_count=4)
    assert judged(Case(script=script, behaviours={"nginx": holding_all()})).culprit == "nginx"
    assert judged(Case(script=script)).verdict is Verdict.PASS
