"""`streamchaos schema NAME`: what a format of ours looks like, as JSON Schema."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import typer

from harness.cli.output import json_text, say

EPILOG = "Example:  streamchaos schema report > report.schema.json"


class Name(StrEnum):
    """The formats."""

    REPORT = "report"
    RECORDING = "recording"


def schema(
    name: Name = typer.Argument(
        ..., help="report (report.json) or recording (a scenario's folder)."
    ),
) -> None:
    """Print the JSON Schema of a format."""
    if name is Name.REPORT:
        from reports import json_report

        say(json_report.schema("report").decode().rstrip())
    else:
        say(json_text(recording()))


def recording() -> dict[str, Any]:
    """JSON Schema (2020-12) of a scenario's folder, a property for each of its files."""
    import msgspec

    from harness.model import AccessEntry, LedgerEntry, Outcome, Stream
    from harness.record import FORMAT, Facts, Header

    files: dict[str, Any] = {
        "scenario.json": Header,
        "facts.json": Facts,
        "findings.json": Outcome,
        "streams.json": tuple[Stream, ...],
        "engine.jsonl": tuple[LedgerEntry, ...],
        "access.jsonl": tuple[AccessEntry, ...],
    }
    schemas, components = msgspec.json.schema_components(
        files.values(), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FORMAT,
        "description": "The files of a scenario's folder; of a .jsonl file, the list of its lines.",
        "type": "object",
        "properties": dict(zip(files, schemas, strict=True)),
        "required": ["scenario.json"],
        "$defs": components,
    }
