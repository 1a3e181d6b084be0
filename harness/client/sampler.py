"""The sampler: the process that drives the measured streams, apart from everything that could delay
it."""

from __future__ import annotations

import ssl

import msgspec

from harness.client.plan import StreamPlan
from harness.client.stream import MeasuredStream
from harness.client.tls import client_context
from harness.clock import now_ns
from harness.control import HelperControl, Message
from harness.instrument import Instrument
from harness.sockets import require_loopback


class Sampler(Instrument):
    """All measured streams of one scenario in one process."""

    name = "client"

    def __init__(self, control: HelperControl) -> None:
        super().__init__(control)
        self._plans: list[StreamPlan] = []
        self._open: dict[int, MeasuredStream] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    def tls_context(self, ca_path: str) -> ssl.SSLContext:
        """The context that trusts this CA of a plan."""
        return self._contexts[ca_path]

    def configure(self, message: Message) -> None:
        """Takes the plans of the streams, and loads what would take time once they run."""
        self._plans = msgspec.convert(message["plans"], list[StreamPlan])
        for plan in self._plans:
            require_loopback(plan.host)
        for ca_path in {plan.tls_ca for plan in self._plans if plan.tls_ca}:
            self._contexts[ca_path] = client_context(ca_path)

    def go(self) -> None:
        """Starts each stream at its time."""
        begin_ns = now_ns()
        for number, plan in enumerate(self._plans):
            self._open[number] = stream = MeasuredStream(self, number, plan)
            due_ns = begin_ns + plan.start_ms * 1_000_000
            self.trace.event("planned", {"stream": number, "key": plan.key}, due_ns)
            self.reactor.at(due_ns, stream.start)
        if not self._plans:
            self.control.send("over")

    def abandon(self) -> None:
        """The run was stopped: each open stream's trace says so."""
        for stream in list(self._open.values()):
            stream.abandon()

    def on_over(self, number: int) -> None:
        """A stream has ended; the last one ends the drive."""
        self._open.pop(number, None)
        self.control.send("progress", open=len(self._open))
        if not self._open:
            self.reactor.measuring = False
            self.control.send("over")
