"""Content codings taken off a body as it arrives (RFC 9110 §8.4)."""

from __future__ import annotations

import zlib
from typing import Protocol

GZIP_WBITS = 31
DEFLATE_WBITS = 15


class Decoder(Protocol):
    """Takes coded bytes, gives plain ones. `broken` says why nothing more will come, if so."""

    broken: str

    def feed(self, data: bytes) -> bytes:
        """What `data` gives, as far as the coder had flushed it."""
        ...

    def finish(self) -> bytes:
        """What is left at the end of the body; a coding that breaks off is `broken`."""
        ...


class IdentityDecoder:
    """No coding."""

    def __init__(self) -> None:
        self.broken = ""

    def feed(self, data: bytes) -> bytes:
        """The same bytes."""
        return data

    def finish(self) -> bytes:
        """Nothing is ever held."""
        return b""


class ZlibDecoder:
    """gzip, where members may follow each other (RFC 1952 §2.2), or deflate, which is one stream.

    What a piece holds before a corruption is lost with it, as zlib gives no part of it.
    """

    def __init__(self, name: str, wbits: int, *, members: bool) -> None:
        self._name = name
        self._wbits = wbits
        self._members = members
        self._zlib = zlib.decompressobj(wbits)
        self._begun = False
        self.broken = ""

    def feed(self, data: bytes) -> bytes:
        """What the coder had flushed."""
        pieces: list[bytes] = []
        while data and not self.broken:
            if self._zlib.eof:
                if not self._members:
                    self.broken = f"{self._name}: bytes behind the end"
                    break
                self._zlib = zlib.decompressobj(self._wbits)
            self._begun = True
            try:
                pieces.append(self._zlib.decompress(data))
            except zlib.error as error:
                self.broken = f"{self._name}: {error}"
                break
            data = self._zlib.unused_data
        return b"".join(pieces)

    def finish(self) -> bytes:
        """The rest; a coding that breaks off makes it broken."""
        if self.broken or not self._begun:
            return b""
        if not self._zlib.eof:
            self.broken = f"{self._name}: breaks off"
        return self._zlib.flush()


class UnknownDecoder:
    """A coding that nobody here can take off: bytes and times only."""

    def __init__(self, name: str) -> None:
        self.broken = f"unknown content-encoding {name!r}"

    def feed(self, data: bytes) -> bytes:
        """Nothing."""
        return b""

    def finish(self) -> bytes:
        """Nothing."""
        return b""


def decoder(content_encoding: str) -> Decoder:
    """A decoder for the value of a Content-Encoding header; codings in a row count as unknown."""
    name = content_encoding.strip().lower()
    match name:
        case "" | "identity":
            return IdentityDecoder()
        case "gzip" | "x-gzip":
            return ZlibDecoder("gzip", GZIP_WBITS, members=True)
        case "deflate":
            return ZlibDecoder("deflate", DEFLATE_WBITS, members=False)
        case _:
            return UnknownDecoder(name)
