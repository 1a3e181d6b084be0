"""One clock, and the kernel's stamps on it."""

from __future__ import annotations

import pytest

from harness import clock
from harness.clock import STEP_LIMIT_NS, KernelClock, OffsetSample, sample_offset


def test_offset_is_known_to_within_its_width() -> None:
    """Two samples in a row differ by no more than what they admit, and a step's limit."""
    first, second = sample_offset(), sample_offset()
    allowed = first.width_ns + second.width_ns + STEP_LIMIT_NS
    assert abs(first.offset_ns - second.offset_ns) <= allowed


def test_stamp_is_moved_by_the_offset() -> None:
    """A kernel's stamp minus the offset is a monotonic one."""
    kernel = KernelClock()
    kernel.observe(OffsetSample(sample_offset().offset_ns, 10))
    steady = kernel.steps
    sample = sample_offset()
    kernel.observe(sample)
    assert kernel.steps == steady
    assert kernel.to_monotonic_ns(sample.offset_ns + 5) == 5


@pytest.mark.parametrize("step_ns", [-3_600_000_000_000, 2 * STEP_LIMIT_NS])
def test_step_of_the_wall_clock_ends_the_use_of_kernel_stamps(step_ns: int) -> None:
    """One that was taken before the step cannot be told from a good one."""
    kernel = KernelClock()
    now = sample_offset()
    kernel.observe(OffsetSample(now.offset_ns + step_ns, 0))
    assert kernel.steps == 1
    assert kernel.to_monotonic_ns(now.offset_ns + 1_000) == 0


def test_slew_below_the_limit_is_no_step() -> None:
    """NTP slews without jumping."""
    kernel = KernelClock()
    start = kernel.to_monotonic_ns(0)
    kernel.observe(OffsetSample(-start + STEP_LIMIT_NS // 2, 0))
    assert kernel.steps == 0


@pytest.mark.parametrize("widths_ns", [(0, 5_000_000), (5_000_000, 0), (2_500_000, 2_500_000)])
def test_sample_that_admits_to_be_off_is_no_step(widths_ns: tuple[int, int]) -> None:
    """Nor is the good one after it: either may have been interrupted between its readings."""
    kernel = KernelClock()
    offset_ns = -kernel.to_monotonic_ns(0)
    before_ns, after_ns = widths_ns
    kernel.observe(OffsetSample(offset_ns, before_ns))
    kernel.observe(OffsetSample(offset_ns + 5_500_000, after_ns))
    assert kernel.steps == 0
    kernel.observe(OffsetSample(offset_ns + 12_500_000, 0))
    assert kernel.steps == 1


def test_step_back_to_where_it_was_does_not_undo_the_first() -> None:
    """Stamps of both times are still about."""
    kernel = KernelClock()
    offset_ns = -kernel.to_monotonic_ns(0)
    kernel.observe(OffsetSample(offset_ns + 1_000_000_000, 0))
    kernel.observe(OffsetSample(offset_ns, 0))
    assert kernel.steps == 2
    assert kernel.to_monotonic_ns(offset_ns + 1_000) == 0


def test_tick_samples_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on each call, since each costs five readings of two clocks."""
    taken: list[int] = []
    kernel = KernelClock()

    def sample() -> OffsetSample:
        taken.append(1)
        return OffsetSample(-kernel.to_monotonic_ns(0), 7)

    monkeypatch.setattr(clock, "sample_offset", sample)
    at_ns = clock.now_ns()
    for later_ns in (0, 10, clock.SAMPLE_EVERY_NS + 1, clock.SAMPLE_EVERY_NS + 2):
        kernel.tick(at_ns + later_ns)
    assert len(taken) == 1
    assert kernel.width_ns == 7
