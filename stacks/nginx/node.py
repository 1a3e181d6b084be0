"""How to run nginx in a folder of ours: its configuration as shipped, and the lines of a stack."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import jinja2

from harness.errors import PlanError
from harness.model import Node, NodeFile, NodeSpec, Readiness
from stacks.nginx.access import log_format
from stacks.nginx.directives import directives
from stacks.nginx.versions import Installed, Package, resolve

CONFIGURATION = "nginx.conf"
TEMPLATES = {Package.WHEEL: "stock.conf", Package.DEBIAN: "debian.conf"}
# nginx moves a timer only by more than 300 ms, which a shorter one would feel.
TIMER_GRAIN_MS = 2_000
# EADDRINUSE on Linux: glibc goes on "already in use)", the wheel's musl "in use)".
PORT_TAKEN_TEXT = "failed (98: Address"


@cache
def _templates() -> jinja2.Environment:
    # nginx's own braces and dollars stay free.
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
        comment_start_string="[#",
        comment_end_string="#]",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )


def _checked(lines: tuple[str, ...]) -> tuple[str, ...]:
    for line in lines:
        if not line.lstrip().startswith("#") and not line.rstrip().endswith((";", "}")):
            raise PlanError(f"nginx line {line!r} is not complete", todo="end it with ; or }")
    return lines


def render(node: Node, package: Package, *, root: bool) -> str:
    """The text of nginx.conf with its placeholders; `root` tells that root starts it.

    Raises PlanError for a line of the node's that would swallow the next one.
    """
    template = _templates().get_template(TEMPLATES[package])
    return template.render(
        root=root,
        tls=node.tls,
        log_format=log_format(),
        lines=_checked(node.lines),
        server_lines=_checked(node.server_lines),
        global_lines=_checked(node.global_lines),
    )


def _files(configuration: str) -> tuple[NodeFile, ...]:
    types = _templates().get_template("mime.conf").render()
    return NodeFile(path=CONFIGURATION, text=configuration), NodeFile(path="mime.types", text=types)


def _environment(installed: Installed) -> tuple[tuple[str, str], ...]:
    return (("LD_LIBRARY_PATH", installed.library_path),) if installed.library_path else ()


def node_spec(node: Node, *, name: str) -> NodeSpec:
    """How to run this nginx. Every path goes through to the engine: ready means it serves.

    Raises MissingPart where the version is not on this machine, PlanError for an incomplete line.
    """
    installed = resolve(node.version)
    text = render(node, installed.package, root=os.geteuid() == 0)
    argv = (
        installed.binary, "-p", "@{dir}", "-c", CONFIGURATION, "-e", "@{dir}/logs/error.log",
    )  # fmt: skip
    return NodeSpec(
        name=name,
        kind="nginx",
        version=installed.version,
        argv=argv,
        env=_environment(installed),
        files=_files(text),
        folders=("logs", "temp"),
        readiness=Readiness(port="http", tls=node.tls),
        version_argv=(installed.binary, "-V"),
        check_argv=(*argv, "-t"),
        reload_signal="SIGHUP",
        stop_signal="SIGTERM",
        logs=(("access", "logs/access.log"), ("error", "logs/error.log")),
        port_taken_text=PORT_TAKEN_TEXT,
        timer_grain_ms=TIMER_GRAIN_MS,
        directives=directives(text, file=CONFIGURATION, version=installed.version),
    )
