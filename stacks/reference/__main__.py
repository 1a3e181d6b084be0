"""`python -m stacks.reference --config FILE` serves until SIGTERM or SIGINT.

Exit codes: 0 stopped as asked, 2 bad usage or configuration, 3 the log could not be written, 98 the
port is taken.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from stacks.reference import settings as configuration
from stacks.reference.schema import SchemaError

USAGE = "usage: python -m stacks.reference --config FILE | --version"


def _fail(code: int, text: str) -> int:
    sys.stderr.write(f"stacks.reference: {text}\n")
    return code


def main(arguments: list[str]) -> int:
    """Serves; gives the exit code."""
    if arguments == ["--version"]:
        sys.stdout.write(f"reference {configuration.VERSION}\n")
        return 0
    if len(arguments) != 2 or arguments[0] != "--config":
        return _fail(2, USAGE)
    try:
        settings = configuration.load(Path(arguments[1]))
        configuration.api_key(settings)
    except SchemaError as error:
        return _fail(2, str(error))
    except OSError as error:
        return _fail(2, f"{arguments[1]}: {error.strerror}")
    return _serve(settings)


def _serve(settings: configuration.EngineSettings) -> int:
    from stacks.reference import server

    where = f"{settings.host}:{settings.port}"
    try:
        listener = server.listen(settings)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _fail(98, f"{where}: Address already in use")
        return _fail(2, f"{where}: {error.strerror or error}")
    try:
        trouble = server.run(settings, listener)
    except OSError as error:
        return _fail(3, f"{settings.log_path}: {error.strerror}")
    return _fail(3, trouble) if trouble else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
