"""Gets Debian's nginx into a folder of ours: `python -m stacks.nginx.debian`.

The packages are downloaded by apt-get and unpacked by dpkg-deb: nothing is installed, no
service is started. Only where the package lists know no nginx 1.22 are they updated, by root.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.errors import HarnessError, MissingPart
from stacks.nginx.versions import Installed, debian_folder, installed_at

SERIES = "1.22"
COMMAND_DEADLINE_S = 300
# Debian 12's packages of the libraries that the binary is linked to.
LIBRARY_PACKAGES = {
    "libcrypt.so.1": "libcrypt1",
    "libcrypto.so.3": "libssl3",
    "libpcre2-8.so.0": "libpcre2-8-0",
    "libssl.so.3": "libssl3",
    "libz.so.1": "zlib1g",
}


def _run(
    *argv: str, folder: Path | None = None, env: dict[str, str] | None = None, todo: str = ""
) -> str:
    """Standard output and error of a command; MissingPart with its last line where it fails."""
    if shutil.which(argv[0]) is None:
        raise MissingPart(
            f"{argv[0]} is not on this machine",
            todo="nginx 1.22 comes from Debian's packages; elsewhere its arms are skipped",
        )
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=os.environ | {"LC_ALL": "C"} | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPart(str(error), where=argv[0], todo=todo) from error
    if done.returncode != 0:
        tail = " ".join(done.stdout.strip().splitlines()[-1:])
        raise MissingPart(f"exit {done.returncode}: {tail}", where=" ".join(argv), todo=todo)
    return done.stdout


def newest_of_series(madison: str) -> str | None:
    """The version of our series that `apt-cache madison nginx` lists first: the newest."""
    versions = (row.split("|")[1].strip() for row in madison.splitlines() if row.count("|") >= 2)
    return next((v for v in versions if v.startswith(f"{SERIES}.")), None)


def missing_libraries(ldd: str) -> tuple[str, ...]:
    """The libraries that ldd did not find."""
    return tuple(re.findall(r"^\s*(\S+) => not found", ldd, re.MULTILINE))


def _available() -> str:
    version = newest_of_series(_run("apt-cache", "madison", "nginx"))
    if version is None and os.geteuid() == 0:
        _run("apt-get", "-q", "update", todo="is the network there?")
        version = newest_of_series(_run("apt-cache", "madison", "nginx"))
    if version is None:
        raise MissingPart(
            f"the package lists know no nginx {SERIES}",
            where="apt-cache",
            todo="run apt-get update as root; it takes Debian 12's lists",
        )
    return version


def _unpack(packages: tuple[str, ...], folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
        # apt's own user cannot write here; root downloads as itself.
        sandbox = ("-o", "APT::Sandbox::User=root") if os.geteuid() == 0 else ()
        _run(
            "apt-get", *sandbox, "-q", "download", *packages,
            folder=Path(downloads),
            todo="is the network there? Lists may be old: run apt-get update as root",
        )  # fmt: skip
        for package in sorted(Path(downloads).glob("*.deb")):
            _run("dpkg-deb", "-x", str(package), str(folder))


def _add_libraries(folder: Path) -> None:
    """Puts what the system lacks into `libraries`, which the node's LD_LIBRARY_PATH names."""
    missing = missing_libraries(_run("ldd", str(folder / "usr/sbin/nginx")))
    if not missing:
        return
    unknown = [name for name in missing if name not in LIBRARY_PACKAGES]
    if unknown:
        raise MissingPart(f"nginx needs {', '.join(unknown)}", todo="install the library")
    _unpack(tuple(sorted({LIBRARY_PACKAGES[name] for name in missing})), folder)
    libraries = folder / "libraries"
    libraries.mkdir()
    for file in [f for f in folder.rglob("lib*.so.*") if f.is_file()]:
        shutil.copy2(file, libraries / file.name)


def told_version(installed: Installed) -> str:
    """The version that the binary tells by `nginx -V`; MissingPart where it does not run."""
    libraries = {"LD_LIBRARY_PATH": installed.library_path} if installed.library_path else {}
    told = re.search(r"nginx version: nginx/(\S+)", _run(installed.binary, "-V", env=libraries))
    if told is None:
        raise MissingPart("tells no version", where=installed.binary)
    return told[1]


def _build(folder: Path) -> None:
    version = _available()
    _unpack((f"nginx={version}", f"nginx-common={version}"), folder)
    _add_libraries(folder)
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
