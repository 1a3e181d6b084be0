"""The client goes away: does the engine learn of it, and does it give its blocks back?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.model import (
    Cancel,
    Defects,
    Expectation,
    Lane,
    Leave,
    Load,
    Node,
    Pause,
    Scenario,
    Stack,
    StreamScript,
    Verdict,
    Workload,
)

LANES = (Lane.DIRECT, Lane.THROUGH, Lane.THROUGH, Lane.DIRECT)
AFTER_EVENTS = 10
SILENCE_MS = 1_500
CANCEL_CHECKS = ("one_request_one_engine_request", "cancel_reaches_engine", "kv_blocks_return")


def scenarios(time_divisor: int, seed: int) -> tuple[Scenario, ...]:
    """By FIN, RST and close_notify through nginx; and with engines that do not hear, or do not let
    go."""
    script = StreamScript(event_count=40, gap_ms=50, seed=seed)
    silent = replace(script, pauses=(Pause(after_events=AFTER_EVENTS, silence_ms=SILENCE_MS),))
    off = Node(kind="nginx", version="1.31", lines=("proxy_buffering off;",))
    deaf = Node(
        kind="nginx",
        version="1.31",
        lines=("proxy_buffering off;", "proxy_ignore_client_abort on;"),
    )
    tls = Node(kind="nginx", version="1.31", lines=("proxy_buffering off;",), tls=True)
    green = "nginx passes the closing on within milliseconds, and the engine aborts"
    rows = (
        ("nginx-fin", "the client leaves by FIN", off, Leave.FIN, Defects(), (), green, True),
        ("nginx-rst", "the client leaves by RST", off, Leave.RST, Defects(), (), green, False),
        (
            "nginx-close-notify",
            "the client leaves by close_notify",
            tls,
            Leave.CLOSE_NOTIFY,
            Defects(),
            (),
            "unbuffered, the next write to the client finds it gone",
            False,
        ),
        (
            "nginx-ignores-abort",
            "nginx with proxy_ignore_client_abort on, in a pause",
            deaf,
            Leave.FIN,
            Defects(),
            (("cancel_reaches_engine", "nginx"),),
            "nginx stops watching its client and finds out when it next writes",
            False,
        ),
        (
            "engine-ignores-cancel",
            "an engine that goes on after the cancel",
            off,
            Leave.FIN,
            Defects(ignores_cancel=True),
            (("cancel_reaches_engine", "reference"),),
            "the closing reaches the engine in time, which generates on to the end",
            True,
        ),
        (
            "engine-never-frees",
            "an engine that never frees the blocks of a cancelled request",
            off,
            Leave.FIN,
            Defects(frees_never=True),
            (("kv_blocks_return", "reference"),),
            "the abort is logged, the blocks stay allocated",
            False,
        ),
        (
            "engine-frees-twice",
            "an engine that frees blocks twice",
            off,
            Leave.FIN,
            Defects(frees_twice=True),
            (("kv_blocks_return", "reference"),),
            "both the except and the finally path release the slot",
            False,
        ),
    )
    by_request = tuple(
        Scenario(
            id=f"cancel/{slug}",
            title=title,
            stack=Stack(id=slug, nodes=(node, Node(kind="reference"))),
            workload=Workload(
                script=silent if node is deaf else script,
                defects=defects,
                lanes=LANES,
                cancel=Cancel(how=how, after_events=AFTER_EVENTS),
            ),
            expectations=tuple(
                Expectation(check=name, verdict=Verdict.FAIL, because=because, culprit=culprit)
                for name, culprit in red
            ),
            checks=CANCEL_CHECKS,
            because=because,
            partner="cancel/nginx-fin" if red else "",
            tiers=("quick", "full") if quick else ("full",),
            load=Load.SHAPE,
            time_divisor=time_divisor,
            seed=seed,
        )
        for slug, title, node, how, defects, red, because, quick in rows
    )
    return (*by_request, *_metrics(script, off, seed, time_divisor))


def _metrics(script: StreamScript, proxy: Node, seed: int, time_divisor: int) -> Iterator[Scenario]:
    """Engines of their own, measured alone, since gauges belong to all requests."""
    rows = (
        ("metrics", "gauges and abort counter after cancels", (), "each abort is counted"),
        (
            "engine-stale-gauges",
            "an engine whose gauges move only when it steps",
            ("stale_gauges",),
            "a poke before the reading makes them move",
        ),
        (
            "engine-dead-abort-counter",
            "an engine that does not count aborts",
            ("dead_abort_counter",),
            "the ledger has aborts that the counter has not",
        ),
    )
    for slug, title, switches, because in rows:
        red = slug == "engine-dead-abort-counter"
        told = Expectation(
            check="metrics_agree_with_ledger",
            verdict=Verdict.FAIL,
            because=because,
            culprit="reference",
        )
        yield Scenario(
            id=f"cancel/{slug}",
            title=title,
            stack=Stack(id=slug, nodes=(proxy, Node(kind="reference", lines=switches))),
            workload=Workload(
                script=script,
                lanes=LANES,
                cancel=Cancel(how=Leave.FIN, after_events=AFTER_EVENTS),
                sample_metrics=True,
            ),
            expectations=(told,) if red else (),
            checks=(*CANCEL_CHECKS, "metrics_agree_with_ledger"),
            because=because,
            partner="cancel/metrics" if red else "",
            differs=tuple(f"engine: {s}" for s in switches),
            load=Load.MEASURES,
            time_divisor=time_divisor,
            seed=seed,
        )
