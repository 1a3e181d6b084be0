"""All commands put together, and what becomes of an error: one message and its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from harness.cli import catalogues, rejudge, schema, warstory
from harness.errors import HarnessError

NAME = "streamchaos"
USAGE_EXIT = 2
INTERRUPTED_EXIT = 130

EPILOG = f"""Examples:

  {NAME} warstory 1                      the first story, red, then green

  {NAME} warstory 1 --arm '*gzip*'       some of its arms

  {NAME} list checks                     what is judged

  {NAME} rejudge latest                  judge the last run again, from disk

Exit codes: 0 as told, 1 not as told, 2 bad usage, 3 the harness failed, 4 undecided."""


def application() -> typer.Typer:
    """The commands, each a function of a module of this package."""
    app = typer.Typer(
        name=NAME,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True, epilog=EPILOG)(_top)
    app.command("warstory", epilog=warstory.EPILOG)(warstory.warstory)
    app.command("list", epilog=catalogues.EPILOG)(catalogues.list_)
    app.command("rejudge", epilog=rejudge.EPILOG)(rejudge.rejudge)
    app.command("schema", epilog=schema.EPILOG)(schema.schema)
    return app


def _top(
    context: typer.Context,
    *,
    version: bool = typer.Option(False, "--version", help="Print the version and end."),
) -> None:
    """Chaos and fault injection for stacks that stream LLM tokens."""
    if version:
        from harness.cli.version import version as installed

        typer.echo(f"{NAME} {installed()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(argv: Sequence[str]) -> int:
    """Runs the command in `argv`; the exit code. Our own errors become one message on stderr."""
    try:
        code = application()(list(argv), prog_name=NAME, standalone_mode=False)
        sys.stdout.flush()
    except HarnessError as error:
        return _complain(str(error), error.exit_code)
    except ExceptionGroup as group:
        ours, others = group.split(HarnessError)
        if ours is None or others is not None:
            raise
        first = _first(ours)
        return _complain(str(first), first.exit_code)
    except TyperException as error:
        return _complain(f"{error.format_message()}\n  try: {NAME} --help", USAGE_EXIT)
    except typer.Abort:
        return INTERRUPTED_EXIT
    except BrokenPipeError:
        # Python flushes stdout once more at its end; what nobody reads may go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return int(code or 0)


def _first(group: ExceptionGroup[HarnessError]) -> HarnessError:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


def _complain(text: str, exit_code: int) -> int:
    sys.stderr.write(f"{NAME}: {text}\n")
    return exit_code
