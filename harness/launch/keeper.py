"""The keeper: the parent of everything that the harness starts, in a session of its own.

Run as `python -I -S keeper.py FD`: the standard library only, so that it is there in some 20 ms. It
holds a socket to the harness; when that ends, or the harness does, however it ended, it kills every
descendant (as a subreaper it inherits orphans: workers of a killed nginx master, daemons that
forked twice), removes the temporary folders it was told of, and is gone.

Messages are JSON with a length in front. Verbs: spawn, signal, kill_tree, folder. Notices: spawned,
spawn_failed, exited, tree_gone.
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
from collections.abc import Iterable
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
PROC = Path("/proc")
THREADS = 17  # proc_pid_stat(5): num_threads, counted from the state
UNTOUCHABLE = {signal.SIGKILL, signal.SIGSTOP}

Message = dict[str, Any]


def prctl(option: int, value: int) -> None:
    """prctl(2); what it refuses is not worth dying for."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def parents() -> dict[int, int]:
    """Parent of each process that runs: not of a zombie, unless other threads of it go on.

    /proc is listed again until it shows nobody new, so that who forks and ends meanwhile is found.
    """
    found: dict[int, int] = {}
    seen: set[str] = set()
    while new := {entry.name for entry in PROC.iterdir() if entry.name.isdigit()} - seen:
        seen |= new
        for name in new:
            try:
                fields = (PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] != b"Z" or fields[THREADS] != b"1":
                found[int(name)] = int(fields[1])
    return found


def descendants(*roots: int) -> list[int]:
    """All below `roots`, at this moment."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = list(roots)
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


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to descendants of ours and to their groups: a group is killed at one stroke, and no
    fork of a member escapes."""
    groups = {getpgid(pid) for pid in pids} - {0, 1, os.getpgrp()}
    for group in groups:
        send_signal(-group, signal.SIGKILL)
    for pid in pids:
        send_signal(pid, signal.SIGKILL)


def getpgid(pid: int) -> int:
    """The group of a process, 0 once it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def watch(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended; None where the kernel has none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


class Keeper:
    """Single-threaded: one poll over the socket, the pipe that SIGCHLD writes to, and the harness.

    The harness is watched apart from its socket, since a process that it forked may hold that open.
    """

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self.harness = watch(os.getppid())
        self.pending = bytearray()
        self.fds: list[int] = []
        self.outgoing = bytearray()
        self.folders: list[str] = []
        self.trees: dict[int, set[int]] = {}
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
            timeout = TICK_S if self.trees else None
            control = self.socket.fileno()
            reading = [fd for fd in (control, self.wake_read, self.harness) if fd is not None]
            ready, writable, _ = select.select(reading, writing, [], timeout)
            if self.harness in ready:
                return
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
                self.trees[message["pid"]] = {message["pid"]}
            case "folder":
                self.folders.append(message["path"])
            case verb:
                raise ValueError(f"unknown verb {verb!r}")

    # ------------------------------------------------------------------------------------ processes

    def spawn(self, message: Message) -> None:
        """Forks and executes; a failure to execute is told by the child over a pipe that exec
        closes."""
        control = self.fds.pop(0) if message.get("control") else -1
        said_read, said_write = os.pipe2(os.O_CLOEXEC)
        keeper = os.getpid()
        mark = f"{keeper}.{message['id']}"
        message["env"] = {**message["env"], CHILD_VARIABLE: mark}
        pid = os.fork()
        if pid == 0:
            self.become(message, keeper, control, said_write)
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

    def become(self, message: Message, keeper: int, control: int, said: int) -> None:
        """In the child: what it is to run, and nothing of ours."""
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                # It was killed before we asked to be killed with it.
                os._exit(127)
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
            tell(said, f"{error.strerror}: {error.filename or message['argv'][0]}")
        except ValueError as error:
            tell(said, f"{error}: {message['argv'][0]}")
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

    def reap(self) -> bool:
        """Takes each child that has ended, and tells of those that were asked for. False once there
        is no child: then there is no descendant either, since orphans become children."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self.marks:
                self.send("exited", pid=pid, code=os.waitstatus_to_exitcode(status))

    def check_trees(self) -> None:
        """Goes on killing trees until nothing of them is left.

        A tree is the process, what hangs below it and has hung there since the order came, and
        whoever shares its session or bears its mark: orphans become our children and keep both.
        """
        if not self.trees:
            return
        alive = descendants(os.getpid())
        for root, known in list(self.trees.items()):
            mark = self.marks.get(root, "")
            mine = [p for p in alive if p in known or session_of(p) == root or bears(p, mark)]
            if mine:
                whole = {*mine, *descendants(*mine)}
                known |= whole
                kill_all(whole)
            else:
                # How it ended is told before that it is gone.
                self.reap()
                del self.trees[root]
                self.marks.pop(root, None)
                self.send("tree_gone", pid=root)

    def sweep(self) -> None:
        """Kills every descendant, again and again, until there is none: a fork may have raced with
        us."""
        for _ in range(SWEEPS_MAX):
            kill_all(descendants(os.getpid()))
            if not self.reap():
                return
            select.select([], [], [], TICK_S)


def tell(fd: int, text: str) -> None:
    """Writes a line; a path in it may hold bytes that are no UTF-8."""
    os.write(fd, text.encode("utf-8", "replace"))


def session_of(pid: int) -> int:
    """The session of a process, 0 once it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def bears(pid: int, mark: str) -> bool:
    """Whether the mark stands in the environment that the process was started with."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return bool(mark) and mark.encode() in environment.split(b"\0")


def main() -> None:
    """The program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whoever started us may have blocked some, which we and our children would inherit.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    Keeper(int(sys.argv[1])).run()


if __name__ == "__main__":
    main()
