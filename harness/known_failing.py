"""What is known to fail, each with its reason and a link: a list that shrinks by itself.

    [[known]]
    pattern = "nginx/debian/*"     # scenario ids, as fnmatch reads them
    reason = "the package's patch holds the head"
    link = "https://example.org/bug/1"

All three are required. What is listed here and no longer fails makes the session fail, and a
failure of the harness itself is never excused.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

from harness.errors import ConfigError

FILE = "known_failing.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Scenarios that fail, why, and where that is discussed."""

    pattern: str
    reason: str
    link: str

    def matches(self, scenario_id: str) -> bool:
        """True where `scenario_id` is one of them."""
        return fnmatchcase(scenario_id, self.pattern)


KEYS = tuple(field.name for field in fields(Known))


def load(path: Path) -> tuple[Known, ...]:
    """The entries of the file in their order; none where there is no file.

    Raises:
        ConfigError: the file cannot be read, or an entry lacks a key or has one too many.
    """
    try:
        return parse(path.read_text(encoding="utf-8"), where=str(path))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path)) from error


def parse(text: str, *, where: str) -> tuple[Known, ...]:
    """The entries of the text of such a file; `where` stands in the errors.

    Raises:
        ConfigError: it is no TOML, or an entry lacks a key or has one too many.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"is no TOML: {error}", where=where) from error
    entries = table.pop("known", [])
    if table:
        raise _wrong(f"has the unknown key {next(iter(table))!r}", where)
    if not isinstance(entries, list):
        raise _wrong("has a `known` that is no list of tables", where)
    return tuple(_entry(one, f"{where}, entry {n}") for n, one in enumerate(entries, start=1))


def find(entries: tuple[Known, ...], scenario_id: str) -> Known | None:
    """The first entry that speaks of this scenario, or None."""
    return next((entry for entry in entries if entry.matches(scenario_id)), None)


def _entry(raw: object, where: str) -> Known:
    if not isinstance(raw, dict):
        raise _wrong("is no table", where)
    for key in raw:
        if key not in KEYS:
            raise _wrong(f"has the unknown key {key!r}", where)
    return Known(**{key: _text(raw, key, where) for key in KEYS})


def _text(raw: dict[str, object], key: str, where: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(f"has no {key!r}, or one that is no text", where)
    return value


def _wrong(what: str, where: str) -> ConfigError:
    todo = f"each entry is a table [[known]] with the texts {', '.join(KEYS)}"
    return ConfigError(what, where=where, todo=todo)
