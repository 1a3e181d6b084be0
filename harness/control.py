"""Control between the harness and a helper process: one inherited socket pair, length-prefixed
JSON.

Verbs to a helper: `configure`, `arm`, `go`, `heal`, `drain`, `stop`. Notices from it: `ready`,
`progress`, `fired`, `done`, `failed`. Measurements never cross it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

import msgspec

from harness.errors import HarnessError

LENGTH = struct.Struct("<I")
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
FD_VARIABLE = "STREAMCHAOS_CONTROL_FD"

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """The message with its length in front."""
    body = msgspec.json.encode(message)
    return LENGTH.pack(len(body)) + body


class MessageReader:
    """Cuts a byte stream into messages, whatever the split."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completed.

        Raises:
            HarnessError: a length beyond MESSAGE_BYTES_MAX, or no JSON object: the other side is
                not one of ours.
        """
        self._pending += data
        messages: list[Message] = []
        while len(self._pending) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._pending)
            if size > MESSAGE_BYTES_MAX:
                raise HarnessError(f"a control message of {size} bytes", where="control")
            if len(self._pending) < LENGTH.size + size:
                break
            messages.append(_decoded(bytes(self._pending[LENGTH.size : LENGTH.size + size])))
            del self._pending[: LENGTH.size + size]
        return messages


def _decoded(body: bytes) -> Message:
    try:
        return msgspec.json.decode(body, type=Message)
    except msgspec.DecodeError as error:
        raise HarnessError(f"a control message that is none: {error}", where="control") from error


class HelperControl:
    """A helper's end: blocking sends (they are few and small), reads when the loop says so."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._reader = MessageReader()

    @classmethod
    def inherited(cls) -> HelperControl:
        """The end that the harness passed on.

        Raises:
            HarnessError: this program was started by hand.
        """
        fd = os.environ.get(FD_VARIABLE)
        if fd is None:
            raise HarnessError(
                "started without a control socket", todo="it is started by streamchaos, not by hand"
            )
        return cls(socket.socket(fileno=int(fd)))

    def fileno(self) -> int:
        """For the loop."""
        return self.socket.fileno()

    def receive(self) -> list[Message] | None:
        """Messages that came, or None when the harness is gone."""
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            return None
        return self._reader.feed(data) if data else None

    def send(self, kind: str, **fields: object) -> None:
        """A notice; dropped when nobody is left to read it."""
        try:
            self.socket.sendall(encode({"kind": kind, **fields}))
        except (BrokenPipeError, ConnectionResetError):
            return


class HarnessControl:
    """The harness's end, on asyncio: gives orders, and takes notices in the order of their
    coming."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._messages = MessageReader()
        self._waiting: list[Message] = []
        self.name = name

    @classmethod
    async def open(cls, sock: socket.socket, name: str) -> HarnessControl:
        """Over our end of the socket pair."""
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, name)

    async def send(self, verb: str, **fields: object) -> None:
        """Gives an order.

        Raises:
            HarnessError: the helper is gone.
        """
        try:
            self._writer.write(encode({"verb": verb, **fields}))
            await self._writer.drain()
        except ConnectionError as error:
            raise HarnessError("ended without being told to", where=self.name) from error

    async def receive(self) -> Message:
        """The next notice.

        Raises:
            HarnessError: the helper said `failed`, or is gone.
        """
        while not self._waiting:
            try:
                data = await self._reader.read(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                raise HarnessError("ended without being told to", where=self.name)
            self._waiting.extend(self._messages.feed(data))
        message = self._waiting.pop(0)
        if message["kind"] == "failed":
            raise HarnessError(message["what"], where=self.name, todo=message.get("todo", ""))
        return message

    async def call(self, verb: str, **fields: object) -> Message:
        """Gives an order and returns the next notice. For verbs that are answered, and as long as
        nothing else is told.

        Raises:
            HarnessError: as `send` and `receive`.
        """
        await self.send(verb, **fields)
        return await self.receive()

    def close(self) -> None:
        """The helper sees the end of the socket and stops."""
        self._writer.close()
