"""Reports made by hand: every kind of outcome, long names, odd bytes; and the war story's arms."""

from __future__ import annotations

from dataclasses import replace

from harness.model import (
    Cause,
    Directive,
    Expectation,
    Finding,
    Node,
    Outcome,
    Position,
    Report,
    Scenario,
    Stack,
    Strength,
    Symptom,
    SymptomKind,
    Told,
    Verdict,
)

GREEN_FIGURES = (
    ("ttft_ms_direct", 21.3),
    ("ttft_ms_through", 23.25),
    ("hold_ms", 0.7),
    ("biggest_burst", 1.0),
    ("end_terminator_count", 4.0),
)
RED_FIGURES = (
    ("ttft_ms_direct", 21.3),
    ("ttft_ms_through", 765.49),
    ("hold_ms", 743.6),
    ("biggest_burst", 17.0),
    ("end_terminator_count", 4.0),
)
HTTP10 = Directive(
    file="nginx.conf",
    line=41,
    text="proxy_http_version 1.0;",
    explains=(SymptomKind.HELD, SymptomKind.COALESCED),
    cure="Set proxy_http_version 1.1, or proxy_buffering off: an HTTP/1.0 answer is not chunked, "
    "and nginx passes it on by full buffers.",
)
OFF_MISSING = Directive(
    file="nginx.conf",
    line=38,
    text="proxy_buffering off;",
    explains=(SymptomKind.HELD,),
    cure="Set proxy_buffering off in the location.",
    missing=True,
)


def held(
    *, verdict: Verdict = Verdict.FAIL, directive: Directive | None = HTTP10, proven: bool = False
) -> Finding:
    """The first event held by nginx."""
    return Finding(
        check="first_event_not_held",
        verdict=verdict,
        expected="each node passes the first event on within 100 ms",
        actual="nginx held the first event until 744 ms after its arrival",
        symptom=Symptom(kind=SymptomKind.HELD, node="nginx"),
        culprit="nginx",
        directive=directive,
        directive_proven=proven,
        advice=directive.cure if directive else "",
        evidence=(
            Position(key="r1.story1_a.through.0", vantage="client", event_index=0),
            Position(key="r1.story1_a.through.1", vantage="hop1", event_index=17),
        ),
        figures=(("hold_ms", 743.6),),
        source="nginx, ngx_http_proxy_module, proxy_buffering; RFC 9112 §7.1",
    )


UNKNOWN = Finding(
    check="events_not_coalesced",
    verdict=Verdict.UNKNOWN,
    expected="less than 5 % of the gaps are closed by a node",
    actual="2 of 59 gaps may be closed, 3 would be needed to tell",
    cause=Cause.NOISE,
    settle="a run on a quieter machine",
)
PASSED = Finding(check="payload_identical", verdict=Verdict.PASS, actual="60 of 60 events")
OBSERVED = Finding(check="engine_on_schedule", verdict=Verdict.FAIL, strength=Strength.OBSERVE)

AS_TOLD = Outcome(
    scenario="story1/nginx-131-as-shipped",
    title="nginx 1.31 as shipped",
    told=Told.AS_TOLD,
    findings=(PASSED,),
    figures=GREEN_FIGURES,
    folder="story1/nginx-131-as-shipped/attempt-1",
    duration_ms=4_321,
)
RED_AS_TOLD = Outcome(
    scenario="story1/nginx-131-http10-short-answer",
    title="nginx 1.31 with proxy_http_version 1.0",
    told=Told.AS_TOLD,
    findings=(held(proven=True), PASSED),
    figures=RED_FIGURES,
    folder="story1/nginx-131-http10/attempt-1",
    duration_ms=5_000,
)
NOT_AS_TOLD = Outcome(
    scenario="story1/nginx-122-off",
    title="nginx 1.22 with proxy_buffering off",
    told=Told.NOT_AS_TOLD,
    reasons=(
        "first_event_not_held is fail at nginx: nginx held the first event until 744 ms after its "
        "arrival; nobody told so",
    ),
    findings=(PASSED, OBSERVED, held(directive=OFF_MISSING), UNKNOWN),
    figures=(*RED_FIGURES[:4], ("end_terminator_count", 3.0), ("end_reset_count", 1.0)),
    folder="story1/nginx-122-off/attempt-1",
    duration_ms=5_100,
)
UNDECIDED = Outcome(
    scenario="story1/nginx-131-tls",
    title="nginx 1.31 with a TLS listener, buffering on",
    told=Told.UNDECIDED,
    reasons=("events_not_coalesced is unknown (noise): 2 of 59 gaps may be closed",),
    findings=(UNKNOWN,),
    figures=(("ttft_ms_direct", 20.0),),
    attempts=3,
    folder="story1/nginx-131-tls/attempt-3",
    duration_ms=15_000,
)
HARNESS_ERROR = Outcome(
    scenario="cancels/rst-before-the-first-event",
    title="the client resets before the first event",
    told=Told.HARNESS_ERROR,
    error="nginx: did not get ready within 20 s\n  its log ends with: \x1b[31mbind()\x00 failed",
    folder="cancels/rst-before-the-first-event/attempt-1",
    duration_ms=20_100,
)
SKIPPED = Outcome(
    scenario="story1/nginx-122-as-shipped",
    title="nginx 1.22 as shipped",
    told=Told.UNDECIDED,
    skipped="nginx 1.22 is not on this machine: make nginx-debian",
)
ALL_KINDS = (AS_TOLD, RED_AS_TOLD, NOT_AS_TOLD, UNDECIDED, SKIPPED, HARNESS_ERROR)

LONG_ID = "nginx-h1/sse-h1/reset-peer/hop1-toward-client-in-the-silent-phase/" + "-".join(
    ["after-5-events"] * 4
)
LONG_DIRECTIVE = "proxy_set_header X-Forwarded-For " + "$proxy_add_x_forwarded_for" * 6 + ";"
LONG = Outcome(
    scenario=LONG_ID,
    title="a title that is much longer than any title should ever be, " * 3,
    told=Told.NOT_AS_TOLD,
    reasons=("first_event_not_held is fail at nginx",),
    findings=(
        held(
            directive=Directive(
                file="/etc/nginx/sites-enabled/a-very-long-name-of-a-site.conf",
                line=1041,
                text=LONG_DIRECTIVE,
                explains=(),
                cure="Do without. " * 20,
            )
        ),
    ),
    figures=(*RED_FIGURES[:4], ("end_clean_eof_without_terminator_count", 4.0)),
    folder=f"{LONG_ID}/attempt-1",
)


def report(*outcomes: Outcome, seed: int = 7) -> Report:
    """A report of the outcomes."""
    return Report(
        format="streamchaos.report/1",
        run="r0000002a",
        title="War story 1: nginx holds the stream",
        seed=seed,
        engine="reference",
        time_divisor=10,
        started_utc="2026-12-01T01:27:08Z",
        command=f"streamchaos warstory 1 --seed {seed}",
        versions=(("streamchaos", "0.1.0"), ("nginx", "1.31.3")),
        outcomes=outcomes,
        folder="chaos-results/20261201T012708Z-7",
    )


KNOWN = report(*ALL_KINDS)


def many(count: int) -> Report:
    """A report of as many scenarios, of all kinds in turn."""
    chosen = (ALL_KINDS[n % len(ALL_KINDS)] for n in range(count))
    return report(*(replace(o, scenario=f"{o.scenario}-{n}") for n, o in enumerate(chosen)))


def too_wide(text: str, width: int) -> list[str]:
    """The lines that do not fit."""
    return [line for line in text.splitlines() if len(line) > width]


def is_whole(line: str) -> bool:
    """A path or command, alone on its line so that it can be copied: it may be as long as it is."""
    words = line.split()
    return line.startswith("    ") and (len(words) == 1 or words[0] == "pytest")


STACK = Stack(id="nginx", nodes=(Node(kind="nginx", version="1.31"), Node(kind="reference")))
RED_ARM = Scenario(
    id=RED_AS_TOLD.scenario,
    title=RED_AS_TOLD.title,
    stack=STACK,
    expectations=tuple(
        Expectation(check=check, verdict=Verdict.FAIL, culprit="nginx")
        for check in ("first_event_not_held", "events_not_coalesced")
    ),
    because="the old default, set by hand: the engine closes to delimit its answer",
    partner=AS_TOLD.scenario,
    differs=("proxy_http_version 1.0;", "engine: X-Accel-Buffering: no"),
    measured_before="+743 ms, 17",
)
GREEN_ARM = Scenario(
    id=AS_TOLD.scenario,
    title=AS_TOLD.title,
    stack=STACK,
    because="since 1.29.7 it speaks HTTP/1.1 to the engine, and a chunk's end is passed on",
)
SKIPPED_ARM = Scenario(
    id=SKIPPED.scenario, title=SKIPPED.title, stack=STACK, expectations=RED_ARM.expectations
)
UNTOLD_ARM = Scenario(id=NOT_AS_TOLD.scenario, title=NOT_AS_TOLD.title, stack=STACK)
ARMS = (RED_ARM, GREEN_ARM, SKIPPED_ARM, UNTOLD_ARM)
