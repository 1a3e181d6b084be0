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

from harness.clock import now_ns
from harness.control import HelperControl, Message
from harness.instrument import Instrument
from harness.link.stage import Chain, Stage
from harness.model import Direction, Injection
from harness.reactor import READABLE, WRITABLE
from harness.relay.connection import Connection
from harness.sockets import family_of, listener, require_loopback, stamped

StageFactory = Callable[[Injection, int, int, int], Stage]
"""(injection, its number, connection, opened_ns) → stage."""


class Hop:
    """One listener: where it listens, where it leads, which injections are armed on it."""

    def __init__(self, number: int, sock: socket.socket, host: str, port: int) -> None:
        self.number = number
        self.socket = sock
        self.host = host
        self.port = port
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
        """Ends the connections that are left."""
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
        self.hops[number] = Hop(number, sock, host, port)
        self.reactor.add(sock.fileno(), READABLE, lambda _: self._accept(self.hops[number]))
        bound: int = sock.getsockname()[1]
        return bound

    def _arm(self, injections: list[dict[str, Any]]) -> None:
        for entry in injections:
            module, _, function = entry["stage"].partition(":")
            factory: StageFactory = getattr(importlib.import_module(module), function)
            injection = msgspec.convert(entry["injection"], Injection)
            self.hops[injection.hop].armed.append((entry["number"], injection, factory))

    def _accept(self, hop: Hop) -> None:
        try:
            client, _ = hop.socket.accept()
        except OSError as error:
            self.trace.event("accept_failed", {"hop": hop.number, "detail": error.strerror})
            return
        number = self._opened = self._opened + 1
        opened_ns = now_ns()
        origin = stamped(socket.socket(family_of(hop.host), socket.SOCK_STREAM))
        self.trace.event("opened", {"connection": number, "hop": hop.number}, opened_ns)
        code = origin.connect_ex((hop.host, hop.port))
        if code not in (0, errno.EINPROGRESS):
            self._refuse(number, client, origin, code)
            return
        self.reactor.add(
            origin.fileno(),
            WRITABLE,
            lambda _: self._connected(hop, number, client, origin, opened_ns),
        )

    def _connected(
        self, hop: Hop, number: int, client: socket.socket, origin: socket.socket, opened_ns: int
    ) -> None:
        self.reactor.remove(origin.fileno())
        code = origin.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._refuse(number, client, origin, code)
            return
        connection = Connection(
            self, number, stamped(client), origin, lambda d: hop.chain(d, number, opened_ns)
        )
        self.connections.add(connection)
        connection.update()

    def _refuse(self, number: int, client: socket.socket, origin: socket.socket, code: int) -> None:
        detail = errno.errorcode.get(code, str(code))
        self.trace.event("connect_failed", {"connection": number, "detail": detail})
        origin.close()
        client.close()
