"""Trace files: written, read back, cut off anywhere, refused by the disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clock import now_ns
from harness.errors import RecordingError
from harness.model import Direction
from harness.trace import (
    DIRECTIONS,
    FLUSH_BYTES,
    HEAD,
    MAGIC,
    READ,
    Record,
    TraceWriter,
    read_trace,
)
from tests.unit.limits import files_of_at_most

NS = st.integers(0, 2**64 - 1)
READS = st.builds(
    Record,
    write=st.just(False),
    direction=st.sampled_from(DIRECTIONS),
    connection=st.integers(0, 2**32 - 1),
    user_ns=NS,
    kernel_ns=NS,
    earliest_ns=NS,
    size=st.just(0),
    data=st.binary(min_size=1, max_size=40),
)
WRITES = st.builds(
    Record,
    write=st.just(True),
    direction=st.sampled_from(DIRECTIONS),
    connection=st.integers(0, 2**32 - 1),
    user_ns=NS,
    kernel_ns=st.just(0),
    earliest_ns=NS,
    size=st.integers(0, 2**32 - 1),
    data=st.just(b""),
)
TEXTS = st.text(max_size=10)
VALUES = st.integers(0, 2**60) | TEXTS | st.booleans() | st.none() | st.lists(TEXTS, max_size=2)
EVENTS = st.tuples(
    TEXTS, st.dictionaries(TEXTS.filter(lambda k: k not in ("kind", "at_ns")), VALUES, max_size=3)
)


@dataclass(frozen=True, slots=True)
class Written:
    """A trace and the places in its two files behind each whole part."""

    folder: Path
    events: bytes
    reads: bytes

    def reads_cut_at(self, length: int) -> tuple[tuple[Record, ...], tuple[str, ...]]:
        (self.folder / "x.reads.bin").write_bytes(self.reads[:length])
        trace = read_trace(self.folder, "x")
        return trace.records, trace.notes


def append(writer: TraceWriter, record: Record) -> Record:
    """Writes a record; gives it as it is to be read back."""
    direction = DIRECTIONS.index(record.direction)
    where = (record.connection, direction)
    if record.write:
        writer.write(*where, record.earliest_ns, record.user_ns, record.size)
        return record
    writer.read(*where, record.user_ns, record.kernel_ns, record.earliest_ns, record.data)
    size = len(record.data)
    stamps = (record.user_ns, record.kernel_ns, record.earliest_ns)
    return Record(False, record.direction, record.connection, *stamps, size, record.data)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Two events, three reads and a write."""
    writer = TraceWriter(tmp_path, "x")
    writer.event("opened", {"connection": 1, "text": "Grüße\n"}, 5)
    writer.event("closed", {"connection": 1}, 9)
    for number in range(3):
        writer.read(1, 1, 10 + number, 0, 8, b"abc" * number + b"\n")
    writer.write(1, 1, 11, 12, 4)
    writer.close()
    paths = (tmp_path / "x.events.jsonl", tmp_path / "x.reads.bin")
    return Written(tmp_path, paths[0].read_bytes(), paths[1].read_bytes())


@given(records=st.lists(READS | WRITES, max_size=12), events=st.lists(EVENTS, max_size=4))
@settings(max_examples=60)
def test_trace_read_back_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[Record],
    events: list[tuple[str, dict[str, object]]],
) -> None:
    """Events and records come back in order with all they had."""
    folder = tmp_path_factory.mktemp("trace")
    writer = TraceWriter(folder, "x")
    expected = [append(writer, record) for record in records]
    for number, (kind, fields) in enumerate(events, start=1):
        writer.event(kind, fields, number)
    writer.close()
    trace = read_trace(folder, "x")
    assert list(trace.records) == expected
    told = [{"kind": k, "at_ns": n, **f} for n, (k, f) in enumerate(events, start=1)]
    assert list(trace.events) == told
    assert trace.notes == ()
    assert writer.failed == ""
    assert read_trace(folder, "x", records=False).records == ()


def test_trace_event_without_a_time_happened_now(tmp_path: Path) -> None:
    """An event that is told as it happens is stamped by the trace."""
    writer = TraceWriter(tmp_path, "x")
    before_ns = now_ns()
    writer.event("eof", {})
    writer.close()
    (event,) = read_trace(tmp_path, "x").events
    assert before_ns <= event["at_ns"] <= now_ns()


def test_trace_record_reaches_the_disk_without_a_flush_once_there_are_many(tmp_path: Path) -> None:
    """What is kept in memory is bounded."""
    writer = TraceWriter(tmp_path, "x")
    for _ in range(5):
        writer.read(1, 1, 1, 1, 1, b"a" * (FLUSH_BYTES // 4))
    assert len(read_trace(tmp_path, "x").records) == 4
    writer.close()


def test_trace_read_masks_secrets_across_reads(tmp_path: Path) -> None:
    """No read reaches the disk with a credential in it, each direction followed for itself."""
    writer = TraceWriter(tmp_path, "x", secrets=(b"sk-very-secret",))
    for direction, data in [(0, b"GET / HTTP/1.1\r\nAuthor"), (1, b"a sk-very-secret b")]:
        writer.read(1, direction, 1, 1, 1, data)
    writer.read(1, 0, 2, 2, 2, b"ization: Bearer hidden\r\nHost: a\r\n")
    writer.close()
    content = (tmp_path / "x.reads.bin").read_bytes()
    assert b"hidden" not in content
    assert b"secret" not in content
    datas = [record.data for record in read_trace(tmp_path, "x").records]
    assert datas[1] == b"a ************** b"
    assert datas[2] == b"ization: *************\r\nHost: a\r\n"


# ---------------------------------------------------------------------------------------- cut off


def test_trace_reads_cut_off_anywhere_give_what_is_whole_and_a_note(written: Written) -> None:
    """At every byte position the records before it are read; a part of one is dropped and told."""
    whole, notes = written.reads_cut_at(len(written.reads))
    assert (len(whole), notes) == (4, ())
    ends = [len(MAGIC)]
    for record in whole:
        ends.append(ends[-1] + HEAD.size + len(record.data))
    assert ends[-1] == len(written.reads)
    for length in range(len(written.reads)):
        records, notes = written.reads_cut_at(length)
        assert records == whole[: sum(end <= length for end in ends[1:])]
        if length in ends:
            assert notes == ()
        else:
            (note,) = notes
            assert note.startswith("x.reads.bin: cut off")
            assert f" {length}" in note


def test_trace_events_cut_off_anywhere_give_what_is_whole_and_a_note(written: Written) -> None:
    """At every byte position the events before it are read; a part of one is dropped and told."""
    whole = read_trace(written.folder, "x").events
    assert len(whole) == 2
    ends = [i for i, byte in enumerate(written.events) if byte == ord("\n")]
    for length in range(len(written.events)):
        (written.folder / "x.events.jsonl").write_bytes(written.events[:length])
        trace = read_trace(written.folder, "x")
        assert trace.events == whole[: sum(end <= length for end in ends)]
        at_an_end = length == 0 or length in ends or length - 1 in ends
        assert [note.partition(":")[0] for note in trace.notes] == (
            [] if at_an_end else ["x.events.jsonl"]
        )


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"kind":7,"at_ns":1}',
        b'{"kind":"a"}',
        b'{"kind":"a","at_ns":"1"}',
        b'{"kind":"\xff","at_ns":1}',
    ],
)
def test_trace_damaged_event_is_left_out_and_told(written: Written, line: bytes) -> None:
    """Lines around a damaged one are read; the note says which line it was."""
    first, second = written.events.splitlines(keepends=True)
    (written.folder / "x.events.jsonl").write_bytes(first + line + b"\n" + second)
    trace = read_trace(written.folder, "x")
    assert [event["kind"] for event in trace.events] == ["opened", "closed"]
    assert trace.notes == ("x.events.jsonl:2: not a whole event, left out",)


@pytest.mark.parametrize("kind", [2, 255])
def test_trace_damaged_record_ends_the_records(written: Written, kind: int) -> None:
    """Behind a record that makes no sense nothing can be found; the note says where it stands."""
    begin = len(MAGIC) + HEAD.size + 1
    for place in (begin, begin + 1):
        damaged = bytearray(written.reads)
        damaged[place] = kind
        (written.folder / "x.reads.bin").write_bytes(damaged)
        trace = read_trace(written.folder, "x")
        assert len(trace.records) == 1
        (note,) = trace.notes
        assert note == f"x.reads.bin: cut off or damaged at byte {begin} of {len(damaged)}"


@pytest.mark.parametrize(
    "first", [b"streamchaos.reads/2\n", b"streamchaos.reads/1x\n", b"other/1\n", b"\0" * 100]
)
def test_trace_of_another_format_is_refused(written: Written, first: bytes) -> None:
    """A newer format is refused in one line that names both, and what to do."""
    (written.folder / "x.reads.bin").write_bytes(first + written.reads[len(MAGIC) :])
    with pytest.raises(
        RecordingError, match=r"this version reads 'streamchaos\.reads/1'"
    ) as caught:
        read_trace(written.folder, "x")
    assert caught.value.where.endswith("x.reads.bin")
    assert "\n" not in caught.value.what
    assert caught.value.todo
    assert read_trace(written.folder, "x", records=False).events


@pytest.mark.parametrize("name", ["x.events.jsonl", "x.reads.bin"])
def test_trace_that_is_missing_is_refused(written: Written, name: str) -> None:
    """A file that is not there is our failure, not an empty trace."""
    (written.folder / name).unlink()
    with pytest.raises(RecordingError, match="cannot be read: No such file"):
        read_trace(written.folder, "x")


# ---------------------------------------------------------------------------------------- refused


def fill(writer: TraceWriter) -> None:
    """All that an instrument asks of its trace."""
    writer.event("opened", {"connection": 1})
    writer.read(1, 0, 1, 1, 1, b"a" * 100)
    writer.flush()
    writer.write(1, 0, 1, 1, 100)
    writer.read(1, 0, 1, 1, 1, b"a" * (FLUSH_BYTES + 1))
    writer.close()


def test_trace_full_disk_is_told_and_never_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the hot path a refusal becomes a reason; whoever runs the loop looks at it."""
    really_open = os.open
    monkeypatch.setattr(os, "open", lambda *_: really_open("/dev/full", os.O_WRONLY))
    writer = TraceWriter(tmp_path, "x")
    assert writer.failed == ""
    fill(writer)
    assert writer.failed == "No space left on device (28)"


def test_trace_that_cannot_be_opened_is_told_and_never_raised(tmp_path: Path) -> None:
    """A folder that is gone is a refusal like any other."""
    writer = TraceWriter(tmp_path / "gone", "x")
    assert writer.failed == "No such file or directory (2)"
    fill(writer)
    assert writer.failed == "No such file or directory (2)"


def test_trace_refused_in_the_middle_is_readable_up_to_there(tmp_path: Path) -> None:
    """A write that the disk takes in part ends the trace; nothing is written behind the gap."""
    writer = TraceWriter(tmp_path, "x")
    with files_of_at_most(len(MAGIC) + HEAD.size + 15):
        writer.read(1, 0, 1, 1, 1, b"first")
        writer.read(1, 0, 2, 2, 2, b"second")
        writer.flush()
        assert writer.failed == "File too large (27)"
    writer.read(1, 0, 3, 3, 3, b"third")
    writer.event("late", {})
    writer.close()
    trace = read_trace(tmp_path, "x")
    assert [record.data for record in trace.records] == [b"first"]
    assert trace.events == ()
    assert len(trace.notes) == 1
    assert writer.failed == "File too large (27)"


def test_trace_head_has_a_fixed_layout() -> None:
    """The layout of a record is part of the format: a change needs a new one."""
    packed = HEAD.pack(READ, 1, 0x01020304, 5, 6, 7, 8)
    assert packed.hex() == (
        "000100000403020105000000000000000600000000000000070000000000000008000000"
    )
    assert DIRECTIONS == (Direction.TOWARD_ORIGIN, Direction.TOWARD_CLIENT)
