"""What the measuring processes (relay, sampler) share: loop, clock, trace, control socket, and
doubt in themselves."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from harness.clock import KernelClock, now_ns
from harness.control import HelperControl, Message
from harness.errors import HarnessError
from harness.reactor import READABLE, Reactor, percentile_ns
from harness.trace import TraceWriter

FLUSH_EVERY_NS = 100_000_000


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

    def run(self) -> None:
        """Until told to stop, or until the harness is gone; the trace is closed and whole after
        it."""
        gc.freeze()
        gc.disable()
        self.reactor.every(FLUSH_EVERY_NS, self._tick)
        self.reactor.run()
        self.abandon()
        self.reactor.close()
        if hasattr(self, "trace"):
            self.trace.event("self_check", self._self_check())
            self.trace.close()
        if not self._tell_refusal():
            self.control.send("done")

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
        if not hasattr(self, "trace"):
            return
        self.trace.flush()
        if self._tell_refusal():
            self.reactor.stop()

    def _tell_refusal(self) -> bool:
        """Whether the disk has refused the trace; the harness is told so."""
        if not hasattr(self, "trace") or not self.trace.failed:
            return False
        self.control.send(
            "failed",
            what=f"the trace cannot be written: {self.trace.failed}",
            todo="free space on the disk that holds the results, or name another folder",
        )
        return True

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
    make(control).run()
    return 0
