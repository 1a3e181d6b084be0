"""The one clock, CLOCK_MONOTONIC in ns, and what turns the kernel's stamps (CLOCK_REALTIME) into
it.

The offset between the two is sampled each second by whoever reads kernel stamps. Its width goes
into the error bound; after a step of the wall clock the kernel's stamps are not used any more,
since one taken before the step and read after it cannot be told from a good one (measurement.md
§7).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

now_ns = time.monotonic_ns

STEP_LIMIT_NS = 1_000_000
"""Two samples further apart than this are a step: NTP slews by at most 0.5 ms in a second."""

SAMPLE_EVERY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class OffsetSample:
    """`offset_ns` = realtime − monotonic, known to within `width_ns`."""

    offset_ns: int
    width_ns: int


def sample_offset() -> OffsetSample:
    """The offset now: the narrowest of five sandwiches of the wall clock between two readings of
    ours."""
    best = OffsetSample(0, 1 << 62)
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.monotonic_ns()
        if after - before < best.width_ns:
            best = OffsetSample(wall - (before + after) // 2, after - before)
    return best


class KernelClock:
    """Turns kernel stamps into monotonic ns; gives 0 once the wall clock has stepped."""

    __slots__ = ("_last", "_next_ns", "steps")

    def __init__(self) -> None:
        self._last = sample_offset()
        self._next_ns = now_ns() + SAMPLE_EVERY_NS
        self.steps = 0

    def observe(self, sample: OffsetSample) -> None:
        """Takes a new sample of the offset; a jump beyond STEP_LIMIT_NS, and beyond what the two
        samples admit to be off, counts as a step."""
        allowed_ns = STEP_LIMIT_NS + self._last.width_ns + sample.width_ns
        if abs(sample.offset_ns - self._last.offset_ns) > allowed_ns:
            self.steps += 1
        self._last = sample

    def tick(self, at_ns: int) -> None:
        """Samples the offset if a second has passed."""
        if at_ns >= self._next_ns:
            self._next_ns = at_ns + SAMPLE_EVERY_NS
            self.observe(sample_offset())

    @property
    def width_ns(self) -> int:
        """By how much a converted stamp may be off."""
        return self._last.width_ns

    def to_monotonic_ns(self, realtime_ns: int) -> int:
        """The stamp on our clock, or 0 (use your own) after a step."""
        return 0 if self.steps else realtime_ns - self._last.offset_ns
