"""Runs of real stacks that go wrong, or are stopped: what is said, what is kept, what is left."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.drive import BROKEN_OFF
from harness.model import (
    Cancel,
    Cause,
    Defects,
    Load,
    Node,
    NodeFile,
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
from harness.run import ATTEMPTS_MAX, Runner, RunOptions, judge
from harness.suite.catalogue import scenarios
from harness.suite.parts import SuiteParts
from tests.conditions import eventually

BUILT_IN = {scenario.id: scenario for scenario in scenarios()}
LIMITED = BUILT_IN["ending/limit-data-after-8-events"]
SHORT = replace(
    BUILT_IN["ending/complete"],
    workload=Workload(script=StreamScript(event_count=6, gap_ms=20)),
)
LONG = replace(
    SHORT, id="long/stream", workload=Workload(script=StreamScript(event_count=400, gap_ms=50))
)
LONG_ATTEMPT = f"{LONG.id}/attempt-1"
# Its client would leave behind the end of the answer: nobody can judge a cancel.
TOO_SHORT = replace(
    SHORT,
    id="too/short",
    checks=("cancel_reaches_engine", "one_request_one_engine_request"),
    workload=replace(SHORT.workload, cancel=Cancel(after_events=10)),
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


def processes_of(results: Path) -> list[psutil.Process]:
    """Those that work in a run's folder, or were started with a path in it."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "cwd", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and any(
            str(results) in word
            for word in (process.info["cwd"] or "", *(process.info["cmdline"] or ()))
        )
    ]


def nodes_left(results: Path) -> Sequence[str]:
    """Command lines of what is still there of a run."""
    return [str(process.info["cmdline"]) for process in processes_of(results)]


@asynccontextmanager
async def under_way(results: Path) -> AsyncIterator[asyncio.Task[list[Outcome]]]:
    """A long run in the middle of its streams; it is over at the end."""
    task = asyncio.get_running_loop().create_task(run(results, LONG))
    try:
        await eventually(lambda: _has_read(results / "latest" / LONG_ATTEMPT), PATIENCE_S)
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def _has_read(attempt: Path) -> bool:
    reads = attempt / "client.reads.bin"
    return reads.exists() and reads.stat().st_size > 2_000


def asyncio_said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What asyncio complained of, also of what nobody has asked for until now."""
    gc.collect()
    return [record.getMessage() for record in caplog.records if record.name == "asyncio"]


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


async def test_control_that_fails_takes_a_pass_back(tmp_path: Path) -> None:
    """The fault cut the answer before its flaw: that nothing was seen is not to its credit."""
    defects = replace(LIMITED.workload.defects, alter_event=12)
    flawed = replace(LIMITED, workload=replace(LIMITED.workload, defects=defects))
    (outcome,) = await run(tmp_path, flawed)
    found = {f.check: f for f in outcome.findings}
    assert found["payload_intact"].verdict is Verdict.UNKNOWN
    assert found["payload_intact"].cause is Cause.CONTROL_FAILED
    assert outcome.told is Told.UNDECIDED, outcome.reasons
    assert outcome.attempts == 1


async def test_requests_of_a_control_are_not_taken_for_repeated_ones(tmp_path: Path) -> None:
    """One engine serves both runs, and its log must tell them apart."""
    counted = replace(LIMITED, checks=(*LIMITED.checks, "one_request_one_engine_request"))
    (outcome,) = await run(tmp_path, counted)
    assert outcome.told is Told.AS_TOLD, outcome.reasons
    folder = tmp_path / "latest" / outcome.folder
    recordings = [judge(ScenarioFolder(path))[1] for path in (folder, folder / "control")]
    for recording in recordings:
        for stream in recording.streams:
            assert [e.what for e in stream.ledger].count("received") == 1
    keys = [{stream.key for stream in recording.streams} for recording in recordings]
    assert not keys[0] & keys[1]


async def test_undecided_run_is_tried_again_and_each_attempt_is_kept(tmp_path: Path) -> None:
    """Twice at most; none counts the requests of another."""
    (outcome,) = await run(tmp_path, TOO_SHORT)
    assert outcome.told is Told.UNDECIDED, outcome.reasons
    assert outcome.attempts == ATTEMPTS_MAX == 3
    assert outcome.folder == f"{TOO_SHORT.id}/attempt-3"
    folders = scenario_folders(tmp_path / "latest")
    assert [folder.path.name for folder in folders] == ["attempt-1", "attempt-2", "attempt-3"]
    for folder in folders:
        found = {f.check: f for f in judge(folder)[0].findings}
        assert found["cancel_reaches_engine"].cause is Cause.TOO_FEW
        assert found["one_request_one_engine_request"].verdict is Verdict.PASS


async def test_fail_is_not_tried_again(tmp_path: Path) -> None:
    """Not even beside what another run might settle."""
    failing = replace(
        TOO_SHORT,
        checks=(*TOO_SHORT.checks, "terminator_exactly_once"),
        workload=replace(TOO_SHORT.workload, defects=Defects(no_terminator=True)),
    )
    (outcome,) = await run(tmp_path, failing)
    assert {f.cause for f in outcome.findings} >= {Cause.TOO_FEW}
    assert outcome.told is Told.NOT_AS_TOLD
    assert outcome.attempts == len(scenario_folders(tmp_path / "latest")) == 1


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
    """Compact and raw recordings alike, and those with a control."""
    wanted = [BUILT_IN["ending/engine-no-terminator"], BUILT_IN["ending/complete"], LIMITED]
    await run(tmp_path, *wanted)
    folders = scenario_folders(tmp_path / "latest")
    assert {(f.path / "client.reads.bin").exists() for f in folders} == {True, False}
    assert len(folders) == len(wanted)
    for folder in folders:
        assert judge(folder)[0] == folder.outcome()


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
    assert 'unknown directive "proxy_foo"' in outcome.error
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


class FullDiskParts(SuiteParts):
    """A node of this kind has a file where there is no room: the kernel's own full disk."""

    def __init__(self, kind: str) -> None:
        super().__init__({})
        self.kind = kind

    def node_spec(self, node: Node, name: str) -> NodeSpec:
        """A path from the root stays one below any folder."""
        spec = super().node_spec(node, name)
        full = NodeFile(path="/dev/full", text="x")
        return replace(spec, files=(*spec.files, full)) if node.kind == self.kind else spec


@pytest.mark.parametrize("kind", ["nginx", "reference"])
async def test_disk_without_room_for_a_node_is_an_error_of_its_own(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One clear message, and the scenario beside it is run."""
    stack = Stack(id="direct", nodes=(Node(kind="reference"),))
    direct = replace(SHORT, id="beside/it", stack=stack)
    wanted = [SHORT, direct] if kind == "nginx" else [SHORT]
    refused, *others = await run(tmp_path, *wanted, parts=FullDiskParts(kind))
    assert refused.told is Told.HARNESS_ERROR
    assert "cannot be written: No space left on device" in refused.error
    assert "free space there" in refused.error
    assert str(tmp_path) in refused.error
    assert [o.told for o in others] == [Told.AS_TOLD] * len(others), others
    assert asyncio_said(caplog) == []
    assert nodes_left(tmp_path) == []


async def test_cancelled_run_leaves_readable_recordings_and_no_process(tmp_path: Path) -> None:
    """What was seen until then is whole, and says that it broke off."""
    async with under_way(tmp_path) as task:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert nodes_left(tmp_path) == []
    folder = ScenarioFolder(tmp_path / "latest" / LONG_ATTEMPT)
    assert folder.facts().notes == (BROKEN_OFF,)
    assert [node.name for node in folder.facts().nodes] == ["nginx", "reference"]
    outcome, recording = judge(folder)
    assert recording.broken_off
    assert [s for s in recording.streams if s.client and s.client.events and s.taps]
    assert outcome.told is Told.UNDECIDED


async def test_scenario_that_is_over_leaves_nothing_while_the_run_goes_on(tmp_path: Path) -> None:
    """Told to its end or cancelled: only the engine waits for the next one."""
    async with Runner.open(SuiteParts({}), RunOptions(results=tmp_path)) as runner:
        await runner.run(SHORT)
        assert processes_of(runner.folder / SHORT.id) == []
        task = asyncio.get_running_loop().create_task(runner.run(LONG))
        await eventually(lambda: _has_read(runner.folder / LONG_ATTEMPT), PATIENCE_S)
        assert len(processes_of(runner.folder / LONG.id)) >= 3
        task.cancel()
        await asyncio.wait([task])
        assert processes_of(runner.folder / LONG.id) == []
        assert len(processes_of(runner.folder / "engines")) == 1
    assert nodes_left(tmp_path) == []


async def test_whole_run_has_no_note_of_its_end(tmp_path: Path) -> None:
    """Only what broke off says so."""
    (outcome,) = await run(tmp_path, SHORT)
    assert ScenarioFolder(tmp_path / "latest" / outcome.folder).facts().notes == ()


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("harness.relay", "harness.relay"),
        ("harness.client", "harness.client"),
        ("stacks.reference", "reference"),
    ],
)
async def test_program_of_ours_that_is_killed_is_an_error_of_its_own(
    program: str, named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, nothing is left of the run, and no traceback is printed."""
    async with under_way(tmp_path) as task:
        ours = [p for p in processes_of(tmp_path) if program in (p.info["cmdline"] or ())]
        assert len(ours) == 1
        ours[0].kill()
        (outcome,) = await task
    assert outcome.told is Told.HARNESS_ERROR
    assert outcome.error.startswith(named)
    assert "ended" in outcome.error
    assert asyncio_said(caplog) == []
    assert nodes_left(tmp_path) == []


async def test_run_listens_on_loopback_only(tmp_path: Path) -> None:
    """Each listener of each process that we started."""
    async with under_way(tmp_path):
        listening = [
            connection.laddr.ip
            for process in psutil.Process().children(recursive=True)
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
    # The engine, nginx, the tap between them.
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
