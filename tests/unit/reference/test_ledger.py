"""The KV ledger loses no block and gives none away twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from harness.model import LedgerEntry
from stacks.reference.ledger import Ledger, OutOfBlocks

BLOCKS = 12
REQUESTS = st.sampled_from("abcd")


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of allocations and releases, against a plain account of who holds how much."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(BLOCKS)
        self.holds: Counter[str] = Counter()
        self.entries: list[LedgerEntry] = []

    @rule(request=REQUESTS, count=st.integers(1, 6))
    def allocate(self, request: str, count: int) -> None:
        """What is free is given, what is not is refused without a trace."""
        if count > BLOCKS - self.holds.total():
            with pytest.raises(OutOfBlocks):
                self.ledger.allocate(request, count, key="k", at_ns=1)
        else:
            self.entries.append(self.ledger.allocate(request, count, key="k", at_ns=1))
            self.holds[request] += count

    @rule(request=REQUESTS)
    def free(self, request: str) -> None:
        """A release gives back everything; one of nothing is a double release."""
        entry = self.ledger.free(request, key="k", at_ns=2)
        held = self.holds.pop(request, 0)
        assert entry.what == ("freed" if held else "double_freed")
        if held:
            assert entry.blocks == held
            self.entries.append(entry)

    @invariant()
    def blocks_are_conserved(self) -> None:
        """Free and held blocks are all there are, each with one holder."""
        held = [block for r in "abcd" for block in self.ledger.held(r)]
        assert len(held) == len(set(held)) == self.holds.total()
        assert self.ledger.free_blocks == BLOCKS - len(held)
        assert self.ledger.usage == pytest.approx(len(held) / BLOCKS)
        assert self.ledger.leaked(()) == dict(self.holds)

    @invariant()
    def entries_tell_what_is_held(self) -> None:
        """Who reads the log alone comes to the same account."""
        account: Counter[str] = Counter()
        for entry in self.entries:
            account[entry.request] += entry.blocks * (1 if entry.what == "allocated" else -1)
        assert +account == self.holds


TestLedger = LedgerMachine.TestCase


def test_double_free_tells_how_much_it_would_have_freed() -> None:
    """The second release of a request is entered with the blocks of its first."""
    ledger = Ledger(4)
    ledger.allocate("r", 3, key="k", at_ns=1)
    ledger.free("r", key="k", at_ns=2)
    entry = ledger.free("r", key="k", at_ns=3)
    assert (entry.what, entry.blocks, entry.key) == ("double_freed", 3, "k")


def test_leaked_leaves_out_the_living() -> None:
    """Blocks of requests that still run are no leak."""
    ledger = Ledger(4)
    ledger.allocate("r", 1, key="", at_ns=1)
    ledger.allocate("s", 2, key="", at_ns=1)
    assert ledger.leaked({"r"}) == {"s": 2}
