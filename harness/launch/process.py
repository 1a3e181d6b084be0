"""The process launcher: runs a NodeSpec as processes of this host."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.clock import now_ns
from harness.errors import HarnessError, PlanError, PortTakenError, StackStartError
from harness.launch.certificates import Certificates
from harness.launch.processes import Child, Keeper
from harness.launch.readiness import listens, probe
from harness.launch.sandbox import HostSandbox
from harness.model import PLACEHOLDER, NodeSpec

START_TRIES = 3
POLL_S = 0.01
POLL_S_MAX = 0.05
VERSION_S = 10.0
LOG_LINES = 15
VERSION_TEXT = re.compile(r"\d+\.\d+(?:\.\d+)*")


@dataclass(slots=True)
class RunningNode:
    """A node that is ready."""

    spec: NodeSpec
    folder: Path
    ports: Mapping[str, int]
    child: Child
    version: str

    @property
    def name(self) -> str:
        """Its name in the stack."""
        return self.spec.name

    @property
    def pid(self) -> int:
        """The process that was started; it may have others below it."""
        return self.child.pid

    @property
    def exit_status(self) -> int | None:
        """The exit code, None while it runs."""
        return self.child.exit_status

    def read_log(self, role: str) -> str:
        """What stands in one of its logs by now; empty where there is none."""
        path = self.spec.log_path(role)
        return _read(self.folder / path) if path else ""

    def tail(self, lines: int = LOG_LINES) -> str:
        """The last lines of what it said."""
        return tail(self.spec, self.folder, lines)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def tail(spec: NodeSpec, folder: Path, lines: int = LOG_LINES) -> str:
    """The last lines on a node's standard error and in its error log."""
    said = _read(folder / "stderr.log")
    error_log = spec.log_path("error")
    if error_log:
        said += _read(folder / error_log)
    return "\n".join(said.splitlines()[-lines:])


def fill(text: str, values: Mapping[str, str], where: str) -> str:
    """`text` with its placeholders filled in.

    Raises:
        PlanError: a placeholder that nobody knows, or whose value this stack does not have.
    """

    def value(match: re.Match[str]) -> str:
        found = values.get(match[1])
        if found is None:
            known = ", ".join(sorted(values))
            raise PlanError(
                f"placeholder {match[0]} has no value", where=where, todo=f"known: {known}"
            )
        return found

    return PLACEHOLDER.sub(value, text)


class ProcessLauncher:
    """Starts and stops nodes in a sandbox, through the keeper."""

    def __init__(self, keeper: Keeper, sandbox: HostSandbox) -> None:
        self._keeper = keeper
        self._versions: dict[tuple[str, ...], str] = {}
        self.sandbox = sandbox

    async def start(
        self, spec: NodeSpec, *, upstream: str, tls: Certificates | None, folder: Path
    ) -> RunningNode:
        """A node that answers.

        Raises:
            PlanError: a placeholder has no value. StackStartError: it ended, or never got ready;
                with its last log lines. PortTakenError: so many picks in a row were taken.
        """
        _make_folders(spec, folder)
        version = await self._version(spec, folder)
        for _ in range(START_TRIES - 1):
            try:
                return await self._start_once(spec, version, upstream, tls, folder)
            except PortTakenError:
                _forget_logs(spec, folder)
        return await self._start_once(spec, version, upstream, tls, folder)

    async def _start_once(
        self,
        spec: NodeSpec,
        version: str,
        upstream: str,
        tls: Certificates | None,
        folder: Path,
    ) -> RunningNode:
        ports = {name: self.sandbox.free_port() for name in spec.ports}
        values = self._values(folder, ports, upstream, tls)
        _write_files(spec, values, folder)
        argv = [fill(word, values, spec.name) for word in spec.argv]
        env = {name: fill(text, values, spec.name) for name, text in spec.env}
        out, err = folder / "stdout.log", folder / "stderr.log"
        try:
            child = await self._keeper.spawn(argv, env=env, cwd=folder, stdout=out, stderr=err)
        except StackStartError as error:
            raise StackStartError(error.what, where=spec.name, todo=error.todo) from None
        node = RunningNode(spec, folder, ports, child, version)
        try:
            await self._until_ready(node, tls)
        except BaseException:
            # A keeper that is gone must not hide what went wrong before.
            with suppress(HarnessError):
                await self._keeper.kill_tree(child.pid)
            raise
        return node

    def _values(
        self, folder: Path, ports: Mapping[str, int], upstream: str, tls: Certificates | None
    ) -> dict[str, str]:
        values = {"dir": str(folder), "listen": self.sandbox.url_host}
        values |= {f"port.{name}": str(port) for name, port in ports.items()}
        if upstream:
            values["upstream"] = upstream
        if tls is not None:
            values |= {"tls_cert": str(tls.cert_pem), "tls_key": str(tls.key_pem)}
        return values

    async def _until_ready(self, node: RunningNode, tls: Certificates | None) -> None:
        readiness = node.spec.readiness
        port = node.ports[readiness.port]
        context = None
        if readiness.tls and tls is not None:
            context = ssl.create_default_context(cafile=str(tls.ca_pem))
        deadline_ns = now_ns() + readiness.deadline_ms * 1_000_000
        wait_s, seen = POLL_S, ""
        while now_ns() < deadline_ns:
            if node.exit_status is not None:
                raise _ended(node, node.exit_status)
            if _port_is_taken(node):
                raise PortTakenError(f"port {port} is held by somebody else", where=node.name)
            seen = await probe(readiness, self.sandbox.address, port, context)
            if not seen and listens(node.pid, port):
                return
            if not seen:
                raise PortTakenError(f"port {port} is answered by somebody else", where=node.name)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.3, POLL_S_MAX)
        raise StackStartError(
            f"not ready after {readiness.deadline_ms} ms: {seen}",
            where=node.name,
            todo=f"its last lines:\n{node.tail()}",
        )

    async def _version(self, spec: NodeSpec, folder: Path) -> str:
        """What the program says of itself, asked once."""
        argv = spec.version_argv
        if not argv:
            return spec.version
        if argv not in self._versions:
            self._versions[argv] = await self._told_version(spec, folder) or spec.version
        return self._versions[argv]

    async def _told_version(self, spec: NodeSpec, folder: Path) -> str:
        said = folder / "version.txt"
        said.unlink(missing_ok=True)
        argv, env = spec.version_argv, dict(spec.env)
        try:
            child = await self._keeper.spawn(argv, env=env, cwd=folder, stdout=said, stderr=said)
        except StackStartError:
            return ""
        try:
            async with asyncio.timeout(VERSION_S):
                await child.exited
        except TimeoutError:
            return ""
        finally:
            with suppress(HarnessError):
                await self._keeper.kill_tree(child.pid)
        match = VERSION_TEXT.search(_read(said))
        return match[0] if match else ""

    async def stop(self, node: RunningNode) -> None:
        """Asks, waits, then kills whatever is left of it; returns when nothing is. One that is
        cancelled waits no longer, and kills all the same."""
        with suppress(HarnessError):
            try:
                await self._ask_to_stop(node)
            finally:
                await self._keeper.kill_tree(node.pid)

    async def _ask_to_stop(self, node: RunningNode) -> None:
        if node.exit_status is not None:
            return
        await self.signal(node, node.spec.stop_signal)
        with suppress(TimeoutError):
            async with asyncio.timeout(node.spec.stop_grace_ms / 1000):
                await node.child.exited

    async def reload(self, node: RunningNode) -> None:
        """Sends the signal by which it reads its configuration again.

        Raises:
            PlanError: this kind of node has none.
        """
        if not node.spec.reload_signal:
            raise PlanError(f"{node.spec.kind} has no reload", where=node.name)
        await self.signal(node, node.spec.reload_signal)

    async def signal(self, node: RunningNode, name: str) -> None:
        """Sends a signal by its name."""
        await self._keeper.signal(node.pid, signal.Signals[name])


def _forget_logs(spec: NodeSpec, folder: Path) -> None:
    """What a try said of its taken port must not be read as said by the next."""
    for name in ("stderr.log", spec.log_path("error")):
        if name:
            (folder / name).unlink(missing_ok=True)


def _make_folders(spec: NodeSpec, folder: Path) -> None:
    for name in (".", *spec.folders):
        (folder / name).mkdir(parents=True, exist_ok=True)


def _write_files(spec: NodeSpec, values: Mapping[str, str], folder: Path) -> None:
    for file in spec.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fill(file.text, values, f"{spec.name}: {file.path}"), encoding="utf-8")
        path.chmod(file.mode)


def _port_is_taken(node: RunningNode) -> bool:
    """Whether it says so; a kind that has no words for it never does."""
    text = node.spec.port_taken_text
    return bool(text) and text in node.tail()


def _ended(node: RunningNode, status: int) -> StackStartError | PortTakenError:
    said = node.tail()
    if _port_is_taken(node):
        return PortTakenError("a port is held by somebody else", where=node.name, todo=said)
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
    return StackStartError(
        f"ended at its start ({how})", where=node.name, todo=f"its last lines:\n{said}"
    )
