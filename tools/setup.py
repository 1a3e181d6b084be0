"""Makes the venv: `python tools/setup.py VENV STAMP`. The stamp is written last.

A venv without any stamp was interrupted while it was made, so it is made again from nothing; one
with an old stamp only gets what changed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PINS = "requirements/dev.txt"


def call(*argv: str | Path) -> None:
    """Run a command with its output shown. Raises CalledProcessError where it fails."""
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def works(python: Path) -> bool:
    """True where the venv's Python runs and has pip; its base may have been removed since."""
    argv = (python, "-c", "import pip")
    return python.exists() and not subprocess.run(argv, check=False, capture_output=True).returncode


def make(folder: Path) -> None:
    """Leave in `folder` a venv that can be installed into, without a stamp."""
    stamps = list(folder.glob(".ready-*"))
    whole = bool(stamps) and works(folder / "bin" / "python")
    for stamp in stamps:
        stamp.unlink()
    if not whole:
        call(sys.executable, "-m", "venv", "--clear", folder)


def install(python: Path) -> None:
    """The pinned packages, wheels only, then the project itself, editable."""
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input")
    call(*pip, "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r", PINS)
    call(*pip, "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", ".")


def main(folder: Path, stamp: Path) -> int:
    """Set up `folder` and write `stamp`; the exit code."""
    sys.stdout.write(f"setting up {folder} with Python {sys.version.split()[0]}\n")
    sys.stdout.flush()
    try:
        make(folder)
        install(folder / "bin" / "python")
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        sys.stderr.write(f"set-up failed (exit {error.returncode}): {command}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("set-up interrupted; the next one begins anew\n")
        return 130
    stamp.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
