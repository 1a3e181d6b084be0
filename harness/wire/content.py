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
    """gzip (several members in a row too) or deflate."""

    def __init__(self, name: str, wbits: int) -> None:
        self._name = name
        self._wbits = wbits
        self._zlib = zlib.decompressobj(wbits)
        self._begun = False
        self.broken = ""

    def feed(self, data: bytes) -> bytes:
        """What the coder had flushed."""
        pieces: list[bytes] = []
        while data and not self.broken:
            if self._zlib.eof:
                self._zlib = zlib.decompressobj(self._wbits)
            self._begun = True
            try:
                pieces.append(self._zlib.decompress(data))
            except zlib.error as error:
                self.broken = f"{self._name}: {error}"
                break
            data = self._zlib.unused_data if self._zlib.eof else b""
        return b"".join(pieces)

    def finish(self) -> bytes:
        """The rest; a member that breaks off makes it broken."""
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
    """A decoder for the value of a Content-Encoding header."""
    name = content_encoding.strip().lower()
    match name:
        case "" | "identity":
            return IdentityDecoder()
        case "gzip" | "x-gzip":
            return ZlibDecoder("gzip", GZIP_WBITS)
        case "deflate":
            return ZlibDecoder("deflate", DEFLATE_WBITS)
        case _:
            return UnknownDecoder(name)
