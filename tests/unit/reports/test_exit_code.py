"""The exit code, over all mixtures of outcomes."""

from __future__ import annotations

import pytest

from harness.model import Outcome
from reports.exit_code import exit_code
from tests.unit.reports import samples as s


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((), 2),
        ((s.AS_TOLD,), 0),
        ((s.SKIPPED,), 0),
        ((s.AS_TOLD, s.SKIPPED), 0),
        ((s.AS_TOLD, s.UNDECIDED), 4),
        ((s.UNDECIDED, s.SKIPPED), 4),
        ((s.AS_TOLD, s.UNDECIDED, s.NOT_AS_TOLD), 1),
        ((s.NOT_AS_TOLD, s.SKIPPED), 1),
        ((s.NOT_AS_TOLD, s.HARNESS_ERROR, s.UNDECIDED), 3),
        (s.ALL_KINDS, 3),
    ],
)
def test_exit_code_of_a_mixture_is_its_heaviest(outcomes: tuple[Outcome, ...], code: int) -> None:
    """Harness error before not as told before undecided before as told; nothing at all is 2."""
    assert exit_code(s.report(*outcomes)) == code
    assert exit_code(s.report(*reversed(outcomes))) == code
