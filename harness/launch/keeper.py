"""The keeper: the parent of everything that the harness starts, in a session of its own.

Run as `python -I -S keeper.py FD`: the standard library only, so that it is there in some 20 ms. It
holds a socket to the harness; when that ends, however the harness ended, it kills every descendant
(as a subreaper it inherits orphans: workers of a killed nginx master, daemons that forked twice),
removes the temporary folders it was told of, and is gone.

Messages are JSON with a length in front. Verbs: spawn, signal, kill_tree, folder, end. Notices:
spawned, spawn_failed, exited, tree_gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

LENGTH = struct.Struct("<I")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CONTROL_FD = 3
CHILD_VARIABLE = "STREAMCHAOS_CHILD"
HIGH_FD = 200
FD_MAX = 1 << 16
SWEEPS_MAX = 2_000
TICK_S = 0.005
UNTOUCHABLE = {signal.SIGKILL, signal.SIGSTOP}

Message = dict[str, Any]


def prctl(option: int, value: int) -> None:
    """prctl(2); what it refuses is not worth dying for."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def parents() -> dict[int, int]:
    """Parent of each process that is not a zombie."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            found[int(entry.name)] = int(fields[1])
    return found


def descendants(root: int) -> list[int]:
    """All below `root`, at this moment."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        mine = children.get(waiting.pop(), [])
        found += mine
        waiting += mine
    return found


def send_signal(pid: int, number: int) -> None:
    """A process that has just ended needs none."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


class Keeper:
    """Single-threaded: one poll over the socket and the pipe that SIGCHLD writes to."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self.pending = bytearray()
        self.fds: list[int] = []
        self.outgoing = bytearray()
        self.folders: list[str] = []
        self.groups: dict[int, set[int]] = {}
        self.marks: dict[int, str] = {}
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.ended = False

    def run(self) -> None:
        """Until the harness says so, or is gone."""
        signal.set_wakeup_fd(self.wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.socket.setblocking(False)
        try:
            self.serve()
        finally:
            # Also where a request was our undoing: orphans of a dead master die by no other hand.
            self.sweep()
            for folder in self.folders:
                shutil.rmtree(folder, ignore_errors=True)

    def serve(self) -> None:
        """One round per thing that happens."""
        while not self.ended:
            writing = [self.socket] if self.outgoing else []
            timeout = TICK_S if self.groups else None
            control = self.socket.fileno()
            ready, writable, _ = select.select([control, self.wake_read], writing, [], timeout)
            if self.wake_read in ready:
                os.read(self.wake_read, 4096)
            self.reap()
            if control in ready:
                self.receive()
            if writable:
                self.flush()
            self.check_trees()

    # ------------------------------------------------------------------------------------- messages

    def send(self, kind: str, **fields: object) -> None:
        """Queued, so that a harness that does not read holds nobody up."""
        body = json.dumps({"kind": kind, **fields}).encode()
        self.outgoing += LENGTH.pack(len(body)) + body
        self.flush()

    def flush(self) -> None:
        """As much as the socket takes."""
        try:
            del self.outgoing[: self.socket.send(self.outgoing)]
        except BlockingIOError:
            return
        except OSError:
            self.ended = True

    def receive(self) -> None:
        """Reads what is there; descriptors come along with it, in the order of the spawns that
        asked for one."""
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 1 << 20, 16)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        self.fds += fds
        if not data:
            self.ended = True
            return
        self.pending += data
        while len(self.pending) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self.pending)
            if len(self.pending) < LENGTH.size + size:
                break
            message = json.loads(bytes(self.pending[LENGTH.size : LENGTH.size + size]))
            del self.pending[: LENGTH.size + size]
            self.obey(message)

    def obey(self, message: Message) -> None:
        """One order."""
        match message["verb"]:
            case "spawn":
                self.spawn(message)
            case "signal":
                self.signal(message["pid"], message["signal"])
            case "kill_tree":
                pid = message["pid"]
                self.groups[pid] = {pid, *descendants(pid)}
            case "folder":
                self.folders.append(message["path"])
            case "end":
                self.ended = True
            case verb:
                raise ValueError(f"unknown verb {verb!r}")

    # ------------------------------------------------------------------------------------ processes

    def spawn(self, message: Message) -> None:
        """Forks and executes; a failure to execute is told by the child over a pipe that exec
        closes."""
        control = self.fds.pop(0) if message.get("control") else -1
        said_read, said_write = os.pipe2(os.O_CLOEXEC)
        mark = f"{os.getpid()}.{message['id']}"
        message["env"] = {**message["env"], CHILD_VARIABLE: mark}
        pid = os.fork()
        if pid == 0:
            self.become(message, control, said_write)
        os.close(said_write)
        if control >= 0:
            os.close(control)
        with os.fdopen(said_read, "rb") as file:
            error = file.read().decode("utf-8", "replace")
        if error:
            os.waitpid(pid, 0)
            self.send("spawn_failed", id=message["id"], error=error)
        else:
            self.marks[pid] = f"{CHILD_VARIABLE}={mark}"
            self.send("spawned", id=message["id"], pid=pid)

    def become(self, message: Message, control: int, said: int) -> None:
        """In the child: what it is to run, and nothing of ours."""
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for number in signal.valid_signals() - UNTOUCHABLE:
                signal.signal(number, signal.SIG_DFL)
            os.chdir(message["cwd"])
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            outs = [os.open(message[name], flags, 0o644) for name in ("stdout", "stderr")]
            null = os.open(os.devnull, os.O_RDONLY)
            said, control = self.placed([null, *outs], control, said)
            environment = {**os.environ, **message["env"]}
            if control >= 0:
                environment["STREAMCHAOS_CONTROL_FD"] = str(CONTROL_FD)
            os.execvpe(message["argv"][0], message["argv"], environment)
        except OSError as error:
            os.write(said, f"{error.strerror}: {error.filename or message['argv'][0]}".encode())
        except ValueError as error:
            os.write(said, f"{error}: {message['argv'][0]}".encode())
        finally:
            os._exit(127)

    def placed(self, standard: list[int], control: int, said: int) -> tuple[int, int]:
        """Moves descriptors to where the program expects them; every other one is closed."""
        high = [os.dup2(fd, HIGH_FD + 1 + i, inheritable=True) for i, fd in enumerate(standard)]
        said = os.dup2(said, HIGH_FD, inheritable=False)
        if control >= 0:
            os.dup2(control, CONTROL_FD, inheritable=True)
        for number, fd in enumerate(high):
            os.dup2(fd, number, inheritable=True)
        first = CONTROL_FD + (control >= 0)
        os.closerange(first, said)
        os.closerange(said + 1, FD_MAX)
        return said, control

    def signal(self, pid: int, number: int) -> None:
        """Only to one of ours: pids are used again."""
        if pid in descendants(os.getpid()):
            send_signal(pid, number)

    def reap(self) -> None:
        """Tells of each child that has ended, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.send("exited", pid=pid, code=os.waitstatus_to_exitcode(status))

    def check_trees(self) -> None:
        """Goes on killing trees until nothing of them is left.

        A tree is what hung below the process when the order came, what has come since, and whoever
        shares its session or bears its mark: orphans are re-parented to us and keep both.
        """
        if not self.groups:
            return
        alive = descendants(os.getpid())
        for root, known in list(self.groups.items()):
            mark = self.marks.get(root, "")
            mine = [p for p in alive if p in known or session_of(p) == root or bears(p, mark)]
            for pid in list(mine):
                mine += [p for p in descendants(pid) if p not in mine]
            known.update(mine)
            for pid in mine:
                send_signal(pid, signal.SIGKILL)
            if not mine:
                del self.groups[root]
                self.send("tree_gone", pid=root)

    def sweep(self) -> None:
        """Kills every descendant, again and again, until there is none: a fork may have raced with
        us."""
        for _ in range(SWEEPS_MAX):
            alive = descendants(os.getpid())
            if not alive:
                return
            for pid in alive:
                send_signal(pid, signal.SIGKILL)
            self.reap()
            select.select([], [], [], TICK_S)


def session_of(pid: int) -> int:
    """The session of a process, 0 once it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def bears(pid: int, mark: str) -> bool:
    """Whether the mark stands in the environment that the process was started with."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return bool(mark) and mark.encode() in environment.split(b"\0")


def main() -> None:
    """The program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    Keeper(int(sys.argv[1])).run()


if __name__ == "__main__":
    main()
