"""The relay: listeners on hops, their connections, the trace, and the control socket.

A listener is a tap until faults are armed on it. Which stages a fault is made of is handed in by
name (`module:function`), so the relay knows none.
"""

from __future__ import annotations

import errno
import importlib
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from harness.arrival import Arrival
from harness.clock import now_ns
from harness.control import HelperControl, Message
from harness.errors import InjectionError
from harness.instrument import Instrument
from harness.link.stage import Chain, Stage
from harness.model import Direction, Injection
from harness.reactor import READABLE
from harness.relay.connection import Connection
from harness.sockets import family_of, listener, require_loopback, stamped

StageFactory = Callable[[Injection, int, int, int], Stage]
"""(injection, its number, connection, opened_ns) → stage."""

FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
RETRY_NS = 20_000_000
"""How long a listener rests when there is nothing left to accept with. Its queue keeps the
connections; a level-triggered poll would spin on them."""


class Hop:
    """One listener: where it listens, where it leads, which injections are armed on it."""

    def __init__(
        self, number: int, sock: socket.socket, address: tuple[str, int], arrival: Arrival
    ) -> None:
        self.number = number
        self.socket = sock
        self.address = address
        self.arrival = arrival
        self.full = False
        self.armed: list[tuple[int, Injection, StageFactory]] = []

    def chain(self, direction: int, connection: int, opened_ns: int) -> Chain:
        """The stages for one direction of a new connection."""
        wanted = (Direction.TOWARD_ORIGIN, Direction.TOWARD_CLIENT)[direction]
        return Chain(
            [
                factory(injection, number, connection, opened_ns)
                for number, injection, factory in self.armed
                if injection.direction is wanted
            ]
        )


class Relay(Instrument):
    """All hops of one scenario in one process."""

    name = "relay"

    def __init__(self, control: HelperControl) -> None:
        super().__init__(control)
        self.hops: dict[int, Hop] = {}
        self.connections: set[Connection] = set()
        self._opened = 0

    def abandon(self) -> None:
        """Takes no more connections and ends those that are left."""
        for hop in self.hops.values():
            self.reactor.remove(hop.socket.fileno())
            hop.socket.close()
        for connection in list(self.connections):
            connection.close()

    def obey(self, message: Message) -> None:
        """`listen` opens a hop and answers its port; `arm` places injections; `heal` lifts those
        not yet begun."""
        match message["verb"]:
            case "listen":
                self.control.send("ready", port=self._listen(**message["hop"]))
            case "arm":
                self._arm(message["injections"])
                self.control.send("ready")
            case "heal":
                for hop in self.hops.values():
                    hop.armed.clear()
            case _:
                self.refuse(message)

    def _listen(self, number: int, listen_host: str, host: str, port: int) -> int:
        require_loopback(host)
        sock = listener(listen_host)
        hop = Hop(number, sock, (host, port), Arrival(self.reactor, now_ns()))
        self.hops[number] = hop
        self.reactor.add(sock.fileno(), READABLE, lambda _: self._accept(hop))
        hop.arrival.resume(now_ns())
        bound: int = sock.getsockname()[1]
        return bound

    def _arm(self, injections: list[dict[str, Any]]) -> None:
        for entry in injections:
            injection = msgspec.convert(entry["injection"], Injection)
            if injection.hop not in self.hops:
                raise InjectionError(f"no hop {injection.hop} to arm", where=self.name)
            factory = _stage_factory(entry["stage"])
            self.hops[injection.hop].armed.append((entry["number"], injection, factory))

    def _accept(self, hop: Hop) -> None:
        """One connection; the next poll tells of the others."""
        try:
            # First what may be refused for want of descriptors: who is not accepted can wait.
            origin = stamped(socket.socket(family_of(hop.address[0]), socket.SOCK_STREAM))
        except OSError as error:
            self._on_accept_failed(hop, error)
            return
        try:
            client, _ = hop.socket.accept()
        except OSError as error:
            origin.close()
            self._on_accept_failed(hop, error)
            return
        opened_ns = now_ns()
        floor_ns = hop.arrival.earliest_ns
        hop.arrival.taken(opened_ns, drained=False)
        hop.full = False
        self._open(hop, stamped(client), origin, opened_ns, floor_ns)

    def _open(
        self,
        hop: Hop,
        client: socket.socket,
        origin: socket.socket,
        opened_ns: int,
        floor_ns: int,
    ) -> None:
        number = self._opened = self._opened + 1
        self.trace.event("opened", {"connection": number, "hop": hop.number}, opened_ns)
        connection = Connection(
            self, number, client, origin, lambda d: hop.chain(d, number, opened_ns), floor_ns
        )
        self.connections.add(connection)
        connection.call(hop.address)

    def _on_accept_failed(self, hop: Hop, error: OSError) -> None:
        """A client that left before it was taken is nothing; want of descriptors is told once."""
        if error.errno not in FULL:
            return
        if not hop.full:
            hop.full = True
            detail = {"hop": hop.number, "detail": error.strerror}
            self.trace.event("accept_failed", detail)
        self.reactor.modify(hop.socket.fileno(), 0)
        hop.arrival.pause()
        self.reactor.at(now_ns() + RETRY_NS, lambda: self._accept_again(hop))

    def _accept_again(self, hop: Hop) -> None:
        self.reactor.modify(hop.socket.fileno(), READABLE)
        hop.arrival.resume(now_ns())


def _stage_factory(name: str) -> StageFactory:
    """What `module:function` names.

    Raises:
        InjectionError: it names nothing.
    """
    module, _, function = name.partition(":")
    try:
        factory: StageFactory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InjectionError(f"no stage {name!r}: {error}") from error
    return factory
