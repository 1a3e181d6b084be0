"""Hops of a relay: arming, healing, and what happens when there is nothing left to accept with."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import faults
from harness.clock import now_ns
from harness.errors import HarnessError, InjectionError, UsageError
from harness.model import Direction, Injection
from harness.relay.relay import RETRY_NS, Hop, Relay
from tests.unit.looped import configured, listening, pending, run_until, trace_of

INJECTION = Injection(fault=faults.fault("limit-data", limit_bytes=6), hop=1)
STAGE = faults.stage(INJECTION.fault)
UNANSWERED_ROUNDS = 5


@pytest.fixture
def origin() -> Iterator[socket.socket]:
    """Listens in the engine's place."""
    with listening() as sock:
        yield sock


@pytest.fixture
def relay(tmp_path: Path, origin: socket.socket) -> Iterator[Relay]:
    """A relay with hop 1 toward the origin."""
    with configured(Relay, tmp_path) as made:
        made._listen(1, "127.0.0.1", *origin.getsockname())
        yield made


def arm(relay: Relay, injection: Injection, stage: str = STAGE) -> None:
    """As the harness orders it."""
    entry = {"number": 7, "injection": asdict(injection), "stage": stage}
    relay.obey({"verb": "arm", "injections": [entry]})


def test_injection_gives_new_connections_a_stage_in_its_direction(relay: Relay) -> None:
    """The other direction stays a tap; healed, both are."""
    hop = relay.hops[1]
    arm(relay, replace(INJECTION, direction=Direction.TOWARD_CLIENT))
    assert [len(hop.chain(direction, 1, 0).stages) for direction in (0, 1)] == [0, 1]
    arm(relay, replace(INJECTION, direction=Direction.TOWARD_ORIGIN))
    assert [len(hop.chain(direction, 2, 0).stages) for direction in (0, 1)] == [1, 1]
    relay.obey({"verb": "heal"})
    assert [len(hop.chain(direction, 3, 0).stages) for direction in (0, 1)] == [0, 0]


@pytest.mark.parametrize(
    ("hop", "stage", "told"),
    [
        (2, STAGE, "no hop 2"),
        (1, "faults.no_such_fault:stage", "faults.no_such_fault"),
        (1, "faults.limit_data:no_such_function", "no_such_function"),
    ],
)
def test_injection_that_cannot_be_placed_says_why(
    relay: Relay, hop: int, stage: str, told: str
) -> None:
    """A fault that is not armed would be taken for one that did no harm."""
    with pytest.raises(InjectionError, match=told):
        arm(relay, replace(INJECTION, hop=hop), stage)


def test_unknown_verb_is_refused(relay: Relay) -> None:
    """By its name."""
    with pytest.raises(HarnessError, match="dance"):
        relay.obey({"verb": "dance"})


@pytest.mark.parametrize(("listen_host", "host"), [("127.0.0.1", "192.0.2.1"), ("0.0.0.0", "::1")])
def test_hop_beyond_loopback_is_refused(relay: Relay, listen_host: str, host: str) -> None:
    """On either side."""
    hop = {"number": 2, "listen_host": listen_host, "host": host, "port": 80}
    with pytest.raises(UsageError, match="loopback"):
        relay.obey({"verb": "listen", "hop": hop})


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """At most so many can be opened now."""
    # Each is the lowest that is free, so that the last one's number is the limit to set.
    probes = [socket.socket() for _ in range(count + 1)]
    limit = probes[-1].fileno()
    for probe in probes:
        probe.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("left", [0, 1])
def test_listener_without_descriptors_rests_and_serves_later(
    relay: Relay, origin: socket.socket, tmp_path: Path, left: int
) -> None:
    """Told once, polled no more often than it retries; the waiting client is served at last, and
    its bytes are bounded by the time when it called."""
    client = socket.create_connection(relay.hops[1].socket.getsockname())
    sent_ns = now_ns()
    client.sendall(b"patient")
    rests = 0
    failed = relay._on_accept_failed

    def counted(hop: Hop, error: OSError) -> None:
        nonlocal rests
        rests += 1
        failed(hop, error)

    relay._on_accept_failed = counted  # type: ignore[method-assign]
    begin_ns = now_ns()
    with descriptors_left(left):
        run_until(relay, lambda: rests >= UNANSWERED_ROUNDS)
    assert now_ns() - begin_ns >= (UNANSWERED_ROUNDS - 1) * RETRY_NS
    run_until(relay, lambda: any(c.connected for c in relay.connections))
    with client, origin.accept()[0] as server:
        run_until(relay, lambda: pending(server) == b"patient")
    trace = trace_of(relay, tmp_path)
    told = [e for e in trace.events if e["kind"] == "accept_failed"]
    assert [e["detail"] for e in told] == ["Too many open files"]
    assert all(r.earliest_ns <= sent_ns for r in trace.records if not r.write)
