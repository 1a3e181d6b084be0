"""Ctrl-C and SIGTERM, in processes of their own: in good order, in time, at once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from harness.cli import interrupt
from harness.errors import PlanError
from tests.unit.cli.commands import environment

PROGRAM = """
import asyncio, sys
from harness.cli import interrupt
from harness.errors import HarnessError

async def work():
    print("begun", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("stopping", flush=True)
        {last}

interrupt.GRACE_S = {grace_s}
try:
    interrupt.run(work(), note=lambda: "partial results: here")
except HarnessError as error:
    sys.stderr.write(str(error))
    sys.exit(error.exit_code)
"""
FOREVER = "await asyncio.Event().wait()"
BLOCKED = "import threading; threading.Event().wait()"


def start(last: str = "pass", grace_s: float = 60.0) -> subprocess.Popen[str]:
    """A process that works until it is told to stop, and then does `last`."""
    process = subprocess.Popen(
        (sys.executable, "-c", PROGRAM.format(last=last, grace_s=grace_s)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("signum", interrupt.SIGNALS)
def test_run_with_a_signal_stops_in_good_order(signum: signal.Signals) -> None:
    """The work is cancelled and cleans up; the exit code is a shell's; what is left is named."""
    process = start()
    process.send_signal(signum)
    out, err = process.communicate()
    assert out == "stopping\n"
    assert err == f"stopped by {signum.name}\n  partial results: here"
    assert process.returncode == 128 + signum


@pytest.mark.parametrize("last", [FOREVER, BLOCKED])
def test_run_with_a_second_signal_ends_at_once(last: str) -> None:
    """Whoever asks twice does not wait for the good order, whatever hangs there."""
    process = start(last)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("last", [FOREVER, BLOCKED])
def test_run_with_a_stop_that_hangs_ends_in_time(last: str) -> None:
    """One signal is enough, also where cleaning up does not end."""
    process = start(last, grace_s=0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert out == "stopping\n"
    assert err == "streamchaos: stopped by SIGTERM\n  partial results: here\n"
    assert process.returncode == 143


def test_run_without_a_signal_gives_the_result() -> None:
    """Nothing is changed where nobody asks for the end."""

    async def work() -> int:
        return 3

    before = [signal.getsignal(one) for one in interrupt.SIGNALS]
    assert interrupt.run(work()) == 3
    assert [signal.getsignal(one) for one in interrupt.SIGNALS] == before


def test_run_with_an_error_raises_it() -> None:
    """An error of the work is no interrupt."""

    async def work() -> None:
        raise PlanError("no")

    with pytest.raises(PlanError, match="no"):
        interrupt.run(work())


def test_run_cancelled_from_within_is_no_interrupt() -> None:
    """Only a signal is told as one."""

    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        interrupt.run(work())
