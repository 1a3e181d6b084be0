"""Content codings taken off in pieces, and what corrupt ones come to."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.wire.content import decoder
from tests.unit.wire.splits import EDITS, PLACES, bytewise, cut, edited

PLAIN = st.lists(st.binary(max_size=60), max_size=5)


def coded(name: str, pieces: list[bytes]) -> list[bytes]:
    """What a server sends that flushes behind each piece; the trailer comes last."""
    coder = zlib.compressobj(wbits=15 if name == "deflate" else 31)
    sent = [coder.compress(piece) + coder.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*sent, coder.flush()]


def decoded(name: str, pieces: list[bytes]) -> tuple[bytes, str]:
    """Plain bytes and why there are not more."""
    coder = decoder(name)
    plain = b"".join(map(coder.feed, pieces)) + coder.finish()
    return plain, coder.broken


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "deflate", " GZip "])
def test_decoder_of_flushed_pieces_gives_each_at_once(name: str) -> None:
    """What the server flushed is there with the read that brought it."""
    pieces = [b"data: a\n\n", b"data: b\n\n", b""]
    coder = decoder(name)
    assert [coder.feed(wire) for wire in coded(name, pieces[:2])] == pieces
    assert coder.finish() == b""
    assert coder.broken == ""


@given(name=st.sampled_from(["gzip", "deflate"]), plain=PLAIN, places=PLACES)
@settings(max_examples=150, deadline=None)
def test_decoder_of_any_split_gives_the_plain_bytes(
    name: str, plain: list[bytes], places: list[int]
) -> None:
    """However coded bytes are split, the plain ones come whole."""
    wire = b"".join(coded(name, plain))
    for pieces in ([wire], cut(wire, places), bytewise(wire)):
        assert decoded(name, pieces) == (b"".join(plain), "")


@given(members=st.lists(st.binary(max_size=30), min_size=2, max_size=4), places=PLACES)
@settings(max_examples=80, deadline=None)
def test_decoder_of_gzip_members_gives_them_in_a_row(
    members: list[bytes], places: list[int]
) -> None:
    """Members may follow each other (RFC 1952 §2.2)."""
    wire = b"".join(gzip.compress(m) for m in members)
    assert decoded("gzip", cut(wire, places)) == (b"".join(members), "")


def test_decoder_of_deflate_with_bytes_behind_it_is_broken() -> None:
    """deflate is one stream: what follows it is no part of the body."""
    plain, broken = decoded("deflate", [zlib.compress(b"abc") + b"x"])
    assert (plain, broken) == (b"abc", "deflate: bytes behind the end")


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_decoder_of_a_cut_off_body_is_broken_behind_what_was_flushed(name: str) -> None:
    """A coding without its end gives what it has and says that it breaks off."""
    wire = coded(name, [b"abc"])[0]
    assert decoded(name, [wire]) == (b"abc", f"{name}: breaks off")


def test_decoder_of_an_empty_body_is_not_broken() -> None:
    """A body of nothing at all breaks nothing off."""
    assert decoded("gzip", []) == (b"", "")


@pytest.mark.parametrize("name", ["br", "gzip, gzip", "zstd"])
def test_decoder_of_an_unknown_coding_gives_nothing_and_says_so(name: str) -> None:
    """Bytes that nobody here can read are not passed off as plain ones."""
    assert decoded(name, [b"abc"]) == (b"", f"unknown content-encoding '{name}'")


@pytest.mark.parametrize("name", ["", "identity", "IDENTITY"])
def test_decoder_of_no_coding_gives_the_same_bytes(name: str) -> None:
    """Without a coding nothing changes."""
    assert decoded(name, [b"ab", b"c"]) == (b"abc", "")


@given(
    name=st.sampled_from(["gzip", "deflate"]),
    plain=st.binary(min_size=1, max_size=80),
    edits=EDITS,
    places=PLACES,
)
@settings(max_examples=300, deadline=None)
def test_decoder_of_edited_input_is_whole_or_broken(
    name: str, plain: bytes, edits: list[tuple[int, int, bytes]], places: list[int]
) -> None:
    """Corrupt input never raises, and other bytes are never passed off as whole."""
    wire = edited(b"".join(coded(name, [plain])), edits)
    found, broken = decoded(name, cut(wire, places))
    assert broken or found == plain or not wire


@given(name=st.sampled_from(["gzip", "deflate"]), junk=st.binary(min_size=1, max_size=60))
@settings(max_examples=150, deadline=None)
def test_decoder_of_junk_is_broken(name: str, junk: bytes) -> None:
    """Bytes that are not coded are named so, and nothing follows."""
    coder = decoder(name)
    coder.feed(junk)
    coder.finish()
    assert coder.broken.startswith(name)
    assert coder.feed(b"abc") == b""
    assert coder.finish() == b""
