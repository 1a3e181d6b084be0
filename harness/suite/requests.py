"""How often one request of a client reaches the engine."""

from __future__ import annotations

from harness.model import (
    Expectation,
    Load,
    Node,
    Scenario,
    Stack,
    StreamScript,
    Verdict,
    Workload,
)

CHECKS = ("one_request_one_engine_request", "payload_intact")
MIRROR = (
    "location = /mirror {",
    "    internal;",
    "    proxy_pass http://@{upstream}$request_uri;",
    "}",
)


def scenarios(time_divisor: int, seed: int) -> tuple[Scenario, ...]:
    """nginx that mirrors each request, and one that does not."""
    once = Node(kind="nginx", version="1.31", lines=("proxy_buffering off;",))
    mirrored = Node(
        kind="nginx",
        version="1.31",
        lines=("proxy_buffering off;", "mirror /mirror;"),
        server_lines=("\n".join(MIRROR),),
    )
    told = Expectation(
        check="one_request_one_engine_request",
        verdict=Verdict.FAIL,
        because="the mirror's subrequest carries the same key",
        culprit="nginx",
    )
    rows = (
        ("nginx-once", "each request goes to the engine once", once, (), ""),
        (
            "nginx-mirror",
            "nginx with a mirror to the same engine",
            mirrored,
            (told,),
            "requests/nginx-once",
        ),
    )
    return tuple(
        Scenario(
            id=f"requests/{slug}",
            title=title,
            stack=Stack(id=slug, nodes=(node, Node(kind="reference"))),
            workload=Workload(script=StreamScript(event_count=12, gap_ms=20, seed=seed)),
            expectations=expectations,
            checks=CHECKS,
            because=title,
            partner=partner,
            differs=("mirror /mirror;",) if partner else (),
            load=Load.SHAPE,
            time_divisor=time_divisor,
            seed=seed,
        )
        for slug, title, node, expectations, partner in rows
    )
