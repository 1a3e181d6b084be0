"""The harness's end of the keeper: children as futures."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from harness.control import LENGTH, MessageReader
from harness.errors import HarnessError, StackStartError
from harness.launch.keeper import kill_all, parents, session_of

KEEPER = Path(__file__).with_name("keeper.py")
END_S = 5.0
"""How long the keeper may take to kill what was started."""

SWEEPS_MAX = 200


class Child:
    """A process that the keeper started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def exited(self) -> asyncio.Future[int]:
        """To be awaited: the exit code, negative for a signal. A wait that is given up takes
        nothing from the others."""
        return asyncio.shield(self._exited)

    @property
    def exit_status(self) -> int | None:
        """The exit code, None while it runs."""
        return self._exited.result() if self._exited.done() else None

    def end(self, code: int) -> None:
        """It has ended."""
        self._exited.set_result(code)


class Keeper:
    """Starts, signals and ends processes through the keeper, which outlives us by as long as it
    takes to clean up.

    Orders are queued whole and sent in their order: whoever is cancelled meanwhile cuts none.
    """

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._spawning: dict[int, asyncio.Future[Child]] = {}
        self._trees: dict[int, asyncio.Future[None]] = {}
        self._orders: deque[tuple[bytes, socket.socket | None]] = deque()
        self._next = 0
        self._socket: socket.socket
        self._process: subprocess.Popen[bytes]
        self._reading: asyncio.Task[None]
        self._is_leaving = False

    async def __aenter__(self) -> Self:
        """Starts the keeper."""
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        with theirs:
            argv = [sys.executable, "-I", "-S", str(KEEPER), str(theirs.fileno())]
            # Blocks for a fork; asyncio's own would make us its parent in SIGCHLD's eyes too.
            self._process = subprocess.Popen(  # noqa: ASYNC220
                argv, pass_fds=(theirs.fileno(),), start_new_session=True, stdin=subprocess.DEVNULL
            )
        self._reading = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Everything that is left is killed; returns when the keeper is gone.

        Raises:
            HarnessError: it is not gone within END_S.
        """
        self._is_leaving = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        await asyncio.wait([self._reading])
        try:
            await asyncio.to_thread(self._process.wait, END_S)
        except subprocess.TimeoutExpired:
            what = f"still kills what was started, after {END_S} s"
            raise HarnessError(what, where=f"keeper {self._process.pid}") from None

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
            StackStartError: it cannot be executed. HarnessError: the keeper is gone.
        """
        self._next += 1
        message = {
            "verb": "spawn",
            "id": self._next,
            "argv": list(argv),
            "env": dict(env),
            "cwd": str(cwd),
            "stdout": str(stdout),
            "stderr": str(stderr),
            "control": control is not None,
        }
        self._order(message, control)
        waiting: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._spawning[self._next] = waiting
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # The order is on its way, and nobody else will know of this child.
            with suppress(HarnessError, TimeoutError):
                async with asyncio.timeout(END_S):
                    await self.kill_tree((await waiting).pid)
            raise

    async def signal(self, pid: int, number: signal.Signals) -> None:
        """Signals one of ours; nobody else, and nothing where it has ended.

        Raises:
            HarnessError: the keeper is gone.
        """
        self._order({"verb": "signal", "pid": pid, "signal": int(number)})

    async def kill_tree(self, pid: int) -> None:
        """SIGKILL to the process, its session and all below; returns when none is left, and how
        the process ended is known.

        Raises:
            HarnessError: the keeper is gone, or does not get done within END_S; it goes on trying.
        """
        waiting = self._trees.get(pid)
        if waiting is None:
            self._order({"verb": "kill_tree", "pid": pid})
            waiting = self._trees[pid] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(END_S):
                await asyncio.shield(waiting)
        except TimeoutError:
            what = f"process {pid} is not dead after {END_S} s"
            raise HarnessError(what, where="keeper") from None

    async def keep_folder(self, path: Path) -> None:
        """A temporary folder (absolute path), to be removed once all that was started has ended:
        also where we end by SIGKILL.

        Raises:
            HarnessError: the keeper is gone.
        """
        self._order({"verb": "folder", "path": str(path)})

    def _order(self, message: dict[str, Any], control: socket.socket | None = None) -> None:
        if self._reading.done():
            raise _lost()
        # Not msgspec's: a path may hold bytes that are no UTF-8.
        body = json.dumps(message).encode()
        self._orders.append((LENGTH.pack(len(body)) + body, control and control.dup()))
        self._flush()

    def _flush(self) -> None:
        """As much as the socket takes, the rest once it takes more."""
        loop = asyncio.get_running_loop()
        loop.remove_writer(self._socket)
        while self._orders:
            data, control = self._orders.popleft()
            try:
                sent = _send(self._socket, data, control)
            except BlockingIOError:
                self._orders.appendleft((data, control))
                loop.add_writer(self._socket, self._flush)
                return
            except OSError:
                # The keeper is gone, which whoever reads finds out too, and tells.
                sent = len(data)
            if control is not None:
                control.close()
            if sent < len(data):
                self._orders.appendleft((data[sent:], None))

    async def _read(self) -> None:
        reader = MessageReader()
        loop = asyncio.get_running_loop()
        try:
            # A keeper that is killed with orders unread resets the socket.
            with suppress(ConnectionError):
                while data := await loop.sock_recv(self._socket, 1 << 16):
                    for notice in reader.feed(data):
                        self._on_notice(notice)
        finally:
            loop.remove_writer(self._socket)
            self._socket.close()
            self._tell_the_end()

    def _tell_the_end(self) -> None:
        """To all who wait: nobody is left to tell them anything else."""
        for _, control in self._orders:
            if control is not None:
                control.close()
        if not self._is_leaving:
            end_sessions(set(self._children))
        for child in self._children.values():
            # Children die with their keeper.
            child.end(-signal.SIGKILL)
        waiting: list[asyncio.Future[Any]] = [*self._spawning.values(), *self._trees.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(_lost())
                # Seen, also where whoever waited has given up.
                future.exception()

    def _on_notice(self, notice: dict[str, Any]) -> None:
        match notice["kind"]:
            case "spawned":
                child = self._children[notice["pid"]] = Child(notice["pid"])
                waiting = self._spawning.pop(notice["id"])
                if waiting.cancelled():
                    # Who asked for it has given up on us.
                    self._order({"verb": "kill_tree", "pid": child.pid})
                else:
                    waiting.set_result(child)
            case "spawn_failed":
                waiting = self._spawning.pop(notice["id"])
                if not waiting.cancelled():
                    todo = "check that the program is installed and may be executed"
                    waiting.set_exception(StackStartError(notice["error"], todo=todo))
            case "exited":
                ended = self._children.pop(notice["pid"], None)
                if ended is not None:
                    ended.end(notice["code"])
            case "tree_gone":
                gone = self._trees.pop(notice["pid"], None)
                if gone is not None:
                    gone.set_result(None)
            case kind:
                raise HarnessError(f"unknown notice {kind!r}", where="keeper")


def _lost() -> HarnessError:
    return HarnessError("ended without being told to", where="keeper")


def _send(sock: socket.socket, data: bytes, control: socket.socket | None) -> int:
    if control is None:
        return sock.send(data)
    return socket.send_fds(sock, [data], [control.fileno()])


def end_sessions(leaders: Collection[int]) -> None:
    """Kills all of these sessions. A keeper that was killed takes its children along, but theirs
    are left to init."""
    for _ in range(SWEEPS_MAX):
        left = [pid for pid in parents() if session_of(pid) in leaders]
        kill_all(left)
        if not left:
            return
