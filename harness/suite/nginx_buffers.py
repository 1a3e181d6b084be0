"""War story 1: nginx and the stream that arrives in bursts, or all at once, or at the end.

The workload is fixed by the story: events of 250 bytes ± 10 %, a gap of 50 ms in both scales,
headers at once, TCP_NODELAY. A scale shortens the stream and its first pause; it never touches the
gap, since buffers count bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from harness.model import (
    Defects,
    Expectation,
    Load,
    Node,
    Scenario,
    Stack,
    StreamScript,
    Verdict,
    Workload,
)

TITLE = "nginx holds the stream"

PARAGRAPHS = (
    "A team puts nginx in front of its model server. The engine's first token leaves within "
    "a blink; the user stares at an "
    "empty page, then gets half a screen at once. Nothing is logged, no status is wrong, "
    "throughput is as before.",
    "The source blames `proxy_buffering on` and says that the first token came after 30 s. "
    "Both are true only if: what "
    "matters is how the answer comes from the engine (chunked, or delimited by closing), "
    "which version of HTTP nginx "
    "speaks to it (1.0 by default before 1.29.7, 1.1 since), and what stands between nginx's "
    "buffers and the client "
    "(TLS, gzip).",
    "Each arm below drives streams through a real nginx and, interleaved with them, straight "
    "to the engine. The hold is "
    "the time between the write of an event toward nginx and its arrival at the client, of "
    "the same stream's first event.",
)

CLOSING = (
    "`proxy_buffering off` cures every red arm. So does `X-Accel-Buffering: no`, but only as "
    "a header of the engine's "
    "answer: set by nginx itself (`proxy_set_header`, `add_header`) it does nothing, and an "
    "inner nginx swallows it "
    "before an outer one can see it.",
    "The source's 30 s need gzip, TLS, large buffers, or an answer below 4 KiB: then "
    "everything arrives at the end. With "
    "nginx's own 4 KiB buffers the client gets bursts of 17 events of 250 bytes instead.",
    "Since nginx 1.29.7 a bare `proxy_pass` in plaintext is harmless to a chunked stream. An "
    "engine that closes to "
    "delimit its answer is not, nor is a TLS listener.",
)

HELD = ("first_event_not_held", "events_not_coalesced")
OFF = "proxy_buffering off;"
HTTP10 = "proxy_http_version 1.0;"
LARGE = ("proxy_buffer_size 32k;", "proxy_buffers 8 32k;", "proxy_busy_buffers_size 64k;")
GZIP = ("gzip on;", "gzip_types text/event-stream;")
ASK_NO = "proxy_set_header X-Accel-Buffering no;"
PASS_HEADER = "proxy_pass_header X-Accel-Buffering;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One row of the matrix. `red` names the node that is to be blamed; empty means green."""

    slug: str
    title: str
    because: str
    measured: str
    nodes: tuple[Node, ...] = ()
    red: str = ""
    also: tuple[str, ...] = ()
    partner: str = ""
    differs: tuple[str, ...] = ()
    script: StreamScript | None = None
    defects: Defects = field(default_factory=Defects)
    accept_encoding: str = ""
    quick: bool = False


def new(*lines: str, **more: object) -> Node:
    """nginx 1.31, as shipped but for `lines`."""
    return replace(Node(kind="nginx", version="1.31", lines=lines), **more)  # type: ignore[arg-type]


def old(*lines: str, **more: object) -> Node:
    """nginx 1.22, as shipped but for `lines`."""
    return replace(Node(kind="nginx", version="1.22", lines=lines), **more)  # type: ignore[arg-type]


def _rows(script: StreamScript) -> Iterator[Arm]:
    yield Arm(
        slug="direct",
        title="no proxy",
        because="there is nothing between the engine and the client that could hold a byte",
        measured="0",
        quick=True,
    )
    yield from _http10()
    yield from _short_and_large(script)
    yield from _tls()
    yield from _gzip()
    yield from _framing()
    yield from _header(script)
    yield from _engine()


def _http10() -> Iterator[Arm]:
    yield Arm(
        slug="nginx-122-as-shipped",
        title="nginx 1.22 as shipped",
        because=(
            "it speaks HTTP/1.0 to the engine, which then closes to delimit its answer; nginx "
            "passes on full 4 KiB buffers"
        ),
        measured="+744 ms, bursts of 17",
        nodes=(old(),),
        red="nginx",
        partner="nginx-122-off",
        differs=(OFF,),
    )
    yield Arm(
        slug="nginx-122-off",
        title="nginx 1.22 with proxy_buffering off",
        because="without buffering each read from the engine is written on at once",
        measured="≤ +44 ms",
        nodes=(old(OFF),),
    )
    yield Arm(
        slug="nginx-131-as-shipped",
        title="nginx 1.31 as shipped",
        because="since 1.29.7 it speaks HTTP/1.1 to the engine, and a chunk's end is passed on",
        measured="+2 ms",
        nodes=(new(),),
        quick=True,
    )
    yield Arm(
        slug="nginx-131-http10",
        title="nginx 1.31 with proxy_http_version 1.0",
        because="the old default, set by hand: the engine closes to delimit its answer",
        measured="+743 ms, 17",
        nodes=(new(HTTP10),),
        red="nginx",
        partner="nginx-131-as-shipped",
        differs=(HTTP10,),
        quick=True,
    )
    yield Arm(
        slug="nginx-131-off",
        title="nginx 1.31 with proxy_buffering off",
        because="without buffering each read from the engine is written on at once",
        measured="≤ +44 ms",
        nodes=(new(OFF),),
    )


def _short_and_large(script: StreamScript) -> Iterator[Arm]:
    yield Arm(
        slug="nginx-122-large-buffers",
        title="nginx 1.22 with proxy_buffers 8 32k",
        because=(
            "the answer fits into the first buffer, so it leaves when it is whole: the story as "
            "the source tells it"
        ),
        measured="all at once",
        nodes=(old(*LARGE),),
        red="nginx",
        partner="nginx-122-off",
        differs=(*LARGE, OFF),
        script=replace(script, event_count=min(script.event_count, 100)),
    )
    yield Arm(
        slug="nginx-131-http10-short-answer",
        title="an answer below 4 KiB, upstream HTTP/1.0",
        because="it fits into the first buffer of 4 KiB and leaves when it is whole",
        measured="all at once",
        nodes=(new(HTTP10),),
        red="nginx",
        partner="nginx-131-short-answer",
        differs=(HTTP10,),
        script=replace(script, event_count=12),
    )
    yield Arm(
        slug="nginx-131-short-answer",
        title="an answer below 4 KiB, upstream HTTP/1.1",
        because="a chunk's end is passed on, however little there is",
        measured="+2 ms",
        nodes=(new(),),
        script=replace(script, event_count=12),
    )


def _tls() -> Iterator[Arm]:
    for word, node in (("122", old), ("131", new)):
        version = f"1.{word[1:]}"
        yield Arm(
            slug=f"nginx-{word}-tls",
            title=f"nginx {version} with a TLS listener, buffering on",
            because=(
                "buffered output is gathered into TLS records of ssl_buffer_size, 16 KiB, "
                "whatever the upstream speaks"
            ),
            measured="+2.9 s, all 60 in one burst",
            nodes=(node(tls=True),),
            red="nginx",
            partner=f"nginx-{word}-tls-off",
            differs=(OFF,),
        )
        yield Arm(
            slug=f"nginx-{word}-tls-off",
            title=f"nginx {version} with a TLS listener, proxy_buffering off",
            because="unbuffered output is flushed through TLS at once",
            measured="≤ +44 ms",
            nodes=(node(OFF, tls=True),),
        )


def _gzip() -> Iterator[Arm]:
    yield Arm(
        slug="nginx-131-gzip",
        title="gzip on text/event-stream, buffering on, the client takes gzip",
        because=(
            "the compressor is flushed only when nginx flushes, and buffered output is not "
            "flushed before the end"
        ),
        measured="+2.9 s, 60",
        nodes=(new(*GZIP),),
        red="nginx",
        partner="nginx-131-gzip-off",
        differs=(OFF,),
        accept_encoding="gzip",
    )
    for word, node in (("122", old), ("131", new)):
        yield Arm(
            slug=f"nginx-{word}-gzip-off",
            title=f"the same on nginx 1.{word[1:]} with proxy_buffering off",
            because="unbuffered output flushes the compressor at each read",
            measured="≤ +44 ms",
            nodes=(node(*GZIP, OFF),),
            accept_encoding="gzip",
        )
        yield Arm(
            slug=f"nginx-{word}-tls-gzip-off",
            title=f"gzip and TLS on nginx 1.{word[1:]} with proxy_buffering off",
            because="unbuffered output is flushed through both",
            measured="≤ +44 ms",
            nodes=(node(*GZIP, OFF, tls=True),),
            accept_encoding="gzip",
        )
    yield Arm(
        slug="nginx-131-gzip-default-types",
        title="gzip on with its default types",
        because="text/event-stream is not among them, so nothing is compressed",
        measured="+4 ms",
        nodes=(new("gzip on;"),),
        accept_encoding="gzip",
    )
    yield Arm(
        slug="nginx-131-gzip-not-asked",
        title="gzip on text/event-stream, a client without Accept-Encoding",
        because=(
            "nothing is compressed for a client that does not ask: a plain curl hides the fault"
        ),
        measured="+8 ms",
        nodes=(new(*GZIP),),
    )


def _framing() -> Iterator[Arm]:
    yield Arm(
        slug="nginx-131-close-delimited",
        title="an engine that closes to delimit its answer, nginx 1.31, buffering on",
        because=(
            "without chunks nothing tells nginx that a part may go on: full 4 KiB buffers leave"
        ),
        measured="+746 ms, 17",
        nodes=(new(),),
        red="nginx",
        partner="nginx-131-as-shipped",
        differs=("engine: close_delimited",),
        defects=Defects(close_delimited=True),
    )
    yield Arm(
        slug="nginx-122-http10-chunked",
        title="an engine that answers HTTP/1.0 with chunks, nginx 1.22 as shipped",
        because=(
            "against RFC 9112 the answer is chunked, and nginx passes a chunk's end on: what "
            "vLLM's server does"
        ),
        measured="+0",
        nodes=(old(),),
        defects=Defects(http10_chunked=True),
    )


def _header(script: StreamScript) -> Iterator[Arm]:
    says_no = replace(script, accel_buffering="no")
    yield Arm(
        slug="nginx-122-set-header",
        title="nginx 1.22 with proxy_set_header X-Accel-Buffering no",
        because="the line sends a header to the engine; nginx obeys it only in the engine's answer",
        measured="+744 ms, 17",
        nodes=(old(ASK_NO),),
        red="nginx",
        partner="nginx-122-engine-header",
        differs=(ASK_NO, "engine: X-Accel-Buffering: no"),
    )
    yield Arm(
        slug="nginx-122-engine-header",
        title="the engine sends X-Accel-Buffering: no, nginx 1.22",
        because="nginx obeys the header of the answer",
        measured="0",
        nodes=(old(),),
        script=says_no,
    )
    yield Arm(
        slug="two-hops-122",
        title="the same through two nginx, the outer one 1.22",
        because="the inner nginx obeys the header and swallows it, the outer one never sees it",
        measured="+750 ms, 17, at the outer hop",
        nodes=(old(), old()),
        red="nginx-1",
        partner="two-hops-122-pass-header",
        differs=(PASS_HEADER,),
        script=says_no,
    )
    yield Arm(
        slug="two-hops-122-pass-header",
        title="with proxy_pass_header X-Accel-Buffering on the inner one",
        because="the inner nginx passes the header on, and the outer one obeys it too",
        measured="+1 ms",
        nodes=(old(), old(PASS_HEADER)),
        script=says_no,
    )
    yield Arm(
        slug="two-hops-131",
        title="through two nginx, the outer one 1.31",
        because="the header is not needed: HTTP/1.1 and chunks on each hop",
        measured="+2 ms",
        nodes=(new(), new()),
        script=says_no,
    )


def _engine() -> Iterator[Arm]:
    yield Arm(
        slug="engine-clumps",
        title="the engine itself clumps; nginx with proxy_buffering off",
        because="17 events leave the engine together; nginx passes on what it gets",
        measured="–",
        nodes=(new(OFF),),
        red="reference",
        also=("events_not_coalesced", "engine_on_schedule"),
        partner="nginx-131-off",
        differs=("engine: clump_events 17",),
        defects=Defects(clump_events=17),
        quick=True,
    )
    yield Arm(
        slug="engine-stalls",
        title="the engine itself stalls; nginx with proxy_buffering off",
        because=(
            "the engine is silent for 1.5 s where its script is not; nginx passes on what it gets"
        ),
        measured="–",
        nodes=(new(OFF),),
        red="reference",
        also=("engine_on_schedule",),
        partner="nginx-131-off",
        differs=("engine: stall_ms 1500",),
        defects=Defects(stall_after_events=20, stall_ms=1500),
    )


def _expectations(arm: Arm) -> tuple[Expectation, ...]:
    if not arm.red:
        return ()
    return tuple(
        Expectation(check=name, verdict=Verdict.FAIL, because=arm.because, culprit=arm.red)
        for name in (arm.also or HELD)
    )


def arms(time_divisor: int = 10, seed: int = 0) -> tuple[Scenario, ...]:
    """The matrix. In real time (divisor 1) 600 events, the first after 200 ms; else 60, after 20
    ms."""
    real = time_divisor == 1
    script = StreamScript(
        event_count=600 if real else 60, first_token_ms=200 if real else 20, seed=seed
    )
    return tuple(_scenario(arm, script, time_divisor, seed) for arm in _rows(script))


def _scenario(arm: Arm, script: StreamScript, time_divisor: int, seed: int) -> Scenario:
    script = arm.script or script
    stream_ms = script.due_ms(script.event_count) + arm.defects.stall_ms
    return Scenario(
        id=f"story1/{arm.slug}",
        title=arm.title,
        stack=Stack(id=arm.slug, nodes=(*arm.nodes, Node(kind="reference"))),
        workload=Workload(
            script=script,
            defects=arm.defects,
            accept_encoding=arm.accept_encoding,
            deadline_ms=stream_ms * 2 + 15_000,
        ),
        expectations=_expectations(arm),
        because=arm.because,
        partner=f"story1/{arm.partner}" if arm.partner else "",
        differs=arm.differs,
        measured_before=arm.measured,
        needs=tuple(f"{n.kind}@{n.version}" for n in arm.nodes),
        tiers=("quick", "full") if arm.quick else ("full",),
        load=Load.SHAPE,
        time_divisor=time_divisor,
        seed=seed,
        deadline_ms=stream_ms * 2 + 45_000,
    )
