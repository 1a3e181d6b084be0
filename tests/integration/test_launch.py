"""The process launcher with real nodes: small servers that are written for the test."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from harness.errors import HarnessError, PlanError, PortTakenError, StackStartError
from harness.launch import process, readiness
from harness.launch.certificates import Certificates
from harness.launch.process import START_TRIES, ProcessLauncher, RunningNode
from harness.launch.processes import Keeper
from harness.launch.sandbox import HostSandbox
from harness.model import Node, NodeFile, NodeSpec, Readiness
from stacks.nginx.node import node_spec
from tests.conditions import DEADLINE_S, eventually

MARK = "STREAMCHAOS_TEST_MARK"
HANGING = (sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
SERVER = """
import http.server, os, signal, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("probe", self.headers.get("X-Streamchaos-Probe"), flush=True)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = False
server = Server(("@{listen}", @{port.http}), Handler)
"""
SERVE = "server.serve_forever()\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
WORKERS = "for _ in range(3):\n    if not os.fork(): signal.pause()\n"
# Says nothing of a port that it cannot have, and lives on.
SILENT = """
import signal
try:
    exec(open("@{dir}/server.py").read())
    server.serve_forever()
except OSError:
    signal.pause()
"""
TLS = """
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("@{tls_cert}", "@{tls_key}")
server.socket = context.wrap_socket(server.socket, server_side=True)
"""


def node(source: str = SERVER + SERVE, **changes: object) -> NodeSpec:
    """A node that runs `source`, marked by its name."""
    values: dict[str, object] = {
        "name": "edge",
        "kind": "test",
        "version": "1",
        "argv": (sys.executable, "-I", "-S", "@{dir}/node.py"),
        "env": ((MARK, f"{os.getpid()}"),),
        "files": (NodeFile(path="node.py", text=source),),
        "readiness": Readiness(port="http", deadline_ms=10_000),
        **changes,
    }
    return NodeSpec(**values)  # type: ignore[arg-type]


def alive() -> list[int]:
    """Pids of the live processes of this module's nodes."""
    found = []
    for one in psutil.process_iter(["environ", "status"]):
        environ = one.info["environ"] or {}
        zombie = one.info["status"] == psutil.STATUS_ZOMBIE
        if environ.get(MARK) == str(os.getpid()) and not zombie:
            found.append(one.pid)
    return found


def process_of(keeper: Keeper) -> psutil.Process:
    """The keeper itself, to be stopped or killed."""
    return psutil.Process(keeper._process.pid)


async def failure_of(asked: Awaitable[object]) -> str:
    """What the harness's failure says; empty where there is none."""
    try:
        await asked
    except HarnessError as error:
        return str(error)
    return ""


class FirstPick(HostSandbox):
    """A sandbox whose first ports are `taken`."""

    def __init__(self, *taken: int) -> None:
        super().__init__()
        self._taken = [*taken]

    def free_port(self) -> int:
        """The taken ones, then free ones."""
        return self._taken.pop() if self._taken else super().free_port()


@contextmanager
def foreign_server() -> Iterator[int]:
    """The port of a server of somebody else's that answers 200 to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
async def keeper() -> AsyncIterator[Keeper]:
    """A keeper of this test's own."""
    async with Keeper() as running:
        yield running


@pytest.fixture
def launcher(keeper: Keeper) -> ProcessLauncher:
    """A launcher on this host's loopback."""
    return ProcessLauncher(keeper, HostSandbox())


async def start(
    launcher: ProcessLauncher, spec: NodeSpec, folder: Path, tls: Certificates | None = None
) -> RunningNode:
    """The node, in front of nothing."""
    return await launcher.start(spec, upstream="", tls=tls, folder=folder)


async def test_start_server_is_ready_and_stops(launcher: ProcessLauncher, tmp_path: Path) -> None:
    """A started node answers, its probes can be told from traffic, and stop leaves nothing."""
    running = await start(launcher, node(), tmp_path)
    assert running.exit_status is None
    with socket.create_connection(("127.0.0.1", running.ports["http"])):
        pass
    said = (tmp_path / "stdout.log").read_text().splitlines()
    assert said
    assert set(said) == {"probe 1"}
    await launcher.stop(running)
    assert running.exit_status == -signal.SIGTERM
    assert alive() == []


async def test_start_over_tls_is_ready(launcher: ProcessLauncher, tmp_path: Path) -> None:
    """A node that ends TLS is asked over TLS and trusted by the run's CA."""
    spec = node(SERVER + TLS + SERVE, readiness=Readiness(port="http", tls=True))
    running = await start(launcher, spec, tmp_path / "n", Certificates(tmp_path / "tls"))
    await launcher.stop(running)
    assert alive() == []


async def test_start_several_at_once_have_their_own_ports(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """Nodes can be started side by side."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(start(launcher, node(), tmp_path / str(n))) for n in range(4)]
    nodes = [task.result() for task in tasks]
    assert len({n.ports["http"] for n in nodes}) == 4
    for running in nodes:
        await launcher.stop(running)
    assert alive() == []


async def test_start_early_exit_tells_code_and_last_lines(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """A node that ends at its start is an error with its name, exit code and last lines."""
    source = "import sys\nfor n in range(40): print('line', n, file=sys.stderr)\nsys.exit(3)\n"
    with pytest.raises(StackStartError) as caught:
        await start(launcher, node(source), tmp_path)
    text = str(caught.value)
    assert "edge" in text
    assert "exit code 3" in text
    assert "line 39" in text
    assert "line 24\n" not in text


async def test_start_never_ready_tells_what_was_seen(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """A node that answers otherwise is an error with what the last probe saw, and is ended."""
    spec = node(readiness=Readiness(port="http", status=204, deadline_ms=500))
    with pytest.raises(StackStartError, match=r"not ready after 500 ms: status 200"):
        await start(launcher, spec, tmp_path)
    assert alive() == []


async def test_start_missing_program_is_told(launcher: ProcessLauncher, tmp_path: Path) -> None:
    """A binary that is not there is an error that names node and binary."""
    with pytest.raises(StackStartError, match=r"edge.*no-such-program"):
        await start(launcher, node(argv=("/no-such-program",)), tmp_path)


async def test_start_unknown_placeholder_starts_nothing(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """A placeholder that nobody knows is found before anything runs."""
    with pytest.raises(PlanError, match=r"@\{port\.admin\}"):
        await start(launcher, node(argv=("x", "@{port.admin}")), tmp_path)
    assert alive() == []


async def test_start_port_taken_is_tried_again(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that somebody holds costs another try, not the run, and is not read of again."""
    monkeypatch.setattr(readiness, "PROBE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        launcher = ProcessLauncher(keeper, FirstPick(taken))
        running = await start(launcher, node(), tmp_path)
        assert running.ports["http"] != taken
        assert "in use" not in running.tail()
        await launcher.stop(running)
    assert alive() == []


async def test_start_foreign_server_is_not_taken_for_the_node(
    keeper: Keeper, tmp_path: Path
) -> None:
    """Somebody else's 200 on the picked port does not make the node ready."""
    with foreign_server() as taken:
        launcher = ProcessLauncher(keeper, FirstPick(taken))
        running = await start(launcher, node(), tmp_path)
        assert running.ports["http"] != taken
        await launcher.stop(running)


async def test_start_foreign_server_is_found_out_where_the_node_says_nothing(
    keeper: Keeper, tmp_path: Path
) -> None:
    """A node without words for a taken port is tried again as well."""
    files = (NodeFile(path="node.py", text=SILENT), NodeFile(path="server.py", text=SERVER))
    with foreign_server() as taken:
        launcher = ProcessLauncher(keeper, FirstPick(taken))
        running = await start(launcher, node(files=files, port_taken_text=""), tmp_path)
        assert running.ports["http"] != taken
        await launcher.stop(running)
    assert alive() == []


async def test_start_ports_always_taken_is_told(keeper: Keeper, tmp_path: Path) -> None:
    """After some picks it is an error that names the node, and nothing runs."""
    with foreign_server() as taken:
        launcher = ProcessLauncher(keeper, FirstPick(*[taken] * START_TRIES))
        with pytest.raises(PortTakenError, match=r"edge: .*by somebody else"):
            await start(launcher, node(), tmp_path)
    assert alive() == []


async def test_start_nginx_does_not_wait_for_a_taken_port(keeper: Keeper, tmp_path: Path) -> None:
    """It would try to bind for seconds; somebody else's 200 meanwhile is not its own."""
    spec = node_spec(Node(kind="nginx"), name="edge")
    with foreign_server() as taken:
        launcher = ProcessLauncher(keeper, FirstPick(taken))
        upstream = f"127.0.0.1:{taken}"
        running = await launcher.start(spec, upstream=upstream, tls=None, folder=tmp_path)
        assert running.ports["http"] != taken
        assert "in use" not in running.tail()
        await launcher.stop(running)


async def test_start_keeper_killed_is_our_failure(
    keeper: Keeper, launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """The start is over at once, though nobody is left to end the node."""
    spec = node("import signal; open('up', 'w').close(); signal.pause()\n")
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        task = group.create_task(failure_of(start(launcher, spec, tmp_path)))
        await eventually((tmp_path / "up").exists)
        process_of(keeper).kill()
    assert "edge" in task.result()
    await eventually(lambda: not alive())


async def test_start_version_is_told_by_the_program(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """It is asked once, and the specification's word stands where it says nothing."""
    told = (sys.executable, "-c", "import sys; print('edge/4.20.1-rc', file=sys.stderr)")
    silent = (sys.executable, "-c", "print('no number')")
    gone = ("/no-such-program",)
    expected = [(told, "4.20.1"), (told, "4.20.1"), (silent, "1"), (gone, "1"), ((), "1")]
    for number, (argv, version) in enumerate(expected):
        running = await start(launcher, node(version_argv=argv), tmp_path / str(number))
        assert running.version == version
        await launcher.stop(running)
    asked = [(tmp_path / str(number) / "version.txt").exists() for number in range(len(expected))]
    assert asked == [True, False, True, True, False]


async def test_start_program_without_an_end_to_its_version_is_ended(
    launcher: ProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that serves when asked for its version is not waited for."""
    monkeypatch.setattr(process, "VERSION_S", 0.2)
    running = await start(launcher, node(version_argv=HANGING), tmp_path)
    assert running.version == "1"
    await launcher.stop(running)
    assert alive() == []


async def test_start_cancelled_at_its_version_leaves_nothing(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """Nor does it, where the program is asked who it is."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(start(launcher, node(version_argv=HANGING), tmp_path))
        await eventually(alive)
        task.cancel()
    assert alive() == []


async def test_start_cancelled_leaves_nothing(launcher: ProcessLauncher, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a start ends what was started."""
    spec = node("import signal; open('up', 'w').close(); signal.pause()\n")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(start(launcher, spec, tmp_path))
        await eventually((tmp_path / "up").exists)
        task.cancel()
    assert alive() == []


async def test_start_cancelled_at_its_spawn_leaves_nothing(
    keeper: Keeper, launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """A start that is given up before its pid is known does not leave the process behind."""
    spec = node("import signal; open('up', 'w').close(); signal.pause()\n")
    parent = process_of(keeper)
    parent.suspend()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(start(launcher, spec, tmp_path))
        await eventually((tmp_path / "node.py").exists)
        task.cancel()
        parent.resume()
    # Spawns are done in order: once this one has ended, the one given up has been done.
    null = Path(os.devnull)
    last = await keeper.spawn(["true"], env={}, cwd=tmp_path, stdout=null, stderr=null)
    assert await last.exited == 0
    assert alive() == []


async def test_stop_deaf_node_is_killed(launcher: ProcessLauncher, tmp_path: Path) -> None:
    """A node that ignores its stop signal is killed after its grace."""
    running = await start(launcher, node(SERVER + DEAF + SERVE, stop_grace_ms=100), tmp_path)
    await launcher.stop(running)
    assert running.exit_status == -signal.SIGKILL
    assert alive() == []


async def test_stop_cancelled_kills_without_waiting(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """Ctrl-C in the middle of a stop does not leave the node to its grace."""
    deaf = "signal.signal(signal.SIGTERM, lambda *_: open('asked', 'w').close())\n"
    spec = node(SERVER + deaf + SERVE, stop_grace_ms=600_000)
    running = await start(launcher, spec, tmp_path)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        task = group.create_task(launcher.stop(running))
        await eventually((tmp_path / "asked").exists)
        task.cancel()
    assert running.exit_status == -signal.SIGKILL
    assert alive() == []


async def test_stop_again_is_harmless(
    keeper: Keeper, launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """Also with nobody left to ask."""
    async with asyncio.timeout(DEADLINE_S):
        running = await start(launcher, node(), tmp_path)
        await launcher.stop(running)
        await launcher.stop(running)
        process_of(keeper).kill()
        await launcher.stop(running)


async def test_reload_sends_its_signal(launcher: ProcessLauncher, tmp_path: Path) -> None:
    """And the node serves on."""
    again = "signal.signal(signal.SIGHUP, lambda *_: open('again', 'w').close())\n"
    spec = node(SERVER + again + SERVE, reload_signal="SIGHUP")
    running = await start(launcher, spec, tmp_path)
    await launcher.reload(running)
    await eventually((tmp_path / "again").exists)
    assert running.exit_status is None
    await launcher.stop(running)


async def test_stop_killed_master_takes_its_workers_along(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """Workers that outlive a killed master hold the port until stop, and not after it."""
    running = await start(launcher, node(SERVER + WORKERS + SERVE), tmp_path)
    await launcher.signal(running, "SIGKILL")
    await running.child.exited
    assert len(alive()) == 3
    await launcher.stop(running)
    assert alive() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.ports["http"]))


async def test_reload_kind_without_one_is_refused(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """A node that cannot reload says so."""
    running = await start(launcher, node(), tmp_path)
    with pytest.raises(PlanError, match="no reload"):
        await launcher.reload(running)
    await launcher.stop(running)
