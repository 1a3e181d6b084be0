"""Gets Debian's nginx into a folder of ours: `python -m stacks.nginx.debian`.

The packages are downloaded by apt-get and unpacked by dpkg-deb: nothing is installed, no
service is started. Only where the package lists know no nginx 1.22 are they updated, by root.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from pathlib import Path

from harness.errors import HarnessError, MissingPart
from stacks.debian import add_libraries, available, command, unpack
from stacks.nginx.versions import Installed, debian_folder, installed_at

SERIES = "1.22"
# Debian 12's packages of the libraries that the binary is linked to.
LIBRARY_PACKAGES = {
    "libcrypt.so.1": "libcrypt1",
    "libcrypto.so.3": "libssl3",
    "libpcre2-8.so.0": "libpcre2-8-0",
    "libssl.so.3": "libssl3",
    "libz.so.1": "zlib1g",
}


def told_version(installed: Installed) -> str:
    """The version that the binary tells by `nginx -V`; MissingPart where it does not run."""
    libraries = {"LD_LIBRARY_PATH": installed.library_path} if installed.library_path else {}
    told = re.search(r"nginx version: nginx/(\S+)", command(installed.binary, "-V", env=libraries))
    if told is None:
        raise MissingPart("tells no version", where=installed.binary)
    return told[1]


def _build(folder: Path) -> None:
    version = available("nginx", SERIES)
    unpack((f"nginx={version}", f"nginx-common={version}"), folder)
    add_libraries(folder / "usr/sbin/nginx", folder, LIBRARY_PACKAGES)
    (folder / "version").write_text(version.partition("-")[0] + "\n", encoding="ascii")
    built = installed_at(folder)
    if built is None or told_version(built) != built.version:
        raise MissingPart(f"the package holds no nginx {version}", where=str(folder))


def _working(folder: Path) -> Installed | None:
    installed = installed_at(folder)
    try:
        return installed if installed and told_version(installed) == installed.version else None
    except MissingPart:
        return None


def install(target: Path) -> Installed:
    """Debian's nginx in `target`, complete or not there: unpacked beside it, tried, then renamed.

    What works already is kept. Raises MissingPart where a tool, the package or the network is not
    there.
    """
    present = _working(target)
    if present:
        return present
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".nginx-debian-") as scratch:
        fresh, stale = Path(scratch) / "fresh", Path(scratch) / "stale"
        fresh.mkdir()
        _build(fresh)
        # Somebody else may be as far at the same time: then theirs stands, and is tried below.
        with contextlib.suppress(OSError):
            if target.exists():
                target.rename(stale)
            fresh.rename(target)
    installed = _working(target)
    if installed is None:
        raise MissingPart("does not run after unpacking", where=str(target))
    return installed


def main() -> int:
    """Gets it and says where it is; 2 with one clear message where it cannot."""
    try:
        installed = install(debian_folder())
    except HarnessError as error:
        sys.stderr.write(f"nginx-debian: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"nginx-debian: {error}\n")
        return 2
    sys.stdout.write(f"nginx {installed.version}: {installed.binary}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
