"""What the harness says of its own failures."""

from __future__ import annotations

import pytest

from harness import errors
from harness.errors import HarnessError

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HarnessError)
]


def test_text_is_built_from_the_fields() -> None:
    """Where and what on one line, what to do on the next."""
    error = HarnessError("is full", where="/results", todo="free space there")
    assert str(error) == "/results: is full\n  free space there"
    assert str(HarnessError("is full", todo="free space")) == "is full\n  free space"
    assert str(HarnessError("is full")) == "is full"
    assert (error.what, error.where, error.todo) == ("is full", "/results", "free space there")


@pytest.mark.parametrize("kind", KINDS)
def test_exit_code_tells_usage_from_failure(kind: type[HarnessError]) -> None:
    """2 for what a person can mend, 3 for our own."""
    usage = (errors.UsageError, errors.ConfigError, errors.PlanError, errors.MissingPart)
    assert kind.exit_code == (2 if issubclass(kind, usage) else 3)
    assert kind.__doc__
    assert kind.__name__ in (errors.__doc__ or "")
