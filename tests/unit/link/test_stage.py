"""The chain: what a stage gives is the next one's event; wakes come back, evidence is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.link.stage import Abort, Chain, Command, Data, Eof, Event, Fire, Wake
from tests.unit.link.virtual_time import bytes_of, others, play


class Delay:
    """Holds whatever comes for `delay_ns`, in order; a reset clears what is held."""

    def __init__(self, delay_ns: int) -> None:
        self.delay_ns = delay_ns
        self.held: deque[tuple[int, Event]] = deque()

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        if isinstance(event, Abort):
            self.held.clear()
            return (event,)
        if isinstance(event, Wake):
            return tuple(self._due(now_ns))
        self.held.append((now_ns + self.delay_ns, event))
        return (Wake(now_ns + self.delay_ns),)

    def _due(self, now_ns: int) -> Iterator[Command]:
        while self.held and self.held[0][0] <= now_ns:
            yield self.held.popleft()[1]


class Marker:
    """Marks what it sees, and gives evidence of each piece."""

    def __init__(self, mark: bytes, number: int = 0) -> None:
        self.mark = mark
        self.number = number

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        if not isinstance(event, Data):
            return (event,)
        return (Data(event.data + self.mark), Fire(self.number, len(event.data)))


class Sink:
    """Swallows everything."""

    def on_event(self, event: Event, now_ns: int) -> Iterable[Command]:
        return ()


@pytest.mark.parametrize("event", [Data(b"a"), Eof(), Abort()])
def test_chain_without_stages_passes_everything(event: Event) -> None:
    """The empty chain is a tap."""
    assert Chain().push(event, 1) == [event]


def test_chain_of_stages_is_passed_in_order() -> None:
    """What the first gives is the second's event."""
    out = Chain([Marker(b"1"), Marker(b"2")]).push(Data(b"a"), 1)
    assert [c for c in out if isinstance(c, Data)] == [Data(b"a12")]


def test_chain_with_a_sink_behind_keeps_the_evidence() -> None:
    """A Fire is no event: no stage behind can swallow it."""
    assert Chain([Marker(b"1", 7), Sink()]).push(Data(b"ab"), 1) == [Fire(7, 2)]


def test_chain_gives_evidence_ahead_of_what_it_did() -> None:
    """A write that fails takes no evidence with it."""
    assert Chain([Marker(b"1", 7)]).push(Data(b"ab"), 1) == [Fire(7, 2), Data(b"ab1")]


def test_chain_wake_comes_back_to_the_stage_that_asked() -> None:
    """A wake passes by the stages in front, and what it lets go passes those behind."""
    chain = Chain([Marker(b"1"), Delay(5), Marker(b"2")])
    assert chain.push(Data(b"a"), 10) == [Fire(0, 1), Wake(15, stage=1)]
    assert chain.push(Wake(15, stage=1), 15) == [Fire(0, 2), Data(b"a12")]


def test_chain_of_two_delays_adds_them() -> None:
    """Each of two stages is woken for itself."""
    out = play([Delay(5), Delay(7)], [(10, Data(b"a")), (11, Eof())])
    assert out == [(22, Data(b"a")), (23, Eof())]


def test_chain_abort_overtakes_what_is_held_and_clears_it() -> None:
    """A reset passes at once; a wake that is due later finds nothing."""
    out = play([Delay(5)], [(10, Data(b"a")), (12, Abort())])
    assert out == [(12, Abort())]


@given(
    pieces=st.lists(st.tuples(st.integers(0, 9), st.binary(min_size=1, max_size=5)), max_size=8),
    delays_ns=st.lists(st.integers(0, 20), max_size=4),
)
@settings(max_examples=100)
def test_chain_of_delays_conserves_bytes_and_order(
    pieces: list[tuple[int, bytes]], delays_ns: list[int]
) -> None:
    """Whatever the delays, all bytes arrive in order and the end comes last."""
    times = list(accumulate(gap for gap, _ in pieces))
    events: list[tuple[int, Event]] = [
        (at, Data(data)) for at, (_, data) in zip(times, pieces, strict=True)
    ]
    end_ns = times[-1] if times else 0
    out = play([Delay(d) for d in delays_ns], [*events, (end_ns, Eof())])
    assert bytes_of(out) == b"".join(data for _, data in pieces)
    assert others(out) == [Eof()]
    assert out[-1] == (end_ns + sum(delays_ns), Eof())
