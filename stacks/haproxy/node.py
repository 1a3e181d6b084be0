"""How to run HAProxy in a folder of ours: its configuration as shipped, and the lines of a stack.

`Node.lines` go to `defaults`, where they hold for both sides of the stream (an option of one side
only is ignored by some versions); `server_lines` to the frontend, `global_lines` to `global`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from harness.errors import PlanError
from harness.model import Node, NodeFile, NodeSpec, Readiness
from stacks.haproxy.access import log_format
from stacks.haproxy.configuration import SECTIONS, words_of
from stacks.haproxy.directives import directives
from stacks.haproxy.versions import Installed, resolve

CONFIGURATION = "haproxy.cfg"
# It fires within 50 ms of the set time, which a shorter timer would feel.
TIMER_GRAIN_MS = 500
PORT_TAKEN_TEXT = "cannot bind socket (Address already in use)"
# Certificate and key are two files; HAProxy before 3.0 wants one. The shell becomes HAProxy.
JOIN_PEM = (
    "/bin/sh",
    "-c",
    'umask 077 && cat "$1" "$2" > server.pem && shift 2 && exec "$@"',
    "haproxy",
    "@{tls_cert}",
    "@{tls_key}",
)


@cache
def _templates() -> jinja2.Environment:
    # HAProxy's own braces stay free.
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
        words = words_of(line)
        if "\n" in line or (words and words[0] in SECTIONS):
            raise PlanError(
                f"haproxy line {line!r} is not one line of a section",
                todo="give each line by itself; a section cannot be opened",
            )
    return lines


def render(node: Node) -> str:
    """The text of haproxy.cfg with its placeholders.

    Raises PlanError for a line of the node's that would move those after it into another section.
    """
    return (
        _templates()
        .get_template("haproxy.conf")
        .render(
            tls=node.tls,
            log_format=log_format(),
            lines=_checked(node.lines),
            server_lines=_checked(node.server_lines),
            global_lines=_checked(node.global_lines),
        )
    )


def _environment(installed: Installed) -> tuple[tuple[str, str], ...]:
    return (("LD_LIBRARY_PATH", installed.library_path),) if installed.library_path else ()


def node_spec(node: Node, *, name: str) -> NodeSpec:
    """How to run this HAProxy. Every path goes through to the engine: ready means it serves.

    Raises MissingPart where the version is not on this machine, PlanError for an unusable line.
    """
    installed = resolve(node.version)
    text = render(node)
    argv = (
        *(JOIN_PEM if node.tls else ()),
        installed.binary, "-db", "-f", f"@{{dir}}/{CONFIGURATION}",
    )  # fmt: skip
    return NodeSpec(
        name=name,
        kind="haproxy",
        version=installed.version,
        argv=argv,
        env=_environment(installed),
        files=(NodeFile(path=CONFIGURATION, text=text),),
        readiness=Readiness(port="http", tls=node.tls),
        version_argv=(installed.binary, "-v"),
        check_argv=(*argv, "-c"),
        stop_signal="SIGTERM",
        logs=(("access", "stdout.log"), ("error", "stderr.log")),
        port_taken_text=PORT_TAKEN_TEXT,
        timer_grain_ms=TIMER_GRAIN_MS,
        directives=directives(text, file=CONFIGURATION, version=installed.version),
    )
