"""Bytes cut into reads: what each reader of the wire must be blind to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import strategies as st


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` cut at the given places; those out of range do not cut."""
    marks = [0, *sorted({p for p in places if 0 < p < len(data)}), len(data)]
    return [data[a:b] for a, b in pairwise(marks)]


def every_cut_in_two(data: bytes) -> Iterator[list[bytes]]:
    """All ways of cutting `data` once."""
    return ([data[:place], data[place:]] for place in range(len(data) + 1))


def bytewise(data: bytes) -> list[bytes]:
    """`data` cut everywhere."""
    return [data[i : i + 1] for i in range(len(data))]


PLACES = st.lists(st.integers(1, 400), max_size=12)
EDITS = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from([0, 1]), st.binary(max_size=2)),
    min_size=1,
    max_size=3,
)


def edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """`data` with a few bytes taken out or put in."""
    for place, gone, put in edits:
        at = place % (len(data) + 1)
        data = data[:at] + put + data[at + gone :]
    return data
