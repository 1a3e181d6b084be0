"""The measured client: what it sends, what it stamps, how it leaves."""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.answers import answers, read_pieces
from harness.client.plan import StreamPlan
from harness.launch.certificates import Certificates
from harness.model import Leave
from harness.trace import TraceFile, read_trace
from tests.integration.instruments import PATIENCE_S, Instrument, started

REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
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
    """The trace says so; nothing is sent, nothing raised."""
    stranger = Certificates(tmp_path / "stranger")
    origin = Origin(answering("a"), Certificates(tmp_path / "tls"))
    trace = driven(sampler, tmp_path, port=origin.port, tls_ca=str(stranger.ca_pem))
    origin.join()
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


def spin() -> None:
    """Keeps a core busy."""
    while True:
        pass


@pytest.fixture(params=[0, 2], ids=["idle", "busy"])
def load(request: pytest.FixtureRequest) -> Iterator[int]:
    """Busy loops beside the test."""
    context = multiprocessing.get_context("spawn")
    loops = [context.Process(target=spin, daemon=True) for _ in range(request.param)]
    for loop in loops:
        loop.start()
    yield request.param
    for loop in loops:
        loop.kill()
        loop.join()


@pytest.mark.usefixtures("load")
def test_stamp_and_its_bound_are_true_to_embedded_send_times(
    sampler: Instrument, tmp_path: Path
) -> None:
    """No event arrives before it was sent; none that was merged with others is called exact."""

    def serve(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(HEAD)
        for number in range(60):
            sock.sendall(event(f"{number} {time.monotonic_ns()}"))
            threading.Event().wait(0.005)
        sock.sendall(LAST)

    origin = Origin(serve)
    trace = driven(sampler, tmp_path, port=origin.port)
    origin.join()
    pieces = list(read_pieces(trace.records))
    (answer,) = answers(pieces, ["POST"])
    content = b"".join(p.data for p in pieces)
    sent = [int(part.split(b'"')[0].split()[1]) for part in content.split(b'"text":"')[1:]]
    width_ns = max(e["clock_width_ns"] for e in trace.events if e["kind"] == "self_check")
    assert len(answer.events) == len(sent) == 60
    for index, (seen, sent_ns) in enumerate(zip(answer.events, sent, strict=True)):
        assert sent_ns <= seen.arrived.at_ns + width_ns, index
        assert seen.arrived.earliest_ns <= seen.arrived.at_ns
        merged = answer.events[index + 1 : index + 2]
        if merged and merged[0].read_index == seen.read_index:
            assert seen.arrived.error_ns > 0, index
