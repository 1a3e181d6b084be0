"""The reference engine as a node of a stack."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

import msgspec

from harness.errors import MissingPart, PlanError
from harness.model import Defects, Node, NodeFile, NodeSpec, Readiness
from stacks.reference.settings import VERSION, EngineSettings

_ROOT = Path(__file__).resolve().parents[2]


def node_spec(node: Node, *, name: str) -> NodeSpec:
    """How to run this engine.

    What it gets wrong comes with each request, so that one start serves all; but for what it gets
    wrong by itself, as its gauges: each of the node's `lines` names a switch of Defects.

    Raises PlanError for what the engine has no place for (TLS, a line that is no switch), and
    MissingPart for another version.
    """
    if node.version not in ("", VERSION):
        raise MissingPart(
            f"no reference engine {node.version!r}", where=name, todo=f"use {VERSION}"
        )
    if node.server_lines or node.global_lines or node.tls:
        raise PlanError(
            "the reference engine takes neither server lines nor TLS",
            where=name,
            todo="put its defects into the workload, TLS on the node in front of it",
        )
    return engine_spec(name, EngineSettings(defects=_switched_on(node.lines, name)))


def _switched_on(lines: tuple[str, ...], where: str) -> Defects:
    switches = {f.name for f in fields(Defects) if isinstance(f.default, bool)}
    for line in lines:
        if line not in switches:
            todo = f"there are: {', '.join(sorted(switches))}"
            raise PlanError(f"the engine has no switch {line!r}", where=where, todo=todo)
    return msgspec.convert(dict.fromkeys(lines, True), Defects)


def engine_spec(name: str, settings: EngineSettings) -> NodeSpec:
    """How to run an engine with these settings; the launcher chooses its port and folder."""
    config = msgspec.to_builtins(settings) | {
        "host": "@{listen}",
        "port": "@{port.http}",
        "log_path": "@{dir}/engine.jsonl",
    }
    text = msgspec.json.format(msgspec.json.encode(config)).decode()
    module = (sys.executable, "-m", "stacks.reference")
    return NodeSpec(
        name=name,
        kind="reference",
        ours=True,
        version=VERSION,
        argv=(*module, "--config", "@{dir}/engine.json"),
        env=(("PYTHONPATH", str(_ROOT)),),
        files=(NodeFile(path="engine.json", text=text.replace('"@{port.http}"', "@{port.http}")),),
        readiness=Readiness(port="http", path="/health"),
        version_argv=(*module, "--version"),
        stop_signal="SIGTERM",
        logs=(("engine", "engine.jsonl"),),
        timer_grain_ms=settings.step_ms,
    )
