"""How many run side by side."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from harness.errors import HarnessError
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


async def test_cancelled_before_it_measures_lets_the_others_pass(lock: Path) -> None:
    """Whoever waited longer than it and was held up by it alone gets a place."""
    schedule = Schedule(lock_path=lock)
    crowd = Crowd(schedule)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        async with schedule.place(Load.SHAPE), schedule.place(Load.SHAPE):
            group.create_task(crowd.run(Load.SHAPE))
            await asyncio.sleep(0)
            measuring = group.create_task(crowd.run(Load.MEASURES))
            await asyncio.sleep(0)
        measuring.cancel()
    assert crowd.most == {Load.SHAPE: 1}


@pytest.mark.parametrize("yields", range(8))
async def test_cancelled_at_any_moment_gives_its_place_back(yields: int, lock: Path) -> None:
    """A task that is cancelled twice, before, in or after its place, leaves it to the others."""
    schedule = Schedule(lock_path=lock)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        crowd = Crowd(schedule)
        tasks = [group.create_task(crowd.run(load)) for load in (Load.SHAPE, Load.MEASURES) * 2]
        for _ in range(yields):
            await asyncio.sleep(0)
        for _ in range(2):
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait(tasks)
        await Crowd(schedule).run(Load.MEASURES)


def access_modes(path: Path) -> list[int]:
    """How this process has opened the file."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if entry.readlink() == path:
                found.append(fcntl.fcntl(int(entry.name), fcntl.F_GETFL) & os.O_ACCMODE)
    return found


async def test_lock_of_another_user_need_only_be_readable(lock: Path) -> None:
    """It is held by a descriptor that cannot write, and given back."""
    async with Schedule(lock_path=lock).place(Load.MEASURES):
        assert access_modes(lock) == [os.O_RDONLY]
    assert access_modes(lock) == []


async def test_lock_without_a_folder_is_named(tmp_path: Path) -> None:
    """A lock that cannot be opened is our failure, with its path and what to do."""
    with pytest.raises(HarnessError, match=r"cannot be opened.*\n.*TMPDIR") as caught:
        async with Schedule(lock_path=tmp_path / "gone" / "lock").place(Load.WAITS):
            pass
    assert str(tmp_path / "gone" / "lock") in caught.value.where


async def test_lock_of_the_machine_keeps_two_schedules_apart(lock: Path) -> None:
    """Another checkout's measuring waits for us, and we for it."""
    ours, theirs = Schedule(lock_path=lock), Schedule(lock_path=lock)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group, ours.place(Load.SHAPE):
        waiting = group.create_task(Crowd(theirs).run(Load.MEASURES))
        await asyncio.sleep(0)
        assert not waiting.done()
