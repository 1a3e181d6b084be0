"""Masks secrets in a byte stream as it goes to disk: same length, nothing held back.

Values of header lines that carry credentials are masked wherever a line begins with such a name, however it is split over
reads. Literal secrets are masked within a read, and across two where the first read ends within one.
"""

from __future__ import annotations

import re

NAMES = (
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"x-api-key",
    b"api-key",
)
NAME_BYTES_MAX = max(map(len, NAMES))
LINE_START = re.compile(rb"(?:\A|[\r\n])(?:" + b"|".join(NAMES) + rb"):", re.IGNORECASE)
TAIL_START = re.compile(rb"[\r\n]([^\r\n:]{0,24})\Z")


class Redactor:
    """Follows one direction of one connection."""

    __slots__ = ("_head", "_masking", "_secrets", "_tail")

    def __init__(self, secrets: tuple[bytes, ...] = ()) -> None:
        self._secrets = tuple(s for s in secrets if s)
        self._masking = False
        self._head: bytes | None = b""
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """`data` with its secrets masked, as long as it was."""
        idle = not self._masking and self._head is None
        if not idle or LINE_START.search(data) or TAIL_START.search(data):
            data = self._mask_lines(data)
        return self._mask_literals(data) if self._secrets else data

    def _mask_lines(self, data: bytes) -> bytes:
        """Line by line; `_head` is what is known of a line whose name is not whole, None in the middle of others."""
        pieces: list[bytes] = []
        for part in re.split(rb"([\r\n])", data):
            if part in (b"\r", b"\n"):
                self._masking = False
                self._head = b""
                pieces.append(part)
            elif part:
                pieces.append(self._mask_part(part))
        return b"".join(pieces)

    def _mask_part(self, part: bytes) -> bytes:
        if self._masking:
            return b"*" * len(part)
        if self._head is None:
            return part
        known = len(self._head)
        line = self._head + part
        name, colon, value = line.partition(b":")
        if not colon:
            self._head = line if len(line) <= NAME_BYTES_MAX else None
            return part
        self._head = None
        if name.strip().lower() not in NAMES:
            return part
        self._masking = True
        kept = max(len(name) + 1 - known, 0)
        return part[:kept] + b"*" * (len(part) - kept)

    def _mask_literals(self, data: bytes) -> bytes:
        joined = self._tail + data
        for secret in self._secrets:
            if secret in joined:
                joined = joined.replace(secret, b"*" * len(secret))
        masked = joined[len(self._tail) :]
        longest = max(map(len, self._secrets))
        self._tail = (self._tail + data)[-(longest - 1) :] if longest > 1 else b""
        return masked
