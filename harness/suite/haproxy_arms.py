"""HAProxy's rows: a chunk that waits for more or for 200 ms, and a client whose going is unheard.

The hold is the kernel's (MSG_MORE: one segment, or 200 ms), so no scale shortens it; a burst holds
what the engine makes in that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
from harness.suite.nginx_buffers import Arm

NO_DELAY = "option http-no-delay"
ABORT = "option abortonclose"
VERSIONS = ("2.8", "2.6")
AFTER_EVENTS = 10
SILENCE_MS = 1_500
LANES = (Lane.DIRECT, Lane.THROUGH, Lane.THROUGH, Lane.DIRECT)
CANCEL_CHECKS = ("one_request_one_engine_request", "cancel_reaches_engine", "kv_blocks_return")


def _node(version: str, *lines: str, tls: bool = False) -> Node:
    return Node(kind="haproxy", version=version, lines=lines, tls=tls)


def rows(script: StreamScript) -> Iterator[Arm]:
    """Both versions: as shipped, with the option, with an engine that closes, and over TLS."""
    for version in VERSIONS:
        yield from _plain(version)
        yield from _tls(version)


def _plain(version: str) -> Iterator[Arm]:
    slug = f"haproxy-{version.replace('.', '')}"
    yield Arm(
        slug=f"{slug}-as-shipped",
        title=f"HAProxy {version} as shipped",
        because=(
            "it re-frames chunks and tells the kernel that more is coming, which waits for a full "
            "segment or 200 ms"
        ),
        measured="+202 ms, bursts of 4",
        nodes=(_node(version),),
        red="haproxy",
        partner=f"{slug}-no-delay",
        differs=(NO_DELAY,),
    )
    yield Arm(
        slug=f"{slug}-no-delay",
        title=f"HAProxy {version} with option http-no-delay",
        because="each chunk is written without the promise of more",
        measured="+1 ms",
        nodes=(_node(version, NO_DELAY),),
    )
    yield Arm(
        slug=f"{slug}-close-delimited",
        title=f"an engine that closes to delimit its answer, HAProxy {version} as shipped",
        because="without chunks there is nothing to re-frame: bytes are passed on as they come",
        measured="+1 ms",
        nodes=(_node(version),),
        defects=Defects(close_delimited=True),
    )


def _tls(version: str) -> Iterator[Arm]:
    slug = f"haproxy-{version.replace('.', '')}-tls"
    holds = version == "2.8"
    because = "the promise of more is kept through TLS" if holds else "its TLS writes at once"
    yield Arm(
        slug=slug,
        title=f"HAProxy {version} with a TLS listener",
        because=because,
        measured="+207 ms" if holds else "+1 ms",
        nodes=(_node(version, tls=True),),
        red="haproxy" if holds else "",
        partner=f"{slug}-no-delay" if holds else "",
        differs=(NO_DELAY,) if holds else (),
    )
    yield Arm(
        slug=f"{slug}-no-delay",
        title=f"HAProxy {version} with a TLS listener and option http-no-delay",
        because="each chunk is written without the promise of more",
        measured="+1 ms",
        nodes=(_node(version, NO_DELAY, tls=True),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelArm:
    """A client that leaves in a silence of the engine; `deaf`: the engine hears of it too late."""

    slug: str
    title: str
    because: str
    measured: str
    node: Node
    how: Leave = Leave.FIN
    deaf: bool = False
    partner: str = ""
    differs: tuple[str, ...] = ()


def cancel_rows() -> Iterator[CancelArm]:
    """Both versions by FIN without and with the option, and by RST with it.

    By RST without the option nothing is told: of streams alike one is heard of at once, the next
    only at a write.
    """
    watched = "with the option in defaults the client is watched in a silence, too"
    for version in VERSIONS:
        slug = f"haproxy-{version.replace('.', '')}"
        yield CancelArm(
            slug=f"{slug}-fin",
            title=f"HAProxy {version}, the client leaves by FIN in a silence",
            because="a FIN is taken for a half-close: the second write after it finds nobody there",
            measured="1600 ms, a silence of 1.5 s and two gaps",
            node=_node(version, NO_DELAY),
            deaf=True,
            partner=f"{slug}-abortonclose-fin",
            differs=(ABORT,),
        )
        for how in (Leave.FIN, Leave.RST):
            yield CancelArm(
                slug=f"{slug}-abortonclose-{how}",
                title=f"HAProxy {version} with option abortonclose, {how.upper()} in a silence",
                because=watched,
                measured="< 2 ms",
                node=_node(version, NO_DELAY, ABORT),
                how=how,
            )


def cancels(time_divisor: int, seed: int) -> tuple[Scenario, ...]:
    """The cancel rows as scenarios."""
    pauses = (Pause(after_events=AFTER_EVENTS, silence_ms=SILENCE_MS),)
    script = StreamScript(event_count=40, gap_ms=50, pauses=pauses, seed=seed)
    return tuple(_cancel(arm, script, time_divisor) for arm in cancel_rows())


def _cancel(arm: CancelArm, script: StreamScript, time_divisor: int) -> Scenario:
    late = Expectation(
        check="cancel_reaches_engine", verdict=Verdict.FAIL, because=arm.because, culprit="haproxy"
    )
    return Scenario(
        id=f"cancel/{arm.slug}",
        title=arm.title,
        stack=Stack(id=arm.slug, nodes=(arm.node, Node(kind="reference"))),
        workload=Workload(
            script=script,
            lanes=LANES,
            cancel=Cancel(how=arm.how, after_events=AFTER_EVENTS),
        ),
        expectations=(late,) if arm.deaf else (),
        checks=CANCEL_CHECKS,
        because=arm.because,
        partner=f"cancel/{arm.partner}" if arm.partner else "",
        differs=arm.differs,
        measured_before=arm.measured,
        needs=(f"haproxy@{arm.node.version}",),
        load=Load.SHAPE,
        time_divisor=time_divisor,
        seed=script.seed,
    )
