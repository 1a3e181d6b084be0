"""The war stories: production failures as matrices of arms, each told beforehand, with its
reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.model import Scenario
from harness.suite import nginx_buffers

Arms = Callable[[int, int], tuple[Scenario, ...]]
"""(time divisor, seed) → the arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A story: its words, what the figures say of them, and its arms."""

    number: int
    title: str
    paragraphs: tuple[str, ...]
    closing: tuple[str, ...]
    arms: Arms


STORIES: dict[int, Story] = {
    1: Story(
        number=1,
        title=nginx_buffers.TITLE,
        paragraphs=nginx_buffers.PARAGRAPHS,
        closing=nginx_buffers.CLOSING,
        arms=nginx_buffers.arms,
    ),
}
