"""The harness's end of the keeper: children as futures."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from harness.control import LENGTH, MessageReader
from harness.errors import HarnessError, StackStartError

KEEPER = Path(__file__).with_name("keeper.py")
END_S = 5.0


class Child:
    """A process that the keeper started. `exited` gives its exit code, negative for a signal."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def exit_status(self) -> int | None:
        """The exit code, None while it runs."""
        return self.exited.result() if self.exited.done() else None


class Keeper:
    """Starts, signals and ends processes through the keeper, which outlives us by as long as it
    takes to clean up."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._spawning: dict[int, asyncio.Future[Child]] = {}
        self._trees: dict[int, asyncio.Future[None]] = {}
        self._early_exits: dict[int, int] = {}
        self._next = 0
        self._socket: socket.socket
        self._process: subprocess.Popen[bytes]
        self._reading: asyncio.Task[None]
        self._sending = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Starts the keeper."""
        ours, theirs = socket.socketpair()
        argv = [sys.executable, "-I", "-S", str(KEEPER), str(theirs.fileno())]
        # Blocks for a fork; asyncio's own would make us its parent in SIGCHLD's eyes too.
        self._process = subprocess.Popen(  # noqa: ASYNC220
            argv, pass_fds=(theirs.fileno(),), start_new_session=True, stdin=subprocess.DEVNULL
        )
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._reading = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Everything that is left is killed; returns when the keeper is gone."""
        self._socket.close()
        self._reading.cancel()
        await asyncio.to_thread(self._process.wait, END_S)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdout: Path,
        stderr: Path,
        control: socket.socket | None = None,
    ) -> Child:
        """Starts a program in a session of its own; `control` becomes its descriptor 3.

        Raises:
            StackStartError: it cannot be executed.
        """
        self._next += 1
        number = self._next
        waiting: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._spawning[number] = waiting
        message = {
            "verb": "spawn",
            "id": number,
            "argv": list(argv),
            "env": dict(env),
            "cwd": str(cwd),
            "stdout": str(stdout),
            "stderr": str(stderr),
            "control": control is not None,
        }
        await self._send(message, control)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # The order is on its way: nobody else will know of this child.
            with suppress(HarnessError):
                await self.kill_tree((await waiting).pid)
            raise

    async def signal(self, pid: int, number: signal.Signals) -> None:
        """Signals one of ours; nobody else, and nothing where it has ended."""
        await self._send({"verb": "signal", "pid": pid, "signal": int(number)})

    async def kill_tree(self, pid: int) -> None:
        """SIGKILL to the process, its session and all below; returns when none is left."""
        waiting = self._trees.get(pid)
        if waiting is None:
            waiting = self._trees[pid] = asyncio.get_running_loop().create_future()
            await self._send({"verb": "kill_tree", "pid": pid})
        await asyncio.shield(waiting)

    async def keep_folder(self, path: Path) -> None:
        """A temporary folder, to be removed at the end."""
        await self._send({"verb": "folder", "path": str(path)})

    async def _send(self, message: dict[str, Any], fd: socket.socket | None = None) -> None:
        body = json.dumps(message).encode()
        data = LENGTH.pack(len(body)) + body
        async with self._sending:
            if fd is not None:
                sent = socket.send_fds(self._socket, [data], [fd.fileno()])
                data = data[sent:]
            try:
                await asyncio.get_running_loop().sock_sendall(self._socket, data)
            except OSError as error:
                raise HarnessError(f"is gone: {error.strerror}", where="keeper") from error

    async def _read(self) -> None:
        reader = MessageReader()
        loop = asyncio.get_running_loop()
        # A keeper that is killed with orders unread resets the socket.
        with suppress(ConnectionError):
            while data := await loop.sock_recv(self._socket, 1 << 16):
                for notice in reader.feed(data):
                    self._on_notice(notice)
        # Children die with their keeper, and nobody is left to tell how.
        for child in self._children.values():
            child.exited.set_result(-signal.SIGKILL)
        lost = HarnessError("ended without being told to", where="keeper")
        waiting: list[asyncio.Future[Any]] = [*self._spawning.values(), *self._trees.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(lost)

    def _on_notice(self, notice: dict[str, Any]) -> None:
        match notice["kind"]:
            case "spawned":
                child = self._children[notice["pid"]] = Child(notice["pid"])
                early = self._early_exits.pop(notice["pid"], None)
                if early is not None:
                    child.exited.set_result(early)
                waiting = self._spawning.pop(notice["id"])
                if not waiting.cancelled():
                    waiting.set_result(child)
            case "spawn_failed":
                waiting = self._spawning.pop(notice["id"])
                if not waiting.cancelled():
                    todo = "check that the program is installed and may be executed"
                    waiting.set_exception(StackStartError(notice["error"], todo=todo))
            case "exited":
                ended = self._children.pop(notice["pid"], None)
                if ended is None:
                    self._early_exits[notice["pid"]] = notice["code"]
                else:
                    ended.exited.set_result(notice["code"])
            case "tree_gone":
                gone = self._trees.pop(notice["pid"], None)
                if gone is not None and not gone.done():
                    gone.set_result(None)
            case kind:
                raise HarnessError(f"unknown notice {kind!r}", where="keeper")
