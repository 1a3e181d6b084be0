"""An API key goes on the wire and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Direction, Node, Stack, Told
from harness.run import Runner, RunOptions
from harness.suite.catalogue import scenarios
from harness.suite.parts import SuiteParts
from harness.trace import read_trace

SECRET = "sk-planted-6d1f0a97c2"


@pytest.mark.parametrize("tls", [False, True])
async def test_planted_key_is_nowhere_in_the_run_folder(tmp_path: Path, tls: bool) -> None:
    """Not in a trace, a log, a configuration, a manifest; but it did reach the engine's hop."""
    base = next(s for s in scenarios() if s.id == "ending/engine-no-terminator")
    nginx = replace(base.stack.nodes[0], tls=tls)
    stack = Stack(id="keyed", nodes=(nginx, Node(kind="reference")))
    parts = SuiteParts({"STREAMCHAOS_API_KEY": SECRET})
    async with Runner.open(parts, RunOptions(results=tmp_path, keep_raw=True)) as runner:
        (outcome,) = await runner.run_all([replace(base, stack=stack)])
        folder = runner.folder
    assert outcome.told is Told.AS_TOLD, outcome.reasons
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    requests = b"".join(
        record.data
        for record in read_trace(folder / outcome.folder, "relay").records
        if record.direction is Direction.TOWARD_ORIGIN
    )
    assert requests.count(b"uthorization:") == len(base.workload.lanes)
    assert SECRET.encode() not in requests
    assert requests.count(b"*" * len(f"Bearer {SECRET}")) == len(base.workload.lanes)
