"""Runs of real stacks that go wrong, or are stopped: what is said, what is kept, what is left."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.model import (
    Cause,
    Load,
    Node,
    NodeSpec,
    Outcome,
    Readiness,
    Scenario,
    Stack,
    StreamScript,
    Told,
    TriggerKind,
    Verdict,
    Workload,
)
from harness.record import ScenarioFolder, scenario_folders
from harness.run import Runner, RunOptions, judge
from harness.suite.catalogue import scenarios
from harness.suite.parts import SuiteParts
from tests.conditions import until

BUILT_IN = {scenario.id: scenario for scenario in scenarios()}
LIMITED = BUILT_IN["ending/limit-data-after-8-events"]
SHORT = replace(
    BUILT_IN["ending/complete"],
    workload=Workload(script=StreamScript(event_count=6, gap_ms=20)),
)
LONG = replace(
    SHORT, id="long/stream", workload=Workload(script=StreamScript(event_count=400, gap_ms=50))
)
PATIENCE_S = 20.0
FILE_BYTES_MAX = 20_000


async def run(
    results: Path, *wanted: Scenario, parts: SuiteParts | None = None, jobs: int = 8
) -> list[Outcome]:
    """Their outcomes, in order."""
    options = RunOptions(results=results, jobs=jobs)
    async with Runner.open(parts or SuiteParts({}), options) as runner:
        return await runner.run_all(wanted)


def nodes_left(results: Path) -> Sequence[str]:
    """Command lines of processes that work below a run's folder."""
    return [
        " ".join(process.info["cmdline"])
        for process in psutil.process_iter(["cmdline"])
        if any(str(results) in word for word in process.info["cmdline"] or ())
    ]


async def test_injection_that_never_fires_makes_no_pass(tmp_path: Path) -> None:
    """Its trigger is not reached: unknown(not_fired), and the scenario undecided."""
    (injection,) = LIMITED.injections
    late = replace(injection, trigger=replace(injection.trigger, count=10_000))
    disarmed = replace(LIMITED, injections=(late,), expectations=())
    (outcome,) = await run(tmp_path, disarmed)
    assert outcome.told is Told.UNDECIDED, outcome.reasons
    causes = {f.cause for f in outcome.findings if f.verdict is Verdict.UNKNOWN}
    assert causes == {Cause.NOT_FIRED}
    assert not [f for f in outcome.findings if f.verdict is Verdict.PASS]
    assert outcome.attempts == 1


async def test_injection_that_fires_leaves_evidence_and_a_control(tmp_path: Path) -> None:
    """After the eighth event, on each connection of the hop; the control is recorded beside it."""
    (outcome,) = await run(tmp_path, LIMITED)
    assert outcome.told is Told.AS_TOLD, outcome.reasons
    folder = tmp_path / "latest" / outcome.folder
    _, recording = judge(ScenarioFolder(folder))
    assert {fired.event_index for fired in recording.fired} == {8}
    assert len(recording.fired) == len(LIMITED.workload.lanes)
    assert (folder / "control" / "scenario.json").exists()
    assert LIMITED.injections[0].trigger.kind is TriggerKind.EVENTS


async def test_control_that_fails_blames_the_configuration(tmp_path: Path) -> None:
    """What fails without the fault too is not the fault's work."""
    broken = replace(
        LIMITED,
        expectations=(),
        workload=replace(
            LIMITED.workload, defects=replace(LIMITED.workload.defects, alter_event=2)
        ),
    )
    (outcome,) = await run(tmp_path, broken)
    found = {f.check: f for f in outcome.findings}
    assert found["payload_intact"].verdict is Verdict.FAIL
    assert found["payload_intact"].also_without_fault


async def test_one_job_gives_the_verdicts_of_many(tmp_path: Path) -> None:
    """Side by side is faster, and nothing else."""
    names = ("ending/complete", "ending/engine-no-terminator", "cancel/nginx-fin")
    wanted = [BUILT_IN[name] for name in names]
    wanted.append(BUILT_IN["story1/nginx-131-http10-short-answer"])
    many = await run(tmp_path / "many", *wanted)
    one = await run(tmp_path / "one", *wanted, jobs=1)
    verdicts = [[(f.check, f.verdict, f.culprit) for f in o.findings] for o in (*many, *one)]
    assert verdicts[: len(many)] == verdicts[len(many) :]


async def test_rejudging_a_run_repeats_its_verdicts(tmp_path: Path) -> None:
    """Compact and raw recordings alike."""
    wanted = [BUILT_IN["ending/engine-no-terminator"], BUILT_IN["ending/complete"]]
    await run(tmp_path, *wanted)
    folders = scenario_folders(tmp_path / "latest")
    assert {(f.path / "client.reads.bin").exists() for f in folders} == {True, False}
    for folder in folders:
        again, _ = judge(folder)
        assert again.findings == folder.outcome().findings


async def test_missing_part_is_skipped_with_its_reason(tmp_path: Path) -> None:
    """Not run, not passed."""
    stack = Stack(id="s", nodes=(Node(kind="nginx", version="9.9"), Node(kind="reference")))
    (outcome,) = await run(tmp_path, replace(SHORT, stack=stack))
    assert "9.9" in outcome.skipped
    assert outcome.told is Told.UNDECIDED


async def test_node_that_refuses_its_configuration_is_named_with_its_words(
    tmp_path: Path,
) -> None:
    """nginx says which line; nothing stays behind."""
    nginx = Node(kind="nginx", version="1.31", lines=("proxy_foo 1;",))
    stack = Stack(id="s", nodes=(nginx, Node(kind="reference")))
    (outcome,) = await run(tmp_path, replace(SHORT, stack=stack))
    assert outcome.told is Told.HARNESS_ERROR
    assert outcome.error.startswith("nginx: ")
    assert "proxy_foo" in outcome.error
    assert "Traceback" not in outcome.error
    assert nodes_left(tmp_path) == []


class SleepyParts(SuiteParts):
    """An engine that is there and never answers."""

    def node_spec(self, node: Node, name: str) -> NodeSpec:
        """`sleep` in the engine's place."""
        spec = super().node_spec(node, name)
        if node.kind != "reference":
            return spec
        readiness = Readiness(port="http", deadline_ms=400)
        return replace(spec, argv=("sleep", "60"), readiness=readiness, version_argv=())


async def test_engine_that_never_gets_ready_is_an_error_of_its_own(tmp_path: Path) -> None:
    """It says what the last probe saw."""
    (outcome,) = await run(tmp_path, SHORT, parts=SleepyParts({}))
    assert outcome.told is Told.HARNESS_ERROR
    assert "reference: not ready after 400 ms" in outcome.error
    assert nodes_left(tmp_path) == []


async def test_cancelled_run_leaves_readable_recordings_and_no_process(tmp_path: Path) -> None:
    """What was seen until then is whole, and says that it broke off."""
    task = asyncio.get_running_loop().create_task(run(tmp_path, LONG))
    reads = tmp_path / "latest" / LONG.id / "attempt-1" / "client.reads.bin"
    await asyncio.to_thread(
        until, lambda: reads.exists() and reads.stat().st_size > 2_000, PATIENCE_S
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert nodes_left(tmp_path) == []
    outcome, recording = judge(ScenarioFolder(reads.parent))
    assert recording.broken_off
    assert [s for s in recording.streams if s.client and s.client.events]
    assert outcome.told is Told.UNDECIDED


async def test_run_listens_on_loopback_only(tmp_path: Path) -> None:
    """Each listener of each process that we started."""
    task = asyncio.get_running_loop().create_task(run(tmp_path, LONG))
    reads = tmp_path / "latest" / LONG.id / "attempt-1" / "client.reads.bin"
    await asyncio.to_thread(
        until, lambda: reads.exists() and reads.stat().st_size > 100, PATIENCE_S
    )
    listening = [
        connection.laddr.ip
        for process in psutil.Process().children(recursive=True)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    task.cancel()
    await asyncio.wait([task])
    assert len(listening) >= 3
    assert set(listening) <= {"127.0.0.1", "::1"}


def test_disk_that_is_full_is_one_clear_error(tmp_path: Path) -> None:
    """The limit on a file's size stands for it: one message, no traceback, exit code 3."""

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))

    argv = (sys.executable, "-m", "harness.cli", "warstory", "1", "--arm", "*/direct")
    done = subprocess.run(
        [*argv, "--format", "json", "--results", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=no_room,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)["outcomes"][0] if done.stdout else {"error": done.stderr}
    assert "written" in told["error"]
    assert nodes_left(tmp_path) == []


async def test_measuring_waits_for_those_that_run(tmp_path: Path) -> None:
    """A scenario that measures and one that does not both come to their end."""
    alone = replace(SHORT, id="alone/stream", load=Load.MEASURES)
    outcomes = await run(tmp_path, SHORT, alone)
    assert [o.told for o in outcomes] == [Told.AS_TOLD, Told.AS_TOLD], outcomes
