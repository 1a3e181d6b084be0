"""One measured stream on the test's own loop: what lies unread, what cannot be sent any more."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.client.plan import StreamPlan
from harness.client.sampler import Sampler
from harness.clock import now_ns
from harness.model import Leave
from harness.sockets import reset
from tests.unit.looped import MS, configured, listening, run_until, trace_of

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
LONG_REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n" + bytes(20_000_000)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\n"
REFUSAL = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"
LEAVE_AFTER_MS = 100


@pytest.fixture
def origin() -> Iterator[socket.socket]:
    """Listens in the engine's place."""
    with listening() as sock:
        yield sock


def started(sampler: Sampler, origin: socket.socket) -> socket.socket:
    """The origin's end of the one stream, once its request has begun to arrive."""
    ends: list[socket.socket] = []

    def arrived() -> bool:
        if not ends:
            try:
                ends.append(origin.accept()[0])
            except BlockingIOError:
                return False
            ends[0].setblocking(False)
        try:
            return bool(ends[0].recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    sampler.go()
    run_until(sampler, arrived)
    return ends[0]


def planned(origin: socket.socket, **plan: Any) -> list[Any]:  # noqa: ANN401
    """The plans of one stream, as they cross the control socket."""
    told = StreamPlan(
        **{"key": "r.s.through.0", "host": "127.0.0.1", "request": REQUEST, **plan},
        port=origin.getsockname()[1],
    )
    return [msgspec.to_builtins(asdict(told))]


@pytest.mark.parametrize(("how", "seen"), [(Leave.FIN, "fin"), (Leave.RST, "rst")])
def test_leaving_with_unread_bytes_is_still_what_was_told(
    origin: socket.socket, tmp_path: Path, how: Leave, seen: str
) -> None:
    """Bytes that no poll has shown yet make no RST of a FIN."""
    plans = planned(origin, leave=how, leave_after_ms=LEAVE_AFTER_MS)
    with configured(Sampler, tmp_path, plans=plans) as sampler:
        server = started(sampler, origin)
        leaving = sampler._open[0]._leaving
        assert leaving is not None

        def overslept() -> None:
            while now_ns() < leaving.due_ns + MS:
                pass

        # Both are due once the loop has overslept: no poll lies between the bytes and the leaving.
        sampler.reactor.at(now_ns(), overslept)
        sampler.reactor.at(leaving.due_ns - 1, lambda: server.sendall(HEAD))
        run_until(sampler, lambda: not sampler._open)
        with server:
            assert ending(server) == seen
        kinds = [e["kind"] for e in trace_of(sampler, tmp_path).events]
        assert kinds[-2:] == ["left", "self_check"]


def ending(sock: socket.socket) -> str:
    """How the other end is gone."""
    sock.setblocking(True)
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        return "rst"
    return "fin"


@pytest.mark.parametrize(
    ("answer", "kind", "size"), [(REFUSAL, "complete", len(REFUSAL)), (HEAD, "reset", len(HEAD))]
)
def test_answer_before_a_reset_is_read_though_sending_fails(
    origin: socket.socket, tmp_path: Path, answer: bytes, kind: str, size: int
) -> None:
    """A server that refuses a long request has said why; without the answer's end it is a reset."""
    with configured(Sampler, tmp_path, plans=planned(origin, request=LONG_REQUEST)) as sampler:
        server = started(sampler, origin)
        server.sendall(answer)
        reset(server)
        run_until(sampler, lambda: not sampler._open)
        trace = trace_of(sampler, tmp_path)
        assert sum(r.size for r in trace.records) == size
        assert trace.events[-2]["kind"] == kind


def test_bytes_that_came_while_connecting_are_bounded_by_the_connect(
    origin: socket.socket, tmp_path: Path
) -> None:
    """No poll had watched for them."""
    sent_ns: list[int] = []
    ends: list[socket.socket] = []

    def speak_first() -> None:
        ends.append(origin.accept()[0])
        sent_ns.append(now_ns())
        ends[0].sendall(HEAD)

    with configured(Sampler, tmp_path, plans=planned(origin)) as sampler:
        sampler.go()
        sampler.reactor.at(now_ns(), speak_first)
        run_until(sampler, lambda: sampler._open[0]._answer.status)
        (read,) = trace_of(sampler, tmp_path).records
        ends[0].close()
    assert read.earliest_ns <= sent_ns[0] <= read.user_ns
