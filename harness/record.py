"""A scenario's folder: what is written while it runs, and how it is read back.

scenario.json                          the format, the scenario
client.events.jsonl, client.reads.bin  the sampler's trace
relay.events.jsonl, relay.reads.bin    the taps' trace
facts.json                             nodes, oracle, metrics
engine.jsonl                           the engine's log
access.jsonl                           what the proxies' logs say
nodes/NAME/                            files and logs of each node
streams.json                           joined traces, in place of the reads where all verdicts pass
findings.json                          may be deleted and rebuilt
control/                               the same, of the control run
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.errors import RecordingError
from harness.model import (
    AccessEntry,
    LedgerEntry,
    MetricSample,
    NodeRun,
    Outcome,
    Scenario,
    Stream,
)

FORMAT = "streamchaos.recording/1"
RAW_FILES = ("client.reads.bin", "relay.reads.bin")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """First of all a format, so that a newer one is refused before anything else is read."""

    format: str
    scenario: Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the runner knows and no trace tells."""

    run: str = ""
    nodes: tuple[NodeRun, ...] = ()
    oracle: dict[str, tuple[str, ...]] = field(default_factory=dict)
    metrics: tuple[MetricSample, ...] = ()
    notes: tuple[str, ...] = ()


def require_format(found: str, wanted: str, where: Path) -> None:
    """Additions are allowed within a major; a newer major is refused.

    Raises:
        RecordingError: not a format of ours, or a newer one.
    """
    name, _, major = wanted.partition("/")
    found_name, _, found_major = found.partition("/")
    is_number = found_major.isascii() and found_major.isdigit()
    if found_name == name and is_number and int(found_major) <= int(major):
        return
    raise RecordingError(
        f"is written in the format {found!r}; this version reads {wanted!r}",
        where=str(where),
        todo="use the version of streamchaos that wrote it, or a newer one",
    )


class ScenarioFolder:
    """One attempt at one scenario, on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, scenario: Scenario) -> ScenarioFolder:
        """A new folder with the scenario in it.

        Raises:
            RecordingError: the folder cannot be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise refused(path, error) from error
        folder = cls(path)
        folder.write("scenario.json", Header(format=FORMAT, scenario=scenario))
        return folder

    def write(self, name: str, value: object) -> None:
        """`value` as indented JSON."""
        text = msgspec.json.format(msgspec.json.encode(value), indent=1)
        write_whole(self.path / name, text + b"\n")

    def write_lines(self, name: str, values: tuple[object, ...]) -> None:
        """One JSON value a line."""
        write_whole(self.path / name, b"".join(msgspec.json.encode(v) + b"\n" for v in values))

    def scenario(self) -> Scenario:
        """The scenario that was run.

        Raises:
            RecordingError: not a recording, a damaged one, or one of a newer format.
        """
        path = self.path / "scenario.json"
        raw = self._decode("scenario.json", dict[str, Any])
        require_format(str(raw.get("format", "")), FORMAT, path)
        return self._decode("scenario.json", Header).scenario

    def facts(self) -> Facts:
        """What the runner knew; empty where the run was killed before it could be written."""
        if not (self.path / "facts.json").exists():
            return Facts(notes=("facts.json is missing: the run did not get to its end",))
        return self._decode("facts.json", Facts)

    def ledger(self) -> tuple[LedgerEntry, ...] | None:
        """The engine's log, or None where it has none."""
        return self._lines("engine.jsonl", LedgerEntry)

    def access(self) -> tuple[AccessEntry, ...]:
        """What the proxies' access logs say."""
        return self._lines("access.jsonl", AccessEntry) or ()

    def streams(self) -> tuple[Stream, ...] | None:
        """Joined traces, where they stand in for raw reads."""
        if not (self.path / "streams.json").exists():
            return None
        return self._decode("streams.json", tuple[Stream, ...])

    def outcome(self) -> Outcome:
        """What was found last."""
        return self._decode("findings.json", Outcome)

    def compact(self, streams: tuple[Stream, ...]) -> None:
        """Keeps offsets, stamps and digests, and lets the raw reads go."""
        self.write("streams.json", streams)
        for name in RAW_FILES:
            (self.path / name).unlink(missing_ok=True)

    def _decode(self, name: str, kind: type[T]) -> T:
        path = self.path / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except OSError as error:
            raise RecordingError(
                f"cannot be read: {error.strerror}",
                where=str(path),
                todo="name a folder that a run has written, as in chaos-results/latest",
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordingError(
                f"is damaged: {error}", where=str(path), todo="run the scenario again"
            ) from error

    def _lines(self, name: str, kind: type[T]) -> tuple[T, ...] | None:
        path = self.path / name
        if not path.exists():
            return None
        decoder = msgspec.json.Decoder(kind)
        found: list[T] = []
        for line in path.read_bytes().splitlines():
            try:
                found.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        return tuple(found)


def refused(path: Path, error: OSError) -> RecordingError:
    """The disk said no."""
    return RecordingError(
        f"cannot be written: {error.strerror}",
        where=str(path),
        todo="free space there, or name another folder for the results",
    )


def write_whole(path: Path, content: bytes) -> None:
    """Writes the file whole or not at all.

    Raises:
        RecordingError: the disk refuses.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise refused(path, error) from error


def scenario_folders(run: Path) -> tuple[ScenarioFolder, ...]:
    """Each attempt of each scenario of a run, control runs left out, in order of their names.

    Raises:
        RecordingError: there is none.
    """
    paths = sorted(p.parent for p in run.rglob("scenario.json") if p.parent.name != "control")
    if not paths:
        raise RecordingError(
            "holds no recording", where=str(run), todo="name a folder below chaos-results/"
        )
    return tuple(ScenarioFolder(p) for p in paths)
