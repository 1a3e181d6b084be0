"""What the measuring processes (relay, sampler) share: loop, clock, trace, control socket, and
doubt in themselves."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from harness.clock import KernelClock, now_ns, sample_offset
from harness.control import HelperControl, Message
from harness.errors import HarnessError
from harness.reactor import READABLE, Reactor, percentile_ns
from harness.trace import TraceWriter

FLUSH_EVERY_NS = 100_000_000

DOUBT_NS = 1_000_000
"""A kernel's stamp that lies further than this before the bound of its read is looked into. Under
load some do: the kernel stamps a segment first and makes the socket readable later."""


class Instrument:
    """A measuring process. It obeys `configure`, `go` and `stop`, and whatever `obey` adds; it ends
    when the harness does."""

    name = "instrument"

    def __init__(self, control: HelperControl) -> None:
        self.control = control
        self.reactor = Reactor()
        self.clock = KernelClock()
        self.trace: TraceWriter
        self.reactor.add(control.fileno(), READABLE, lambda _: self._on_control())

    def configure(self, message: Message) -> None:
        """Takes what the harness configured, beyond the trace."""

    def go(self) -> None:
        """The drive begins."""

    def obey(self, message: Message) -> None:
        """Further verbs of this instrument."""
        self.refuse(message)

    def abandon(self) -> None:
        """Closes what is still open at the end."""

    def refuse(self, message: Message) -> NoReturn:
        """A verb that nobody knows."""
        raise HarnessError(f"unknown verb {message['verb']!r}", where=self.name)

    def kernel_ns(self, realtime_ns: int, earliest_ns: int, user_ns: int) -> int:
        """The kernel's stamp of a read on our clock; 0 where there is none to be trusted.

        One outside of the read's own bounds has the wall clock looked at now, since a step is
        otherwise noticed up to a second late.
        """
        if not realtime_ns:
            return 0
        kernel_ns = self.clock.to_monotonic_ns(realtime_ns)
        if kernel_ns and not earliest_ns - DOUBT_NS <= kernel_ns <= user_ns + self.clock.width_ns:
            self.clock.observe(sample_offset())
            kernel_ns = self.clock.to_monotonic_ns(realtime_ns)
        return kernel_ns

    def run(self) -> int:
        """Until told to stop, or until the harness is gone; gives the exit code.

        The trace is closed and whole after it, and a failure of ours has been told to the harness.
        """
        gc.freeze()
        gc.disable()
        self.reactor.every(FLUSH_EVERY_NS, self._tick)
        failure = self._serve()
        self.abandon()
        self.reactor.close()
        failure = failure or self._close_trace()
        if failure is None:
            self.control.send("done")
            return 0
        self._tell(failure)
        return failure.exit_code

    def _serve(self) -> HarnessError | None:
        """What ended the loop before its time."""
        try:
            self.reactor.run()
        except HarnessError as error:
            return error
        except OSError as error:
            failure = HarnessError(str(error), where=self.name)
            failure.__cause__ = error
            return failure
        return None

    def _tell(self, failure: HarnessError) -> None:
        self.control.send("failed", what=failure.what, todo=failure.todo)
        # The log may lie on the very disk that is full.
        with suppress(OSError):
            sys.stderr.write(f"streamchaos: {failure}\n")
            if failure.__cause__ is not None:
                traceback.print_exception(failure.__cause__)

    def _close_trace(self) -> HarnessError | None:
        if not hasattr(self, "trace"):
            return None
        self.trace.event("self_check", self._self_check())
        self.trace.close()
        return self._refusal() if self.trace.failed else None

    def _refusal(self) -> HarnessError:
        return HarnessError(
            f"the trace cannot be written: {self.trace.failed}",
            where=self.name,
            todo="free space on the disk that holds the results, or name another folder",
        )

    def _self_check(self) -> dict[str, int]:
        lateness = self.reactor.lateness_ns
        return {
            "sleep_jitter_ns_p99": percentile_ns(lateness, 0.99),
            "sleep_jitter_ns_max": max(lateness, default=0),
            "clock_steps": self.clock.steps,
            "clock_width_ns": self.clock.width_ns,
        }

    def _tick(self) -> None:
        self.clock.tick(now_ns())
        if hasattr(self, "trace"):
            self.trace.flush()
            if self.trace.failed:
                raise self._refusal()

    def _on_control(self) -> None:
        messages = self.control.receive()
        if messages is None:
            self.reactor.stop()
            return
        for message in messages:
            self._obey(message)

    def _obey(self, message: Message) -> None:
        match message["verb"]:
            case "configure":
                secrets = tuple(s.encode() for s in message["secrets"])
                self.trace = TraceWriter(Path(message["folder"]), self.name, secrets)
                if self.trace.failed:
                    raise self._refusal()
                self.configure(message)
                self.control.send("ready")
            case "go":
                self.reactor.measuring = True
                self.go()
            case "stop":
                self.reactor.stop()
            case _:
                self.obey(message)


def run_instrument(make: Callable[[HelperControl], Instrument]) -> int:
    """Runs an instrument over the inherited control socket; the exit code of its process."""
    try:
        control = HelperControl.inherited()
    except HarnessError as error:
        sys.stderr.write(f"streamchaos: {error}\n")
        return error.exit_code
    return make(control).run()
