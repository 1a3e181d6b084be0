"""Masks secrets in a byte stream as it goes to disk: same length, nothing held back.

Values of header lines that carry credentials are masked wherever a line begins with such a name and
a colon, however it is split over reads; white space in front of the value stays. Continuations of a
folded line (RFC 9112 §5.2) are not taken for part of the value.

Literal secrets are masked wherever they stand. One that is split over two reads cannot be known in
the first of them, and nothing is held back: its end is masked always, its beginning once it is at
least half of the secret. This is the one case where bytes that only look like a secret are masked.
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
OPEN_VALUE = b"\ncookie:*"
NAME = b"|".join(re.escape(name) for name in sorted(NAMES, key=len, reverse=True))
SECRET_LINE = re.compile(rb"([\r\n](?:" + NAME + rb")[ \t]*:[ \t]*)([^\r\n]*)", re.IGNORECASE)


def _mask(match: re.Match[bytes]) -> bytes:
    return match[1] + b"*" * len(match[2])


class Redactor:
    """Follows one direction of one connection.

    What a new read is searched behind: `_carry` is the line at hand where it is, or may become, one
    with a secret (a line end stands first), and empty in any other line; `_before` are the last
    bytes that a literal secret may have begun in.
    """

    __slots__ = ("_before", "_carry", "_longest", "_secrets")

    def __init__(self, secrets: tuple[bytes, ...] = ()) -> None:
        self._secrets = tuple(sorted(filter(None, secrets), key=len, reverse=True))
        self._longest = max(map(len, self._secrets), default=0)
        self._carry = b"\n"
        self._before = b""

    def feed(self, data: bytes) -> bytes:
        """`data` with its secrets masked, as long as it was."""
        if not data:
            return data
        masked = self._mask_lines(data)
        return self._mask_literals(data, masked) if self._secrets else masked

    def _mask_lines(self, data: bytes) -> bytes:
        carry = self._carry
        joined = carry + data
        lowered = joined.lower()
        # Each name holds one of these, and a search for them is ten times as fast as the pattern.
        if b"authorization" in lowered or b"cookie" in lowered or b"api-key" in lowered:
            data = SECRET_LINE.sub(_mask, joined)[len(carry) :]
        self._carry = _open_line(joined)
        return data

    def _mask_literals(self, data: bytes, masked: bytes) -> bytes:
        before = self._before
        joined = before + data
        self._before = joined[1 - self._longest :] if self._longest > 1 else b""
        spans = [span for secret in self._secrets for span in _spans(joined, secret)]
        if not spans:
            return masked
        out = bytearray(before + masked)
        for begin, end in spans:
            out[begin:end] = b"*" * (end - begin)
        return bytes(out[len(before) :])


def _open_line(joined: bytes) -> bytes:
    """The last line of `joined` as far as what follows may depend on it, in a bounded form."""
    begin = max(joined.rfind(b"\n"), joined.rfind(b"\r"))
    if begin < 0:
        return b""
    if begin == len(joined) - 1:
        return b"\n"
    name, colon, value = joined[begin + 1 :].partition(b":")
    bare = name.rstrip(b" \t").lower()
    if bare in NAMES:
        if value.strip(b" \t"):
            return OPEN_VALUE
        return b"\n" + bare + (colon or name[len(bare) :][:1])
    begun = not colon and any(known.startswith(name.lower()) for known in NAMES)
    return b"\n" + name if begun else b""


def _spans(joined: bytes, secret: bytes) -> list[tuple[int, int]]:
    """Where the secret stands in `joined`, and the half or more of it that `joined` ends with."""
    spans: list[tuple[int, int]] = []
    half = secret[: (len(secret) + 1) // 2]
    at = joined.find(half)
    while at >= 0:
        found = joined[at : at + len(secret)]
        if secret.startswith(found):
            spans.append((at, at + len(found)))
        at = joined.find(half, at + 1)
    return spans
