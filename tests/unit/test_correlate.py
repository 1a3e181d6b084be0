"""What the vantage points saw, joined: traces written by hand, read as a recording."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.check import evaluate
from harness.correlate import load
from harness.errors import RecordingError
from harness.model import (
    AccessEntry,
    EndReason,
    Evidence,
    Fired,
    Framing,
    Lane,
    LedgerEntry,
    Recording,
    SelfCheck,
    Stamp,
    Stream,
    StreamKey,
    StreamTrace,
)
from harness.record import Facts, ScenarioFolder
from harness.trace import TraceWriter
from tests.unit.recordings import Case

SCENARIO = Case().scenario()
KEYS = [StreamKey(run="r", scenario=SCENARIO.id, lane=Lane.THROUGH, n=n) for n in range(4)]
KEY, OTHER = KEYS[:2]

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = SSE + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
READY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
RESIDENCE_NS = 7


def event(index: int) -> bytes:
    return b'data: {"choices":[{"text":"%d"}]}\n\n' % index


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def request(key: StreamKey | None, *lines: str, method: str = "POST", body: str = "") -> bytes:
    """A request as a client of ours sends it."""
    keys = [f"X-Streamchaos-Id: {key}", f"X-Request-Id: {key}"] if key else []
    length = [f"Content-Length: {len(body)}"] if body else []
    head = [f"{method} /v1/completions HTTP/1.1", "Host: a", *keys, *length, *lines, "", ""]
    return ("\r\n".join(head) + body).encode()


DONE = b"data: [DONE]\n\n"
PIECES = [CHUNKED, chunk(event(0)), chunk(event(1)), chunk(DONE), LAST]


@dataclass(slots=True)
class Tapped:
    """One connection through a tap; what is read leaves at once, RESIDENCE_NS after it came."""

    writer: TraceWriter
    number: int

    def asked(self, *pieces: bytes, at_ns: int) -> None:
        """The client's bytes, one read a nanosecond."""
        for place, piece in enumerate(pieces):
            at = at_ns + place
            self.writer.read(self.number, 0, at + 5, at, at - 5, piece)

    def answered(self, *pieces: bytes, at_ns: int, passed: bool = True) -> None:
        """The origin's bytes, a read each 10 ns, and the tap's writes where they are passed on."""
        for place, piece in enumerate(pieces):
            at = at_ns + 10 * place
            self.writer.read(self.number, 1, at + 3, at, at - 5, piece)
            if passed:
                left = at + RESIDENCE_NS
                self.writer.write(self.number, 1, left - 1, left, len(piece))

    def note(self, kind: str, at_ns: int, **fields: object) -> None:
        self.writer.event(kind, {"connection": self.number, **fields}, at_ns)

    def gone(self, side: str, at_ns: int, *, kind: str = "eof") -> None:
        """The neighbour that sends in this direction went away."""
        self.note(kind, at_ns, direction=side)


class Desk:
    """A scenario's folder with both traces open."""

    def __init__(self, path: Path) -> None:
        self.folder = ScenarioFolder.create(path, SCENARIO)
        self.client = TraceWriter(path, "client")
        self.relay = TraceWriter(path, "relay")
        self._opened = 0

    def tap(self, hop: int = 1) -> Tapped:
        """A new connection on a hop."""
        self._opened += 1
        tapped = Tapped(self.relay, self._opened)
        tapped.note("opened", 1, hop=hop)
        return tapped

    def stream(self, key: StreamKey, number: int = 0) -> Callable[..., None]:
        """A client's stream that was planned and begun; gives what notes its events."""

        def note(kind: str, at_ns: int, **fields: object) -> None:
            self.client.event(kind, {"stream": number, **fields}, at_ns)

        note("planned", 90, key=str(key))
        note("start", 95, key=str(key))
        note("connected", 97)
        note("request", 100)
        return note

    def client_reads(self, *pieces: bytes, at_ns: int = 200, number: int = 0) -> None:
        for place, piece in enumerate(pieces):
            at = at_ns + 10 * place
            self.client.read(number, 1, at + 3, at, at - 5, piece)

    def closed(self) -> ScenarioFolder:
        for writer in (self.client, self.relay):
            told = {"sleep_jitter_ns_p99": 3, "sleep_jitter_ns_max": 4, "clock_steps": 1}
            writer.event("self_check", {**told, "of_later": 1}, 9_999)
            writer.close()
        return self.folder

    def recording(self) -> Recording:
        return load(self.closed())

    def taps(self) -> tuple[StreamTrace, ...]:
        """Traces of the only stream."""
        return self.only().taps

    def only(self) -> Stream:
        (stream,) = self.recording().streams
        return stream


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "case")


# ------------------------------------------------------------------------------------- the client


def test_client_of_a_whole_answer_has_its_trace(desk: Desk) -> None:
    """Times, head, events and the end of what the client read."""
    note = desk.stream(KEY)
    desk.client_reads(*PIECES)
    note("complete", 245, how="", detail="")
    client = desk.only().client
    assert client is not None
    assert client.client
    assert (client.key, client.hop, client.request_ns) == (KEY, 0, 100)
    assert (client.status, client.http_version, client.framing) == (200, "1.1", Framing.CHUNKED)
    assert client.head == Stamp(at_ns=200, earliest_ns=200, kernel=True)
    assert [e.arrived.at_ns for e in client.events] == [210, 220, 230]
    assert all(e.arrived.error_ns == 0 for e in client.events)
    assert all(e.left is None for e in client.events)
    assert client.wire_bytes == client.body_bytes == len(event(0) + event(1) + DONE)
    assert client.end.reason is EndReason.TERMINATOR
    assert (client.end.at_ns, client.end.terminators, client.end.last_chunk_seen) == (245, 1, True)


@pytest.mark.parametrize(
    ("kind", "fields", "pieces", "reason", "detail"),
    [
        ("complete", {}, PIECES[:3] + PIECES[4:], EndReason.CLEAN_EOF_WITHOUT_TERMINATOR, ""),
        ("eof", {"how": "fin"}, PIECES[:3], EndReason.INCOMPLETE_FRAMING, "last chunk is missing"),
        ("eof", {"how": "fin"}, [], EndReason.INCOMPLETE_FRAMING, "eof fin"),
        ("reset", {"how": "", "detail": "reset by peer"}, PIECES[:3], EndReason.RESET, "by peer"),
        ("left", {"how": "rst"}, PIECES[:3], EndReason.CLIENT_CANCEL, "left rst"),
        ("left", {"how": "fin"}, [], EndReason.CLIENT_CANCEL, "left fin"),
        ("deadline", {}, PIECES[:2], EndReason.DEADLINE, "deadline"),
        ("abandoned", {}, PIECES[:2], EndReason.DEADLINE, "abandoned"),
        ("connect_failed", {"how": "", "detail": "ECONNREFUSED"}, [], EndReason.RESET, "REFUSED"),
        ("tls_failed", {"how": "", "detail": "EXPIRED"}, [], EndReason.RESET, "tls_failed EXPIRED"),
    ],
)
def test_client_end_has_its_reason_and_detail(
    desk: Desk,
    kind: str,
    fields: dict[str, str],
    pieces: list[bytes],
    reason: EndReason,
    detail: str,
) -> None:
    """Each way in which a stream can be over at the client."""
    note = desk.stream(KEY)
    desk.client_reads(*pieces)
    note(kind, 300, **fields)
    client = desk.only().client
    assert client is not None
    assert (client.end.reason, client.end.at_ns) == (reason, 300)
    assert detail in client.end.detail


def test_client_of_a_close_delimited_answer_ends_with_its_connection(desk: Desk) -> None:
    """What the closing ends is whole."""
    note = desk.stream(KEY)
    desk.client_reads(SSE + b"\r\n", event(0), DONE)
    note("eof", 300, how="fin", detail="")
    client = desk.only().client
    assert client is not None
    assert (client.framing, client.end.reason) == (Framing.CLOSE, EndReason.TERMINATOR)


def test_client_trace_that_breaks_off_has_an_end_that_says_so(desk: Desk) -> None:
    """A sampler that was killed left no end; none is made up."""
    desk.stream(KEY)
    desk.client_reads(*PIECES[:2])
    client = desk.only().client
    assert client is not None
    assert client.end.reason is EndReason.DEADLINE
    assert (client.end.at_ns, client.end.detail) == (0, "the trace breaks off")
    assert len(client.events) == 1


def test_client_stream_that_never_began_counts_from_its_plan(desk: Desk) -> None:
    """A stream that could not connect is one all the same."""
    desk.client.event("planned", {"stream": 3, "key": str(KEY)}, 90)
    client = desk.only().client
    assert client is not None
    assert client.request_ns == 90


def test_client_stream_without_a_key_of_ours_is_none(desk: Desk) -> None:
    """A trace whose first events were lost is nobody's stream."""
    for number, fields in enumerate([{}, {"key": "not one of ours"}]):
        desk.client.event("start", {"stream": number, **fields}, 90)
    assert desk.recording().streams == ()


# ---------------------------------------------------------------------------------------- the taps


def test_tap_of_an_exchange_stamps_both_legs(desk: Desk) -> None:
    """Arrival by the kernel's stamp, departure by the write that passed the event on."""
    tap = desk.tap(hop=2)
    tap.asked(request(KEY, body="{}"), at_ns=100)
    tap.answered(*PIECES, at_ns=200)
    tap.gone("toward_origin", 900)
    tap.gone("toward_client", 901)
    (trace,) = desk.taps()
    assert (trace.hop, trace.client, trace.request_ns) == (2, False, 100)
    assert (trace.status, trace.request_http_version) == (200, "1.1")
    assert [e.arrived.at_ns for e in trace.events] == [210, 220, 230]
    assert [e.left and e.left.at_ns for e in trace.events] == [217, 227, 237]
    assert trace.head_left == Stamp(at_ns=207, earliest_ns=206)
    assert (trace.end.reason, trace.end.at_ns) == (EndReason.TERMINATOR, 240)
    assert (trace.origin_closed_ns, trace.client_closed_ns) == (0, 0)


def test_tap_event_stamps_are_exact_for_the_last_of_a_read_only(desk: Desk) -> None:
    """Earlier events of a read came between the poll before and the kernel's stamp."""
    tap = desk.tap()
    tap.asked(request(KEY), at_ns=100)
    tap.answered(CHUNKED, chunk(event(0)) + chunk(event(1)), at_ns=200)
    (trace,) = desk.taps()
    assert [e.arrived for e in trace.events] == [
        Stamp(at_ns=210, earliest_ns=205, kernel=True),
        Stamp(at_ns=210, earliest_ns=210, kernel=True),
    ]
    assert {e.read_index for e in trace.events} == {1}


def test_tap_event_that_was_not_written_on_has_not_left(desk: Desk) -> None:
    """What a fault swallowed arrived all the same."""
    tap = desk.tap()
    tap.asked(request(KEY), at_ns=100)
    tap.answered(*PIECES[:2], at_ns=200)
    tap.answered(*PIECES[2:], at_ns=220, passed=False)
    (trace,) = desk.taps()
    assert [e.left is not None for e in trace.events] == [True, False, False]


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_tap_request_begins_with_its_first_byte(desk: Desk, cut: int) -> None:
    """A head over several reads is timed by the first, on a kept connection too."""
    tap = desk.tap()
    for n, key in enumerate(KEYS[:2]):
        wire = request(key, body="{}")
        tap.asked(wire[:cut], wire[cut:], at_ns=100 + 1_000 * n)
        tap.answered(*PIECES, at_ns=200 + 1_000 * n)
    streams = desk.recording().streams
    assert [s.taps[0].request_ns for s in streams] == [100, 1_100]


def test_tap_pipelined_requests_begin_with_the_read_they_came_in(desk: Desk) -> None:
    """The second of two requests in one read came with it."""
    tap = desk.tap()
    wire = request(KEY) + request(OTHER)
    tap.asked(wire[:-3], wire[-3:], at_ns=100)
    streams = desk.recording().streams
    assert [s.taps[0].request_ns for s in streams] == [100, 100]


def test_tap_of_a_kept_connection_tells_each_exchange(desk: Desk) -> None:
    """Probes, requests without a key, and streams share a connection; each answer finds its own."""
    tap = desk.tap()
    probe = request(None, "X-Streamchaos-Probe: 1", method="GET")
    for n, (asked, answer) in enumerate(
        [
            (probe, [READY]),
            (request(KEY), PIECES),
            (request(None, method="HEAD"), [READY[:-2]]),
            (request(OTHER), [CHUNKED, chunk(DONE) + LAST]),
        ]
    ):
        tap.asked(asked, at_ns=1_000 * n + 100)
        tap.answered(*answer, at_ns=1_000 * n + 200)
    tap.gone("toward_client", 9_000)
    recording = desk.recording()
    assert recording.unkeyed == ("hop 1: HEAD /v1/completions",)
    first, second = recording.streams
    assert (first.key, second.key) == (KEY, OTHER)
    assert [len(s.taps) for s in (first, second)] == [1, 1]
    assert [len(s.taps[0].events) for s in (first, second)] == [3, 1]
    assert [s.taps[0].end.reason for s in (first, second)] == [EndReason.TERMINATOR] * 2
    assert [s.taps[0].origin_closed_ns for s in (first, second)] == [0, 0]


def test_tap_exchange_that_was_open_at_a_close_is_cut_those_before_are_not(desk: Desk) -> None:
    """A closing ends what was unfinished, also where more requests had been sent behind it."""
    tap = desk.tap()
    tap.asked(request(KEYS[0]), at_ns=100)
    tap.answered(*PIECES, at_ns=200)
    tap.asked(request(KEYS[1]) + request(KEYS[2]), at_ns=1_000)
    tap.answered(*PIECES[:2], at_ns=1_100)
    tap.gone("toward_client", 1_500, kind="reset")
    ends = [s.taps[0].end for s in desk.recording().streams]
    assert [e.reason for e in ends] == [EndReason.TERMINATOR, EndReason.RESET, EndReason.RESET]
    assert [e.at_ns for e in ends] == [240, 1_500, 1_500]
    assert ends[2].detail == "no response"


BOTH = [("toward_origin", "eof", 500), ("toward_client", "eof", 600)]


@pytest.mark.parametrize(
    ("pieces", "closings", "reason", "at_ns"),
    [
        (PIECES[:3], [("toward_client", "reset", 500)], EndReason.RESET, 500),
        (PIECES[:3], [("toward_client", "eof", 500)], EndReason.INCOMPLETE_FRAMING, 500),
        (PIECES[:3], [("toward_origin", "eof", 500)], EndReason.CLIENT_CANCEL, 500),
        (PIECES[:3], [("toward_origin", "reset", 500)], EndReason.CLIENT_CANCEL, 500),
        (PIECES[:3], [("toward_client", "write_failed", 500)], EndReason.CLIENT_CANCEL, 500),
        (PIECES[:3], [("toward_origin", "write_failed", 500)], EndReason.RESET, 500),
        (PIECES[:3], BOTH, EndReason.CLIENT_CANCEL, 500),
        (PIECES[:3], [("toward_client", "eof", 500), *BOTH], EndReason.CLIENT_CANCEL, 500),
        (PIECES[:3], [("toward_client", "eof", 400), *BOTH], EndReason.INCOMPLETE_FRAMING, 400),
        (PIECES[:3], [], EndReason.DEADLINE, 800),
        ([], [("toward_client", "reset", 500)], EndReason.RESET, 500),
        ([], [("toward_client", "eof", 500)], EndReason.INCOMPLETE_FRAMING, 500),
        ([], [("toward_origin", "eof", 500)], EndReason.CLIENT_CANCEL, 500),
        ([], [], EndReason.DEADLINE, 800),
        (PIECES, BOTH, EndReason.TERMINATOR, 240),
        (PIECES, [("toward_client", "reset", 500)], EndReason.TERMINATOR, 240),
        ([b"HTTP/9 nonsense\r\n"], BOTH, EndReason.INCOMPLETE_FRAMING, 200),
        ([SSE + b"\r\n", event(0)], BOTH[1:], EndReason.CLEAN_EOF_WITHOUT_TERMINATOR, 600),
        ([SSE + b"\r\n", DONE], BOTH[1:], EndReason.TERMINATOR, 600),
    ],
)
def test_tap_end_follows_who_went_first(
    desk: Desk,
    pieces: list[bytes],
    closings: list[tuple[str, str, int]],
    reason: EndReason,
    at_ns: int,
) -> None:
    """A whole answer ends with itself; an unfinished one with the first of its two sides to go."""
    tap = desk.tap()
    tap.asked(request(KEY), at_ns=100)
    tap.answered(*pieces, at_ns=200)
    for side, kind, when in closings:
        tap.gone(side, when, kind=kind)
    tap.note("closed", 800, by="fin")
    (trace,) = desk.taps()
    assert (trace.end.reason, trace.end.at_ns) == (reason, at_ns)


def test_tap_closings_are_told_by_side(desk: Desk) -> None:
    """When each neighbour went is kept, where it went before the answer was whole."""
    tap = desk.tap()
    tap.asked(request(KEY), at_ns=100)
    tap.answered(*PIECES[:2], at_ns=200)
    tap.gone("toward_origin", 300)
    tap.gone("toward_client", 310, kind="reset")
    (trace,) = desk.taps()
    assert (trace.client_closed_ns, trace.origin_closed_ns) == (300, 310)


@pytest.mark.parametrize(
    ("pieces", "detail"),
    [
        (PIECES, "connection 1"),
        (PIECES[:3], "the last chunk is missing"),
        ([*PIECES[:3], b"zz\r\n"], "chunk size: not one: b'zz' (byte 160)"),
        ([SSE + b"\r\n", DONE], "connection 1"),
    ],
)
def test_tap_end_tells_what_is_wrong_or_where_it_was(
    desk: Desk, pieces: list[bytes], detail: str
) -> None:
    """A broken message is told in words, any other end by its connection."""
    tap = desk.tap()
    tap.asked(request(KEY), at_ns=100)
    tap.answered(*pieces, at_ns=200)
    tap.gone("toward_client", 500)
    (trace,) = desk.taps()
    assert trace.end.detail == detail


def test_tap_client_that_half_closed_got_its_answer(desk: Desk) -> None:
    """A FIN in front of a whole answer is no cancel; it is told all the same."""
    tap = desk.tap()
    tap.asked(request(KEY), at_ns=100)
    tap.gone("toward_origin", 150)
    tap.answered(*PIECES, at_ns=200)
    (trace,) = desk.taps()
    assert trace.end.reason is EndReason.TERMINATOR
    assert trace.client_closed_ns == 150


def test_tap_request_whose_head_is_not_whole_is_nobodys(desk: Desk) -> None:
    """A request that breaks off in its head has no key that could be trusted."""
    desk.tap().asked(request(KEY)[:-3], at_ns=100)
    desk.tap().asked(b"nonsense\r\n\r\n", at_ns=100)
    recording = desk.recording()
    assert recording.streams == ()
    assert recording.unkeyed == ()


def test_tap_connection_that_brought_nothing_has_no_trace(desk: Desk) -> None:
    """A connection that was refused or never used is no exchange."""
    desk.tap().note("connect_failed", 5, detail="ECONNREFUSED")
    assert desk.recording().streams == ()


def test_tap_connection_whose_opening_was_lost_has_no_trace(desk: Desk) -> None:
    """Nobody knows on which hop it was."""
    Tapped(desk.relay, 5).asked(request(KEY), at_ns=100)
    assert desk.recording().streams == ()


@pytest.mark.parametrize(
    "line", ["X-Request-Id: r.unit_case.through.\u00b2", "X-Request-Id: 0123-4567", "X-Other: a"]
)
def test_tap_request_with_a_foreign_key_is_unkeyed(desk: Desk, line: str) -> None:
    """An id of somebody else's making is no key; nothing is guessed."""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n"
    desk.tap(hop=1).asked(head.encode("latin-1"), at_ns=100)
    assert desk.recording().unkeyed == ("hop 1: POST /v1/completions",)


def test_tap_request_with_one_key_left_is_known_by_it(desk: Desk) -> None:
    """A gateway that drops or rewrites one of the headers does not lose the stream."""
    lines = ("X-Streamchaos-Id: rewritten", f"X-Request-Id: {KEY}")
    desk.tap().asked(request(None, *lines), at_ns=100)
    assert desk.only().key == KEY


# ---------------------------------------------------------------------------------------- joining


def test_load_joins_all_vantage_points_by_key(desk: Desk) -> None:
    """Client, taps of both hops, ledger, access log and oracle of a stream stand together."""
    for n, key in enumerate(KEYS[:2]):
        note = desk.stream(key, n)
        desk.client_reads(*PIECES, number=n)
        note("complete", 300)
        for hop in (2, 1):
            tap = desk.tap(hop)
            tap.asked(request(key), at_ns=110 - hop)
            tap.answered(*PIECES, at_ns=200)
    entries = tuple(
        LedgerEntry(at_ns=n, what="freed", key=str(k), request="r") for n, k in enumerate(KEYS)
    )
    desk.folder.write_lines("engine.jsonl", entries)
    lines = tuple(AccessEntry(node="nginx", key=str(k), status=200) for k in (KEY, KEY))
    desk.folder.write_lines("access.jsonl", lines)
    oracle: dict[str, tuple[str, ...]] = {str(KEY): ("a", "b")}
    desk.folder.write("facts.json", Facts(run="r", oracle=oracle, notes=("n",)))
    recording = desk.recording()
    first, second = recording.streams
    assert first.client is not None
    assert first.client.key == first.key == KEY
    assert [t.hop for t in first.taps] == [2, 1]
    assert first.tap(1) is first.taps[1]
    assert [e.at_ns for e in first.ledger] == [0]
    assert [e.at_ns for e in second.ledger] == [1]
    assert (first.access, second.access) == (lines, ())
    assert (first.oracle_digests, second.oracle_digests) == (("a", "b"), ())
    assert recording.notes == ("n",)


def test_load_of_a_key_seen_twice_keeps_both_exchanges(desk: Desk) -> None:
    """A proxy that repeats a request is seen to, on one connection or two; in order of time."""
    one, two = desk.tap(), desk.tap()
    two.asked(request(KEY), at_ns=300)
    one.asked(request(KEY), at_ns=100)
    one.answered(*PIECES[:2], at_ns=200)
    one.gone("toward_client", 290, kind="reset")
    two.answered(*PIECES, at_ns=400)
    two.asked(request(KEY), at_ns=900)
    taps = desk.taps()
    assert [t.request_ns for t in taps] == [100, 300, 900]
    assert [t.end.reason for t in taps[:2]] == [EndReason.RESET, EndReason.TERMINATOR]


def test_load_of_a_stream_never_seen_behind_has_a_client_only(desk: Desk) -> None:
    """A lost request is a stream without taps, not a stream less."""
    desk.stream(KEY)("deadline", 500)
    stream = desk.only()
    assert stream.client is not None
    assert stream.taps == ()


def test_load_tells_what_fired_and_what_the_instruments_doubt(desk: Desk) -> None:
    """Evidence of injections, and the worse of both instruments; keys of later versions are read
    over."""
    tap = desk.tap()
    tap.asked(request(KEY), at_ns=100)
    tap.answered(*PIECES, at_ns=200)
    tap.note("fired", 250, injection=2, byte_offset=9, event_index=3, planned_ns=240, later=1)
    recording = desk.recording()
    assert recording.fired == (
        Fired(injection=2, connection=1, at_ns=250, byte_offset=9, event_index=3, planned_ns=240),
    )
    doubt = recording.self_check
    assert (doubt.sleep_jitter_ns_p99, doubt.sleep_jitter_ns_max, doubt.clock_steps) == (3, 4, 2)
    assert doubt.tap_residence_ns_max == doubt.tap_residence_ns_p99 == RESIDENCE_NS


def test_load_of_earlier_events_takes_what_they_have(desk: Desk) -> None:
    """What a version before did not write counts as nothing."""
    desk.tap().note("fired", 250, injection=0)
    for writer in (desk.client, desk.relay):
        writer.event("self_check", {}, 300)
        writer.close()
    recording = load(desk.folder)
    assert recording.fired == (Fired(injection=0, connection=1, at_ns=250),)
    assert recording.self_check == SelfCheck()


def test_load_tap_residence_is_that_of_events_passed_on(desk: Desk) -> None:
    """Its worst and its p99 over all events of all taps; what did not leave has none."""
    for number, key in enumerate(KEYS[:2]):
        tap = desk.tap()
        tap.asked(request(key), at_ns=100)
        tap.answered(CHUNKED, *(chunk(event(n)) for n in range(100)), at_ns=200)
        tap.answered(chunk(event(100)), at_ns=2_000, passed=False)
        if number:
            late_ns = 2_000 + 500
            desk.relay.write(tap.number, 1, late_ns - 1, late_ns, len(chunk(event(100))))
    doubt = desk.recording().self_check
    assert (doubt.tap_residence_ns_p99, doubt.tap_residence_ns_max) == (RESIDENCE_NS, 500)


def test_load_of_a_run_that_was_killed_is_broken_off(tmp_path: Path) -> None:
    """Traces that were never closed are read as far as they go, with notes, and marked."""
    desk = Desk(tmp_path)
    desk.stream(KEY)
    desk.client_reads(*PIECES[:2])
    for writer in (desk.client, desk.relay):
        writer.flush()
    path = tmp_path / "client.reads.bin"
    path.write_bytes(path.read_bytes()[:-1])
    recording = load(desk.folder)
    assert recording.broken_off
    assert any(note.startswith("client.reads.bin: cut off") for note in recording.notes)
    assert any(note.startswith("facts.json is missing") for note in recording.notes)
    (stream,) = recording.streams
    assert stream.client is not None
    assert (stream.client.status, stream.client.events) == (200, ())


def test_load_of_a_run_that_was_stopped_is_broken_off(desk: Desk) -> None:
    """An abandoned stream says that the sampler was stopped; a whole run is not broken off."""
    note = desk.stream(KEY)
    note("abandoned", 500)
    assert desk.recording().broken_off


def whole_run(desk: Desk) -> ScenarioFolder:
    """One stream from client to engine, all in order."""
    note = desk.stream(KEY)
    desk.client_reads(*PIECES)
    note("complete", 245)
    tap = desk.tap()
    tap.asked(request(KEY), at_ns=101)
    tap.answered(*PIECES, at_ns=190)
    tap.note("fired", 250, injection=0)
    return desk.closed()


def test_load_of_compacted_traces_gives_the_same_verdicts(desk: Desk) -> None:
    """Offsets, stamps and digests are enough: streams, evidence, doubts and findings are equal."""
    folder = whole_run(desk)
    before = load(folder)
    assert not before.broken_off
    folder.compact(before.streams)
    after = load(folder)
    assert after == before
    findings = [evaluate(Evidence(subject=r)).findings for r in (before, after)]
    assert findings[0] == findings[1]
    assert findings[0]


@pytest.mark.parametrize("name", ["client", "relay"])
@pytest.mark.parametrize("ending", ["events.jsonl", "reads.bin"])
def test_load_without_a_trace_is_refused(desk: Desk, name: str, ending: str) -> None:
    """A missing file is not an empty one."""
    folder = whole_run(desk)
    (folder.path / f"{name}.{ending}").unlink()
    with pytest.raises(RecordingError, match=f"{name}.{ending}: cannot be read"):
        load(folder)
