"""The reference engine as a process on loopback: endpoints, framings and defects, on the wire and
in its log.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from threading import Event

import msgspec
import pytest

from harness.model import Defects, LedgerEntry, StreamScript
from stacks.reference import frames, log
from stacks.reference.settings import EngineSettings

DEADLINE_S = 10
KEY = "run.engine.direct.1"
QUICK = StreamScript(event_count=4, first_token_ms=5, gap_ms=5)
SLOW = StreamScript(event_count=40, first_token_ms=5, gap_ms=25)
SILENT = StreamScript(event_count=2, first_token_ms=5, gap_ms=60_000)
WHOLE = frames.render(QUICK, key=KEY, endpoint=frames.COMPLETIONS, model="reference")
BODY = b"".join((*WHOLE.events, WHOLE.finish, WHOLE.terminator))


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Returns once the condition holds; fails at the deadline."""
    pause = Event()
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        pause.wait(0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running engine."""

    process: subprocess.Popen[str]
    port: int
    log_path: Path

    def entries(self, key: str, what: str = "") -> list[LedgerEntry]:
        """What the log says of a key by now."""
        return [e for e in log.read(self.log_path) if e.key == key and what in ("", e.what)]

    def await_entry(self, key: str, what: str) -> LedgerEntry:
        """The first such entry, once it is there."""
        wait_until(lambda: bool(self.entries(key, what)), f"{what} of {key}")
        return self.entries(key, what)[0]

    def metric(self, line_start: str) -> float:
        """A value of the metrics page."""
        page = get(self, "/metrics")[1].decode()
        (line,) = (line for line in page.splitlines() if line.startswith(line_start))
        return float(line.rpartition(" ")[2])


@contextmanager
def started(folder: Path, settings: EngineSettings, **env: str) -> Iterator[Engine]:
    """An engine with these settings, on a port of the kernel's choice."""
    log_path = folder / "engine.jsonl"
    config = folder / "engine.json"
    config.write_bytes(msgspec.json.encode(replace(settings, log_path=str(log_path))))
    argv = (sys.executable, "-m", "stacks.reference", "--config", str(config))
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    ) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().rpartition(":")[2])
            yield Engine(process=process, port=port, log_path=log_path)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine for the tests that do not change it."""
    with started(tmp_path_factory.mktemp("engine"), EngineSettings()) as running:
        yield running


def ask(
    script: StreamScript = QUICK,
    *,
    key: str = KEY,
    version: str = "1.1",
    path: str = frames.COMPLETIONS,
    defects: dict[str, object] | None = None,
    fields: str = "",
    **more: object,
) -> bytes:
    """A streaming request."""
    played = {"script": msgspec.to_builtins(script), "defects": defects or {}}
    body = {"prompt": "hello", "stream": True, "streamchaos": played} | more
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/{version}\r\nHost: engine\r\nX-Streamchaos-Id: {key}\r\n"
        f"Content-Length: {len(data)}\r\n{fields}\r\n"
    )
    return head.encode() + data


@contextmanager
def connected(engine: Engine) -> Iterator[socket.socket]:
    """A connection to the engine."""
    with socket.create_connection(("127.0.0.1", engine.port), DEADLINE_S) as client:
        yield client


def read_until(client: socket.socket, mark: bytes) -> bytes:
    """Everything up to the read that brings the mark."""
    data = b""
    while mark not in data:
        more = client.recv(65536)
        assert more, f"the engine closed before {mark!r}"
        data += more
    return data


def read_all(client: socket.socket) -> bytes:
    """Everything up to the engine's FIN."""
    data = b""
    while more := client.recv(65536):
        data += more
    return data


def unchunked(body: bytes) -> tuple[bytes, bool]:
    """The body out of its chunks, and whether the last chunk came."""
    data = b""
    while body:
        size_text, _, body = body.partition(b"\r\n")
        size = int(size_text, 16)
        if size == 0:
            return data, body == b"\r\n"
        data, body = data + body[:size], body[size + 2 :]
    return data, False


def exchange(engine: Engine, request: bytes) -> tuple[bytes, bytes]:
    """Head and raw body of an answer, read to the close."""
    with connected(engine) as client:
        client.sendall(request)
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    return head, body


def get(engine: Engine, path: str, method: str = "GET", fields: str = "") -> tuple[int, bytes]:
    """Status and body of a request without one."""
    request = f"{method} {path} HTTP/1.1\r\nHost: e\r\nConnection: close\r\n{fields}\r\n"
    head, body = exchange(engine, request.encode())
    return int(head.split()[1]), body


def closing(script: StreamScript = QUICK, **more: object) -> bytes:
    """A request after which the engine closes."""
    return ask(script, fields="Connection: close\r\n", **more)  # type: ignore[arg-type]


def reset(client: socket.socket) -> None:
    """Closes with a RST."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


# ------------------------------------------------------------------------------------ endpoints


def test_stream_is_what_the_oracle_says(engine: Engine) -> None:
    """The body is the oracle's, byte for byte, well framed, on a connection that lives on."""
    with connected(engine) as client:
        for _ in range(2):
            client.sendall(ask(fields="X-Request-Id: abc\r\n"))
            head, _, body = read_until(client, b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"content-type: text/event-stream; charset=utf-8" in head
            assert b"cache-control: no-cache" in head
            assert b"x-request-id: abc" in head
            assert b"x-accel-buffering" not in head
            assert unchunked(body) == (BODY, True)


def test_requests_pipelined_are_answered_in_order(engine: Engine) -> None:
    """A request that comes during an answer is served after it."""
    with connected(engine) as client:
        client.sendall(ask() + b"GET /health HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n")
        data = read_all(client)
    assert data.count(b"HTTP/1.1 200 OK") == 2
    assert data.index(b"[DONE]") < data.rindex(b"HTTP/1.1 200 OK")


def test_chat_stream_is_what_the_oracle_says(engine: Engine) -> None:
    """The chat endpoint begins with the role and ends with usage where that is asked for."""
    path = frames.CHAT_COMPLETIONS
    messages = [{"role": "user", "content": "hello there"}]
    request = closing(
        path=path, messages=messages, model="reference", stream_options={"include_usage": True}
    )
    _, body = exchange(engine, request)
    script = replace(QUICK, include_usage=True)
    told = frames.render(script, key=KEY, endpoint=path, model="reference", prompt_tokens=2)
    parts = (*told.prelude, *told.events, told.finish, *told.usage, told.terminator)
    assert unchunked(body) == (b"".join(parts), True)


def test_answer_not_streamed_has_its_length(engine: Engine) -> None:
    """Without `stream` the answer is one JSON document."""
    head, body = exchange(engine, closing(stream=False))
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["usage"]["completion_tokens"] == 4


def test_plain_client_gets_max_tokens_events(engine: Engine) -> None:
    """Without an extension the engine makes a script of its own."""
    body = json.dumps({"prompt": "a b", "stream": True, "max_tokens": 3, "ignore_eos": True})
    head = f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    _, answered = exchange(engine, (head + body).encode())
    assert answered.count(b'"finish_reason":null') == 3


def test_continue_is_told_to_who_waits_for_it(engine: Engine) -> None:
    """A client that expects 100 gets it before it sends its body."""
    head, _, body = closing().partition(b"\r\n\r\n")
    with connected(engine) as client:
        client.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert b"[DONE]" in read_all(client)


def test_models_and_health_answer(engine: Engine) -> None:
    """The model is listed under its name; health is 200."""
    status, body = get(engine, "/v1/models")
    assert (status, json.loads(body)["data"][0]["id"]) == (200, "reference")
    assert get(engine, "/health")[0] == 200


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/v2", "GET", 404), ("/", "POST", 404), ("/v1/completions", "GET", 405)],
)
def test_unknown_path_or_method_is_refused(
    engine: Engine, path: str, method: str, status: int
) -> None:
    """What is not there is answered with an error object."""
    told, body = get(engine, path, method)
    assert told == status
    assert json.loads(body)["error"]["message"]


def test_request_that_is_none_is_refused(engine: Engine) -> None:
    """Garbage is answered with 400 and a close."""
    head, _ = exchange(engine, b"\x16\x03\x01 garbage\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")


def test_body_with_an_unknown_field_is_refused(engine: Engine) -> None:
    """The error names the field, the log the rejection."""
    head, body = exchange(engine, closing(key="run.bad.direct.1", defects={"clump": 2}))
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["param"] == "streamchaos.defects.clump"
    engine.await_entry("run.bad.direct.1", "rejected")


def test_request_beyond_the_ledger_is_refused(engine: Engine) -> None:
    """A request that could never be admitted is refused at once."""
    script = StreamScript(event_count=100_000)
    assert exchange(engine, closing(script))[0].startswith(b"HTTP/1.1 400 ")


def test_api_key_is_demanded_and_never_logged(tmp_path: Path) -> None:
    """With a key set, /v1 answers 401 without it, and the key is in no file."""
    settings = EngineSettings(api_key_env="ENGINE_KEY")
    with started(tmp_path, settings, ENGINE_KEY="s3cr3t-planted") as engine:
        assert get(engine, "/v1/models")[0] == 401
        assert get(engine, "/health")[0] == 200
        fields = "Authorization: Bearer s3cr3t-planted\r\n"
        assert get(engine, "/v1/models", fields=fields)[0] == 200
        engine.process.terminate()
        engine.process.wait(DEADLINE_S)
    assert all(b"s3cr3t" not in path.read_bytes() for path in tmp_path.iterdir())


def test_metrics_count_what_was_done(tmp_path: Path) -> None:
    """Tokens and finish reasons are counted; nothing runs and no block is held in the end."""
    with started(tmp_path, EngineSettings()) as engine:
        exchange(engine, closing())
        assert engine.metric("vllm:generation_tokens_total") == 4
        assert engine.metric("vllm:prompt_tokens_total") == 1
        assert engine.metric('vllm:request_success_total{finished_reason="length"') == 1
        assert engine.metric("vllm:num_requests_running") == 0
        assert engine.metric("vllm:kv_cache_usage_perc") == 0


def test_log_tells_the_life_of_a_request(engine: Engine) -> None:
    """Received, admitted, blocks, first event, finished, freed, closed, in this order and time."""
    key = "run.life.direct.1"
    exchange(engine, closing(key=key))
    engine.await_entry(key, "closed")
    entries = engine.entries(key)
    assert [e.what for e in entries] == [
        *("received", "admitted", "allocated", "first_event", "finished", "freed", "closed"),
    ]
    assert entries[0].detail == "POST /v1/completions HTTP/1.1"
    assert entries[4].events == 4
    assert [e.at_ns for e in entries] == sorted(e.at_ns for e in entries)


def test_comments_come_in_silences_and_accel_header_where_asked(engine: Engine) -> None:
    """The script's comments and X-Accel-Buffering reach the wire."""
    script = replace(QUICK, first_token_ms=100, comment_every_ms=20, accel_buffering="no")
    head, body = exchange(engine, closing(script))
    data, _ = unchunked(body)
    assert b"x-accel-buffering: no" in head
    assert data.startswith(frames.COMMENT)
    assert data.replace(frames.COMMENT, b"") == BODY


# -------------------------------------------------------------------------------- client leaves


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_client_gone_is_read_and_aborts(engine: Engine, how: str, phase: str) -> None:
    """FIN and RST alike are noticed in silence, and the request's blocks come back."""
    key = f"run.gone-{how}-{phase}.direct.1"
    script = SILENT if phase == "decode" else replace(SILENT, first_token_ms=60_000)
    with connected(engine) as client:
        client.sendall(ask(script, key=key))
        read_until(client, b"cmpl-" if phase == "decode" else b"\r\n\r\n")
        reset(client) if how == "rst" else client.close()
    assert engine.await_entry(key, "aborted").detail == f"{phase} read"
    assert engine.await_entry(key, "closed").detail == "read"
    assert engine.entries(key, "freed")


def test_client_gone_while_waiting_aborts(tmp_path: Path) -> None:
    """A request that never ran is taken out of the queue."""
    with started(tmp_path, EngineSettings(max_num_seqs=1)) as engine, connected(engine) as first:
        first.sendall(ask(SILENT))
        read_until(first, b"cmpl-")
        with connected(engine) as second:
            second.sendall(ask(key="run.queue.direct.2"))
            read_until(second, b"\r\n\r\n")
            assert engine.metric("vllm:num_requests_waiting") == 1
        assert engine.await_entry("run.queue.direct.2", "aborted").detail == "waiting read"
        assert engine.metric("vllm:num_requests_waiting") == 0


# ------------------------------------------------------------------------------ framing defects


def test_http10_body_is_delimited_by_closing(engine: Engine) -> None:
    """To HTTP/1.0 the body is bare and ends with the connection (RFC 9112 §6.3)."""
    head, body = exchange(engine, ask(version="1.0"))
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == BODY


def test_http10_chunked_answers_as_if_to_http11(engine: Engine) -> None:
    """The switch answers HTTP/1.0 with chunks."""
    head, body = exchange(engine, ask(version="1.0", defects={"http10_chunked": True}))
    assert b"transfer-encoding: chunked" in head
    assert unchunked(body) == (BODY, True)


def test_close_delimited_to_http11(engine: Engine) -> None:
    """The switch leaves framing away where HTTP/1.1 allows better."""
    head, body = exchange(engine, ask(defects={"close_delimited": True}))
    assert b"transfer-encoding" not in head
    assert body == BODY


def test_content_length_is_the_right_one(engine: Engine) -> None:
    """The switch promises the length beforehand and keeps it."""
    head, body = exchange(engine, closing(defects={"content_length": True}))
    assert f"content-length: {len(BODY)}".encode() in head
    assert body == BODY


@pytest.mark.parametrize("late", [False, True])
def test_head_leaves_at_once_unless_late(engine: Engine, late: bool) -> None:
    """The head comes long before the first token, or with it."""
    script = replace(QUICK, first_token_ms=300)
    key = f"run.head-{late}.direct.1".lower()
    with connected(engine) as client:
        client.sendall(closing(script, key=key, defects={"late_headers": late}))
        client.recv(1)
        head_ns = time.monotonic_ns()
        read_all(client)
    assert (head_ns > engine.await_entry(key, "first_event").at_ns) is late


def test_no_terminator_ends_well_framed(engine: Engine) -> None:
    """Only `[DONE]` is missing."""
    _, body = exchange(engine, closing(defects={"no_terminator": True}))
    assert unchunked(body) == (BODY.removesuffix(frames.TERMINATOR), True)


def test_error_event_ends_the_answer(engine: Engine) -> None:
    """An error event comes after two events, the framing is good."""
    _, body = exchange(engine, closing(defects={"error_event_after": 2}))
    data, ended = unchunked(body)
    assert data.startswith(b"".join(WHOLE.events[:2]) + b'data: {"error":')
    assert ended
    assert b"[DONE]" not in data


def test_cut_by_fin_leaves_the_body_open(engine: Engine) -> None:
    """The connection is closed after two events, the last chunk missing."""
    _, body = exchange(engine, ask(defects={"cut_after_events": 2, "cut_by": "fin"}))
    assert unchunked(body) == (b"".join(WHOLE.events[:2]), False)


def test_cut_by_rst_resets(engine: Engine) -> None:
    """The connection is reset after two events."""
    with connected(engine) as client:
        client.sendall(ask(defects={"cut_after_events": 2, "cut_by": "rst"}))
        with pytest.raises(ConnectionResetError):
            read_all(client)


def test_duplicate_and_altered_events_reach_the_wire(engine: Engine) -> None:
    """Event 2 comes twice, event 3 with one byte changed."""
    _, body = exchange(engine, closing(defects={"duplicate_event": 2, "alter_event": 3}))
    data, _ = unchunked(body)
    altered = frames.altered(WHOLE.events[2], WHOLE.text_end)
    first, second = WHOLE.events[:2]
    assert data.startswith(first + second + second + altered + WHOLE.events[3])


# ------------------------------------------------------------------------------- timing defects


def silences(engine: Engine, script: StreamScript, **defects: object) -> int:
    """How many times nothing came for four gaps of the script, once the first event was there."""
    arrived_ns = []
    with connected(engine) as client:
        client.sendall(closing(script, defects=defects))
        while data := client.recv(1 << 20):
            if b'"finish_reason":null' in data:
                arrived_ns.append(time.monotonic_ns())
    limit_ns = 4 * script.gap_ms * 1_000_000
    return sum(later - earlier > limit_ns for earlier, later in pairwise(arrived_ns))


@pytest.mark.parametrize("clump", [1, 10])
def test_clumps_leave_together(engine: Engine, clump: int) -> None:
    """Forty events come in four clumps with silences between; without the switch there are none."""
    found = silences(engine, SLOW, clump_events=clump)
    assert found >= 3 if clump == 10 else found < 3


@pytest.mark.parametrize("stall_ms", [0, 600])
def test_stall_is_a_silence_behind_the_events(engine: Engine, stall_ms: int) -> None:
    """The log's end of the request moves by the stall."""
    key = f"run.stall-{stall_ms}.direct.1"
    defects = {"stall_after_events": 2, "stall_ms": stall_ms}
    exchange(engine, closing(key=key, defects=defects))
    first = engine.await_entry(key, "first_event").at_ns
    lasted_ms = (engine.await_entry(key, "finished").at_ns - first) / 1e6
    assert (lasted_ms >= stall_ms) if stall_ms else (lasted_ms < 600)


@pytest.mark.parametrize("nagle", [False, True])
def test_nagle_joins_small_writes(engine: Engine, nagle: bool) -> None:
    """Eight writes of one step leave as eight segments, or are joined before an acknowledgement."""
    script = StreamScript(event_count=8, first_token_ms=100, gap_ms=5)
    with connected(engine) as client:
        client.sendall(closing(script, defects={"no_tcp_nodelay": nagle, "clump_events": 8}))
        read_until(client, b"\r\n\r\n")
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        before = data_segments_in(client)
        read_all(client)
        segments = data_segments_in(client) - before
    assert segments < 8 if nagle else segments >= 8


def data_segments_in(client: socket.socket) -> int:
    """Segments with data that the kernel has received: `tcpi_data_segs_in` of struct tcp_info."""
    told = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return int(struct.unpack_from("I", told, 152)[0])


def test_close_is_learned_on_write_only(engine: Engine) -> None:
    """In silence the close goes unnoticed; the next writes find it."""
    key = "run.deaf.direct.1"
    script = StreamScript(event_count=4, first_token_ms=5, gap_ms=300)
    with connected(engine) as client:
        client.sendall(ask(script, key=key, defects={"close_learned_on_write": True}))
        read_until(client, b"cmpl-")
    entry = engine.await_entry(key, "aborted")
    assert entry.detail == "decode write"
    assert entry.events > 1


# ------------------------------------------------------------------------------- ledger defects


def leave_after_first(
    engine: Engine, key: str, script: StreamScript = SLOW, **defects: object
) -> None:
    """A client that leaves after the first event."""
    with connected(engine) as client:
        client.sendall(ask(script, key=key, defects=defects))
        read_until(client, b"cmpl-")


def test_cancel_ignored_generates_for_nobody(engine: Engine) -> None:
    """The close is logged, the request goes on to its end."""
    key = "run.ignores.direct.1"
    script = replace(SLOW, event_count=10)
    leave_after_first(engine, key, script, ignores_cancel=True)
    finished = engine.await_entry(key, "finished")
    assert finished.events == 10
    assert engine.entries(key, "closed")[0].at_ns < finished.at_ns
    assert not engine.entries(key, "aborted")


def test_orphan_is_reaped_late(engine: Engine) -> None:
    """The abort comes after the reaper's time, not with the close."""
    key = "run.reaped.direct.1"
    leave_after_first(engine, key, SILENT, reaps_orphans_after_ms=200)
    aborted = engine.await_entry(key, "aborted")
    assert aborted.detail == "decode reaped"
    assert aborted.at_ns - engine.entries(key, "closed")[0].at_ns >= 190_000_000


def test_blocks_freed_late(engine: Engine) -> None:
    """The release comes long after the abort."""
    key = "run.late.direct.1"
    leave_after_first(engine, key, frees_late_ms=300)
    freed = engine.await_entry(key, "freed")
    assert freed.at_ns - engine.entries(key, "aborted")[0].at_ns >= 290_000_000


def test_blocks_never_freed(tmp_path: Path) -> None:
    """The blocks stay in use after the request is gone."""
    with started(tmp_path, EngineSettings()) as engine:
        leave_after_first(engine, KEY, frees_never=True)
        engine.await_entry(KEY, "aborted")
        exchange(engine, closing(key="run.poke.direct.1"))
        assert engine.metric("vllm:kv_cache_usage_perc") > 0
        assert not engine.entries(KEY, "freed")


@pytest.mark.parametrize("twice", [False, True])
def test_blocks_freed_twice(engine: Engine, twice: bool) -> None:
    """The second release is in the log where it is switched on."""
    key = f"run.twice-{twice}.direct.1".lower()
    leave_after_first(engine, key, frees_twice=twice)
    engine.await_entry(key, "freed")
    engine.await_entry(key, "closed")
    assert len(engine.entries(key, "double_freed")) == int(twice)


@pytest.mark.parametrize("stale", [False, True])
def test_gauges_after_an_abort(tmp_path: Path, stale: bool) -> None:
    """Stale gauges tell of the request that is gone, until a poke makes the engine step."""
    with started(tmp_path, EngineSettings()) as engine:
        leave_after_first(engine, KEY, SILENT, stale_gauges=stale)
        engine.await_entry(KEY, "aborted")
        assert engine.metric("vllm:num_requests_running") == int(stale)
        exchange(engine, closing(key="run.poke.direct.1"))
        assert engine.metric("vllm:num_requests_running") == 0


@pytest.mark.parametrize("dead", [False, True])
def test_abort_counter(tmp_path: Path, dead: bool) -> None:
    """The counter of aborts stays at zero where it is dead."""
    with started(tmp_path, EngineSettings()) as engine:
        leave_after_first(engine, KEY, SILENT, dead_abort_counter=dead)
        engine.await_entry(KEY, "aborted")
        line = 'vllm:request_success_total{finished_reason="abort"'
        assert engine.metric(line) == int(not dead)


def test_defects_of_the_settings_hold_for_plain_requests(tmp_path: Path) -> None:
    """An engine that is started with a defect shows it to who brings none."""
    settings = EngineSettings(defects=Defects(no_terminator=True), script=QUICK)
    with started(tmp_path, settings) as engine:
        request = b'{"prompt":"a","stream":true}'
        head = f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(request)}\r\n\r\n"
        assert b"[DONE]" not in exchange(engine, head.encode() + request)[1]


# ------------------------------------------------------------------------------ start and stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_resets_streams_and_closes_the_log(tmp_path: Path, number: int) -> None:
    """A stop is clean: exit 0, the stream reset, everything in the log."""
    with started(tmp_path, EngineSettings()) as engine, connected(engine) as client:
        client.sendall(ask(SILENT))
        read_until(client, b"cmpl-")
        engine.process.send_signal(number)
        with pytest.raises(ConnectionResetError):
            read_all(client)
        assert engine.process.wait(DEADLINE_S) == 0
        assert [e.what for e in log.read(engine.log_path)][-3:] == ["freed", "closed", "stopped"]


def run_main(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, which is expected to end by itself."""
    argv = (sys.executable, "-m", "stacks.reference", *arguments)
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_port_taken_exits_98(engine: Engine, tmp_path: Path) -> None:
    """The launcher can tell a taken port by code and text."""
    config = tmp_path / "engine.json"
    config.write_text(json.dumps({"port": engine.port, "log_path": str(tmp_path / "l")}))
    done = run_main("--config", str(config))
    assert done.returncode == 98
    assert "Address already in use" in done.stderr


@pytest.mark.parametrize("text", ['{"prot": 1}', "{", None])
def test_bad_config_exits_2(tmp_path: Path, text: str | None) -> None:
    """One line tells file and field; no traceback."""
    config = tmp_path / "engine.json"
    if text is not None:
        config.write_text(text)
    done = run_main("--config", str(config))
    assert done.returncode == 2
    assert str(config) in done.stderr
    assert done.stderr.count("\n") == 1


def test_bad_usage_and_version() -> None:
    """Wrong arguments exit 2 with the usage; the version is told."""
    assert run_main("--conf").returncode == 2
    assert run_main("--version").stdout.startswith("reference ")


def test_log_that_cannot_be_written_exits_3(tmp_path: Path) -> None:
    """An engine that cannot testify does not serve."""
    config = tmp_path / "engine.json"
    config.write_text('{"log_path": "/dev/full"}')
    done = run_main("--config", str(config))
    assert done.returncode == 3
    assert "/dev/full" in done.stderr
    assert "Traceback" not in done.stderr


def test_capacity_small_load_holds() -> None:
    """The self-test counts every event of a small load."""
    argv = (sys.executable, "-m", "stacks.reference.capacity")
    load = ("--streams", "20", "--seconds", "1")
    done = subprocess.run((*argv, *load), capture_output=True, timeout=30, check=False)
    figures = json.loads(done.stdout)
    assert figures["events_received"] == figures["events_expected"] == 400
    assert figures["streams_broken"] == 0
