"""Connections of a relay on the test's own loop: bounds, pauses, ends."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from harness.clock import now_ns
from harness.link.stage import Abort, Command, Data, Event, Wake
from harness.model import Direction, Fault, Injection, Layer
from harness.relay.connection import Connection
from harness.relay.relay import Relay
from harness.sockets import READ_BYTES, reset
from harness.trace import Record, TraceFile
from tests.unit.looped import MS, configured, listening, pending, run_until, trace_of

FLOOD_BYTES = 32 * 1024 * 1024
HELD_NS = 2 * MS
QUIET_LOOKS = 20
PIECE = bytes(64 * 1024)


@pytest.fixture
def origin() -> Iterator[socket.socket]:
    """Listens in the engine's place."""
    with listening() as sock:
        yield sock


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    """A relay without hops."""
    with configured(Relay, tmp_path) as made:
        yield made


def call(relay: Relay, origin: socket.socket) -> socket.socket:
    """A client's end of a connection to a new hop, which has not taken it yet."""
    port = relay._listen(1, "127.0.0.1", *origin.getsockname())
    client = socket.create_connection(("127.0.0.1", port))
    client.setblocking(False)
    return client


def joined(relay: Relay, origin: socket.socket, client: socket.socket) -> socket.socket:
    """The origin's end."""
    ends: list[socket.socket] = []

    def accepted() -> bool:
        with suppress(BlockingIOError):
            ends.append(origin.accept()[0])
        return bool(ends) and all(c.connected for c in relay.connections)

    run_until(relay, accepted)
    ends[0].setblocking(False)
    return ends[0]


def read_to_the_end(sock: socket.socket) -> None:
    """Until it has ended."""
    sock.setblocking(True)
    while sock.recv(1 << 20):
        pass


def reads(trace: TraceFile, direction: Direction) -> list[Record]:
    """The reads of one direction."""
    return [r for r in trace.records if r.direction is direction and not r.write]


def kinds(trace: TraceFile) -> list[str]:
    """What was noted, in order."""
    return [e["kind"] for e in trace.events]


def test_bytes_that_came_before_the_accept_are_bounded_by_the_poll_before_it(
    relay: Relay, origin: socket.socket, tmp_path: Path
) -> None:
    """The relay took its time to connect: no poll had watched the client's socket."""
    with call(relay, origin) as client:
        sent_ns = now_ns()
        client.sendall(b"early")
        with joined(relay, origin, client) as server:
            run_until(relay, lambda: pending(server) == b"early")
            (read,) = reads(trace_of(relay, tmp_path), Direction.TOWARD_ORIGIN)
    assert read.earliest_ns <= sent_ns <= read.user_ns


def test_bytes_of_an_origin_that_speaks_first_are_bounded_by_the_call(
    relay: Relay, origin: socket.socket, tmp_path: Path
) -> None:
    """They may be there before the relay knows that it is connected."""
    with call(relay, origin) as client:
        sent: list[int] = []
        ends: list[socket.socket] = []

        def speak() -> None:
            with suppress(BlockingIOError):
                ends.append(origin.accept()[0])
                sent.append(now_ns())
                ends[0].sendall(b"welcome")
                return
            relay.reactor.at(now_ns(), speak)

        relay.reactor.at(now_ns(), speak)
        run_until(relay, lambda: pending(client) == b"welcome")
        (read,) = reads(trace_of(relay, tmp_path), Direction.TOWARD_CLIENT)
        ends[0].close()
    assert read.earliest_ns <= sent[0] <= read.user_ns


class Burst:
    """A stage that holds the first bytes, and gives far more than the kernel takes when woken."""

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        """Holds, then floods."""
        if isinstance(event, Wake):
            return [Data(bytes(FLOOD_BYTES))]
        if isinstance(event, Data) and event.data == b"hold":
            return [Wake(now_ns + HELD_NS)]
        return [event]


def burst(injection: Injection, number: int, connection: int, opened_ns: int) -> Burst:
    """The stage for one connection, named below."""
    return Burst()


class Deaf:
    """A stage that swallows resets."""

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        """All but those."""
        return () if isinstance(event, Abort) else (event,)


def deaf(injection: Injection, number: int, connection: int, opened_ns: int) -> Deaf:
    """The stage for one connection, named below."""
    return Deaf()


def arm(relay: Relay, name: str) -> None:
    """Places a stage of this module on the hop, toward the client."""
    injection = Injection(fault=Fault(name=name, layer=Layer.STREAM), hop=1)
    entry = {"number": 0, "injection": asdict(injection), "stage": f"{__name__}:{name}"}
    relay._arm([entry])


def test_bytes_that_came_while_a_stage_had_paused_reading_are_bounded_by_the_pause(
    relay: Relay, origin: socket.socket, tmp_path: Path
) -> None:
    """What paused it was no read, but a timer of the stage."""
    with call(relay, origin) as client:
        arm(relay, "burst")
        with joined(relay, origin, client) as server:
            server.sendall(b"hold")
            (connection,) = relay.connections
            run_until(relay, lambda: connection.toward_client.kept)
            sent_ns = now_ns()
            server.sendall(b"meanwhile")
            received = 0

            def drained() -> bool:
                nonlocal received
                with suppress(BlockingIOError):
                    received += len(client.recv(1 << 22))
                return received == FLOOD_BYTES + len(b"meanwhile")

            run_until(relay, drained)
            last = reads(trace_of(relay, tmp_path), Direction.TOWARD_CLIENT)[-1]
    assert last.data == b"meanwhile"
    assert last.earliest_ns <= sent_ns <= last.user_ns


def fill(server: socket.socket) -> int:
    """Sends as much as is taken now."""
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += server.send(PIECE)
    return sent


def flooded(relay: Relay, server: socket.socket) -> Connection:
    """The connection, once its client reads nothing and no more is taken from the origin."""
    (connection,) = relay.connections
    quiet = 0

    def still() -> bool:
        nonlocal quiet
        quiet = 0 if fill(server) else quiet + 1
        return quiet == QUIET_LOOKS

    run_until(relay, still)
    assert connection.toward_client.kept
    return connection


def test_client_that_does_not_read_stops_the_origin(
    relay: Relay, origin: socket.socket, tmp_path: Path
) -> None:
    """The relay keeps one read at most."""
    with call(relay, origin) as client, joined(relay, origin, client) as server:
        connection = flooded(relay, server)
        kept = len(connection.toward_client.kept)
        trace = trace_of(relay, tmp_path)
    read = sum(r.size for r in reads(trace, Direction.TOWARD_CLIENT))
    written = sum(r.size for r in trace.records if r.write)
    assert 0 < kept == read - written <= READ_BYTES


@pytest.mark.parametrize("half_closed", [False, True], ids=["open", "half-closed"])
def test_reset_while_reading_is_paused_is_passed_on(
    relay: Relay, origin: socket.socket, tmp_path: Path, half_closed: bool
) -> None:
    """It does not wait for a client that does not read."""
    with call(relay, origin) as client, joined(relay, origin, client) as server:
        if half_closed:
            client.shutdown(socket.SHUT_WR)
        flooded(relay, server)
        reset(server)
        run_until(relay, lambda: not relay.connections)
        assert "reset" in kinds(trace_of(relay, tmp_path))
        with pytest.raises(ConnectionResetError):
            read_to_the_end(client)


def test_client_that_is_reset_while_connecting_is_forgotten(
    relay: Relay, origin: socket.socket, tmp_path: Path
) -> None:
    """The call to an origin that does not answer is given up."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        client = call(relay, full)
        run_until(relay, lambda: relay.connections)
        (connection,) = relay.connections
        assert not connection.connected
        reset(client)
        run_until(relay, lambda: not relay.connections)
        assert kinds(trace_of(relay, tmp_path))[:3] == ["opened", "reset", "closed"]
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("stage", ["", "deaf"])
def test_ended_sockets_make_no_busy_loop(relay: Relay, origin: socket.socket, stage: str) -> None:
    """Both directions of a socket have ended, by FINs or by a reset that a stage hides, while the
    client has yet to read: poll tells so for ever, and is not asked."""
    with call(relay, origin) as client:
        if stage:
            arm(relay, stage)
        with joined(relay, origin, client) as server:
            (connection,) = relay.connections
            # No more than what fills the client's side: a FIN behind it arrives.
            run_until(relay, lambda: server.send(PIECE) and connection.toward_client.kept)
            client.shutdown(socket.SHUT_WR)
            run_until(relay, lambda: connection.toward_origin.eof_sent)
            if stage:
                reset(server)
            else:
                server.shutdown(socket.SHUT_WR)
            run_until(relay, lambda: connection._masks[connection.origin] == -1)
            assert rounds(relay) < 50


def rounds(relay: Relay) -> int:
    """How often the loop polls before a timer that is due in 100 ms."""
    polls = 0
    poll = relay.reactor._timeout_s

    def counted() -> float:
        nonlocal polls
        polls += 1
        return poll()

    relay.reactor._timeout_s = counted  # type: ignore[method-assign]
    relay.reactor.at(now_ns() + 100 * MS, relay.reactor.stop)
    relay.reactor.run()
    relay.reactor._timeout_s = poll  # type: ignore[method-assign]
    return polls
