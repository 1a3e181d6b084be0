"""The report as JSON, the canonical form, and the schemas of what is written."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec

from harness.errors import RecordingError, UsageError
from harness.model import Outcome, Recording, Report, Scenario
from reports.text import visible

FORMAT = "streamchaos.report/1"
NAME, MAJOR = FORMAT.split("/")
RECORDING_FORMAT = "streamchaos.recording/1"

SCHEMAS: dict[str, tuple[type, str]] = {
    "report": (Report, FORMAT),
    "recording": (Recording, RECORDING_FORMAT),
    "scenario": (Scenario, RECORDING_FORMAT),
    "outcome": (Outcome, FORMAT),
}


class _Head(msgspec.Struct):
    """All that is read of a report before its format is known."""

    format: str = ""


def dumps(report: Report) -> bytes:
    """The report as indented JSON, in UTF-8, with a newline at its end.

    Figures that are no finite number are left out, and unpaired surrogates escaped: JSON has
    neither (RFC 8259 §6, §8.2).
    """
    built = _written(msgspec.to_builtins(replace(report, format=FORMAT)))
    return msgspec.json.format(msgspec.json.encode(built), indent=1) + b"\n"


def loads(data: bytes) -> Report:
    """The report; keys that this version does not know are ignored.

    Raises:
        RecordingError: no report, or one of a newer major.
    """
    try:
        _require_format(msgspec.json.decode(data, type=_Head).format)
        return msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"not a report that can be read: {visible(str(error))}") from error


def schema(name: str) -> bytes:
    """The JSON schema (2020-12) of `report`, `recording`, `scenario` or `outcome`, indented.

    Raises:
        UsageError: any other name.
    """
    if name not in SCHEMAS:
        raise UsageError(
            f"there is no schema {visible(name)!r}", todo=f"schemas: {', '.join(SCHEMAS)}"
        )
    kind, written_in = SCHEMAS[name]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{name} ({written_in})",
    }
    text = msgspec.json.encode(head | msgspec.json.schema(kind))
    return msgspec.json.format(text, indent=2) + b"\n"


def _require_format(found: str) -> None:
    name, _, major = found.partition("/")
    if name != NAME or not (major.isascii() and major.isdigit()):
        raise RecordingError(f"not a report: its format is {visible(found)!r}, not {FORMAT!r}")
    if len(major) > len(MAJOR) or int(major) > int(MAJOR):
        raise RecordingError(
            f"the report is written as {found}, this version reads {FORMAT}: use a newer one"
        )


def _written(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _written(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_written(one) for one in value if not _is_no_figure(one)]
    return value


def _is_no_figure(value: object) -> bool:
    """A pair of name and value whose value no JSON number can hold."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    return isinstance(value[1], float) and not math.isfinite(value[1])
