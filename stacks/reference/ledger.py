"""The KV ledger: which request holds which blocks. No I/O; time is passed in; every change gives a
log entry.
"""

from __future__ import annotations

from collections.abc import Collection

from harness.model import LedgerEntry

FREED_REMEMBERED = 1024
"""How many past releases are remembered to tell how much a second release of the same request would
free.
"""


class OutOfBlocks(RuntimeError):
    """More blocks were asked for than are free."""


class Ledger:
    """`num_blocks` blocks, each held by at most one request."""

    __slots__ = ("_free", "_freed", "_held", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._held: dict[str, list[int]] = {}
        self._freed: dict[str, int] = {}

    @property
    def usage(self) -> float:
        """Share of the blocks that is held, 0..1."""
        return 1 - len(self._free) / self.num_blocks

    @property
    def free_blocks(self) -> int:
        """How many blocks nobody holds."""
        return len(self._free)

    def held(self, request: str) -> tuple[int, ...]:
        """Numbers of the blocks that a request holds."""
        return tuple(self._held.get(request, ()))

    def leaked(self, live: Collection[str]) -> dict[str, int]:
        """Blocks held by requests that are not among the live ones."""
        return {r: len(blocks) for r, blocks in self._held.items() if r not in live}

    def allocate(self, request: str, count: int, *, key: str, at_ns: int) -> LedgerEntry:
        """Gives `count` more blocks to a request; raises OutOfBlocks, changing nothing, where they
        are not free.
        """
        if not 0 < count <= len(self._free):
            raise OutOfBlocks(f"{request}: {count} blocks wanted, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(count)]
        self._held.setdefault(request, []).extend(taken)
        return _entry("allocated", request, key, at_ns, count, taken)

    def free(self, request: str, *, key: str, at_ns: int) -> LedgerEntry:
        """Takes all blocks back. A release of what is not held changes nothing and is entered as
        `double_freed`.
        """
        blocks = self._held.pop(request, None)
        if blocks is None:
            return _entry("double_freed", request, key, at_ns, self._freed.get(request, 0), [])
        self._free.extend(reversed(blocks))
        self._freed[request] = len(blocks)
        if len(self._freed) > FREED_REMEMBERED:
            del self._freed[next(iter(self._freed))]
        return _entry("freed", request, key, at_ns, len(blocks), blocks)


def _entry(
    what: str, request: str, key: str, at_ns: int, count: int, blocks: list[int]
) -> LedgerEntry:
    numbers = ",".join(map(str, blocks))
    return LedgerEntry(
        at_ns=at_ns, what=what, key=key, request=request, blocks=count, detail=numbers
    )
