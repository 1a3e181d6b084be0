"""How a stream ends: whether a cut can be told from the end, and whether the end is said once."""

from __future__ import annotations

from faults import fault
from harness.model import (
    Defects,
    Expectation,
    Injection,
    Leave,
    Load,
    Node,
    Scenario,
    Stack,
    StreamScript,
    Trigger,
    TriggerKind,
    Verdict,
    Workload,
)

OFF = ("proxy_buffering off;",)
ENDING_CHECKS = (
    "payload_intact",
    "no_silent_truncation",
    "terminator_exactly_once",
    "not_cut_before_engine_ended",
)


def scenarios(time_divisor: int, seed: int) -> tuple[Scenario, ...]:
    """Engines that end wrongly, and a hop that cuts, each behind nginx with buffering off."""
    return (
        _engine("complete", "an answer that ends as it should", Defects(), (), seed, time_divisor),
        _engine(
            "engine-no-terminator",
            "an engine that forgets [DONE]",
            Defects(no_terminator=True),
            ("terminator_exactly_once",),
            seed,
            time_divisor,
        ),
        _engine(
            "engine-error-after-200",
            "an engine that fails after its 200",
            Defects(error_event_after=8),
            ("terminator_exactly_once",),
            seed,
            time_divisor,
        ),
        _engine(
            "engine-cut-chunked",
            "an engine that dies in a chunked answer",
            Defects(cut_after_events=8, cut_by=Leave.FIN),
            ("not_cut_before_engine_ended",),
            seed,
            time_divisor,
        ),
        _engine(
            "engine-cut-close-delimited",
            "an engine that dies in an answer delimited by closing",
            Defects(close_delimited=True, cut_after_events=8, cut_by=Leave.FIN),
            (
                "terminator_exactly_once",
                "not_cut_before_engine_ended",
                "no_silent_truncation",
            ),
            seed,
            time_divisor,
        ),
        _limited(seed, time_divisor),
    )


def _scenario(
    slug: str,
    title: str,
    defects: Defects,
    expectations: tuple[Expectation, ...],
    injections: tuple[Injection, ...],
    seed: int,
    time_divisor: int,
) -> Scenario:
    node = Node(kind="nginx", version="1.31", lines=OFF)
    return Scenario(
        id=f"ending/{slug}",
        title=title,
        stack=Stack(id=slug, nodes=(node, Node(kind="reference"))),
        workload=Workload(
            script=StreamScript(event_count=16, gap_ms=20, seed=seed), defects=defects
        ),
        expectations=expectations,
        injections=injections,
        checks=ENDING_CHECKS,
        because=title,
        tiers=("full",),
        load=Load.SHAPE,
        time_divisor=time_divisor,
        seed=seed,
    )


def _engine(
    slug: str,
    title: str,
    defects: Defects,
    red: tuple[str, ...],
    seed: int,
    time_divisor: int,
) -> Scenario:
    expectations = tuple(
        Expectation(check=name, verdict=Verdict.FAIL, because=title, culprit="reference")
        for name in red
    )
    return _scenario(slug, title, defects, expectations, (), seed, time_divisor)


def _limited(seed: int, time_divisor: int) -> Scenario:
    """The cut is seen by the client, so nothing is silent; but it is a cut."""
    trigger = Trigger(kind=TriggerKind.EVENTS, count=8)
    injection = Injection(fault=fault("limit-data", limit_bytes=0), hop=1, trigger=trigger)
    return _scenario(
        "limit-data-after-8-events",
        "the hop between nginx and the engine is cut after 8 events",
        Defects(),
        (
            Expectation(
                check="not_cut_before_engine_ended",
                verdict=Verdict.FAIL,
                because=(
                    "the hop ended the answer; nginx told the client so by leaving the last "
                    "chunk out"
                ),
                culprit="hop1",
            ),
        ),
        (injection,),
        seed,
        time_divisor,
    )
