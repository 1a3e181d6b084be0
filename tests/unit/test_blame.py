"""From a symptom to the line that explains it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.blame import blame, prove
from harness.check import evaluate
from harness.model import Directive, Evidence, Finding, Lane, NodeRun, SymptomKind, Verdict
from tests.unit.recordings import Case, altering, bursting, cutting, passing

HELD, CUT = SymptomKind.HELD, SymptomKind.CUT


def directive(text: str, *explains: SymptomKind) -> Directive:
    return Directive(file="nginx.conf", line=7, text=text, explains=explains, cure=f"not {text}")


BUFFERING = directive("proxy_buffering on", HELD, SymptomKind.COALESCED)
TIMEOUT = directive("proxy_read_timeout 2s", CUT)
SWALLOWED = directive("no proxy_pass_header", HELD)
CHAIN = ("outer", "inner", "engine")


def found(case: Case, check: str) -> Finding:
    """The check's finding with its blame."""
    recording = case.recording()
    (finding,) = evaluate(Evidence(subject=recording), [check]).findings
    return blame(finding, recording)


def held(**directives: tuple[Directive, ...]) -> Finding:
    case = Case(nodes=CHAIN, behaviours={"outer": bursting(17)}, directives=directives)
    return found(case, "first_event_not_held")


def test_blame_joins_the_symptom_with_the_culprits_directive() -> None:
    """The first line of the culprit that explains the symptom, with its cure."""
    finding = held(outer=(TIMEOUT, BUFFERING, directive("gzip on", HELD)))
    assert finding.directive == BUFFERING
    assert finding.advice == BUFFERING.cure
    assert not finding.directive_proven


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ((), (SWALLOWED,), SWALLOWED),
        ((BUFFERING,), (SWALLOWED,), BUFFERING),
        ((TIMEOUT,), (SWALLOWED,), SWALLOWED),
        ((), (TIMEOUT,), None),
    ],
)
def test_blame_of_a_hold_looks_further_in_only_where_the_outer_explains_nothing(
    outer: tuple[Directive, ...], inner: tuple[Directive, ...], expected: Directive | None
) -> None:
    """An inner hop that swallows a header makes the outer one hold."""
    finding = held(outer=outer, inner=inner)
    assert (finding.culprit, finding.directive) == ("outer", expected)


def test_blame_of_a_hold_further_in_is_never_the_outers() -> None:
    """Bytes flow to the client: an outer line does not explain an inner hold."""
    case = Case(nodes=CHAIN, behaviours={"inner": bursting(17)}, directives={"outer": (BUFFERING,)})
    finding = found(case, "first_event_not_held")
    assert (finding.culprit, finding.directive) == ("inner", None)
    assert "no known directive of inner" in finding.advice


def test_blame_of_a_cut_stays_with_its_node() -> None:
    """No other node's timer explains a cut."""
    case = Case(nodes=CHAIN, behaviours={"outer": cutting(5)}, directives={"inner": (TIMEOUT,)})
    finding = found(case, "not_cut_before_engine_ended")
    assert (finding.culprit, finding.directive) == ("outer", None)


def test_blame_of_the_engine_spares_the_proxy() -> None:
    """Whatever a proxy's lines could explain, what the engine does is the engine's."""
    case = Case(behaviours={"engine": bursting(5)}, directives={"nginx": (BUFFERING,)})
    finding = found(case, "events_not_coalesced")
    assert (finding.culprit, finding.directive) == ("engine", None)
    assert "the engine itself" in finding.advice


def test_blame_of_the_engine_may_name_its_own_switch() -> None:
    """An engine can have lines too."""
    case = Case(behaviours={"engine": bursting(5)}, directives={"engine": (BUFFERING,)})
    assert found(case, "events_not_coalesced").directive == BUFFERING


def test_blame_of_a_run_of_nodes_takes_the_first_that_explains() -> None:
    """Where nobody watched between two nodes either may be the one."""
    case = Case(
        nodes=CHAIN,
        behaviours={"outer": bursting(17), "inner": passing()},
        directives={"outer": (TIMEOUT,), "inner": (BUFFERING,)},
        untapped=(1,),
    )
    finding = found(case, "first_event_not_held")
    assert (finding.culprit, finding.directive) == ("outer+inner", BUFFERING)


def test_blame_of_a_run_that_holds_the_engine_looks_at_all_of_it() -> None:
    """Where the engine cannot be told from the proxy in front of it, either's line may explain."""
    case = Case(
        lanes=(Lane.THROUGH,),
        behaviours={"nginx": altering(3)},
        directives={"engine": (directive("rewrites", SymptomKind.ALTERED),)},
        untapped=(1,),
    )
    finding = found(case, "payload_intact")
    assert finding.culprit == "nginx+engine"
    assert finding.directive is not None


def test_blame_leaves_other_verdicts_alone() -> None:
    """Where nothing failed nobody is blamed."""
    recording = Case(directives={"nginx": (BUFFERING,)}).recording()
    for finding in evaluate(Evidence(subject=recording)).findings:
        assert blame(finding, recording) == finding


def test_blame_without_recorded_nodes_finds_nothing() -> None:
    """A run without facts has no directives."""
    recording = replace(Case(behaviours={"nginx": bursting(17)}).recording(), nodes=())
    (finding,) = evaluate(Evidence(subject=recording), ["first_event_not_held"]).findings
    assert blame(finding, recording).directive is None
    hop = replace(finding, culprit="hop0")
    nodes = (NodeRun(name="nginx", kind="nginx", version="1", directives=(BUFFERING,)),) * 2
    assert blame(hop, replace(recording, nodes=nodes)).directive is None


@pytest.mark.parametrize("green", [True, False])
def test_proof_of_a_directive_needs_the_green_arm(green: bool) -> None:
    """Red with the line and green without it, in the same run, is the proof."""
    red = held(outer=(BUFFERING,))
    assert prove(red, green_as_told=green).directive_proven is green


def test_proof_of_nothing_is_none() -> None:
    """Without a line or without red there is nothing to prove."""
    red = held(outer=(BUFFERING,))
    assert not prove(replace(red, directive=None), green_as_told=True).directive_proven
    assert not prove(replace(red, verdict=Verdict.PASS), green_as_told=True).directive_proven
