"""Sockets that are stamped by the kernel."""

from __future__ import annotations

import select
import socket
import time

import pytest

from harness.errors import UsageError
from harness.sockets import family_of, listener, receive, require_loopback, reset, stamped

PATIENCE_S = 10.0


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection on loopback."""
    with listener("127.0.0.1") as listening:
        client = socket.create_connection(listening.getsockname())
        select.select([listening], [], [], PATIENCE_S)
        server, _ = listening.accept()
    return client, stamped(server)


def test_read_carries_the_kernels_stamp(pair: tuple[socket.socket, socket.socket]) -> None:
    """It lies between the wall clock before the send and after the read."""
    client, server = pair
    with client, server:
        before_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        client.sendall(b"token")
        select.select([server], [], [], PATIENCE_S)
        data, stamp_ns = receive(server)
        after_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    assert data == b"token"
    assert before_ns <= stamp_ns <= after_ns


def test_stamped_socket_sends_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    """What we forward is not held back by ourselves."""
    client, server = pair
    with client, server:
        assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert server.getblocking() is False


def test_unstamped_read_has_no_stamp(pair: tuple[socket.socket, socket.socket]) -> None:
    """0, so that nobody takes it for a time."""
    client, server = pair
    with client, server:
        server.sendall(b"token")
        select.select([client], [], [], PATIENCE_S)
        assert receive(client) == (b"token", 0)


def test_end_is_empty_and_nothing_there_blocks(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Non-blocking, and FIN reads as no bytes."""
    client, server = pair
    with client, server:
        with pytest.raises(BlockingIOError):
            receive(server)
        client.shutdown(socket.SHUT_WR)
        select.select([server], [], [], PATIENCE_S)
        assert receive(server)[0] == b""


def test_reset_is_seen_as_one(pair: tuple[socket.socket, socket.socket]) -> None:
    """RST, not FIN."""
    client, server = pair
    with server:
        reset(client)
        select.select([server], [], [], PATIENCE_S)
        with pytest.raises(ConnectionResetError):
            receive(server)


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "8.8.8.8", "::"])
def test_other_than_loopback_is_refused(host: str) -> None:
    """Neither bound nor called."""
    with pytest.raises(UsageError, match="not a loopback"):
        require_loopback(host)


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", 2), ("::1", socket.AF_INET6)])
def test_family_is_told_by_the_address(host: str, family: int) -> None:
    """Both are loopback."""
    require_loopback(host)
    assert family_of(host) == family
