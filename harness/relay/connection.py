"""One connection through the relay: two sockets, two directions, each with its chain of stages.

What is not taken by the kernel at once is kept, and while something is kept that direction is not
read: that is the whole flow control. A FIN is passed on as a FIN (half-close), a RST as a RST.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.clock import now_ns
from harness.link.stage import Abort, Chain, Command, Data, Eof, Event, Fire, Wake
from harness.reactor import BROKEN, READABLE, WRITABLE
from harness.sockets import READ_BYTES, receive, reset

if TYPE_CHECKING:
    from harness.relay.relay import Relay

NAMES = ("toward_origin", "toward_client")


class Pump:
    """One direction: reads `source`, passes the chain, writes `sink`."""

    __slots__ = (
        "_floor_ns",
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
    ) -> None:
        self.connection = connection
        self.direction = direction
        self.source = source
        self.sink = sink
        self.chain = chain
        self.kept = bytearray()
        self.read_end = False
        self.eof_wanted = False
        self.eof_sent = False
        self._floor_ns = 0

    def on_readable(self) -> None:
        """Takes what is there and sends it on."""
        relay = self.connection.relay
        try:
            data, kernel_realtime_ns = receive(self.source)
        except BlockingIOError:
            return
        except OSError as error:
            self.connection.note("reset", direction=NAMES[self.direction], detail=error.strerror)
            self.push(Abort())
            return
        if not data:
            self.read_end = True
            self.connection.note("eof", direction=NAMES[self.direction])
            self.push(Eof())
            return
        user_ns = now_ns()
        kernel_ns = relay.clock.to_monotonic_ns(kernel_realtime_ns) if kernel_realtime_ns else 0
        earliest_ns = self._floor_ns or relay.reactor.previous_poll_entry_ns
        self.push(Data(data))
        relay.trace.read(
            self.connection.number, self.direction, user_ns, kernel_ns, earliest_ns, data
        )
        self._floor_ns = self._next_floor_ns(earliest_ns, len(data))

    def _next_floor_ns(self, earliest_ns: int, size: int) -> int:
        """What bounds the next read where the last poll does not: bytes that were left, or a pause
        in reading."""
        if size == READ_BYTES:
            return earliest_ns
        return self.connection.relay.reactor.poll_entry_ns if self.kept else 0

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
            self.connection.note(
                "write_failed", direction=NAMES[self.direction], detail=error.strerror
            )
            self.connection.abort()
            return len(data)
        self.connection.relay.trace.write(
            self.connection.number, self.direction, before_ns, now_ns(), sent
        )
        return sent

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
            except OSError:
                self.connection.abort()

    @property
    def wants_read(self) -> bool:
        """Whether the source is to be polled."""
        return not self.read_end and not self.kept


class Connection:
    """Both directions of one accepted connection."""

    def __init__(
        self,
        relay: Relay,
        number: int,
        client: socket.socket,
        origin: socket.socket,
        chain_for: Callable[[int], Chain],
    ) -> None:
        self.relay = relay
        self.number = number
        self.client = client
        self.origin = origin
        self.closed = False
        self.toward_origin = Pump(self, 0, client, origin, chain_for(0))
        self.toward_client = Pump(self, 1, origin, client, chain_for(1))
        self._masks: dict[int, int | None] = {client.fileno(): 0, origin.fileno(): 0}
        relay.reactor.add(client.fileno(), 0, self._on_client)
        relay.reactor.add(origin.fileno(), 0, self._on_origin)

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
        self._on_events(events, self.toward_client, self.toward_origin)

    def _on_events(self, events: int, reading: Pump, writing: Pump) -> None:
        if events & WRITABLE:
            writing.on_writable()
        if not self.closed and events & (READABLE | BROKEN) and not reading.read_end:
            reading.on_readable()
        elif not self.closed and events & BROKEN:
            self._on_broken(reading)
        self.update()

    def _on_broken(self, reading: Pump) -> None:
        """A reset behind a FIN; without an error the socket has just ended both ways and is polled
        no more."""
        code = reading.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.note(
                "reset", direction=NAMES[reading.direction], detail=errno.errorcode.get(code, "")
            )
            reading.push(Abort())
        else:
            self._masks[reading.source.fileno()] = None
            self.relay.reactor.remove(reading.source.fileno())

    def update(self) -> None:
        """Polls for what each direction can do now; closes when both have ended."""
        if self.closed:
            return
        if self.toward_origin.eof_sent and self.toward_client.eof_sent:
            self.close()
            return
        self._poll(self.client, self.toward_origin, self.toward_client)
        self._poll(self.origin, self.toward_client, self.toward_origin)

    def _poll(self, sock: socket.socket, reading: Pump, writing: Pump) -> None:
        mask = (READABLE if reading.wants_read else 0) | (WRITABLE if writing.kept else 0)
        fd = sock.fileno()
        if self._masks[fd] not in (mask, None):
            self._masks[fd] = mask
            self.relay.reactor.modify(fd, mask)

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
        self.relay.connections.discard(self)
