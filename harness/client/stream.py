"""One measured stream: connect, TLS, request, reads with stamps, and the way it ends or leaves."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from harness.arrival import Arrival
from harness.client.tls import TlsChannel
from harness.clock import now_ns
from harness.model import EventKind, Leave
from harness.reactor import READABLE, WRITABLE, Timer
from harness.sockets import READ_BYTES, family_of, receive, reset, stamped
from harness.wire.answer import AnswerReader, Told

if TYPE_CHECKING:
    from harness.client.plan import StreamPlan
    from harness.client.sampler import Sampler

TOWARD_CLIENT = 1


class MeasuredStream:
    """Drives one plan; tells the sampler when it is over. Everything seen goes into the sampler's
    trace.

    Over TLS, what is recorded is plaintext, and a byte arrives when the record that holds it is
    whole.
    """

    def __init__(self, sampler: Sampler, number: int, plan: StreamPlan) -> None:
        self._sampler = sampler
        self._number = number
        self._plan = plan
        self._answer = AnswerReader(method=plan.method, events=plan.leave_after_events > 0)
        self._tls: TlsChannel | None = None
        self._unsent = bytearray()
        self._send_error = ""
        self._content_count = 0
        self._over = False
        self._leaving: Timer | None = None
        self._deadline: Timer | None = None
        self._socket = stamped(socket.socket(family_of(plan.host), socket.SOCK_STREAM))
        self._arrival = Arrival(sampler.reactor, now_ns())

    def start(self) -> None:
        """Connects."""
        at_ns = now_ns()
        self._note("start", at_ns=at_ns, key=self._plan.key)
        self._deadline = self._sampler.reactor.at(
            at_ns + self._plan.deadline_ms * 1_000_000, self._on_deadline
        )
        code = self._socket.connect_ex((self._plan.host, self._plan.port))
        if code not in (0, errno.EINPROGRESS):
            self._end("connect_failed", detail=errno.errorcode.get(code, str(code)))
            return
        self._sampler.reactor.add(self._socket.fileno(), WRITABLE, self._on_connected)

    def _note(self, kind: str, *, at_ns: int = 0, **fields: object) -> None:
        self._sampler.trace.event(kind, {"stream": self._number, **fields}, at_ns)

    def _on_connected(self, _: int) -> None:
        reactor = self._sampler.reactor
        reactor.remove(self._socket.fileno())
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._end("connect_failed", detail=errno.errorcode.get(code, str(code)))
            return
        self._note("connected")
        reactor.add(self._socket.fileno(), READABLE, self._on_events)
        self._arrival.resume(now_ns())
        if self._plan.tls_ca:
            context = self._sampler.tls_context(self._plan.tls_ca)
            self._tls = TlsChannel(context, self._plan.server_name)
            self._tls.handshake()
            self._send(self._tls.take_outgoing())
        else:
            self._send_request()

    def _send_request(self) -> None:
        """TTFT starts here: the request's first byte is handed to the kernel, after TLS."""
        self._note("request")
        if self._tls is not None:
            self._tls.write(self._plan.request)
            self._send(self._tls.take_outgoing())
        else:
            self._send(self._plan.request)
        if self._plan.leave is not None and not self._plan.leave_after_events:
            self._plan_leaving()

    def _send(self, data: bytes) -> None:
        if data and not self._over:
            self._unsent += data
            self._flush()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            # What the peer had said before it broke off can still be read.
            self._send_error = str(error.strerror)
            sent = len(self._unsent)
        del self._unsent[:sent]
        mask = READABLE | WRITABLE if self._unsent else READABLE
        self._sampler.reactor.modify(self._socket.fileno(), mask)

    def _on_events(self, events: int) -> None:
        if events & WRITABLE and self._unsent:
            self._flush()
        if events & ~WRITABLE:
            self._on_readable()

    def _on_readable(self) -> None:
        try:
            data, kernel_realtime_ns = receive(self._socket)
        except BlockingIOError:
            return
        except OSError as error:
            self._end("reset", detail=str(error.strerror))
            return
        user_ns = now_ns()
        if not data:
            self._on_end_of_bytes()
            return
        earliest_ns = self._arrival.earliest_ns
        self._arrival.taken(user_ns, drained=len(data) < READ_BYTES)
        kernel_ns = self._sampler.kernel_ns(kernel_realtime_ns, earliest_ns, user_ns)
        plain = self._decrypt(data) if self._tls is not None else data
        if plain:
            self._sampler.trace.read(
                self._number, TOWARD_CLIENT, user_ns, kernel_ns, earliest_ns, plain
            )
            self._follow(plain)
        if self._tls is not None and self._tls.broken:
            self._end("tls_failed", detail=self._tls.broken)
        elif self._tls is not None and self._tls.closed_by_peer:
            self._end("eof", how="close_notify")

    def _on_end_of_bytes(self) -> None:
        """A FIN, or what is left of a reset once sending has met it."""
        if self._send_error:
            self._end("reset", detail=self._send_error)
        else:
            self._end("eof", how="fin")

    def _decrypt(self, data: bytes) -> bytes:
        """Plaintext that `data` completes. What the peer is to be told, an alert included, is
        sent."""
        tls = self._tls
        assert tls is not None
        tls.feed(data)
        if not tls.established and tls.handshake():
            self._note("tls")
            self._send_request()
        plain = tls.read() if tls.established else b""
        self._send(tls.take_outgoing())
        return plain

    def _follow(self, plain: bytes) -> None:
        items = self._answer.feed(plain)
        if self._answer.finished:
            self._end("complete")
        elif self._plan.leave_after_events and self._leaving is None:
            self._content_count += sum(
                isinstance(item, Told) and item.kind is EventKind.CONTENT for item in items
            )
            if self._content_count >= self._plan.leave_after_events:
                self._plan_leaving()

    def _plan_leaving(self) -> None:
        due_ns = now_ns() + self._plan.leave_after_ms * 1_000_000
        self._leaving = self._sampler.reactor.at(due_ns, self._leave)
        if not self._plan.leave_after_ms:
            self._leave()

    def _leave(self) -> None:
        if self._over:
            return
        how = self._plan.leave or Leave.FIN
        self._note("left", how=how)
        if how is Leave.CLOSE_NOTIFY and self._tls is not None:
            self._tls.close_notify()
            self._send(self._tls.take_outgoing())
        if how is not Leave.RST:
            self._shut()
        self._end("", by_reset=how is Leave.RST)

    def _shut(self) -> None:
        """Sends the FIN, whatever is unread or still comes: close() alone sends a RST instead where
        anything is unread (RFC 1122 §4.2.2.13)."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
            while self._socket.recv(READ_BYTES):
                pass
        except OSError:
            return

    def _on_deadline(self) -> None:
        self._end("deadline")

    def _end(self, kind: str, *, by_reset: bool = False, how: str = "", detail: str = "") -> None:
        """Closes, once. `kind` goes into the trace; a client that left has said so before it
        closed."""
        if self._over:
            return
        self._over = True
        if kind:
            self._note(kind, how=how, detail=detail)
        for timer in (self._deadline, self._leaving):
            if timer is not None:
                timer.cancel()
        self._sampler.reactor.remove(self._socket.fileno())
        (reset if by_reset else socket.socket.close)(self._socket)
        self._sampler.on_over(self._number)

    def abandon(self) -> None:
        """The run was stopped: the trace says so."""
        self._end("abandoned")
