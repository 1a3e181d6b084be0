"""What the measuring processes share, in this process: stamps and verbs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import instrument
from harness.clock import STEP_LIMIT_NS, OffsetSample, now_ns, sample_offset
from harness.control import HelperControl, MessageReader, encode
from harness.errors import HarnessError
from harness.instrument import DOUBT_NS, Instrument
from harness.trace import read_trace

MS = 1_000_000
HOUR_NS = 3_600_000 * MS


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Instrument]]:
    """The harness's end of the control socket, and an instrument at the other."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Instrument(HelperControl(theirs))
        yield ours, made
        made.reactor.close()


def steady(ends: tuple[socket.socket, Instrument]) -> tuple[Instrument, int]:
    """An instrument that takes its wall clock for `offset_ns` ahead of ours, as it is."""
    sample = sample_offset()
    ends[1].clock.observe(OffsetSample(sample.offset_ns, 0))
    return ends[1], sample.offset_ns


def step(monkeypatch: pytest.MonkeyPatch, offset_ns: int) -> None:
    """The wall clock is set: whoever looks at it now finds this offset."""
    monkeypatch.setattr(instrument, "sample_offset", lambda: OffsetSample(offset_ns, 0))


def test_kernel_stamp_within_its_read_is_moved_to_our_clock(
    ends: tuple[socket.socket, Instrument],
) -> None:
    """By the offset, without another look at the wall clock."""
    measuring, offset_ns = steady(ends)
    at_ns = now_ns()
    assert measuring.kernel_ns(at_ns + offset_ns, at_ns - MS, at_ns + MS) == at_ns
    assert measuring.kernel_ns(0, at_ns - MS, at_ns + MS) == 0


@pytest.mark.parametrize("step_ns", [HOUR_NS, 10 * MS, -10 * MS, -HOUR_NS])
def test_step_of_the_wall_clock_is_seen_at_the_first_read_behind_it(
    ends: tuple[socket.socket, Instrument], monkeypatch: pytest.MonkeyPatch, step_ns: int
) -> None:
    """Not only once the second is over; our own stamps count from then on."""
    measuring, offset_ns = steady(ends)
    step(monkeypatch, offset_ns + step_ns)
    at_ns = now_ns()
    assert measuring.kernel_ns(at_ns + offset_ns + step_ns, at_ns - MS, at_ns + MS) == 0
    assert measuring.clock.steps == 1
    assert measuring.kernel_ns(at_ns + offset_ns, at_ns - MS, at_ns + MS) == 0


def test_observed_jump_of_the_offset_ends_the_use_of_kernel_stamps(
    ends: tuple[socket.socket, Instrument],
) -> None:
    """A step that the second's own sample finds counts as well."""
    measuring, offset_ns = steady(ends)
    at_ns = now_ns()
    measuring.clock.observe(OffsetSample(offset_ns + 2 * STEP_LIMIT_NS, 0))
    assert measuring.kernel_ns(at_ns + offset_ns, at_ns - MS, at_ns + MS) == 0


def test_kernel_stamp_before_its_bound_is_kept_where_no_clock_has_stepped(
    ends: tuple[socket.socket, Instrument], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load a segment is stamped well before its socket becomes readable."""
    measuring, offset_ns = steady(ends)
    step(monkeypatch, offset_ns)
    at_ns = now_ns()
    early_ns = at_ns - 3 * DOUBT_NS
    assert measuring.kernel_ns(early_ns + offset_ns, at_ns, at_ns + MS) == early_ns
    assert measuring.clock.steps == 0


def serve(
    ends: tuple[socket.socket, Instrument], *messages: dict[str, Any]
) -> tuple[HarnessError | None, list[dict[str, Any]]]:
    """Runs the loop over these orders, the last of which ends it: its failure, and its notices."""
    ours, measuring = ends
    ours.sendall(b"".join(map(encode, messages)))
    ours.shutdown(socket.SHUT_WR)
    failure = measuring._serve()
    ours.setblocking(False)
    try:
        return failure, MessageReader().feed(ours.recv(1 << 16))
    except BlockingIOError:
        return failure, []


def test_instrument_ends_when_the_harness_is_gone(ends: tuple[socket.socket, Instrument]) -> None:
    """That is no failure."""
    assert serve(ends) == (None, [])


def test_instrument_that_is_configured_says_so_and_writes_its_trace(
    ends: tuple[socket.socket, Instrument], tmp_path: Path
) -> None:
    """Both files are there, and the doubt in itself closes them."""
    configure = {"verb": "configure", "folder": str(tmp_path), "secrets": []}
    failure, notices = serve(ends, configure, {"verb": "go"}, {"verb": "stop"})
    assert failure is None
    assert [n["kind"] for n in notices] == ["ready"]
    assert ends[1].reactor.measuring
    assert ends[1]._close_trace() is None
    assert [e["kind"] for e in read_trace(tmp_path, "instrument").events] == ["self_check"]


def test_unknown_verb_is_a_failure_with_its_name(ends: tuple[socket.socket, Instrument]) -> None:
    """The harness and its instruments are of one version, or something is wrong."""
    failure, _ = serve(ends, {"verb": "dance"})
    assert failure is not None
    assert "'dance'" in failure.what


def test_folder_that_is_not_there_is_a_failure_with_advice(
    ends: tuple[socket.socket, Instrument], tmp_path: Path
) -> None:
    """Told at once, and not by `ready`."""
    gone = {"verb": "configure", "folder": str(tmp_path / "gone"), "secrets": []}
    failure, notices = serve(ends, gone)
    assert failure is not None
    assert failure.what.startswith("the trace cannot be written: No such file")
    assert failure.todo
    assert notices == []
