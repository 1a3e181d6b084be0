"""Records the golden recordings anew: `python -m tests.recordings.make`.

Each is one real run of a built-in scenario with a short stream, stripped of whatever names this
machine.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.model import Defects, Outcome, Scenario, Told
from harness.run import Runner, RunOptions
from harness.suite.catalogue import scenarios
from harness.suite.parts import SuiteParts
from tests.recordings.golden import FOLDER, GOLDEN, slug

SEED = 7
EVENT_COUNT = 12
FALSE_TESTIMONY = "golden/false-testimony"
KEPT = (
    "scenario.json",
    "facts.json",
    "engine.jsonl",
    "access.jsonl",
    "client.events.jsonl",
    "client.reads.bin",
    "relay.events.jsonl",
    "relay.reads.bin",
)


def wanted() -> Iterator[Scenario]:
    """Each scenario that a golden recording is of, once, shortened."""
    ids = {name for pair in GOLDEN.values() for name in (pair.fails, pair.passes)}
    ids |= {s.id for s in made_up()}
    every = {s.id: s for s in scenarios(seed=SEED)} | {s.id: s for s in made_up()}
    return (shortened(every[name]) for name in sorted(ids))


def made_up() -> Iterator[Scenario]:
    """Defects that no built-in scenario has."""
    base = next(s for s in scenarios(seed=SEED) if s.id == "ending/complete")
    for name, defects in (
        ("golden/engine-alters", Defects(alter_event=5)),
        ("golden/engine-duplicates", Defects(duplicate_event=5)),
        (FALSE_TESTIMONY, Defects()),
    ):
        workload = replace(base.workload, defects=defects)
        yield replace(base, id=name, title=name, workload=workload, checks=())


def shortened(scenario: Scenario) -> Scenario:
    """The same with EVENT_COUNT events, judged by every check, told nothing."""
    script = scenario.workload.script
    count = script.event_count if scenario.workload.cancel else EVENT_COUNT
    defects = scenario.workload.defects
    if defects.stall_ms:
        defects = replace(defects, stall_after_events=4, stall_ms=600)
    workload = replace(
        scenario.workload, script=replace(script, event_count=count), defects=defects
    )
    return replace(scenario, workload=workload, checks=(), expectations=())


async def record(results: Path) -> tuple[Path, list[Outcome]]:
    """Runs them all, raw bytes kept."""
    options = RunOptions(results=results, seed=SEED, keep_raw=True)
    async with Runner.open(SuiteParts({}), options) as runner:
        return runner.folder, await runner.run_all(list(wanted()))


def keep(run: Path, outcomes: list[Outcome]) -> None:
    """Copies what a recording consists of; logs and configurations of the nodes stay behind."""
    for outcome in outcomes:
        target = FOLDER / slug(outcome.scenario)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in KEPT:
            shutil.copy(run / outcome.folder / name, target / name)
        if outcome.scenario == FALSE_TESTIMONY:
            falsify(target / "access.jsonl")
        control = run / outcome.folder / "control"
        if control.exists():
            (target / "control").mkdir()
            for name in KEPT:
                shutil.copy(control / name, target / "control" / name)


def falsify(access: Path) -> None:
    """No proxy here lies by itself: the log's last line, of a stream, gets another status."""
    lines = access.read_text(encoding="utf-8").splitlines()
    lines[-1] = lines[-1].replace('"status":200', '"status":502')
    access.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Says which did not come about."""
    with tempfile.TemporaryDirectory() as temporary:
        run, outcomes = asyncio.run(record(Path(temporary)))
        broken = [o for o in outcomes if o.told is Told.HARNESS_ERROR or o.skipped]
        for outcome in broken:
            sys.stderr.write(f"{outcome.scenario}: {outcome.error or outcome.skipped}\n")
        if not broken:
            keep(run, outcomes)
    return 3 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
