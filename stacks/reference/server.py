"""The engine as a process: the asyncio shell around the scheduler."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.model import LedgerEntry
from stacks.reference import answer, api, frames, metrics
from stacks.reference.answer import Answer, Peer
from stacks.reference.connection import Connection, Delivery
from stacks.reference.ledger import Ledger
from stacks.reference.log import FLUSH_EVERY_S, Log
from stacks.reference.request import BadRequest, HttpRequest
from stacks.reference.scheduler import Generation, Scheduler
from stacks.reference.settings import EngineSettings, api_key

BACKLOG = 4096
LATENESS_KEPT = 1 << 14
STOP_WITHIN_S = 0.5

_METHODS = {
    frames.COMPLETIONS: "POST",
    frames.CHAT_COMPLETIONS: "POST",
    "/v1/models": "GET",
    "/health": "GET",
    "/metrics": "GET",
}


class Engine:
    """Answers requests out of one scheduler. Lives on one event loop."""

    def __init__(self, settings: EngineSettings, log: Log, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._key = api_key(settings)
        self._log = log
        self._loop = loop
        self._scheduler = Scheduler(
            ledger=Ledger(settings.num_blocks),
            block_tokens=settings.block_tokens,
            max_num_seqs=settings.max_num_seqs,
            step_ns=settings.step_ns,
            prefill_ns=settings.prefill_ms * 1_000_000,
            origin_ns=time.monotonic_ns(),
            record=self._record,
        )
        self._connections: set[Connection] = set()
        self._served: dict[str, Connection] = {}
        self._requests = 0
        self._armed_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._stepping = False
        self._steps = 0
        self._lateness_ns: deque[int] = deque(maxlen=LATENESS_KEPT)
        self._idle = asyncio.Event()
        self.stopping = asyncio.Event()
        self.trouble = ""

    # ---------------------------------------------------------------------------------- connections

    def opened(self, connection: Connection) -> None:
        """A client has connected."""
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        """Logs whose doing the end of the connection was, under the key of its last completion."""
        self._connections.discard(connection)
        self._note_idle()
        if connection.request:
            self._enter("closed", connection.key, connection.request, connection.ended_by)

    def _note_idle(self) -> None:
        if self.stopping.is_set() and not self._connections:
            self._idle.set()

    def left(self, connection: Connection, how: str) -> None:
        """The client has gone in the middle of an answer."""
        self._served.pop(connection.request, None)
        self._scheduler.abort(connection.request, time.monotonic_ns(), how)
        self._rearm()

    def asked_badly(self, connection: Connection, error: BadRequest) -> None:
        """Answers what is no request, and closes."""
        told = api.ApiError(str(error), status=error.status)
        self._refuse(connection, told, Peer(keep_alive=False))

    # ------------------------------------------------------------------------------------- requests

    def asked(self, connection: Connection, request: HttpRequest) -> None:
        """Answers a request, or begins to."""
        method = _METHODS.get(request.path)
        if method == "POST":
            self._requests += 1
            connection.request = f"r{self._requests}"
            connection.key = api.key_of(request)
        try:
            if method is None:
                raise api.ApiError(f"There is no {request.path} here.", status=404)
            if request.method != method:
                raise api.ApiError(f"{request.path} takes {method}.", status=405)
            self._authorize(request)
            if method == "POST":
                self._complete(connection, request)
            else:
                self._tell(connection, request)
        except api.ApiError as error:
            if method == "POST":
                self._received(connection, request)
                self._enter("rejected", connection.key, connection.request, str(error))
            self._refuse(connection, error, request.peer)

    def _authorize(self, request: HttpRequest) -> None:
        protected = self._key and request.path.startswith("/v1/")
        if protected and request.headers.get("authorization") != f"Bearer {self._key}":
            raise api.ApiError(
                "The API key is missing or wrong.", status=401, code="invalid_api_key"
            )

    def _tell(self, connection: Connection, request: HttpRequest) -> None:
        body, kind = b"", "application/json"
        if request.path == "/v1/models":
            body = api.models_body(self._settings)
        elif request.path == "/metrics":
            body, kind = self._metrics(), metrics.CONTENT_TYPE
        data = answer.complete(200, body, peer=request.peer, kind=kind)
        connection.reply(data, keep=request.peer.persistent)

    def _metrics(self) -> bytes:
        scheduler = self._scheduler
        return metrics.render(
            self._settings.model,
            scheduler.gauges,
            scheduler.counters,
            self._lateness_ns,
            self._steps,
        )

    def _refuse(self, connection: Connection, error: api.ApiError, peer: Peer) -> None:
        data = answer.complete(error.status, api.error_body(error), peer=peer)
        connection.reply(data, keep=peer.persistent)

    def _complete(self, connection: Connection, request: HttpRequest) -> None:
        """Begins an answer. All that will be written is made here, before any of it is due."""
        ask = api.read(request, self._settings)
        connection.key = ask.key
        prepared = self._prepare(ask, request.peer)
        generation = Generation(
            request=connection.request,
            key=ask.key,
            script=replace(ask.script, event_count=len(prepared.writes)),
            defects=ask.defects,
            prompt_tokens=ask.prompt_tokens,
            ending=prepared.finish,
        )
        if not self._scheduler.fits(generation):
            raise api.ApiError("Prompt and max_tokens exceed the KV ledger.", param="max_tokens")
        self._received(connection, request)
        self._served[connection.request] = connection
        self._scheduler.submit(generation, time.monotonic_ns())
        connection.begin(Delivery(generation, prepared))
        self._rearm()
        self._catch_up()

    def _prepare(self, ask: api.Ask, peer: Peer) -> Answer:
        model, prompt_tokens = self._settings.model, ask.prompt_tokens
        if not ask.stream:
            body = frames.render_body(
                ask.script,
                key=ask.key,
                endpoint=ask.endpoint,
                model=model,
                prompt_tokens=prompt_tokens,
            )
            return answer.whole(body, ask.script, peer=peer)
        rendered = frames.render(
            ask.script, key=ask.key, endpoint=ask.endpoint, model=model, prompt_tokens=prompt_tokens
        )
        return answer.streamed(rendered, ask.script, ask.defects, peer=peer)

    # ---------------------------------------------------------------------------------------- steps

    def _rearm(self) -> None:
        wake_ns = self._scheduler.next_wake_ns()
        if wake_ns is None or (self._timer is not None and wake_ns == self._armed_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ns = wake_ns
        self._timer = self._loop.call_at(wake_ns / 1e9, self._step)

    def _catch_up(self) -> None:
        """The loop reads all that is ready before it looks at timers: a rush of requests must not
        delay a step.
        """
        if self._timer is None or self._stepping:
            return
        if time.monotonic_ns() >= self._armed_ns:
            self._timer.cancel()
            self._step()

    def _step(self) -> None:
        self._timer = None
        self._stepping = True
        planned_ns = self._armed_ns
        emissions = self._scheduler.step(max(planned_ns, time.monotonic_ns()))
        served = self._served
        for emission in emissions:
            connection = served.get(emission.request)
            if connection is not None:
                if emission.last:
                    del served[emission.request]
                connection.deliver(emission)
        if emissions:
            self._steps += 1
            self._lateness_ns.append(time.monotonic_ns() - planned_ns)
        self._stepping = False
        self._rearm()

    # ------------------------------------------------------------------------------------------ log

    def _received(self, connection: Connection, request: HttpRequest) -> None:
        line = f"{request.method} {request.path} HTTP/{request.peer.http_version}"
        self._enter("received", connection.key, connection.request, line)

    def _enter(self, what: str, key: str, request: str, detail: str) -> None:
        at_ns = time.monotonic_ns()
        self._record(LedgerEntry(at_ns=at_ns, what=what, key=key, request=request, detail=detail))

    def _record(self, entry: LedgerEntry) -> None:
        self._log.pending.append(entry)
        if not self._flushing:
            self._flushing = True
            self._loop.call_later(FLUSH_EVERY_S, self._flush)

    def _flush(self) -> None:
        """An engine that cannot testify any more must not go on serving."""
        self._flushing = False
        try:
            self._log.flush()
        except OSError as error:
            self.trouble = f"{self._settings.log_path}: {error.strerror}"
            self.stopping.set()

    # ----------------------------------------------------------------------------------------- life

    async def serve(self, listener: socket.socket) -> None:
        """Serves until `stopping` is set, then resets what is open."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stopping.set)
        server = await self._loop.create_server(
            lambda: Connection(self), sock=listener, backlog=BACKLOG
        )
        host, port = listener.getsockname()[:2]
        self._enter("started", "", "", f"{host}:{port}")
        print(f"listening on http://{host}:{port}", flush=True)  # noqa: T201
        await self.stopping.wait()
        server.close()
        for connection in tuple(self._connections):
            connection.drop()
        self._note_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._idle.wait()
        self._enter("stopped", "", "", "")


async def _run(settings: EngineSettings, listener: socket.socket) -> str:
    log = Log(Path(settings.log_path))
    engine = Engine(settings, log, asyncio.get_running_loop())
    try:
        await engine.serve(listener)
    finally:
        try:
            log.close()
        except OSError as error:
            engine.trouble = engine.trouble or f"{settings.log_path}: {error.strerror}"
    return engine.trouble


def listen(settings: EngineSettings) -> socket.socket:
    """A listening socket; raises OSError (EADDRINUSE where somebody else has the port)."""
    host = settings.host.strip("[]")  # IPv6 addresses may come as in a URL.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, settings.port), family=family, backlog=BACKLOG)


def run(settings: EngineSettings, listener: socket.socket) -> str:
    """Serves until SIGTERM or SIGINT; gives what went wrong, "" for nothing.

    What exists at the start is never garbage: freezing it keeps collections short, and raising the
    threshold rare.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    with listener:
        return asyncio.run(_run(settings, listener))
