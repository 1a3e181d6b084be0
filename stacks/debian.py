"""Debian's packages in a folder of ours: downloaded by apt-get, unpacked by dpkg-deb.

Nothing is installed, no service is started. Only where the package lists lack the wanted series
are they updated, by root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.errors import MissingPart

COMMAND_DEADLINE_S = 300


def command(
    *argv: str, folder: Path | None = None, env: dict[str, str] | None = None, todo: str = ""
) -> str:
    """Standard output and error of a command; MissingPart with its last line where it fails."""
    if shutil.which(argv[0]) is None:
        raise MissingPart(
            f"{argv[0]} is not on this machine",
            todo="this version comes from Debian's packages; elsewhere its arms are skipped",
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


def newest_of_series(madison: str, series: str) -> str | None:
    """The version of a series that `apt-cache madison` lists first: the newest, or None."""
    versions = (row.split("|")[1].strip() for row in madison.splitlines() if row.count("|") >= 2)
    return next((v for v in versions if v.startswith(f"{series}.")), None)


def missing_libraries(ldd: str) -> tuple[str, ...]:
    """The libraries that ldd did not find, each once."""
    return tuple(dict.fromkeys(re.findall(r"^\s*(\S+) => not found", ldd, re.MULTILINE)))


def available(package: str, series: str) -> str:
    """The newest version of the series that the lists know; MissingPart where there is none."""
    version = newest_of_series(command("apt-cache", "madison", package), series)
    if version is None and os.geteuid() == 0:
        command("apt-get", "-q", "update", todo="is the network there?")
        version = newest_of_series(command("apt-cache", "madison", package), series)
    if version is None:
        raise MissingPart(
            f"the package lists know no {package} {series}",
            where="apt-cache",
            todo="run apt-get update as root; it takes Debian 12's lists",
        )
    return version


def unpack(packages: tuple[str, ...], folder: Path) -> None:
    """Downloads packages (`name` or `name=version`) and unpacks them into `folder`."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
        # apt's own user cannot write here; root downloads as itself.
        sandbox = ("-o", "APT::Sandbox::User=root") if os.geteuid() == 0 else ()
        command(
            "apt-get", *sandbox, "-q", "download", *packages,
            folder=Path(downloads),
            todo="is the network there? Lists may be old: run apt-get update as root",
        )  # fmt: skip
        for package in sorted(Path(downloads).glob("*.deb")):
            command("dpkg-deb", "-x", str(package), str(folder))


def add_libraries(binary: Path, folder: Path, packages: dict[str, str]) -> None:
    """Puts what the system lacks for `binary` into `folder/libraries`, for LD_LIBRARY_PATH.

    `packages` tells the package of each library; MissingPart for one that is not in it.
    """
    libraries = folder / "libraries"
    told: set[str] = set()
    # A library needs others in turn.
    while missing := missing_libraries(
        command("ldd", str(binary), env={"LD_LIBRARY_PATH": str(libraries)})
    ):
        unknown = [name for name in missing if name not in packages or name in told]
        if unknown:
            raise MissingPart(f"{binary.name} needs {', '.join(unknown)}", todo="install it")
        told.update(missing)
        unpack(tuple(sorted({packages[name] for name in missing})), folder)
        libraries.mkdir(exist_ok=True)
        for file in [f for f in folder.rglob("lib*.so.*") if f.parent != libraries]:
            if file.is_file():
                shutil.copy2(file, libraries / file.name)
