"""Requests out of bytes (h11), one connection at a time, without I/O."""

from __future__ import annotations

from dataclasses import dataclass

import h11

from stacks.reference.answer import Peer

BODY_BYTES_MAX = 8 << 20
HEAD_BYTES_MAX = 64 << 10
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A complete request. Names of `headers` are in lower case; `path` is the target without its
    query.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: Peer


class BadRequest(ValueError):
    """Bytes that are no request; `status` answers them, and the connection has to be closed."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class RequestReader:
    """Takes the bytes of a connection, gives its requests one after another."""

    def __init__(self) -> None:
        self._restart(b"")

    def _restart(self, left_over: bytes) -> None:
        """h11 wants to see answers before it reads on; ours are none of its business, so each
        request gets its own.
        """
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        if left_over:
            self._parser.receive_data(left_over)
        self._head: h11.Request | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    def feed(self, data: bytes) -> None:
        """Takes what was read."""
        self._parser.receive_data(data)

    @property
    def wants_continue(self) -> bool:
        """Whether the client waits for CONTINUE before it sends its body (RFC 9110 §10.1.1)."""
        return self._head is not None and self._parser.they_are_waiting_for_100_continue

    def next_request(self) -> HttpRequest | None:
        """The next complete request, or None while bytes are missing; raises BadRequest."""
        try:
            while True:
                event = self._parser.next_event()
                if isinstance(event, h11.Request):
                    self._head = event
                elif isinstance(event, h11.Data):
                    self._take(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    return self._complete()
                else:
                    return None
        except h11.RemoteProtocolError as error:
            raise BadRequest(str(error), error.error_status_hint) from None

    def _take(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > BODY_BYTES_MAX:
            raise BadRequest(f"The body is larger than {BODY_BYTES_MAX} bytes.", 413)
        self._body.append(data)

    def _complete(self) -> HttpRequest:
        head, body = self._head, b"".join(self._body)
        assert head is not None
        self._restart(self._parser.trailing_data[0])
        headers = {n.decode("latin-1"): v.decode("latin-1") for n, v in head.headers}
        tokens = [token.strip().lower() for token in headers.get("connection", "").split(",")]
        peer = Peer(
            http_version=head.http_version.decode(),
            keep_alive="close" not in tokens,
            request_id=headers.get("x-request-id", ""),
        )
        return HttpRequest(
            method=head.method.decode(),
            path=head.target.decode("latin-1").partition("?")[0],
            headers=headers,
            body=body,
            peer=peer,
        )
