"""One seed, one generator for each name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.seeds import derive, generator


def test_derived_seed_is_the_same_everywhere() -> None:
    """A run can be repeated on another machine and another Python."""
    assert derive(7, "story1/direct", "sizes") == 856676529848261194


@given(st.integers(0, 1 << 62), st.text(), st.text())
def test_derived_seed_differs_by_name_and_split(seed: int, one: str, other: str) -> None:
    """Names are kept apart, and fit what a generator takes."""
    assert 0 <= derive(seed, one) < 1 << 63
    if one != other:
        assert derive(seed, one) != derive(seed, other)
    if one and "\0" not in one + other:
        assert derive(seed, one, other) != derive(seed, one + other)


def test_generator_repeats_itself() -> None:
    """The same draws in the same order."""
    assert [generator(1, "a").random() for _ in range(2)] == [generator(1, "a").random()] * 2
