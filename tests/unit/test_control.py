"""Messages between the harness and its helper processes."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.control import (
    FD_VARIABLE,
    LENGTH,
    MESSAGE_BYTES_MAX,
    HarnessControl,
    HelperControl,
    Message,
    MessageReader,
    encode,
)
from harness.errors import HarnessError

MESSAGES: list[Message] = [
    {"verb": "go"},
    {"verb": "listen", "hop": {"number": 1}},
    {"kind": "fired", "n": 2},
]


@given(st.lists(st.integers(1, 40)))
def test_messages_are_the_same_for_every_split(sizes: list[int]) -> None:
    """Whatever a read brings, messages come out whole and in order."""
    data = b"".join(encode(m) for m in MESSAGES)
    reader, found = MessageReader(), []
    for size in sizes:
        found += reader.feed(data[:size])
        data = data[size:]
    assert found + reader.feed(data) == MESSAGES


def test_length_beyond_the_limit_is_refused() -> None:
    """Whoever sends it is not one of ours."""
    with pytest.raises(HarnessError, match="control message"):
        MessageReader().feed(LENGTH.pack(MESSAGE_BYTES_MAX + 1))


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"GET / HTTP/1.1", b'"\xff"'])
def test_message_that_is_no_object_is_refused(body: bytes) -> None:
    """Nor is who sends something else."""
    with pytest.raises(HarnessError, match="control message"):
        MessageReader().feed(LENGTH.pack(len(body)) + body)


def test_helper_takes_the_descriptor_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number stands in the environment."""
    ours, theirs = socket.socketpair()
    monkeypatch.setenv(FD_VARIABLE, str(theirs.detach()))
    helper = HelperControl.inherited()
    with ours, helper.socket:
        helper.send("ready", port=7)
        assert MessageReader().feed(ours.recv(1 << 16)) == [{"kind": "ready", "port": 7}]


def test_helper_whose_harness_was_killed_sees_it_go() -> None:
    """Orders that were never read make its end a reset, which is an end like any other."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(encode({"kind": "progress"}))
        ours.close()
        assert HelperControl(theirs).receive() is None


def test_helper_started_by_hand_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket was handed to it."""
    monkeypatch.delenv(FD_VARIABLE, raising=False)
    with pytest.raises(HarnessError, match="without a control socket"):
        HelperControl.inherited()


def test_helper_sees_the_harness_go() -> None:
    """None for the end, and nothing raised when nobody reads its notices."""
    ours, theirs = socket.socketpair()
    with theirs:
        helper = HelperControl(theirs)
        ours.sendall(encode({"verb": "go"}))
        assert helper.receive() == [{"verb": "go"}]
        ours.close()
        assert helper.receive() is None
        helper.send("done")


async def test_call_gives_the_answer_and_failed_raises() -> None:
    """`failed` becomes an error that names the helper and what to do."""
    ours, theirs = socket.socketpair()
    with theirs:
        control = await HarnessControl.open(ours, "relay")
        theirs.sendall(encode({"kind": "ready", "port": 7}))
        assert (await control.call("listen"))["port"] == 7
        theirs.sendall(encode({"kind": "failed", "what": "disk full", "todo": "free space"}))
        with pytest.raises(HarnessError, match="disk full") as caught:
            await control.receive()
        assert (caught.value.where, caught.value.todo) == ("relay", "free space")
        control.close()


async def test_notices_of_one_read_are_given_one_by_one() -> None:
    """None is lost, and none comes before its turn."""
    ours, theirs = socket.socketpair()
    with theirs:
        control = await HarnessControl.open(ours, "relay")
        theirs.sendall(b"".join(encode({"kind": "fired", "n": n}) for n in range(3)))
        assert [(await control.receive())["n"] for _ in range(3)] == [0, 1, 2]
        control.close()


async def test_wait_that_is_cancelled_loses_no_notice() -> None:
    """Whoever waits next gets it."""
    ours, theirs = socket.socketpair()
    with theirs:
        control = await HarnessControl.open(ours, "relay")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(control.receive())
            await asyncio.sleep(0)
            waiting.cancel()
        theirs.sendall(encode({"kind": "done"}))
        assert (await control.receive())["kind"] == "done"
        control.close()


async def test_order_to_a_helper_that_is_gone_is_an_error() -> None:
    """With the helper's name."""
    ours, theirs = socket.socketpair()
    control = await HarnessControl.open(ours, "sampler")
    theirs.close()
    with pytest.raises(HarnessError, match="without being told") as caught:
        await control.call("go")
    assert caught.value.where == "sampler"
    control.close()


async def test_helper_that_ends_early_is_an_error() -> None:
    """Its socket ends before it was told to stop."""
    ours, theirs = socket.socketpair()
    control = await HarnessControl.open(ours, "sampler")
    theirs.close()
    with pytest.raises(HarnessError, match="without being told"):
        await control.receive()
    control.close()
