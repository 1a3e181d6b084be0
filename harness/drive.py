"""One attempt at one scenario: start the stack from the engine outward, drive the streams, drain,
stop, collect."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from harness import witness
from harness.client.plan import StreamPlan
from harness.control import HarnessControl
from harness.errors import HarnessError, StackError
from harness.launch.certificates import Certificates
from harness.launch.process import ProcessLauncher, RunningNode
from harness.launch.processes import Child, Keeper
from harness.model import (
    AccessEntry,
    Layer,
    LedgerEntry,
    MetricSample,
    NodeRun,
    NodeSpec,
    Scenario,
    StreamKey,
)
from harness.parts import Parts
from harness.record import Facts, ScenarioFolder

DRAIN_S = 2.0
"""How long the engine gets to free what the streams held; what it frees later is late by any of our
limits."""

STOP_S = 2.0
Look = Callable[[str, int], Awaitable[MetricSample | None]]
ROOT = Path(__file__).resolve().parents[1]
LOG_POLL_S = 0.05
BROKEN_OFF = "the run did not get to its end"


@dataclass(slots=True)
class Bench:
    """What all attempts of a run share."""

    run: str
    parts: Parts
    keeper: Keeper
    launcher: ProcessLauncher
    certificates: Certificates
    engines: EnginePool


class EnginePool:
    """One start of an engine serves all scenarios that ask for the same one."""

    def __init__(self, launcher: ProcessLauncher, folder: Path) -> None:
        self._launcher = launcher
        self._folder = folder
        self._running: dict[NodeSpec, asyncio.Task[RunningNode]] = {}
        self._started = 0

    async def get(self, spec: NodeSpec) -> RunningNode:
        """The running engine of this specification, started if need be."""
        known = self._running.get(spec)
        if known is None or _has_ended(known):
            self._started += 1
            folder = self._folder / f"engine-{self._started}"
            start = self._launcher.start(spec, upstream="", tls=None, folder=folder)
            self._running[spec] = asyncio.get_running_loop().create_task(start)
        return await asyncio.shield(self._running[spec])

    async def close(self) -> None:
        """Stops all of them."""
        for task in self._running.values():
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, HarnessError):
                    await task
            elif task.exception() is None:
                await self._launcher.stop(task.result())
        self._running.clear()


def _has_ended(start: asyncio.Task[RunningNode]) -> bool:
    """A start that failed may be tried again; an engine that died serves nobody."""
    if not start.done():
        return False
    return start.cancelled() or bool(start.exception()) or start.result().exit_status is not None


class LastWords(asyncio.StreamReader):
    """Gives what a helper said before it died. asyncio's own forgets it once the socket is reset,
    as it is where a helper ends with an order unread or is given one after its end."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._socket = sock

    def set_exception(self, _: BaseException) -> None:
        """A reset is an end, behind all that can be read; the socket is not yet closed."""
        with suppress(OSError):
            while data := self._socket.recv(1 << 16):
                self.feed_data(data)
        self.feed_eof()


async def connect(sock: socket.socket, name: str) -> tuple[HarnessControl, asyncio.StreamWriter]:
    """Control over our end of a helper's socket pair, and what is to be closed in the end."""
    loop = asyncio.get_running_loop()
    reader = LastWords(sock)
    transport, protocol = await loop.create_connection(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), sock=sock
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    return HarnessControl(reader, writer, name), writer


class RunningInstrument:
    """A helper process and the harness's end of its control socket."""

    def __init__(self, control: HarnessControl, writer: asyncio.StreamWriter, child: Child) -> None:
        self.control = control
        self.child = child
        self._writer = writer

    @classmethod
    async def start(cls, keeper: Keeper, module: str, folder: Path) -> RunningInstrument:
        """Starts `python -m module` with the other end of a socket pair."""
        ours, theirs = socket.socketpair()
        log = folder / f"{module.rpartition('.')[2]}.log"
        control, writer = await connect(ours, f"{module} (see {log})")
        try:
            with theirs:
                child = await keeper.spawn(
                    (sys.executable, "-m", module),
                    env={"PYTHONPATH": str(ROOT)},
                    cwd=folder,
                    stdout=log,
                    stderr=log,
                    control=theirs,
                )
        except BaseException:
            control.close()
            raise
        return cls(control, writer, child)

    async def stop(self) -> None:
        """Lets it close its trace.

        Raises:
            HarnessError: it cannot, or not within STOP_S: what it recorded is not whole.
        """
        try:
            async with asyncio.timeout(STOP_S):
                # One that is gone has said why, or its silence tells.
                with suppress(HarnessError):
                    await self.control.send("stop")
                await self.until("done")
        except TimeoutError:
            raise HarnessError("does not stop", where=self.control.name) from None
        finally:
            await self._close()

    async def _close(self) -> None:
        # A helper that died resets its socket. Unless somebody asks for that error, asyncio prints
        # it with a traceback.
        self.control.close()
        with suppress(OSError):
            async with asyncio.timeout(STOP_S):
                await self._writer.wait_closed()

    async def until(self, kind: str) -> None:
        """Reads notices up to one of this kind.

        Raises:
            HarnessError: it failed, or is gone.
        """
        while (await self.control.receive())["kind"] != kind:
            pass

    async def leave(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stops it at the end of a run; its own trouble counts only where there is no other."""
        try:
            await self.stop()
        except HarnessError:
            if kind is None:
                raise


@dataclass(slots=True)
class Chain:
    """The stack as it runs: nodes by position, and the address a client of each hop calls."""

    engine: RunningNode
    proxies: list[RunningNode]
    hop_ports: dict[int, int]
    first_port: int


def stream_keys(run: str, scenario: Scenario) -> Iterator[StreamKey]:
    """One key for each entry of the workload's lanes, in the order in which they start."""
    for n, lane in enumerate(scenario.workload.lanes):
        yield StreamKey(run=run, scenario=scenario.id, lane=lane, n=n)


async def attempt(bench: Bench, scenario: Scenario, folder: ScenarioFolder, run: str) -> None:
    """Runs `scenario` once and leaves its recording in `folder`. `run` stands in its streams' keys:
    no other attempt on the same engine may have it, or its requests count as repeated ones.

    Raises:
        HarnessError, OSError, or a group of them: our own failure. Whatever the stack does is in
            the recording.
    """
    drive = Drive(bench, scenario, folder, run)
    try:
        async with asyncio.timeout(scenario.deadline_ms / 1000):
            await drive.run()
    except TimeoutError:
        raise HarnessError(
            f"not over after {scenario.deadline_ms} ms",
            where=scenario.id,
            todo=f"look into {folder.path}; a slower machine may need a longer deadline",
        ) from None


class Drive:
    """The steps of an attempt. Everything that was started is stopped in the opposite order, also
    when cancelled."""

    def __init__(self, bench: Bench, scenario: Scenario, folder: ScenarioFolder, run: str) -> None:
        self._bench = bench
        self._scenario = scenario
        self._folder = folder
        self._run = run
        self._host = bench.launcher.sandbox.address
        self._keys = list(stream_keys(run, scenario))
        self._notes: list[str] = []
        self._metrics: list[MetricSample] = []
        self._specs: list[NodeSpec] = []

    async def run(self) -> None:
        """start → arm → drive → drain → stop → collect."""
        names = node_names(self._scenario)
        self._specs = [
            self._bench.parts.node_spec(node, name)
            for node, name in zip(self._scenario.stack.nodes, names, strict=True)
        ]
        chain: Chain | None = None
        self._notes.append(BROKEN_OFF)
        try:
            async with AsyncExitStack() as stack:
                relay, sampler, engine = await self._start_helpers(stack)
                chain = await self._start_chain(stack, relay, engine)
                await self._arm(relay)
                await self._configure(sampler, chain)
                await self._witness(chain, witness.sample)
                await self._drive(relay, sampler)
                await self._drain(chain)
                await self._witness(chain, witness.poke_and_sample)
                require_ours_alive(chain)
            self._notes.remove(BROKEN_OFF)
        finally:
            self._collect(chain)

    async def _start_helpers(
        self, stack: AsyncExitStack
    ) -> tuple[RunningInstrument, RunningInstrument, RunningNode]:
        path = self._folder.path
        async with asyncio.TaskGroup() as group:
            relay_task = group.create_task(self._instrument(stack, "harness.relay"))
            sampler_task = group.create_task(self._instrument(stack, "harness.client"))
            engine_task = group.create_task(self._bench.engines.get(self._specs[-1]))
        relay, sampler = relay_task.result(), sampler_task.result()
        await relay.control.call(
            "configure", folder=str(path), secrets=list(self._bench.parts.secrets)
        )
        return relay, sampler, engine_task.result()

    async def _instrument(self, stack: AsyncExitStack, module: str) -> RunningInstrument:
        """Started, and sure to be stopped, whatever becomes of those that start beside it."""
        keeper, path = self._bench.keeper, self._folder.path
        instrument = await RunningInstrument.start(keeper, module, path)
        stack.push_async_exit(instrument.leave)
        return instrument

    async def _start_chain(
        self, stack: AsyncExitStack, relay: RunningInstrument, engine: RunningNode
    ) -> Chain:
        """From the engine outward, since each node must be told where the next one listens."""
        engine_hop = self._scenario.stack.engine_index
        chain = Chain(engine, [], {}, 0)
        port = await self._listen(relay, engine_hop, engine)
        chain.hop_ports[engine_hop] = port
        for index in range(engine_hop - 1, -1, -1):
            node = await self._bench.launcher.start(
                self._specs[index],
                upstream=f"{self._bench.launcher.sandbox.url_host}:{port}",
                tls=self._bench.certificates if self._scenario.stack.nodes[index].tls else None,
                folder=self._folder.path / "nodes" / self._specs[index].name,
            )
            stack.push_async_callback(self._bench.launcher.stop, node)
            chain.proxies.insert(0, node)
            if index:
                port = await self._listen(relay, index, node)
                chain.hop_ports[index] = port
        chain.first_port = chain.proxies[0].ports["http"] if chain.proxies else port
        return chain

    async def _listen(self, relay: RunningInstrument, hop: int, node: RunningNode) -> int:
        answer = await relay.control.call(
            "listen",
            hop={
                "number": hop,
                "listen_host": self._host,
                "host": self._host,
                "port": node.ports["http"],
            },
        )
        return int(answer["port"])

    async def _arm(self, relay: RunningInstrument) -> None:
        injections = self._scenario.injections
        if not injections:
            return
        entries = [
            {
                "number": number,
                "injection": asdict(injection),
                "stage": self._bench.parts.stage(injection.fault),
            }
            for number, injection in enumerate(injections)
            if injection.fault.layer is Layer.STREAM
        ]
        await relay.control.call("arm", injections=entries)

    async def _configure(self, sampler: RunningInstrument, chain: Chain) -> None:
        plans = [asdict(self._plan(key, chain)) for key in self._keys]
        await sampler.control.call(
            "configure",
            folder=str(self._folder.path),
            secrets=list(self._bench.parts.secrets),
            plans=msgspec.to_builtins(plans),
        )

    def _plan(self, key: StreamKey, chain: Chain) -> StreamPlan:
        workload = self._scenario.workload
        through = key.lane == "through"
        port = chain.first_port if through else chain.hop_ports[self._scenario.stack.engine_index]
        tls = through and self._scenario.stack.nodes[0].tls
        cancel = workload.cancel
        return StreamPlan(
            key=str(key),
            host=self._host,
            port=port,
            request=self._bench.parts.request(workload, key, f"{self._host}:{port}"),
            start_ms=key.n * workload.stagger_ms,
            deadline_ms=workload.deadline_ms,
            tls_ca=str(self._bench.certificates.ca_pem) if tls else "",
            leave=cancel.how if cancel else None,
            leave_after_events=cancel.after_events if cancel else 0,
            leave_after_ms=cancel.after_ms if cancel else 0,
        )

    async def _drive(self, relay: RunningInstrument, sampler: RunningInstrument) -> None:
        """Until the last stream is over. A relay that fails ends it: no stack did that."""
        await relay.control.send("go")
        await sampler.control.send("go")
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(relay.until("done"))
            await sampler.until("over")
            watching.cancel()

    async def _drain(self, chain: Chain) -> None:
        """Waits until the engine has told the end of each stream that it got, at most DRAIN_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while not settled(self._ledger(chain.engine)):  # noqa: ASYNC110
                    # Another process writes that file: there is no event to wait for.
                    await asyncio.sleep(LOG_POLL_S)

    async def _witness(self, chain: Chain, look: Look) -> None:
        """A reading of the engine's metrics, where the workload asks for it."""
        if self._scenario.workload.sample_metrics:
            seen = await look(self._host, chain.engine.ports["http"])
            self._metrics += [seen] if seen is not None else []

    def _ledger(self, engine: RunningNode) -> tuple[LedgerEntry, ...]:
        return read_ledger(engine, self._keys)

    def _collect(self, chain: Chain | None) -> None:
        running = [*chain.proxies, chain.engine] if chain else []
        access: list[AccessEntry] = []
        nodes: list[NodeRun] = []
        for node in running:
            access += self._bench.parts.read_access(node.spec, node.read_log("access"))
            nodes.append(self._node_run(node))
        ledger = self._ledger(chain.engine) if chain else ()
        if chain and chain.engine.spec.log_path("engine"):
            self._folder.write_lines("engine.jsonl", ledger)
        self._folder.write_lines("access.jsonl", tuple(access))
        oracle = {str(k): self._bench.parts.oracle(self._scenario.workload, k) for k in self._keys}
        if chain is None:
            self._notes.append("the stack did not get to run")
        self._folder.write(
            "facts.json",
            Facts(
                run=self._run,
                nodes=tuple(nodes),
                oracle=oracle,
                metrics=tuple(self._metrics),
                notes=tuple(self._notes),
            ),
        )

    def _node_run(self, node: RunningNode) -> NodeRun:
        spec = node.spec
        return NodeRun(
            name=spec.name,
            kind=spec.kind,
            version=node.version or spec.version,
            directives=spec.directives,
            errors=self._bench.parts.read_errors(spec, node.read_log("error")),
            exited=node.exit_status,
        )


def require_ours_alive(chain: Chain) -> None:
    """What a proxy does wrong is data; a program of ours must not end in the middle of a run.

    Raises:
        StackError: it did, with what it said last.
    """
    for node in (*chain.proxies, chain.engine):
        if node.spec.ours and node.exit_status is not None:
            what = f"ended during the run (exit code {node.exit_status})"
            raise StackError(what, where=node.name, todo=f"its last lines:\n{node.tail()}")


def node_names(scenario: Scenario) -> list[str]:
    """A name for each node: its own, or its kind, numbered where a kind stands twice."""
    nodes = scenario.stack.nodes
    kinds = [n.kind for n in nodes]
    return [
        n.name
        or (n.kind if kinds.count(n.kind) == 1 else f"{n.kind}-{kinds[:i].count(n.kind) + 1}")
        for i, n in enumerate(nodes)
    ]


def read_ledger(engine: RunningNode, keys: list[StreamKey]) -> tuple[LedgerEntry, ...]:
    """The lines of the engine's log that speak of these streams."""
    wanted = {str(k) for k in keys}
    decoder = msgspec.json.Decoder(LedgerEntry)
    found: list[LedgerEntry] = []
    for line in engine.read_log("engine").splitlines():
        with suppress(msgspec.DecodeError):
            entry = decoder.decode(line)
            if entry.key in wanted:
                found.append(entry)
    return tuple(found)


def settled(ledger: tuple[LedgerEntry, ...]) -> bool:
    """Whether each request that was received has given its blocks back."""
    received = {e.request for e in ledger if e.what == "received"}
    return bool(received) and received <= {e.request for e in ledger if e.what == "freed"}
