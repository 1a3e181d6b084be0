"""A disarmed tap is transparent: what it may change is time, and nothing else."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

import faults
from harness.answers import answers, read_pieces, written_pieces
from harness.model import Direction, Injection, Trigger, TriggerKind
from harness.sockets import reset
from harness.trace import read_trace
from tests.conditions import until
from tests.integration.instruments import PATIENCE_S, Instrument, listen, started

Ends = tuple[socket.socket, socket.socket]
BULK = bytes(range(256)) * 12_000


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Instrument]:
    """A relay that records into the test's folder."""
    with started("harness.relay", tmp_path) as instrument:
        instrument.send("configure", folder=str(tmp_path), secrets=[]).until("ready")
        instrument.send("go")
        yield instrument


@pytest.fixture
def origin() -> Iterator[socket.socket]:
    """A listening socket in the engine's place."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        yield listening


def joined(relay: Instrument, origin: socket.socket) -> Ends:
    """A client and the origin's end of its connection, through the relay."""
    client = socket.create_connection(listen(relay, origin.getsockname()), PATIENCE_S)
    server, _ = origin.accept()
    server.settimeout(PATIENCE_S)
    return client, server


def everything(sock: socket.socket) -> bytes:
    """All bytes up to the end."""
    pieces = []
    while piece := sock.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def send_all(sock: socket.socket, data: bytes) -> None:
    """All of it, then the end."""
    sock.sendall(data)
    sock.close()


@pytest.mark.parametrize("toward", list(Direction))
def test_tap_keeps_bytes_and_half_closes(
    relay: Instrument, origin: socket.socket, toward: Direction
) -> None:
    """One direction ends, the other lives on: in each direction."""
    client, server = joined(relay, origin)
    first, second = (client, server) if toward is Direction.TOWARD_ORIGIN else (server, client)
    with client, server:
        first.sendall(b"all I have to say")
        first.shutdown(socket.SHUT_WR)
        assert everything(second) == b"all I have to say"
        second.sendall(b"and now I")
        second.shutdown(socket.SHUT_WR)
        assert everything(first) == b"and now I"


@pytest.mark.parametrize("toward", list(Direction))
def test_tap_passes_a_reset_on_as_a_reset(
    relay: Instrument, origin: socket.socket, toward: Direction
) -> None:
    """Not as a clean end."""
    client, server = joined(relay, origin)
    first, second = (client, server) if toward is Direction.TOWARD_ORIGIN else (server, client)
    with second:
        second.sendall(b"x")
        assert first.recv(1) == b"x"
        reset(first)
        with pytest.raises(ConnectionResetError):
            everything(second)


def test_tap_moves_bulk_past_a_reader_that_waits(
    relay: Instrument, origin: socket.socket, tmp_path: Path
) -> None:
    """What is not taken is kept, whole and in order; each byte is recorded as read and written."""
    client, server = joined(relay, origin)
    with client, server:
        sending = threading.Thread(target=send_all, args=(server, BULK))
        sending.start()
        until(lambda: client.recv(1, socket.MSG_PEEK) == BULK[:1])
        received = everything(client)
        sending.join(PATIENCE_S)
    assert hashlib.sha256(received).digest() == hashlib.sha256(BULK).digest()
    relay.stop()
    records = read_trace(tmp_path, "relay").records
    down = [r for r in records if r.direction is Direction.TOWARD_CLIENT]
    assert b"".join(r.data for r in down if not r.write) == BULK
    assert sum(r.size for r in down if r.write) == len(BULK)


def test_tap_carries_two_hundred_connections_at_once(
    relay: Instrument, origin: socket.socket
) -> None:
    """Each gets its own bytes."""
    address = listen(relay, origin.getsockname())
    clients = [socket.create_connection(address, PATIENCE_S) for _ in range(200)]
    servers = []
    for number, client in enumerate(clients):
        client.sendall(f"{number:04}".encode())
    for _ in clients:
        server, _ = origin.accept()
        server.settimeout(PATIENCE_S)
        server.sendall(server.recv(4)[::-1])
        servers.append(server)
    for number, client in enumerate(clients):
        assert client.recv(4) == f"{number:04}".encode()[::-1]
    for sock in (*clients, *servers):
        sock.close()


def test_tap_in_front_of_nobody_resets_the_client(relay: Instrument, tmp_path: Path) -> None:
    """As a refusal would, and says in its trace why."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        target = gone.getsockname()
    address = listen(relay, target)
    with (
        pytest.raises(ConnectionResetError),
        socket.create_connection(address, PATIENCE_S) as client,
    ):
        everything(client)
    relay.stop()
    kinds = [e for e in read_trace(tmp_path, "relay").events if e["kind"] == "connect_failed"]
    assert [e["detail"] for e in kinds] == ["ECONNREFUSED"]


def test_stamps_of_a_tap_bound_when_bytes_came_and_left(
    relay: Instrument, origin: socket.socket, tmp_path: Path
) -> None:
    """Arrival not before the poll that did not find it; departure not before arrival."""
    client, server = joined(relay, origin)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    with client, server:
        server.sendall(head)
        for number in range(20):
            server.sendall(b'data: {"choices":[{"text":"%d"}]}\n\n' % number)
            assert client.recv(1 << 16)
        server.close()
        everything(client)
    relay.stop()
    records = [
        r for r in read_trace(tmp_path, "relay").records if r.direction is Direction.TOWARD_CLIENT
    ]
    reads, writes = ([r for r in records if r.write is w] for w in (False, True))
    assert all(r.kernel_ns and r.kernel_ns <= r.user_ns for r in reads)
    (arrived,) = answers(read_pieces(reads), ["GET"])
    (left,) = answers(written_pieces(reads, writes), ["GET"])
    assert len(arrived.events) == len(left.events) == 20
    for came, went in zip(arrived.events, left.events, strict=True):
        assert came.digest == went.digest
        assert came.arrived.earliest_ns <= came.arrived.at_ns <= went.arrived.at_ns


def test_armed_hop_fires_at_its_byte_and_leaves_evidence(
    relay: Instrument, origin: socket.socket, tmp_path: Path
) -> None:
    """Ten bytes pass, then the client sees the end; a hop that is not armed is left alone."""
    trigger = Trigger(kind=TriggerKind.BYTES, count=4)
    injection = Injection(fault=faults.fault("limit-data", limit_bytes=6), hop=1, trigger=trigger)
    entry = {"number": 0, "injection": asdict(injection), "stage": faults.stage(injection.fault)}
    address = listen(relay, origin.getsockname())
    relay.send("arm", injections=[entry]).until("ready")
    client = socket.create_connection(address, PATIENCE_S)
    server, _ = origin.accept()
    with client, server:
        server.sendall(b"0123456789abcdef")
        assert everything(client) == b"0123456789"
        assert relay.until("fired")["injection"] == 0
    relay.stop()
    (fired,) = [e for e in read_trace(tmp_path, "relay").events if e["kind"] == "fired"]
    assert fired["byte_offset"] == 10


def test_relay_ends_when_the_harness_is_gone(tmp_path: Path) -> None:
    """Its trace is closed and readable."""
    with started("harness.relay", tmp_path) as relay:
        relay.send("configure", folder=str(tmp_path), secrets=[]).until("ready")
        relay.socket.close()
        assert relay.process.wait(PATIENCE_S) == 0
    assert read_trace(tmp_path, "relay").events[-1]["kind"] == "self_check"


def test_relay_binds_and_calls_loopback_only(tmp_path: Path) -> None:
    """Anything else ends it with the reason."""
    with started("harness.relay", tmp_path) as relay:
        relay.send("configure", folder=str(tmp_path), secrets=[]).until("ready")
        entry = {"number": 1, "listen_host": "127.0.0.1", "host": "192.0.2.1", "port": 80}
        relay.send("listen", hop=entry)
        assert relay.process.wait(PATIENCE_S) != 0
        assert relay.process.stderr is not None
        assert b"not a loopback address" in relay.process.stderr.read()
