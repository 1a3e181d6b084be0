"""Continuous batching, in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import Defects, EventKind, LedgerEntry, Pause, StreamScript
from stacks.reference.ledger import Ledger
from stacks.reference.scheduler import MS, Emission, Gauges, Generation, Scheduler

STEP_MS = 5


class World:
    """A scheduler whose clock jumps from one piece of work to the next."""

    def __init__(self, *, seqs: int = 4, blocks: int = 64, prefill_ms: int = 0) -> None:
        self.entries: list[LedgerEntry] = []
        self.emissions: list[tuple[int, Emission]] = []
        self.now_ms = 0
        self.scheduler = Scheduler(
            ledger=Ledger(blocks),
            block_tokens=4,
            max_num_seqs=seqs,
            step_ns=STEP_MS * MS,
            prefill_ns=prefill_ms * MS,
            record=self.entries.append,
        )

    def submit(self, request: str, script: StreamScript, defects: Defects | None = None) -> None:
        """Hands in a request now."""
        generation = Generation(request=request, script=script, defects=defects or Defects())
        self.scheduler.submit(generation, self.now_ms * MS)

    def run(self, until_ms: int = 1_000_000) -> None:
        """Lets the clock go on to `until_ms`, or until there is no work."""
        while (wake_ns := self.scheduler.next_wake_ns()) is not None and wake_ns <= until_ms * MS:
            assert wake_ns % (STEP_MS * MS) == 0
            self.now_ms = wake_ns // MS
            leaving = self.scheduler.step(wake_ns)
            self.emissions.extend((self.now_ms, emission) for emission in leaving)
        self.now_ms = until_ms

    def left_ms(self, request: str, kind: EventKind = EventKind.CONTENT) -> list[int]:
        """When the events of a request left."""
        return [ms for ms, e in self.emissions if e.request == request and e.kind is kind]

    def log(self, request: str, what: str) -> list[LedgerEntry]:
        """What the log says of a request."""
        return [e for e in self.entries if e.request == request and e.what == what]

    def abort(self, request: str) -> bool:
        """The client leaves now."""
        return self.scheduler.abort(request, self.now_ms * MS, "read")


SCRIPT = StreamScript(event_count=4, first_token_ms=20, gap_ms=50)


def test_script_alone_is_played_on_time() -> None:
    """Events leave when the script says, the last one is marked, and nothing stays behind."""
    world = World()
    world.submit("r", SCRIPT)
    world.run()
    assert world.left_ms("r") == [20, 70, 120, 170]
    assert [e.last for _, e in world.emissions] == [False, False, False, True]
    assert world.log("r", "finished")[0].events == 4
    assert world.scheduler.ledger.usage == 0
    assert world.scheduler.next_wake_ns() is None


def test_event_between_steps_leaves_with_the_next() -> None:
    """An event that is due between two steps waits for the second."""
    world = World()
    world.submit("r", StreamScript(event_count=3, first_token_ms=21, gap_ms=7))
    world.run()
    assert world.left_ms("r") == [25, 30, 35]


def test_pause_of_the_script_is_silent() -> None:
    """A pause shifts what comes behind it."""
    world = World()
    pauses = (Pause(after_events=2, silence_ms=300),)
    world.submit("r", StreamScript(event_count=4, pauses=pauses))
    world.run()
    assert world.left_ms("r") == [20, 70, 420, 470]


def test_prefill_comes_on_top() -> None:
    """The engine's own prefill time delays the whole script."""
    world = World(prefill_ms=100)
    world.submit("r", SCRIPT)
    world.run()
    assert world.left_ms("r") == [120, 170, 220, 270]


def test_queue_full_request_waits_and_plays_from_admission() -> None:
    """With all places taken a request waits, and its script starts when it is admitted."""
    world = World(seqs=1)
    world.submit("r", SCRIPT)
    world.submit("s", SCRIPT)
    assert world.scheduler.gauges == Gauges(running=1, waiting=1, kv_usage=1 / 64)
    world.run()
    assert world.left_ms("s") == [190, 240, 290, 340]
    assert world.log("s", "admitted")[0].at_ns == 170 * MS


def test_blocks_short_request_waits() -> None:
    """A request is not admitted while the blocks it will need are promised to others."""
    world = World(blocks=2)
    world.submit("r", SCRIPT)
    world.submit("s", SCRIPT)
    world.run()
    assert world.log("s", "admitted")[0].at_ns == 170 * MS


def test_blocks_grow_with_the_tokens() -> None:
    """One block per four tokens, the prompt's included, each when it is needed."""
    world = World()
    world.submit("r", StreamScript(event_count=8))
    world.run()
    assert [(e.at_ns // MS, e.blocks) for e in world.log("r", "allocated")] == [
        (0, 1),
        (170, 1),
        (370, 1),
    ]
    assert [e.blocks for e in world.log("r", "freed")] == [3]


def test_step_late_catches_up_one_event_per_step() -> None:
    """After a stall of the process each request gets one event per step, in order."""
    world = World()
    world.submit("r", SCRIPT)
    assert [e.event_index for e in world.scheduler.step(500 * MS)] == [0]
    assert world.scheduler.next_wake_ns() == 505 * MS
    assert [e.event_index for e in world.scheduler.step(505 * MS)] == [1]


@pytest.mark.parametrize(
    ("at_ms", "phase", "events"), [(0, "waiting", 0), (200, "prefill", 0), (215, "decode", 1)]
)
def test_abort_in_each_phase_frees_everything(at_ms: int, phase: str, events: int) -> None:
    """Whenever the client leaves, the log tells the phase, and no event or block stays."""
    world = World(seqs=1)
    world.submit("first", SCRIPT)
    world.submit("r", StreamScript(event_count=4, first_token_ms=40))
    world.run(at_ms)
    assert world.abort("r")
    entry = world.log("r", "aborted")[0]
    assert (entry.detail, entry.events) == (f"{phase} read", events)
    world.run()
    assert len(world.left_ms("r")) == events
    assert world.scheduler.ledger.usage == 0
    assert world.scheduler.counters.success == {"stop": 0, "length": 1, "abort": 1}


def test_abort_twice_or_after_the_end_changes_nothing() -> None:
    """A request ends once."""
    world = World()
    world.submit("r", SCRIPT)
    world.run(30)
    assert world.abort("r")
    assert not world.abort("r")
    assert len(world.log("r", "aborted")) == 1


def test_comments_fill_silences_only() -> None:
    """Comments come before the first token and in pauses, counted from what left last."""
    world = World()
    script = StreamScript(
        event_count=3,
        first_token_ms=250,
        pauses=(Pause(after_events=2, silence_ms=200),),
        comment_every_ms=100,
    )
    world.submit("r", script)
    world.run()
    assert world.left_ms("r") == [250, 300, 550]
    assert world.left_ms("r", EventKind.COMMENT) == [100, 200, 400, 500]


def test_comments_without_interval_never_come() -> None:
    """0 means none."""
    world = World()
    world.submit("r", StreamScript(event_count=2, first_token_ms=10_000))
    world.run()
    assert world.left_ms("r", EventKind.COMMENT) == []


# ------------------------------------------------------------------------------------ defects


def _run(defects: Defects, script: StreamScript = SCRIPT) -> World:
    world = World()
    world.submit("r", script, defects)
    world.run()
    return world


def test_clump_holds_events_until_enough_are_there() -> None:
    """Events leave three at a time, when the third is due; the rest leaves at the end."""
    world = _run(Defects(clump_events=3), StreamScript(event_count=7))
    assert world.left_ms("r") == [120, 120, 120, 270, 270, 270, 320]


def test_stall_shifts_everything_behind() -> None:
    """The engine falls silent where its script does not."""
    assert _run(Defects(stall_after_events=2, stall_ms=400)).left_ms("r") == [20, 70, 520, 570]


def test_frees_late_holds_the_blocks() -> None:
    """The blocks come back later than the end."""
    world = _run(Defects(frees_late_ms=500))
    assert world.log("r", "finished")[0].at_ns == 170 * MS
    assert world.log("r", "freed")[0].at_ns == 670 * MS


def test_frees_never_leaks() -> None:
    """The blocks stay with a request that is over, and are not promised to others."""
    world = World(blocks=2)
    world.submit("r", SCRIPT, Defects(frees_never=True))
    world.run()
    assert world.scheduler.ledger.leaked(()) == {"r": 2}
    world.submit("s", SCRIPT)
    world.run()
    assert not world.log("s", "admitted")


def test_frees_twice_is_told_by_the_ledger() -> None:
    """A second release shows in the log; without the switch there is one."""
    assert len(_run(Defects(frees_twice=True)).log("r", "double_freed")) == 1
    assert not _run(Defects()).log("r", "double_freed")


def test_cancel_ignored_goes_on_to_the_end() -> None:
    """The engine generates everything for nobody."""
    world = World()
    world.submit("r", SCRIPT, Defects(ignores_cancel=True))
    world.run(30)
    assert not world.abort("r")
    world.run()
    assert not world.log("r", "aborted")
    assert world.log("r", "finished")[0].events == 4


def test_orphan_is_reaped_after_its_time() -> None:
    """The engine goes on for a while, then aborts by itself."""
    world = World()
    world.submit("r", SCRIPT, Defects(reaps_orphans_after_ms=100))
    world.run(30)
    assert not world.abort("r")
    world.run()
    entry = world.log("r", "aborted")[0]
    assert (entry.at_ns, entry.events, entry.detail) == (130 * MS, 3, "decode reaped")


@pytest.mark.parametrize(("stale", "running"), [(True, 1), (False, 0)])
def test_gauges_stale_until_the_next_step(stale: bool, running: int) -> None:
    """After an abort the gauges tell of the past until a step runs, where that is switched on."""
    world = World()
    world.submit("r", SCRIPT, Defects(stale_gauges=stale))
    world.run(30)
    world.abort("r")
    assert world.scheduler.gauges.running == running
    world.submit("poke", StreamScript(event_count=1))
    world.run()
    assert world.scheduler.gauges == Gauges()


@pytest.mark.parametrize(("dead", "count"), [(True, 0), (False, 1)])
def test_abort_counter_dead_stays_at_zero(dead: bool, count: int) -> None:
    """Aborts are counted unless the counter is dead."""
    world = World()
    world.submit("r", SCRIPT, Defects(dead_abort_counter=dead))
    world.abort("r")
    assert world.scheduler.counters.success["abort"] == count


# --------------------------------------------------------------------------------- everything

_SCRIPTS = st.builds(
    StreamScript,
    event_count=st.integers(1, 12),
    first_token_ms=st.integers(0, 40),
    gap_ms=st.integers(0, 30),
    comment_every_ms=st.sampled_from((0, 0, 15)),
)
_DEFECTS = st.builds(
    Defects,
    clump_events=st.integers(1, 3),
    frees_late_ms=st.sampled_from((0, 60)),
    frees_twice=st.booleans(),
    ignores_cancel=st.booleans(),
    reaps_orphans_after_ms=st.sampled_from((0, 30)),
    stale_gauges=st.booleans(),
)
_ARRIVALS = st.tuples(_SCRIPTS, _DEFECTS, st.integers(0, 60), st.integers(0, 200) | st.none())


@given(st.lists(_ARRIVALS, min_size=1, max_size=8), st.integers(1, 3), st.integers(6, 10))
def test_any_arrivals_all_end_and_all_blocks_return(
    arrivals: list[tuple[StreamScript, Defects, int, int | None]], seqs: int, blocks: int
) -> None:
    """Whatever arrives and leaves: each request ends once, events are in order and never early, no
    more run than may, and the ledger is empty in the end.
    """
    world = World(seqs=seqs, blocks=blocks)
    acts = [(at, 0, n) for n, (_, _, at, _) in enumerate(arrivals)]
    acts += [
        (at + after, 1, n) for n, (_, _, at, after) in enumerate(arrivals) if after is not None
    ]
    for at_ms, is_abort, n in sorted(acts):
        world.run(at_ms)
        script, defects = arrivals[n][:2]
        world.abort(str(n)) if is_abort else world.submit(str(n), script, defects)
        assert world.scheduler.gauges.running <= seqs
    world.run()
    assert world.scheduler.ledger.leaked(()) == {}
    ends = Counter(e.request for e in world.entries if e.what in ("finished", "aborted"))
    assert ends == Counter(str(n) for n in range(len(arrivals)))
    for n, (script, _, _, _) in enumerate(arrivals):
        mine = [
            (ms, e.event_index)
            for ms, e in world.emissions
            if e.request == str(n) and e.kind is EventKind.CONTENT
        ]
        assert [index for _, index in mine] == list(range(len(mine)))
        for ms, index in mine:
            assert ms >= world.log(str(n), "admitted")[0].at_ns // MS + script.due_ms(index)
