"""From a symptom at a node to the line of configuration that explains it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.model import Directive, Finding, NodeRun, Recording, SymptomKind, Verdict

# What an inner proxy can bring about at an outer one, by a header that it swallows.
EXPLAINED_FURTHER_IN = (SymptomKind.HELD, SymptomKind.COALESCED)


def blame(finding: Finding, recording: Recording) -> Finding:
    """The finding with the directive that explains its symptom, and the cure as advice.

    The culprit's own directives come first; events held at an outer proxy may be explained by a
    proxy further in, if by none of the outer's. What the engine does is never explained by a proxy.
    Findings other than fails stay as they are.
    """
    if finding.verdict is not Verdict.FAIL or finding.symptom is None:
        return finding
    culprits = finding.culprit.split("+")
    engine = recording.nodes[-1].name if recording.nodes else ""
    if finding.culprit == engine:
        return _with(finding, _explaining(recording.nodes[-1:], finding.symptom.kind), engine)
    nodes = recording.nodes[:-1] if engine not in culprits else recording.nodes
    own = [node for node in nodes if node.name in culprits]
    found = _explaining(own, finding.symptom.kind)
    if found is None and finding.symptom.kind in EXPLAINED_FURTHER_IN:
        found = _explaining(_further_in(recording.nodes[:-1], culprits), finding.symptom.kind)
    return _with(finding, found, "")


def prove(red: Finding, *, green_as_told: bool) -> Finding:
    """The red finding, its directive proven if the arm without that line came out green as told."""
    proven = green_as_told and red.verdict is Verdict.FAIL and red.directive is not None
    return replace(red, directive_proven=proven)


def _further_in(proxies: tuple[NodeRun, ...], culprits: list[str]) -> list[NodeRun]:
    """The proxies between the innermost culprit and the engine, the outermost first."""
    places = [index for index, node in enumerate(proxies) if node.name in culprits]
    return list(proxies[max(places) + 1 :]) if places else []


def _explaining(nodes: list[NodeRun] | tuple[NodeRun, ...], kind: SymptomKind) -> Directive | None:
    return next((one for one in _directives(nodes) if kind in one.explains), None)


def _directives(nodes: list[NodeRun] | tuple[NodeRun, ...]) -> Iterator[Directive]:
    for node in nodes:
        yield from node.directives


def _with(finding: Finding, directive: Directive | None, engine: str) -> Finding:
    assert finding.symptom is not None
    advice = directive.cure if directive else ""
    if engine and not advice:
        advice = f"the engine itself ({engine}) is to blame; no proxy in front of it can cure this"
    elif not advice:
        advice = f"no known directive of {finding.culprit} explains {finding.symptom.kind}"
    return replace(finding, directive=directive, advice=advice)
