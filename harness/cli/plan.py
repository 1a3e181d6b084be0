"""What a run would start and send, told without starting or sending anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from harness.cli.output import MASK
from harness.errors import MissingPart, PlanError
from harness.model import Scenario, StreamKey
from harness.parts import Parts

RUN = "dry"
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    """A node and the command that would start it; `missing` says why it cannot be started here."""

    name: str
    kind: str
    version: str
    argv: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScenario:
    """What a scenario would start, from the client's side to the engine, and what it would send."""

    id: str
    title: str
    nodes: tuple[PlannedNode, ...]
    faults: tuple[str, ...]
    lanes: tuple[str, ...]
    request: str


def selected(scenarios: tuple[Scenario, ...], patterns: tuple[str, ...]) -> tuple[Scenario, ...]:
    """Those whose id, or the end of it, fits one of the patterns; all where there is no pattern.

    Raises:
        PlanError: a pattern fits none.
    """
    for pattern in patterns:
        if not any(fits(s.id, pattern) for s in scenarios):
            known = "\n    ".join(s.id for s in scenarios)
            raise PlanError(f"no arm fits {pattern!r}", todo=f"there are:\n    {known}")
    return tuple(s for s in scenarios if not patterns or any(fits(s.id, p) for p in patterns))


def fits(scenario_id: str, pattern: str) -> bool:
    """True where `pattern` (as fnmatch reads it) is the whole id, or all behind one of its slashes.

    A scenario of a user's own may have no slash at all.
    """
    return fnmatchcase(scenario_id, pattern) or fnmatchcase(scenario_id, f"*/{pattern}")


def planned(scenario: Scenario, parts: Parts) -> PlannedScenario:
    """What this scenario comes to. Secrets are masked in it."""
    lane = scenario.workload.lanes[0]
    key = StreamKey(run=RUN, scenario=scenario.id, lane=lane, n=0)
    request = parts.request(scenario.workload, key, HOST).decode("utf-8", "replace")
    for secret in parts.secrets:
        request = request.replace(secret, MASK)
    return PlannedScenario(
        id=scenario.id,
        title=scenario.title,
        nodes=_nodes(scenario, parts),
        faults=tuple(
            f"{i.fault.name} on hop {i.hop} {i.direction}, from {i.trigger.kind} {i.trigger.count}"
            for i in scenario.injections
        ),
        lanes=tuple(lane.value for lane in scenario.workload.lanes),
        request=request,
    )


def _nodes(scenario: Scenario, parts: Parts) -> tuple[PlannedNode, ...]:
    nodes = []
    for number, node in enumerate(scenario.stack.nodes):
        name = node.name or f"{node.kind}-{number}"
        plan = PlannedNode(name=name, kind=node.kind, version=node.version, lines=node.lines)
        try:
            spec = parts.node_spec(node, name)
        except MissingPart as error:
            nodes.append(replace(plan, missing=str(error)))
        else:
            nodes.append(replace(plan, version=spec.version, argv=spec.argv))
    return tuple(nodes)


def text(plans: tuple[PlannedScenario, ...]) -> str:
    """A paragraph for each scenario."""
    return "\n\n".join("\n".join(_lines(plan)) for plan in plans)


def _lines(plan: PlannedScenario) -> list[str]:
    lines = [f"{plan.id}: {plan.title}"]
    for node in plan.nodes:
        command = " ".join(node.argv) or f"cannot be started: {node.missing}"
        lines.append(f"  start  {node.name} ({node.kind} {node.version}): {command}")
        lines += [f"           {line}" for line in node.lines]
    lines += [f"  break  {fault}" for fault in plan.faults]
    lines.append(f"  send   {len(plan.lanes)} streams: {', '.join(plan.lanes)}")
    lines += [f"           {line}" for line in plan.request.splitlines()]
    return lines
