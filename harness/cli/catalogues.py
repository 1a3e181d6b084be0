"""`streamchaos list WHAT`: what there is to run, to judge with, to break by and to break."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import typer

from harness.cli.output import Format, json_text, say, table

EPILOG = "Examples:  streamchaos list scenarios   streamchaos list checks --format json"

Row = dict[str, Any]


class What(StrEnum):
    """The catalogues."""

    SCENARIOS = "scenarios"
    CHECKS = "checks"
    FAULTS = "faults"
    STACKS = "stacks"
    STORIES = "stories"


def list_(
    what: What = typer.Argument(..., help="Which catalogue."),
    format_: Format = typer.Option(Format.TEXT, "--format", help="How it is written."),
) -> None:
    """List scenarios, checks, faults, kinds of nodes, or stories."""
    rows = ROWS[what]()
    if format_ is Format.JSON:
        say(json_text(rows))
    elif rows:
        say(table([tuple(_cell(value) for value in row.values()) for row in rows]))


def _cell(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value) or "-"


def scenarios() -> list[Row]:
    """Each built-in scenario: its id, tiers, needs and title."""
    from harness.suite import catalogue

    return [
        {"id": s.id, "tiers": list(s.tiers), "needs": list(s.needs), "title": s.title}
        for s in catalogue.scenarios(10, 0)
    ]


def checks() -> list[Row]:
    """Each check: its name, how binding it is, what it says, where that stands."""
    from harness import check

    return [
        {"name": c.name, "strength": c.strength.value, "summary": c.summary, "source": c.source}
        for c in check.describe()
    ]


def faults() -> list[Row]:
    """Each fault: its name, layer, parameters with their defaults, and what it stands for."""
    import faults as catalogue

    modules = [catalogue.module(name) for name in catalogue.names()]
    return [
        {
            "name": m.NAME,
            "layer": m.LAYER.value,
            "parameters": [f"{name}={default}" for name, default in m.PARAMETERS.items()],
            "summary": (m.__doc__ or "").strip().split("\n", 1)[0],
        }
        for m in modules
    ]


def stacks() -> list[Row]:
    """Each kind and version of node that scenarios name, and whether it is on this machine."""
    import stacks as kinds
    from harness.model import Node
    from harness.suite import catalogue

    nodes = {(n.kind, n.version) for s in catalogue.scenarios(10, 0) for n in s.stack.nodes}
    unused = {(kind, "") for kind in kinds.kinds() if all(kind != k for k, _ in nodes)}
    return [
        {
            "kind": kind,
            "version": version,
            "available": kinds.available(Node(kind=kind, version=version)) or "available",
        }
        for kind, version in sorted(nodes | unused)
    ]


def stories() -> list[Row]:
    """Each war story: its number, its title, how many arms it has."""
    from harness.suite.stories import STORIES

    return [
        {"number": s.number, "title": s.title, "arm_count": len(s.arms(10, 0))}
        for s in STORIES.values()
    ]


ROWS: dict[What, Callable[[], list[Row]]] = {
    What.SCENARIOS: scenarios,
    What.CHECKS: checks,
    What.FAULTS: faults,
    What.STACKS: stacks,
    What.STORIES: stories,
}
