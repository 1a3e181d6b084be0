"""An API key goes on the wire and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Direction, Lane, Node, Stack, Told
from harness.run import Runner, RunOptions
from harness.suite.catalogue import scenarios
from harness.suite.parts import SuiteParts
from harness.trace import read_trace

SECRET = "sk-planted-6d1f0a97c2"
BASE = next(s for s in scenarios() if s.id == "ending/engine-no-terminator")


async def recorded(results: Path, nginx: Node) -> Path:
    """The attempt's folder of a run with the key, in which the key is in no file."""
    stack = Stack(id="keyed", nodes=(nginx, Node(kind="reference")))
    parts = SuiteParts({"STREAMCHAOS_API_KEY": SECRET})
    async with Runner.open(parts, RunOptions(results=results, keep_raw=True)) as runner:
        (outcome,) = await runner.run_all([replace(BASE, stack=stack)])
        folder = runner.folder
    assert outcome.told is Told.AS_TOLD, outcome.reasons
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    return folder / outcome.folder


def on_the_wire(folder: Path, name: str, direction: Direction) -> bytes:
    """All that an instrument read in one direction, as it was kept."""
    records = read_trace(folder, name).records
    return b"".join(r.data for r in records if r.direction is direction and not r.write)


@pytest.mark.parametrize("tls", [False, True])
async def test_planted_key_is_nowhere_in_the_run_folder(tmp_path: Path, tls: bool) -> None:
    """Not in a trace, a log, a configuration, a manifest; but it did reach the engine's hop."""
    folder = await recorded(tmp_path, replace(BASE.stack.nodes[0], tls=tls))
    requests = on_the_wire(folder, "relay", Direction.TOWARD_ORIGIN)
    lines = [line for line in requests.splitlines() if line.lower().startswith(b"authorization:")]
    masked = b"*" * len(f"Bearer {SECRET}")
    assert [line.partition(b":")[2].strip() for line in lines] == [masked] * len(
        BASE.workload.lanes
    )


async def test_key_that_a_proxy_copies_elsewhere_is_masked_there_too(tmp_path: Path) -> None:
    """In headers whose names tell nothing, on the way to the engine and back to the client."""
    (nginx, _) = BASE.stack.nodes
    copying = (
        "proxy_set_header X-Copied $http_authorization;",
        "add_header X-Returned $http_authorization;",
    )
    folder = await recorded(tmp_path, replace(nginx, lines=(*nginx.lines, *copying)))
    copied = b"Bearer " + b"*" * len(SECRET)
    through = BASE.workload.lanes.count(Lane.THROUGH)
    requests = on_the_wire(folder, "relay", Direction.TOWARD_ORIGIN)
    assert requests.count(b"X-Copied: " + copied) == through
    answers = on_the_wire(folder, "client", Direction.TOWARD_CLIENT)
    assert answers.count(b"X-Returned: " + copied) == through
