"""One seed per run, printed first, and one generator per name derived from it."""

from __future__ import annotations

import hashlib
import random


def derive(seed: int, *names: str) -> int:
    """A 63-bit seed for `names` under `seed`: the same on every machine and Python, different for
    every name."""
    text = "\0".join((str(seed), *names)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def generator(seed: int, *names: str) -> random.Random:
    """The generator of `names` under `seed`."""
    return random.Random(derive(seed, *names))
