"""Continuous batching without I/O: time is passed in, so it runs in virtual time as well as on the
clock.

Steps lie on a grid. A request that is admitted plays its script from then on: each content event
leaves in the first step at or after its due time, at most one per step and request (or one clump).
Steps without due work are skipped.

Unlike vLLM nothing is ever preempted: a request is admitted only if the blocks that it will need in
the end are not promised to others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from harness.model import Defects, EventKind, LedgerEntry, StreamScript
from stacks.reference.ledger import Ledger

MS = 1_000_000


class Phase(StrEnum):
    """Where a request is in its life."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What is to be generated for one request. `ending` is how it will end: `length`, `error` or
    `cut`.
    """

    request: str
    key: str = ""
    script: StreamScript
    defects: Defects = field(default_factory=Defects)
    prompt_tokens: int = 1
    ending: str = "length"


@dataclass(frozen=True, slots=True)
class Emission:
    """An event (or keep-alive comment) of a request leaves now. `event_index` counts content events
    from 0.
    """

    request: str
    kind: EventKind
    event_index: int
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What /metrics tells of the present."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


@dataclass(slots=True)
class Counters:
    """What /metrics has counted since the start."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    success: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "abort"), 0)
    )


class _Sequence:
    """A request on its way."""

    __slots__ = (
        "admitted_ns",
        "blocks",
        "emitted",
        "generation",
        "left_ns",
        "next_ns",
        "orphan",
        "phase",
        "promised",
    )

    def __init__(self, generation: Generation, arrived_ns: int) -> None:
        self.generation = generation
        self.phase: Phase = Phase.WAITING
        self.admitted_ns = 0
        self.left_ns = arrived_ns
        self.next_ns = 0
        self.emitted = 0
        self.blocks = 0
        self.promised = 0
        self.orphan = False


_Act = Callable[[_Sequence, int, list[Emission]], None]


class Scheduler:
    """Decides what leaves when. `record` gets every log entry as it comes about.

    Args: `step_ns` the grid; `origin_ns` a point of it; `prefill_ns` comes on top of each script's
    first token.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        block_tokens: int,
        max_num_seqs: int,
        step_ns: int,
        prefill_ns: int = 0,
        origin_ns: int = 0,
        record: Callable[[LedgerEntry], None],
    ) -> None:
        self.ledger = ledger
        self.counters = Counters()
        self.gauges = Gauges()
        self._block_tokens = block_tokens
        self._max_num_seqs = max_num_seqs
        self._step_ns = step_ns
        self._prefill_ns = prefill_ns
        self._origin_ns = origin_ns
        self._record = record
        self._waiting: deque[_Sequence] = deque()
        self._live: dict[str, _Sequence] = {}
        self._running = 0
        self._promised = 0
        self._timers: list[tuple[int, int, _Act, _Sequence]] = []
        self._timer_count = 0

    # ------------------------------------------------------------------------------------------- in

    def fits(self, generation: Generation) -> bool:
        """Whether the request could ever be admitted."""
        return self._blocks_in_the_end(generation) <= self.ledger.num_blocks

    def submit(self, generation: Generation, now_ns: int) -> None:
        """Takes a request: it is admitted at once where there is room, or waits its turn."""
        sequence = _Sequence(generation, now_ns)
        self._live[generation.request] = sequence
        self._waiting.append(sequence)
        if generation.script.comment_every_ms:
            wake_ns = now_ns + generation.script.comment_every_ms * MS
            self._arm(wake_ns, self._comment, sequence)
        self._admit(now_ns)
        self._refresh(generation.defects)

    def abort(self, request: str, now_ns: int, how: str) -> bool:
        """The client has left. True where the request ends by it, False where it is over already or
        goes on.
        """
        sequence = self._live.get(request)
        if sequence is None or sequence.orphan:
            return False
        defects = sequence.generation.defects
        if defects.reaps_orphans_after_ms:
            sequence.orphan = True
            self._arm(now_ns + defects.reaps_orphans_after_ms * MS, self._reap, sequence)
        elif defects.ignores_cancel:
            sequence.orphan = True
        else:
            self._abort(sequence, now_ns, how)
        return not sequence.orphan

    # ------------------------------------------------------------------------------------------ out

    def next_wake_ns(self) -> int | None:
        """The next point of the grid at which there is work, or None."""
        return self._timers[0][0] if self._timers else None

    def step(self, now_ns: int) -> list[Emission]:
        """Does the work that is due at the grid's last point before `now_ns`; gives what leaves, in
        order.
        """
        tick_ns = now_ns - (now_ns - self._origin_ns) % self._step_ns
        emissions: list[Emission] = []
        while self._timers and self._timers[0][0] <= tick_ns:
            _, _, act, sequence = heapq.heappop(self._timers)
            act(sequence, now_ns, emissions)
        if emissions:
            self._refresh(None)
        return emissions

    # --------------------------------------------------------------------------------------- timers

    def _arm(self, at_ns: int, act: _Act, sequence: _Sequence) -> int:
        """Puts work on the grid's first point at or after `at_ns`; gives that point."""
        tick_ns = at_ns + (self._origin_ns - at_ns) % self._step_ns
        self._timer_count += 1
        heapq.heappush(self._timers, (tick_ns, self._timer_count, act, sequence))
        return tick_ns

    def _due_ns(self, sequence: _Sequence, event_index: int) -> int:
        script, defects = sequence.generation.script, sequence.generation.defects
        due_ms = script.due_ms(event_index)
        if event_index >= defects.stall_after_events:
            due_ms += defects.stall_ms
        return sequence.admitted_ns + self._prefill_ns + due_ms * MS

    def _clump_end(self, sequence: _Sequence) -> int:
        """Index behind the last event that leaves together with the next one."""
        generation = sequence.generation
        clump_end = sequence.emitted + generation.defects.clump_events
        return min(clump_end, generation.script.event_count)

    def _arm_next(self, sequence: _Sequence, earliest_ns: int) -> None:
        due_ns = self._due_ns(sequence, self._clump_end(sequence) - 1)
        sequence.next_ns = self._arm(max(due_ns, earliest_ns), self._emit, sequence)

    def _emit(self, sequence: _Sequence, now_ns: int, out: list[Emission]) -> None:
        if sequence.phase is Phase.GONE:
            return
        generation = sequence.generation
        if sequence.phase is Phase.PREFILL:
            sequence.phase = Phase.DECODE
            self.counters.prompt_tokens += generation.prompt_tokens
            self._enter("first_event", sequence, now_ns)
        end = self._clump_end(sequence)
        count = generation.script.event_count
        out.extend(
            Emission(generation.request, EventKind.CONTENT, index, last=index + 1 == count)
            for index in range(sequence.emitted, end)
        )
        self.counters.generation_tokens += end - sequence.emitted
        sequence.emitted = end
        sequence.left_ns = now_ns
        self._grow(sequence, now_ns)
        if end == count:
            self._finish(sequence, now_ns)
        else:
            self._arm_next(sequence, now_ns + 1)

    def _comment(self, sequence: _Sequence, now_ns: int, out: list[Emission]) -> None:
        """A comment leaves once nothing has left for a while; an event that is due in the same step
        goes instead.
        """
        if sequence.phase is Phase.GONE:
            return
        every_ns = sequence.generation.script.comment_every_ms * MS
        event_due = sequence.phase is not Phase.WAITING and sequence.next_ns <= now_ns
        if now_ns - sequence.left_ns >= every_ns and not event_due:
            request = sequence.generation.request
            out.append(Emission(request, EventKind.COMMENT, sequence.emitted))
            sequence.left_ns = now_ns
        self._arm(max(sequence.left_ns + every_ns, now_ns + 1), self._comment, sequence)

    def _reap(self, sequence: _Sequence, now_ns: int, out: list[Emission]) -> None:
        if sequence.phase is not Phase.GONE:
            self._abort(sequence, now_ns, "reaped")

    def _free_late(self, sequence: _Sequence, now_ns: int, out: list[Emission]) -> None:
        self._free(sequence, now_ns)
        self._admit(now_ns)
        self._refresh(sequence.generation.defects)

    # ------------------------------------------------------------------------ the life of a request

    def _admit(self, now_ns: int) -> None:
        while self._waiting and self._running < self._max_num_seqs:
            sequence = self._waiting[0]
            promised = self._blocks_in_the_end(sequence.generation)
            if self._promised + promised > self.ledger.num_blocks:
                return
            self._waiting.popleft()
            self._running += 1
            self._promised += promised
            sequence.promised = promised
            sequence.phase = Phase.PREFILL
            sequence.admitted_ns = now_ns
            self._enter("admitted", sequence, now_ns)
            self._grow(sequence, now_ns)
            self._arm_next(sequence, now_ns)

    def _grow(self, sequence: _Sequence, now_ns: int) -> None:
        """Gives a request the blocks that its tokens so far need."""
        generation = sequence.generation
        tokens = generation.prompt_tokens + sequence.emitted
        lacking = -(-tokens // self._block_tokens) - sequence.blocks
        if lacking > 0:
            request, key = generation.request, generation.key
            self._record(self.ledger.allocate(request, lacking, key=key, at_ns=now_ns))
            sequence.blocks += lacking

    def _finish(self, sequence: _Sequence, now_ns: int) -> None:
        ending = sequence.generation.ending
        if ending in self.counters.success:
            self.counters.success[ending] += 1
        self._enter("finished", sequence, now_ns, ending)
        self._leave(sequence, now_ns)

    def _abort(self, sequence: _Sequence, now_ns: int, how: str) -> None:
        defects = sequence.generation.defects
        if not defects.dead_abort_counter:
            self.counters.success["abort"] += 1
        self._enter("aborted", sequence, now_ns, f"{sequence.phase} {how}")
        self._leave(sequence, now_ns)
        self._refresh(defects)

    def _leave(self, sequence: _Sequence, now_ns: int) -> None:
        waited = sequence.phase is Phase.WAITING
        sequence.phase = Phase.GONE
        del self._live[sequence.generation.request]
        if waited:
            self._waiting.remove(sequence)
        else:
            self._running -= 1
            self._promised -= sequence.promised - sequence.blocks
            self._release(sequence, now_ns)
        self._admit(now_ns)

    def _release(self, sequence: _Sequence, now_ns: int) -> None:
        defects = sequence.generation.defects
        if defects.frees_never:
            return
        if defects.frees_late_ms:
            self._arm(now_ns + defects.frees_late_ms * MS, self._free_late, sequence)
        else:
            self._free(sequence, now_ns)

    def _free(self, sequence: _Sequence, now_ns: int) -> None:
        self._promised -= sequence.blocks
        generation = sequence.generation
        for _ in range(2 if generation.defects.frees_twice else 1):
            entry = self.ledger.free(generation.request, key=generation.key, at_ns=now_ns)
            self._record(entry)

    # ------------------------------------------------------------------------------------- accounts

    def _blocks_in_the_end(self, generation: Generation) -> int:
        tokens = generation.prompt_tokens + generation.script.event_count
        return -(-tokens // self._block_tokens)

    def _refresh(self, cause: Defects | None) -> None:
        """Brings the gauges up to date, unless the request that changed them leaves them stale
        until the next step.
        """
        if cause is None or not cause.stale_gauges:
            waiting = len(self._waiting)
            usage = self.ledger.usage
            self.gauges = Gauges(running=self._running, waiting=waiting, kv_usage=usage)

    def _enter(self, what: str, sequence: _Sequence, now_ns: int, detail: str = "") -> None:
        generation = sequence.generation
        self._record(
            LedgerEntry(
                at_ns=now_ns,
                what=what,
                key=generation.key,
                request=generation.request,
                events=sequence.emitted,
                detail=detail,
            )
        )
