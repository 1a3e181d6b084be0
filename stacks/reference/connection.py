"""One client's connection: bytes in to requests, answers out to the socket, and how its end was
noticed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Protocol, cast

from harness.model import EventKind
from stacks.reference.answer import Answer, Closing
from stacks.reference.request import CONTINUE, BadRequest, HttpRequest, RequestReader
from stacks.reference.scheduler import Emission, Generation

PIPELINED_BYTES_MAX = 256 << 10
_LINGER_0 = struct.pack("ii", 1, 0)


class Server(Protocol):
    """What a connection needs of the engine."""

    def opened(self, connection: Connection) -> None:
        """A client has connected."""

    def asked(self, connection: Connection, request: HttpRequest) -> None:
        """A request has come."""

    def asked_badly(self, connection: Connection, error: BadRequest) -> None:
        """Bytes have come that are no request."""

    def left(self, connection: Connection, how: str) -> None:
        """The client has gone while it was being answered; `how` is `read` or `write`."""

    def closed(self, connection: Connection) -> None:
        """The connection is closed; `ended_by` tells how."""


class Delivery:
    """An answer on its way to a client."""

    __slots__ = ("answer", "generation", "head_due")

    def __init__(self, generation: Generation, answer: Answer) -> None:
        self.generation = generation
        self.answer = answer
        self.head_due = True


class Connection(asyncio.Protocol):
    """A client's connection. `ended_by` is `read`, `write` (how the client's leaving was noticed)
    or `engine`.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._reader = RequestReader()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._deaf = False
        self.delivery: Delivery | None = None
        self.ended_by = ""
        self.key = ""
        self.request = ""

    # -------------------------------------------------------------------------------- from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nagle is off, as every streaming server has it (a socket made without a protocol number
        keeps it on).
        """
        self._transport = cast("asyncio.Transport", transport)
        self._socket = cast("socket.socket", transport.get_extra_info("socket"))
        self._set_nodelay(on=True)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        """Reads on while an answer is under way, to see the client go; pipelined requests wait
        their turn.
        """
        if self.delivery is None:
            self._read(data)
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > PIPELINED_BYTES_MAX:
            self.drop()

    def eof_received(self) -> bool:
        """A FIN is taken for the client's leaving, as uvicorn and most servers do, though it may be
        a half-close.
        """
        self._lost("read")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone, by whoever closed it."""
        self._lost("write" if self._deaf else "read")
        self._server.closed(self)

    # ------------------------------------------------------------------------------ from the engine

    def begin(self, delivery: Delivery) -> None:
        """Starts an answer; its head leaves now unless it waits for the first token."""
        self.delivery = delivery
        defects = delivery.generation.defects
        if defects.no_tcp_nodelay:
            self._set_nodelay(on=False)
        if delivery.answer.early_head:
            self._head(delivery)
        if defects.close_learned_on_write:
            self._deaf = True
            self._transport.pause_reading()

    def deliver(self, emission: Emission) -> None:
        """Writes what leaves with an emission, each frame by itself."""
        delivery = self.delivery
        if delivery is None or delivery.generation.request != emission.request:
            return
        answer = delivery.answer
        if emission.kind is EventKind.COMMENT:
            if answer.comment and not delivery.head_due:
                self.write(answer.comment)
            return
        for data in answer.writes[emission.event_index]:
            self._body(delivery, data)
        if emission.last:
            for data in answer.ending:
                self._body(delivery, data)
            self._end(answer.closing)

    def write(self, data: bytes) -> None:
        """Hands bytes to the kernel; what it does not take waits in the transport's buffer."""
        if self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.is_closing():
            self._lost("write")

    def reply(self, data: bytes, *, keep: bool) -> None:
        """Answers in one piece."""
        self.write(data)
        if not keep:
            self.close()

    def close(self) -> None:
        """Ends the connection with a FIN once everything is written."""
        self.ended_by = self.ended_by or "engine"
        self._transport.close()

    def drop(self) -> None:
        """Ends the connection with a RST now."""
        self.ended_by = self.ended_by or "engine"
        if not self._transport.is_closing():
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        self._transport.abort()

    # --------------------------------------------------------------------------------------- inside

    def _read(self, data: bytes) -> None:
        self._reader.feed(data)
        self._next()

    def _next(self) -> None:
        """Serves requests until one takes time, or bytes are missing."""
        while self.delivery is None and not self._transport.is_closing():
            try:
                request = self._reader.next_request()
            except BadRequest as error:
                self._server.asked_badly(self, error)
                return
            if request is None:
                if self._reader.wants_continue:
                    self.write(CONTINUE)
                return
            self._server.asked(self, request)

    def _head(self, delivery: Delivery) -> None:
        delivery.head_due = False
        if delivery.answer.head:
            self.write(delivery.answer.head)

    def _body(self, delivery: Delivery, data: bytes) -> None:
        if delivery.head_due:
            self._head(delivery)
        self.write(data)

    def _end(self, closing: Closing) -> None:
        if self.delivery is None:
            return
        if self.delivery.generation.defects.no_tcp_nodelay and not self._transport.is_closing():
            self._set_nodelay(on=True)
        self.delivery = None
        if closing is Closing.FIN:
            self.close()
        elif closing is Closing.RST:
            self.drop()
        else:
            self._resume()

    def _resume(self) -> None:
        if self._deaf:
            self._deaf = False
            self._transport.resume_reading()
        held, self._held, self._held_bytes = b"".join(self._held), [], 0
        if held:
            self._read(held)
        else:
            self._next()

    def _lost(self, how: str) -> None:
        self.ended_by = self.ended_by or how
        if self.delivery is not None:
            self.delivery = None
            self._server.left(self, how)

    def _set_nodelay(self, *, on: bool) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(on))
