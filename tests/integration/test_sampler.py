"""The measured client: what it sends, what it stamps, how it leaves."""

from __future__ import annotations

import multiprocessing
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from harness.answers import answers, read_pieces, written_pieces
from harness.client.plan import StreamPlan
from harness.launch.certificates import Certificates
from harness.model import Direction, Leave
from harness.trace import Record, TraceFile, read_trace
from tests.integration.instruments import PATIENCE_S, Instrument, listen, started

REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
EVENTS = 100
CLOSER = 2
"""By how much, at least, the kernel's stamps are closer to the truth than ours. Seen: 3 to 40."""
Sent = tuple[int, int]
Serve = Callable[[socket.socket], None]


@pytest.fixture
def sampler(tmp_path: Path) -> Iterator[Instrument]:
    """A sampler that records into the test's folder."""
    with started("harness.client", tmp_path) as instrument:
        yield instrument


class Origin:
    """Serves one connection in a thread; `failure` and `seen` tell how it went."""

    def __init__(self, serve: Serve, tls: Certificates | None = None) -> None:
        self._serve = serve
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE_S)
        self.port: int = self._listening.getsockname()[1]
        self.end: str = ""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._listening:
            sock, _ = self._listening.accept()
        sock.settimeout(PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self._tls.cert_pem, self._tls.key_pem)
                sock = context.wrap_socket(sock, server_side=True)
            self._serve(sock)
            self.end = self._ending(sock)
        except ssl.SSLError as error:
            self.end = error.reason or "ssl"
        finally:
            sock.close()

    def _ending(self, sock: socket.socket) -> str:
        """What TCP saw: below TLS, whose library tells a reset from an end only sometimes."""
        alert = b""
        try:
            while piece := socket.socket.recv(sock, 1 << 16):
                alert += piece
        except ConnectionResetError:
            return "rst"
        return "close_notify" if alert and self._tls else "fin"

    def join(self) -> str:
        """How the client's side ended."""
        self._thread.join(PATIENCE_S)
        return self.end


def event(text: str) -> bytes:
    """One content event as one chunk."""
    data = b'data: {"choices":[{"text":"%s"}]}\n\n' % text.encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def answering(*texts: str) -> Serve:
    """Reads a request, answers with these events, whole."""

    def serve(sock: socket.socket) -> None:
        assert sock.recv(1 << 16) == REQUEST
        sock.sendall(HEAD + b"".join(map(event, texts)) + LAST)

    return serve


def endless(sock: socket.socket) -> None:
    """Events until the client has gone, then nothing."""
    sock.recv(1 << 16)
    sock.sendall(HEAD + event("a") + event("b"))


def driven(sampler: Instrument, folder: Path, **plan: Any) -> TraceFile:  # noqa: ANN401
    """One stream, driven to its end; its trace."""
    told = StreamPlan(**{"key": "r.s.through.0", "host": "127.0.0.1", "request": REQUEST, **plan})
    plans = msgspec.to_builtins([asdict(told)])
    sampler.send("configure", folder=str(folder), secrets=[], plans=plans).until("ready")
    sampler.send("go").until("over")
    sampler.stop()
    return read_trace(folder, "client")


def kinds(trace: TraceFile) -> list[str]:
    """What happened, in order."""
    return [e["kind"] for e in trace.events if e["kind"] != "self_check"]


def test_stream_is_read_to_its_last_chunk_and_closed(sampler: Instrument, tmp_path: Path) -> None:
    """The client closes, since the answer is whole and nobody else would."""
    origin = Origin(answering("a", "b"))
    trace = driven(sampler, tmp_path, port=origin.port)
    assert origin.join() == "fin"
    assert kinds(trace) == ["planned", "start", "connected", "request", "complete"]
    (answer,) = answers(read_pieces(trace.records), ["POST"])
    assert answer.reader.last_chunk_seen
    assert [e.read_index for e in answer.events] == [0, 0]


def test_stream_over_tls_is_stamped_in_plaintext(sampler: Instrument, tmp_path: Path) -> None:
    """TTFT starts behind the handshake; reads hold what was decrypted, with the kernel's stamps."""
    certificates = Certificates(tmp_path / "tls")
    origin = Origin(answering("a"), certificates)
    trace = driven(sampler, tmp_path, port=origin.port, tls_ca=str(certificates.ca_pem))
    origin.join()
    assert kinds(trace) == ["planned", "start", "connected", "tls", "request", "complete"]
    (answer,) = answers(read_pieces(trace.records), ["POST"])
    assert answer.reader.status == 200
    assert all(record.kernel_ns for record in trace.records)


def test_certificate_of_a_stranger_is_data(sampler: Instrument, tmp_path: Path) -> None:
    """The trace says so; nothing is sent but the alert, nothing raised."""
    stranger = Certificates(tmp_path / "stranger")
    origin = Origin(answering("a"), Certificates(tmp_path / "tls"))
    trace = driven(sampler, tmp_path, port=origin.port, tls_ca=str(stranger.ca_pem))
    assert "UNKNOWN_CA" in origin.join()
    assert kinds(trace)[-1] == "tls_failed"
    assert "request" not in kinds(trace)


@pytest.mark.parametrize(
    ("how", "tls", "seen"),
    [
        (Leave.FIN, False, "fin"),
        (Leave.RST, False, "rst"),
        (Leave.CLOSE_NOTIFY, True, "close_notify"),
        (Leave.FIN, True, "fin"),
        (Leave.RST, True, "rst"),
    ],
)
def test_client_leaves_as_it_was_told(
    sampler: Instrument, tmp_path: Path, how: Leave, tls: bool, seen: str
) -> None:
    """After its second event; the origin sees that form and no other."""
    certificates = Certificates(tmp_path / "tls")
    origin = Origin(endless, certificates if tls else None)
    ca = str(certificates.ca_pem) if tls else ""
    plan = {"port": origin.port, "tls_ca": ca, "leave": how, "leave_after_events": 2}
    trace = driven(sampler, tmp_path, **plan)
    assert origin.join() == seen
    assert [e["how"] for e in trace.events if e["kind"] == "left"] == [how]


def test_client_that_waits_in_vain_ends_at_its_deadline(
    sampler: Instrument, tmp_path: Path
) -> None:
    """Each wait has an end."""
    origin = Origin(lambda sock: None)
    trace = driven(sampler, tmp_path, port=origin.port, deadline_ms=50)
    origin.join()
    assert kinds(trace)[-1] == "deadline"


def test_client_of_a_port_where_nobody_listens_says_so(sampler: Instrument, tmp_path: Path) -> None:
    """Refused is data."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    trace = driven(sampler, tmp_path, port=port)
    assert [e["detail"] for e in trace.events if e["kind"] == "connect_failed"] == ["ECONNREFUSED"]


def test_sampler_that_is_stopped_marks_open_streams(sampler: Instrument, tmp_path: Path) -> None:
    """They were abandoned, not cut by the stack; the trace is whole."""
    origin = Origin(lambda sock: None)
    plan = StreamPlan(key="r.s.through.0", host="127.0.0.1", port=origin.port, request=REQUEST)
    plans = msgspec.to_builtins([asdict(plan)])
    sampler.send("configure", folder=str(tmp_path), secrets=[], plans=plans).until("ready")
    sampler.send("go")
    sampler.stop()
    origin.join()
    assert "abandoned" in kinds(read_trace(tmp_path, "client"))


def test_sampler_ends_when_the_harness_is_gone(sampler: Instrument, tmp_path: Path) -> None:
    """Its streams were abandoned; its trace is whole."""
    origin = Origin(lambda sock: None)
    plan = StreamPlan(key="r.s.through.0", host="127.0.0.1", port=origin.port, request=REQUEST)
    plans = msgspec.to_builtins([asdict(plan)])
    sampler.send("configure", folder=str(tmp_path), secrets=[], plans=plans).until("ready")
    sampler.send("go").socket.close()
    assert sampler.process.wait(PATIENCE_S) == 0
    origin.join()
    assert kinds(read_trace(tmp_path, "client"))[-1] == "abandoned"


@pytest.mark.parametrize(
    ("plan", "told"),
    [({"host": "192.0.2.1"}, "not a loopback address"), ({"tls_ca": "gone.pem"}, "No such file")],
)
def test_plan_that_cannot_be_driven_is_told(
    sampler: Instrument, tmp_path: Path, plan: dict[str, str], told: str
) -> None:
    """Before anything runs."""
    whole = StreamPlan(
        **{"key": "r.s.through.0", "host": "127.0.0.1", "request": REQUEST, **plan},  # type: ignore[arg-type]
        port=1,
    )
    plans = msgspec.to_builtins([asdict(whole)])
    sampler.send("configure", folder=str(tmp_path), secrets=[], plans=plans)
    assert told in sampler.until("failed")["what"]


def spin() -> None:
    """Keeps a core busy."""
    while True:
        pass


@pytest.fixture(params=[0, os.cpu_count()], ids=["idle", "busy"])
def load(request: pytest.FixtureRequest) -> Iterator[int]:
    """No busy loop beside the test, or one for each core."""
    context = multiprocessing.get_context("spawn")
    loops = [context.Process(target=spin, daemon=True) for _ in range(request.param)]
    for loop in loops:
        loop.start()
    yield request.param
    for loop in loops:
        loop.kill()
        loop.join()


def toward_client(trace: TraceFile, *, write: bool) -> list[Record]:
    """Reads or writes of the answer's direction."""
    records = (r for r in trace.records if r.direction is Direction.TOWARD_CLIENT)
    return [r for r in records if r.write is write]


def true_to(records: list[Record], sent: list[Sent], width_ns: int) -> None:
    """Each event's stamp lies behind its sending, and its bound before its arrival, which on
    loopback has happened when the sending is over."""
    (answer,) = answers(read_pieces(records), ["POST"])
    assert len(answer.events) == len(sent)
    for index, (seen, (begun_ns, done_ns)) in enumerate(zip(answer.events, sent, strict=True)):
        assert begun_ns <= seen.arrived.at_ns + width_ns, index
        assert seen.arrived.earliest_ns <= seen.arrived.at_ns, index
        assert seen.arrived.earliest_ns <= done_ns + width_ns, index
        merged = answer.events[index + 1 : index + 2]
        if merged and merged[0].read_index == seen.read_index:
            assert seen.arrived.error_ns > 0, index


def lateness_ns(records: list[Record], sent: list[Sent]) -> tuple[float, float]:
    """How late the kernel's stamps are, and how late ours, of the reads that end in an event:
    medians, since a sender that is put aside before it sends delays both alike."""
    (answer,) = answers(read_pieces(records), ["POST"])
    exact = [e for e in answer.events if e.arrived.kernel and not e.arrived.error_ns]
    assert len(exact) > len(sent) // 2
    kernel_ns = median(e.arrived.at_ns - sent[e.index][0] for e in exact)
    return kernel_ns, median(records[e.read_index].user_ns - sent[e.index][0] for e in exact)


@pytest.mark.usefixtures("load")
def test_stamps_and_their_bounds_are_true_to_embedded_send_times(
    sampler: Instrument, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """At the client and at a tap on the way, with the kernel's stamps and without; and the
    kernel's are nearer to the truth than ours."""
    done_ns: list[int] = []

    def serve(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(HEAD)
        for number in range(EVENTS):
            sock.sendall(event(f"{number} {time.monotonic_ns()}"))
            done_ns.append(time.monotonic_ns())
            threading.Event().wait(0.004)
        sock.sendall(LAST)

    origin = Origin(serve)
    with started("harness.relay", tmp_path) as relay:
        relay.send("configure", folder=str(tmp_path), secrets=[]).until("ready")
        _, port = listen(relay, ("127.0.0.1", origin.port))
        relay.send("go")
        client = driven(sampler, tmp_path, port=port)
        origin.join()
        relay.stop()
    tap = read_trace(tmp_path, "relay")
    own = [e for trace in (client, tap) for e in trace.events if e["kind"] == "self_check"]
    width_ns = max(e["clock_width_ns"] for e in own)
    reads, writes = (toward_client(tap, write=write) for write in (False, True))
    content = b"".join(r.data for r in reads)
    begun_ns = [int(part.split(b'"')[0].split()[1]) for part in content.split(b'"text":"')[1:]]
    (left,) = answers(written_pieces(reads, writes), ["POST"])
    sent = {
        "tap": list(zip(begun_ns, done_ns, strict=True)),
        "client": [(e.arrived.earliest_ns, e.arrived.at_ns) for e in left.events],
    }
    for name, records in (("tap", reads), ("client", toward_client(client, write=False))):
        true_to(records, sent[name], width_ns)
        true_to([replace(r, kernel_ns=0) for r in records], sent[name], width_ns)
        kernel_ns, user_ns = lateness_ns(records, sent[name])
        record_property(f"{name}_kernel_ns_p50", kernel_ns)
        record_property(f"{name}_user_ns_p50", user_ns)
        assert kernel_ns * CLOSER < user_ns
