"""What an attempt works with: keys, names, the engine's log."""

from __future__ import annotations

import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from harness.control import encode
from harness.drive import (
    RunningInstrument,
    connect,
    node_names,
    read_ledger,
    settled,
    stream_keys,
)
from harness.errors import HarnessError
from harness.launch.process import RunningNode
from harness.launch.processes import Child
from harness.model import Lane, LedgerEntry, Node, Scenario, Stack, Workload
from tests.conditions import eventually


def scenario(*nodes: Node) -> Scenario:
    stack = Stack(id="s", nodes=(*nodes, Node(kind="reference")))
    return Scenario(id="a/b", title="t", stack=stack, workload=Workload(lanes=(Lane.AA, Lane.AA)))


def entry(what: str, request: str = "r1", key: str = "") -> LedgerEntry:
    return LedgerEntry(at_ns=1, what=what, key=key, request=request)


def test_nodes_are_named_by_kind_and_numbered_where_it_stands_twice() -> None:
    """A name of its own wins."""
    one, two = Node(kind="nginx"), Node(kind="nginx", name="edge")
    assert node_names(scenario(one)) == ["nginx", "reference"]
    assert node_names(scenario(one, one)) == ["nginx-1", "nginx-2", "reference"]
    assert node_names(scenario(two, one)) == ["edge", "nginx-2", "reference"]


def test_each_lane_gets_a_key_in_its_order() -> None:
    """The n-th started stream has the number n."""
    keys = list(stream_keys("r", scenario()))
    assert [str(k) for k in keys] == ["r.a_b.aa.0", "r.a_b.aa.1"]


@asynccontextmanager
async def instrument() -> AsyncIterator[tuple[RunningInstrument, socket.socket, socket.socket]]:
    """The harness's end of a helper that the test plays: with the sockets of both ends."""
    ours, theirs = socket.socketpair()
    control, writer = await connect(ours, "relay")
    with theirs:
        yield RunningInstrument(control, writer, cast("Child", None)), ours, theirs


async def test_instrument_that_has_stopped_holds_no_socket() -> None:
    """Whatever its transport had to say was heard before."""
    async with instrument() as (running, ours, theirs):
        theirs.sendall(encode({"kind": "done"}))
        await running.stop()
        assert ours.fileno() == -1


async def test_instrument_that_died_with_orders_unread_is_one_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The kernel resets its socket; asyncio has nothing to add."""
    async with instrument() as (running, ours, theirs):
        await running.control.send("go")
        theirs.close()
        with pytest.raises(HarnessError, match="ended without being told to") as caught:
            await running.stop()
        assert caught.value.where == "relay"
        assert ours.fileno() == -1
    del running, caught
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("noticed", [False, True])
async def test_last_words_of_an_instrument_that_died_are_heard(noticed: bool) -> None:
    """Whether or not its socket was known to be reset when it was told to stop."""
    async with instrument() as (running, ours, theirs):
        await running.control.send("go")
        theirs.sendall(encode({"kind": "failed", "what": "no room", "todo": "free space"}))
        theirs.close()
        if noticed:
            await eventually(lambda: ours.fileno() == -1)
        with pytest.raises(HarnessError, match="no room") as caught:
            await running.stop()
        assert (caught.value.where, caught.value.todo) == ("relay", "free space")


async def test_trouble_at_the_stop_counts_only_where_there_is_no_other() -> None:
    """What ended the run first is what is told."""
    async with instrument() as (running, _, theirs):
        theirs.close()
        await running.leave(ValueError)
    async with instrument() as (running, _, theirs):
        theirs.close()
        with pytest.raises(HarnessError, match="ended"):
            await running.leave(None)


def test_ledger_of_a_shared_engine_is_read_by_key() -> None:
    """Other scenarios' lines, and half a line, are left out."""
    keys = list(stream_keys("r", scenario()))
    lines = [entry("received", key=str(keys[0])), entry("received", key="somebody")]
    log = "\n".join(msgspec.json.encode(line).decode() for line in lines) + '\n{"at_ns": 1, "wh'
    node = cast("RunningNode", SimpleNamespace(read_log=lambda _role: log))
    assert read_ledger(node, keys) == (lines[0],)


def test_engine_has_settled_when_each_request_gave_its_blocks_back() -> None:
    """None received is not settled: the log may be on its way."""
    assert not settled(())
    assert not settled((entry("received"), entry("finished")))
    assert not settled((entry("received"), entry("freed"), entry("received", "r2")))
    assert settled((entry("received"), entry("freed")))
