"""A disarmed tap is transparent: what it may change is time, and nothing else."""

from __future__ import annotations

import errno
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

import faults
from harness.answers import answers, read_pieces, written_pieces
from harness.model import Direction, Injection, Trigger, TriggerKind
from harness.sockets import reset
from harness.trace import read_trace
from tests.conditions import until
from tests.integration.instruments import PATIENCE_S, Instrument, listen, started

Ends = tuple[socket.socket, socket.socket]
BULK = bytes(range(256)) * 48_000
BUFFER_BYTES = 256 * 1024
PIECE_BYTES = 64 * 1024
REFUSALS = 5
IDLE_S = 0.5
IDLE_SHARE_MAX = 0.3
"""A loop that spins takes all of a core, or half of one beside others."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


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
    """A client and the origin's end of its connection, through the relay, with bounded buffers."""
    client = socket.socket()
    client.settimeout(PATIENCE_S)
    for sock in (client, origin):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    client.connect(listen(relay, origin.getsockname()))
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


def jam(sock: socket.socket, data: bytes) -> int:
    """How much of it was sent when nothing more is taken."""
    sock.setblocking(False)
    sent = refusals = 0

    def refused() -> bool:
        nonlocal sent, refusals
        refusals += 1
        with suppress(BlockingIOError):
            while True:
                sent += sock.send(data[sent : sent + PIECE_BYTES])
                refusals = 0
        return refusals == REFUSALS

    until(refused)
    assert sent < len(data)
    sock.settimeout(PATIENCE_S)
    return sent


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
@pytest.mark.parametrize("half_closed", ["neither", "its own side", "the other side"])
def test_tap_passes_a_reset_on_as_a_reset(
    relay: Instrument, origin: socket.socket, toward: Direction, half_closed: str
) -> None:
    """Not as a clean end, whatever has ended before; bytes that were sent before it arrive."""
    client, server = joined(relay, origin)
    first, second = (client, server) if toward is Direction.TOWARD_ORIGIN else (server, client)
    with second:
        second.sendall(b"x")
        assert first.recv(1) == b"x"
        first.sendall(b"last words")
        assert second.recv(10) == b"last words"
        if half_closed == "its own side":
            first.shutdown(socket.SHUT_WR)
            assert second.recv(1) == b""
        elif half_closed == "the other side":
            second.shutdown(socket.SHUT_WR)
            assert first.recv(1) == b""
        reset(first)
        # Behind an end that was read, recv() tells of no reset any more; the socket does.
        error = until(lambda: second.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        assert error in (errno.ECONNRESET, errno.EPIPE)


@pytest.mark.parametrize("toward", list(Direction))
def test_tap_moves_bulk_past_a_reader_that_waits(
    relay: Instrument, origin: socket.socket, tmp_path: Path, toward: Direction
) -> None:
    """What is not taken is kept, whole and in order; each byte is recorded as read and written."""
    client, server = joined(relay, origin)
    down = toward is Direction.TOWARD_CLIENT
    sender, reader = (server, client) if down else (client, server)
    with client, server:
        sent = jam(sender, BULK)
        sending = threading.Thread(target=send_all, args=(sender, BULK[sent:]))
        sending.start()
        received = everything(reader)
        sending.join(PATIENCE_S)
    assert hashlib.sha256(received).digest() == hashlib.sha256(BULK).digest()
    relay.stop()
    records = [r for r in read_trace(tmp_path, "relay").records if r.direction is toward]
    reads, writes = ([r for r in records if r.write is write] for write in (False, True))
    assert b"".join(r.data for r in reads) == BULK
    assert sum(r.size for r in writes) == len(BULK)
    assert len(writes) > len(reads)


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


def event(number: int) -> bytes:
    """One content event."""
    return b'data: {"choices":[{"text":"%d"}]}\n\n' % number


def test_stamps_of_a_tap_bound_when_bytes_came_and_left(
    relay: Instrument,
    origin: socket.socket,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Arrival not before the poll that did not find it; departure not before arrival. What lies
    between is the tap's own, and told."""
    client, server = joined(relay, origin)
    with client, server:
        server.sendall(HEAD)
        for number in range(20):
            server.sendall(event(number))
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
    both = zip(arrived.events, left.events, strict=True)
    residence_ns = sorted(went.arrived.at_ns - came.arrived.at_ns for came, went in both)
    record_property("tap_residence_ns_p50", residence_ns[len(residence_ns) // 2])


def test_events_of_one_write_are_one_read_of_the_tap(
    relay: Instrument, origin: socket.socket, tmp_path: Path
) -> None:
    """They were merged before they came here: one read holds them, and only the last is exact."""
    client, server = joined(relay, origin)
    with client, server:
        server.sendall(HEAD)
        assert client.recv(1 << 16)
        server.sendall(b"".join(map(event, range(5))))
        assert client.recv(1 << 16)
    relay.stop()
    records = read_trace(tmp_path, "relay").records
    reads = [r for r in records if r.direction is Direction.TOWARD_CLIENT and not r.write]
    (answer,) = answers(read_pieces(reads), ["GET"])
    assert [e.read_index for e in answer.events] == [1] * 5
    assert [e.arrived.error_ns == 0 for e in answer.events] == [False] * 4 + [True]


def arm(relay: Instrument, trigger: Trigger, limit_bytes: int) -> None:
    """Places limit-data on hop 1."""
    fault = faults.fault("limit-data", limit_bytes=limit_bytes)
    injection = Injection(fault=fault, hop=1, trigger=trigger)
    entry = {"number": 0, "injection": asdict(injection), "stage": faults.stage(fault)}
    relay.send("arm", injections=[entry])


@pytest.mark.parametrize(
    ("trigger", "limit_bytes", "sent", "passed"),
    [
        (Trigger(kind=TriggerKind.BYTES, count=4), 6, b"0123456789abcdef", b"0123456789"),
        (
            Trigger(kind=TriggerKind.EVENTS, count=2),
            0,
            HEAD + event(0) + event(1) + event(2),
            HEAD + event(0) + event(1),
        ),
    ],
    ids=["bytes", "events"],
)
def test_armed_hop_fires_at_its_place_and_leaves_evidence(
    relay: Instrument,
    origin: socket.socket,
    tmp_path: Path,
    trigger: Trigger,
    limit_bytes: int,
    sent: bytes,
    passed: bytes,
) -> None:
    """So much passes, then the client sees the end; the trace tells which byte and event it was."""
    address = listen(relay, origin.getsockname())
    arm(relay, trigger, limit_bytes)
    relay.until("ready")
    client = socket.create_connection(address, PATIENCE_S)
    server, _ = origin.accept()
    with client, server:
        server.sendall(sent)
        assert everything(client) == passed
        assert relay.until("fired")["injection"] == 0
    relay.stop()
    (fired,) = [e for e in read_trace(tmp_path, "relay").events if e["kind"] == "fired"]
    assert fired["byte_offset"] == len(passed)
    assert fired["event_index"] == (2 if trigger.kind is TriggerKind.EVENTS else 0)


def failure(relay: Instrument) -> str:
    """What the instrument says before it ends for a reason of ours."""
    what: str = relay.until("failed")["what"]
    assert relay.process.wait(PATIENCE_S) in (2, 3)
    return what


def test_injection_on_a_hop_that_is_not_there_ends_the_relay(relay: Instrument) -> None:
    """With the reason; nothing was armed, so nothing may run."""
    arm(relay, Trigger(), 0)
    assert failure(relay) == "no hop 1 to arm"


def test_disk_that_is_full_is_told(tmp_path: Path) -> None:
    """The trace that would be judged is not whole: said as soon as something was to be written."""
    (tmp_path / "relay.reads.bin").symlink_to("/dev/full")
    with started("harness.relay", tmp_path) as relay:
        relay.send("configure", folder=str(tmp_path), secrets=[]).until("ready")
        assert failure(relay).startswith("the trace cannot be written: No space left on device")


def test_relay_ends_when_the_harness_is_gone(tmp_path: Path) -> None:
    """Its trace is closed and readable."""
    with started("harness.relay", tmp_path) as relay:
        relay.send("configure", folder=str(tmp_path), secrets=[]).until("ready")
        relay.socket.close()
        assert relay.process.wait(PATIENCE_S) == 0
    assert read_trace(tmp_path, "relay").events[-1]["kind"] == "self_check"


def test_relay_binds_and_calls_loopback_only(relay: Instrument) -> None:
    """Anything else ends it with the reason."""
    entry = {"number": 1, "listen_host": "127.0.0.1", "host": "192.0.2.1", "port": 80}
    relay.send("listen", hop=entry)
    assert failure(relay) == "192.0.2.1 is not a loopback address"


def test_idle_relay_leaves_the_core_alone(relay: Instrument, origin: socket.socket) -> None:
    """With a connection open and the clock running, it sleeps between its short polls."""
    client, server = joined(relay, origin)
    process = psutil.Process(relay.process.pid)
    with client, server:
        before = process.cpu_times()
        begin_s = time.monotonic()
        until(lambda: time.monotonic() > begin_s + IDLE_S)
        after = process.cpu_times()
        share = (after.user + after.system - before.user - before.system) / IDLE_S
    assert share < IDLE_SHARE_MAX
