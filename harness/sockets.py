"""Sockets of the measuring processes: kernel stamps on reads, resets, listeners on loopback."""

from __future__ import annotations

import ipaddress
import socket
import struct

from harness.errors import UsageError

SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; the control message has the same number. Python names neither."""

TIMESPEC = struct.Struct("@qq")
ANCILLARY_BYTES = socket.CMSG_SPACE(TIMESPEC.size)
READ_BYTES = 256 * 1024
LINGER_RESET = struct.pack("ii", 1, 0)


def stamped(sock: socket.socket) -> socket.socket:
    """The socket, non-blocking, without Nagle, its reads stamped by the kernel."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return sock


def receive(sock: socket.socket) -> tuple[bytes, int]:
    """What is there and the kernel's stamp of its last segment in CLOCK_REALTIME ns (0: none).

    Raises:
        BlockingIOError: nothing is there. OSError: the connection broke.
    """
    data, ancillary, _, _ = sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(content) >= TIMESPEC.size:
            seconds, nanoseconds = TIMESPEC.unpack_from(content)
            return data, seconds * 1_000_000_000 + nanoseconds
    return data, 0


def reset(sock: socket.socket) -> None:
    """Closes with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    sock.close()


def family_of(host: str) -> socket.AddressFamily:
    """IPv4 or IPv6 by the address's form."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def require_loopback(host: str) -> None:
    """Only loopback is bound or called.

    Raises:
        UsageError: another address.
    """
    if not ipaddress.ip_address(host).is_loopback:
        raise UsageError(f"{host} is not a loopback address", todo="use 127.0.0.1 or ::1")


def listener(host: str) -> socket.socket:
    """A listening socket on a free port of `host`."""
    require_loopback(host)
    sock = socket.socket(family_of(host), socket.SOCK_STREAM)
    sock.bind((host, 0))
    sock.listen(4096)
    sock.setblocking(False)
    return sock
