"""How many run side by side."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from harness.model import Load
from harness.schedule import LIMITS, Schedule


class Crowd:
    """Scenarios that hold their places until all that can run do."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.running: Counter[Load] = Counter()
        self.most: Counter[Load] = Counter()
        self.mixed = False

    async def run(self, load: Load) -> None:
        """Takes a place, lets others try, and leaves."""
        async with self.schedule.place(load):
            self.running[load] += 1
            self.most[load] = max(self.most[load], self.running[load])
            total = sum(self.running.values())
            self.mixed |= self.running[Load.MEASURES] > 0 and total > 1
            for _ in range(20):
                await asyncio.sleep(0)
            self.running[load] -= 1


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock of this test's own: other runs on this machine hold the real one."""
    return tmp_path / "lock"


@pytest.mark.parametrize("load", list(Load))
async def test_load_has_its_limit(load: Load, lock: Path) -> None:
    """As many as its limit at once, and no more."""
    crowd = Crowd(Schedule(jobs=99, lock_path=lock))
    await asyncio.gather(*(crowd.run(load) for _ in range(12)))
    assert crowd.most[load] == LIMITS[load]


async def test_measuring_runs_alone(lock: Path) -> None:
    """Nobody else runs while one measures, and it is not starved."""
    crowd = Crowd(Schedule(jobs=99, lock_path=lock))
    loads = [Load.SHAPE, Load.WAITS, Load.MEASURES, Load.SHAPE, Load.WAITS, Load.MEASURES]
    await asyncio.gather(*(crowd.run(load) for load in loads))
    assert crowd.most[Load.MEASURES] == 1
    assert not crowd.mixed


async def test_jobs_cap_everything(lock: Path) -> None:
    """`--jobs 1` is one after the other."""
    crowd = Crowd(Schedule(jobs=1, lock_path=lock))
    await asyncio.gather(*(crowd.run(load) for load in (Load.SHAPE, Load.WAITS) * 4))
    assert max(crowd.most.values()) == 1


async def test_cancelled_while_waiting_leaves_the_schedule_usable(lock: Path) -> None:
    """Who gives up waiting to measure does not keep the others out."""
    schedule = Schedule(lock_path=lock)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group, schedule.place(Load.SHAPE):
        waiting = group.create_task(Crowd(schedule).run(Load.MEASURES))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await Crowd(schedule).run(Load.SHAPE)


async def test_lock_of_the_machine_keeps_two_schedules_apart(lock: Path) -> None:
    """Another checkout's measuring waits for us, and we for it."""
    ours, theirs = Schedule(lock_path=lock), Schedule(lock_path=lock)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group, ours.place(Load.SHAPE):
        waiting = group.create_task(Crowd(theirs).run(Load.MEASURES))
        await asyncio.sleep(0)
        assert not waiting.done()
