"""TLS over bytes in memory, so that reads keep the kernel's stamps: recvmsg feeds a MemoryBIO
(measurement.md §7)."""

from __future__ import annotations

import ssl
from contextlib import suppress

from harness.sockets import READ_BYTES


def client_context(ca_path: str) -> ssl.SSLContext:
    """A context that trusts this CA alone, TLS 1.2 or newer, HTTP/1.1 by ALPN."""
    context = ssl.create_default_context(cafile=ca_path)
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsChannel:
    """One client connection's TLS. Whatever it wants sent lies in `take_outgoing()` after each
    call.

    What the peer gets wrong is data: it is told in `broken`, and nothing is raised.
    """

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self.established = False
        self.closed_by_peer = False
        self.broken = ""

    def handshake(self) -> bool:
        """Goes on with the handshake; True once it is done."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self.broken = _reason(error)
            return False
        self.established = True
        return True

    def feed(self, data: bytes) -> None:
        """Ciphertext that arrived."""
        self._incoming.write(data)

    def read(self) -> bytes:
        """All plaintext that the ciphertext so far gives. Sets `closed_by_peer` on close_notify."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = self._object.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                piece = b""
            except ssl.SSLError as error:
                self.broken = _reason(error)
                break
            if not piece:
                self.closed_by_peer = True
                break
            pieces.append(piece)
        return b"".join(pieces)

    def write(self, data: bytes) -> None:
        """Plaintext to send."""
        self._object.write(data)

    def close_notify(self) -> None:
        """Queues close_notify (RFC 8446 §6.1)."""
        # It then looks for the peer's own, and what it finds instead is of no interest here.
        with suppress(ssl.SSLError):
            self._object.unwrap()

    def take_outgoing(self) -> bytes:
        """Ciphertext to be sent now."""
        return self._outgoing.read()


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error)
