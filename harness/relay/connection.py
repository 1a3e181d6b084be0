"""One connection through the relay: two sockets, two directions, each with its chain of stages.

What is not taken by the kernel at once is kept, and while something is kept that direction is not
read: that is the whole flow control. A FIN is passed on as a FIN (half-close), a RST as a RST. Like
TCP's own (RFC 9293 §3.5.3), a RST does not wait for what is still queued.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.arrival import Arrival
from harness.clock import now_ns
from harness.link.stage import Abort, Chain, Command, Data, Eof, Event, Fire, Wake
from harness.reactor import BROKEN, READABLE, WRITABLE
from harness.sockets import READ_BYTES, receive, reset

if TYPE_CHECKING:
    from harness.relay.relay import Relay

NAMES = ("toward_origin", "toward_client")
CONNECTING = (errno.EINPROGRESS, errno.EALREADY)
CONNECTED = (0, errno.EISCONN)
UNWATCHED = -1


class Pump:
    """One direction: reads `source`, passes the chain, writes `sink`. What arrives first arrived no
    earlier than `floor_ns`."""

    __slots__ = (
        "arrival",
        "chain",
        "connection",
        "direction",
        "eof_sent",
        "eof_wanted",
        "kept",
        "read_end",
        "sink",
        "source",
    )

    def __init__(
        self,
        connection: Connection,
        direction: int,
        source: socket.socket,
        sink: socket.socket,
        chain: Chain,
        floor_ns: int,
    ) -> None:
        self.connection = connection
        self.direction = direction
        self.source = source
        self.sink = sink
        self.chain = chain
        self.arrival = Arrival(connection.relay.reactor, floor_ns)
        self.kept = bytearray()
        self.read_end = False
        self.eof_wanted = False
        self.eof_sent = False

    def on_readable(self) -> None:
        """Takes what is there and sends it on."""
        relay = self.connection.relay
        try:
            data, kernel_realtime_ns = receive(self.source)
        except BlockingIOError:
            return
        except OSError as error:
            self._on_reset(str(error.strerror))
            return
        if not data:
            self.read_end = True
            self.connection.note("eof", direction=NAMES[self.direction])
            self.push(Eof())
            return
        user_ns = now_ns()
        earliest_ns = self.arrival.earliest_ns
        self.arrival.taken(user_ns, drained=len(data) < READ_BYTES)
        self.push(Data(data))
        kernel_ns = relay.kernel_ns(kernel_realtime_ns, earliest_ns, user_ns)
        relay.trace.read(
            self.connection.number, self.direction, user_ns, kernel_ns, earliest_ns, data
        )

    def on_error(self) -> None:
        """The source broke while it was not read."""
        code = self.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._on_reset(os.strerror(code))

    def _on_reset(self, detail: str) -> None:
        self.connection.note("reset", direction=NAMES[self.direction], detail=detail)
        self.push(Abort())

    def push(self, event: Event) -> None:
        """Sends an event through the chain and performs what comes out."""
        for command in self.chain.push(event, now_ns()):
            if self.connection.closed:
                return
            self._perform(command)

    def _perform(self, command: Command) -> None:
        match command:
            case Data(data):
                self._write(data)
            case Eof():
                self.eof_wanted = True
                self._finish_if_drained()
            case Abort():
                self.connection.abort()
            case Wake(due_ns):
                self.connection.relay.reactor.at(due_ns, lambda: self._woken(command))
            case Fire():
                self.connection.fired(command, self.direction)

    def _woken(self, wake: Wake) -> None:
        if not self.connection.closed:
            self.push(wake)
            self.connection.update()

    def _write(self, data: bytes) -> None:
        if self.kept:
            self.kept += data
            return
        sent = self._send(data)
        if sent < len(data):
            self.kept += data[sent:]

    def _send(self, data: bytes | bytearray) -> int:
        before_ns = now_ns()
        try:
            sent = self.sink.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._on_write_failed(error)
            return len(data)
        self.connection.relay.trace.write(
            self.connection.number, self.direction, before_ns, now_ns(), sent
        )
        return sent

    def _on_write_failed(self, error: OSError) -> None:
        self.connection.note("write_failed", direction=NAMES[self.direction], detail=error.strerror)
        self.connection.abort()

    def on_writable(self) -> None:
        """Writes on what was kept."""
        if self.kept:
            del self.kept[: self._send(self.kept)]
        self._finish_if_drained()

    def _finish_if_drained(self) -> None:
        if self.eof_wanted and not self.kept and not self.eof_sent and not self.connection.closed:
            self.eof_sent = True
            try:
                self.sink.shutdown(socket.SHUT_WR)
            except OSError as error:
                self._on_write_failed(error)

    @property
    def wants_read(self) -> bool:
        """Whether the source is to be polled."""
        return self.connection.connected and not self.read_end and not self.kept


class Connection:
    """Both directions of one accepted connection, from the call to its origin on.

    The client is not read until the origin has answered. `client_floor_ns`: it had sent nothing
    before.
    """

    def __init__(
        self,
        relay: Relay,
        number: int,
        client: socket.socket,
        origin: socket.socket,
        chain_for: Callable[[int], Chain],
        client_floor_ns: int,
    ) -> None:
        self.relay = relay
        self.number = number
        self.client = client
        self.origin = origin
        self.connected = False
        self.closed = False
        self.toward_origin = Pump(self, 0, client, origin, chain_for(0), client_floor_ns)
        self.toward_client = Pump(self, 1, origin, client, chain_for(1), now_ns())
        self._masks: dict[socket.socket, int] = {client: UNWATCHED, origin: UNWATCHED}
        self._address: tuple[str, int] = ("", 0)

    def call(self, address: tuple[str, int]) -> None:
        """Connects to the origin. A refusal resets the client, whom the origin itself would have
        refused."""
        self._address = address
        self._connect()

    def _connect(self) -> None:
        # A further connect() tells the state for sure, SO_ERROR only that nothing has failed yet.
        code = self.origin.connect_ex(self._address)
        self.connected = code in CONNECTED
        if self.connected or code in CONNECTING:
            self.update()
            return
        self.note("connect_failed", detail=errno.errorcode.get(code, str(code)))
        self.abort()

    def note(self, kind: str, **fields: object) -> None:
        """Into the trace."""
        self.relay.trace.event(kind, {"connection": self.number, **fields})

    def fired(self, fire: Fire, direction: int) -> None:
        """Evidence of an injection, into the trace and to the harness."""
        self.note(
            "fired",
            injection=fire.injection,
            byte_offset=fire.byte_offset,
            event_index=fire.event_index,
            planned_ns=fire.planned_ns,
            direction=NAMES[direction],
        )
        self.relay.control.send("fired", injection=fire.injection, connection=self.number)

    def _on_client(self, events: int) -> None:
        self._on_events(events, self.toward_origin, self.toward_client)

    def _on_origin(self, events: int) -> None:
        if self.connected:
            self._on_events(events, self.toward_client, self.toward_origin)
        else:
            self._connect()

    def _on_events(self, events: int, reading: Pump, writing: Pump) -> None:
        if events & WRITABLE:
            writing.on_writable()
        if not self.closed and events & (READABLE | BROKEN):
            if reading.wants_read:
                reading.on_readable()
            elif events & select.EPOLLERR:
                reading.on_error()
            elif events & BROKEN:
                self._unwatch(reading.source)
        self.update()

    def _unwatch(self, sock: socket.socket) -> None:
        """A socket that has ended both ways says so on each poll, also when asked for nothing."""
        self._masks[sock] = UNWATCHED
        self.relay.reactor.remove(sock.fileno())

    def update(self) -> None:
        """Polls for what each direction can do now; closes when both have ended."""
        if self.closed:
            return
        if self.toward_origin.eof_sent and self.toward_client.eof_sent:
            self.close()
            return
        self._watch(self.client, self.toward_origin, self.toward_client, self._on_client)
        self._watch(self.origin, self.toward_client, self.toward_origin, self._on_origin)

    def _watch(
        self, sock: socket.socket, reading: Pump, writing: Pump, handler: Callable[[int], None]
    ) -> None:
        calling = sock is self.origin and not self.connected
        mask = READABLE if reading.wants_read else 0
        mask |= WRITABLE if writing.kept or calling else 0
        watched = self._masks[sock]
        if mask == watched or (watched == UNWATCHED and not mask and self.connected):
            return
        self._masks[sock] = mask
        if watched == UNWATCHED:
            self.relay.reactor.add(sock.fileno(), mask, handler)
        else:
            self.relay.reactor.modify(sock.fileno(), mask)
        if mask & READABLE:
            reading.arrival.resume(now_ns())
        else:
            reading.arrival.pause()

    def abort(self) -> None:
        """RST to both sides."""
        if not self.closed:
            self._end(reset)

    def close(self) -> None:
        """FIN to both sides, as far as not sent yet."""
        if not self.closed:
            self._end(socket.socket.close)

    def _end(self, ending: Callable[[socket.socket], None]) -> None:
        self.closed = True
        self.note("closed", by="reset" if ending is reset else "fin")
        for sock in (self.client, self.origin):
            self.relay.reactor.remove(sock.fileno())
            ending(sock)
        # Nothing else frees it: the process runs without a collector of cycles.
        self.toward_origin.kept = self.toward_client.kept = bytearray()
        self.relay.connections.discard(self)
