"""Strict reading of plain JSON values into the model's dataclasses: an unknown field is an error
that names it.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import TypeVar

import msgspec

from harness.model import Defects, Leave, StreamScript

T = TypeVar("T")

EVENT_COUNT_MAX = 100_000
EVENT_BYTES_MAX = 1 << 20
ANSWER_BYTES_MAX = 256 << 20


class SchemaError(ValueError):
    """A value that does not fit; the text begins with the path of the offending field."""


def convert(value: object, kind: type[T], path: str) -> T:
    """`value` (as JSON gives it) as a `kind`; raises SchemaError naming the field below `path`."""
    _reject_unknown(value, kind, path)
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        raise SchemaError(f"{path}{where.rstrip('`')}: {text}") from None


def _reject_unknown(value: object, kind: object, path: str) -> None:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        for name, item in value.items():
            if name not in hints:
                raise SchemaError(f"{path}.{name}: unknown field")
            _reject_unknown(item, hints[name], f"{path}.{name}")
    elif typing.get_origin(kind) is tuple and isinstance(value, list):
        for index, item in enumerate(value):
            _reject_unknown(item, typing.get_args(kind)[0], f"{path}[{index}]")


def script(value: object, path: str) -> StreamScript:
    """A playable StreamScript; raises SchemaError for one that no engine could play."""
    read = convert(value, StreamScript, path)
    _reject_negative(read, path, except_for=("seed",))
    for pause in read.pauses:
        _reject_negative(pause, f"{path}.pauses")
    _reject_outside(read.event_count, 1, EVENT_COUNT_MAX, f"{path}.event_count")
    _reject_outside(read.event_bytes, 1, EVENT_BYTES_MAX, f"{path}.event_bytes")
    answer_bytes = read.event_count * read.event_bytes
    _reject_outside(answer_bytes, 1, ANSWER_BYTES_MAX, f"{path}: event_count × event_bytes")
    _reject_outside(read.event_bytes_spread, 0, 1, f"{path}.event_bytes_spread")
    if not re.fullmatch(r"[A-Za-z0-9]*", read.accel_buffering):
        raise SchemaError(f"{path}.accel_buffering: letters and digits only")
    return read


def defects(value: object, path: str) -> Defects:
    """Defects that can be acted out; raises SchemaError for others."""
    read = convert(value, Defects, path)
    _reject_negative(read, path)
    _reject_outside(read.clump_events, 1, EVENT_COUNT_MAX, f"{path}.clump_events")
    if read.cut_by is Leave.CLOSE_NOTIFY:
        raise SchemaError(f"{path}.cut_by: the engine speaks no TLS; fin or rst")
    return read


def _reject_negative(read: object, path: str, *, except_for: tuple[str, ...] = ()) -> None:
    for name in getattr(read, "__slots__", ()):
        number = getattr(read, name)
        if isinstance(number, int | float) and number < 0 and name not in except_for:
            raise SchemaError(f"{path}.{name}: {number} is below 0")


def _reject_outside(number: float, low: int, high: int, path: str) -> None:
    if not low <= number <= high:
        raise SchemaError(f"{path}: {number} is not in {low}..{high}")
