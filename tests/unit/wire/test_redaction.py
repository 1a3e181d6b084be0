"""The masking of secrets: what it masks however it is split, and that it alters nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.wire.redaction import Redactor
from tests.unit.wire.splits import PLACES, bytewise, cut, every_cut_in_two

SECRET = b"sk-planted-0123456789"
REQUEST = (
    b"POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer abc def\r\nAccept: */*\r\n"
    b"COOKIE:\t a=b; c=d\r\nX-Api-Key:k\nProxy-Authorization : p\r\nX-Cookie: kept\r\n\r\n{}"
)
REDACTED = (
    b"POST / HTTP/1.1\r\nHost: a\r\nAuthorization: **************\r\nAccept: */*\r\n"
    b"COOKIE:\t ********\r\nX-Api-Key:*\nProxy-Authorization : *\r\nX-Cookie: kept\r\n\r\n{}"
)
NAMES = ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key")


def masked(pieces: list[bytes], *secrets: bytes) -> bytes:
    """The pieces as one redactor gives them, each as long as it was."""
    redactor = Redactor(secrets=secrets)
    found = [redactor.feed(piece) for piece in pieces]
    assert list(map(len, found)) == list(map(len, pieces))
    return b"".join(found)


def reference(data: bytes) -> bytes:
    """The rule for header lines, line by line on the whole."""
    parts = re.split(rb"([\r\n])", data)
    return b"".join(map(_line, parts))


def _line(line: bytes) -> bytes:
    name, colon, value = line.partition(b":")
    if not colon or name.rstrip(b" \t").decode("latin-1").lower() not in NAMES:
        return line
    bare = value.lstrip(b" \t")
    return line[: len(line) - len(bare)] + b"*" * len(bare)


def test_redactor_of_a_request_masks_values_and_nothing_else() -> None:
    """Names, other lines, white space and line ends stay as they were, for every cut in two."""
    for pieces in (*every_cut_in_two(REQUEST), bytewise(REQUEST)):
        assert masked(pieces) == REDACTED


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"Cookie: a", b"Cookie: *"),
        (b"x\rcookie: a\rb: c", b"x\rcookie: *\rb: c"),
        (b"x\n\rapi-key:a", b"x\n\rapi-key:*"),
        (b"cookie: a\n b", b"cookie: *\n b"),
        (b"x cookie: a", b"x cookie: a"),
    ],
    ids=["first-line", "bare-cr", "lf-cr", "folded", "mid-line"],
)
def test_redactor_of_a_line_start_takes_any_line_end(data: bytes, expected: bytes) -> None:
    """A line begins at the connection's first byte and behind each CR and LF."""
    assert masked([data]) == expected
    assert masked(bytewise(data)) == expected


TOKENS = (
    *(b"authorization", b"Set-Cookie", b"cookie", b"X-API-KEY", b"api-key", b"proxy-", b"auth"),
    *(b":", b" ", b"\t", b"\r", b"\n", b"\r\n", b"x", b"*", b"x-"),
)
TEXTS = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=3), max_size=30).map(b"".join)


@given(data=TEXTS, places=PLACES)
@settings(max_examples=600, deadline=None)
def test_redactor_of_any_bytes_agrees_with_the_rule(data: bytes, places: list[int]) -> None:
    """Whole or in pieces, exactly the values of the named lines are masked."""
    expected = reference(data)
    assert masked([data]) == expected
    assert masked(cut(data, places)) == expected
    assert masked(bytewise(data)) == expected


def test_redactor_of_an_event_stream_leaves_it_alone() -> None:
    """Events, even those that speak of cookies, pass as they are."""
    body = b'data: {"text": "cookie: a, authorization: b"}\n\n: api-key\n\n'
    for pieces in every_cut_in_two(body):
        assert masked(pieces) == body


@given(before=st.binary(max_size=40), after=st.binary(max_size=40))
@settings(max_examples=100, deadline=None)
def test_redactor_of_a_literal_secret_within_a_read_masks_it(before: bytes, after: bytes) -> None:
    """A secret given by value is masked wherever it stands, any number of times."""
    found = masked([before + SECRET + b"|" + SECRET + after], SECRET)
    assert SECRET not in found
    assert found.count(b"*" * len(SECRET)) >= 2


def test_redactor_of_a_literal_secret_cut_in_two_leaves_less_than_half() -> None:
    """Of a secret split over two reads at most the smaller part of the first read is left."""
    text = b"a" + SECRET + b"b"
    for pieces in every_cut_in_two(text):
        found = masked(pieces, SECRET)
        kept = found.rstrip(b"b").rstrip(b"*").removeprefix(b"a")
        assert SECRET.startswith(kept)
        assert len(kept) < (len(SECRET) + 1) // 2
        assert found.endswith(b"*b")


def test_redactor_of_literal_secrets_within_each_other_masks_both() -> None:
    """The longer one is masked whole, the shorter one where it stands alone."""
    assert masked([b"x abcdef abc x"], b"abc", b"abcdef") == b"x ****** *** x"


@pytest.mark.parametrize("secrets", [(), (b"",), (SECRET,)])
def test_redactor_of_other_bytes_keeps_them(secrets: tuple[bytes, ...]) -> None:
    """Bytes that hold nothing secret are the very same."""
    data = bytes(range(256)) * 4
    for pieces in (cut(data, [1, 300, 301]), bytewise(data)):
        assert masked(pieces, *secrets) == data
