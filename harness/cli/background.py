"""A runner on a loop in a thread of its own, for a caller that waits for outcome after outcome."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from pathlib import Path

from harness.cli.session import Papers, SessionOptions
from harness.errors import HarnessError, PlanError
from harness.model import Outcome, Report, Scenario
from harness.parts import Parts
from harness.run import Runner, prove

# The promise is 3 s from an interrupt to the end.
CLOSE_S = 2.5
POLL_S = 1.0
# Longer than the attempts of one scenario take together. One that waits for others is not stuck.
STALL_S = 600.0


class BackgroundRunner:
    """Runs what is submitted side by side, as far as the loads of the scenarios allow."""

    def __init__(self, parts: Parts, options: SessionOptions) -> None:
        self._parts = parts
        self._options = options
        self._opened: Future[Papers] = Future()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[Outcome]] = []
        self._futures: dict[str, Future[Outcome]] = {}
        self._scenarios: dict[str, Scenario] = {}
        self._progress_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name="streamchaos", daemon=True)

    def start(self) -> Path:
        """The folder of the run that it opens.

        Raises:
            HarnessError: the runner cannot be opened.
        """
        self._thread.start()
        while not self._opened.done() and self._thread.is_alive():
            wait([self._opened], timeout=POLL_S)
        if not self._opened.done():
            raise HarnessError("the runner ended before it was open")
        return self._opened.result().folder

    def submit(self, scenarios: Iterable[Scenario]) -> None:
        """Begins each of those that were not begun before.

        Raises:
            PlanError: another scenario with the same id was begun.
            HarnessError: the runner has ended.
        """
        for scenario in scenarios:
            known = self._scenarios.get(scenario.id)
            if known is not None and known != scenario:
                raise PlanError("two scenarios share this id", where=scenario.id)
            if known is None:
                self._scenarios[scenario.id] = scenario
                future: Future[Outcome] = Future()
                self._futures[scenario.id] = future
                try:
                    self._loop.call_soon_threadsafe(self._begin, scenario, future)
                except RuntimeError as error:
                    future.cancel()
                    raise HarnessError("the runner has ended", where=scenario.id) from error

    def outcome(self, scenario: Scenario) -> Outcome:
        """How the scenario came out, once it has; it is submitted if need be.

        Raises:
            HarnessError: the runner ended before it, or nothing came to an end for STALL_S.
        """
        self.submit([scenario])
        future = self._futures[scenario.id]
        while True:
            try:
                return future.result(POLL_S)
            except CancelledError as error:
                raise HarnessError("was stopped before its end", where=scenario.id) from error
            except FutureTimeoutError as error:
                if time.monotonic_ns() - self._progress_ns > STALL_S * 1e9:
                    raise HarnessError(
                        f"no scenario came to its end for {STALL_S:.0f} s", where=scenario.id
                    ) from error

    def close(self) -> Report | None:
        """Stops what still runs, in time, and leaves the reports; None where nothing was opened.

        Raises:
            RecordingError: the disk refuses.
        """
        if self._thread.is_alive():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(CLOSE_S)
        if not self._opened.done() or self._opened.exception() is not None:
            return None
        ended = [f for f in self._futures.values() if f.done() and not f.cancelled()]
        outcomes = [f.result() for f in ended if f.exception() is None]
        papers = self._opened.result()
        papers.write_manifest(tuple(self._scenarios.values()))
        return papers.write_report(prove(self._scenarios.values(), outcomes))

    # -------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except HarnessError as error:
            if not self._opened.done():
                self._opened.set_exception(error)
        except ExceptionGroup:
            # Each error in it has reached whoever waits for its scenario.
            if not self._opened.done():
                raise
        finally:
            for future in list(self._futures.values()):
                future.cancel()

    async def _serve(self) -> None:
        """Opens the runner, begins what is submitted, and at the stop cancels what is left."""
        self._loop = asyncio.get_running_loop()
        async with Runner.open(self._parts, self._options.run) as runner:
            papers = Papers(runner.folder, self._options, self._parts.secrets)
            papers.write_manifest(())
            async with asyncio.TaskGroup() as group:
                self._group, self._runner = group, runner
                self._opened.set_result(papers)
                await self._stop.wait()
                for task in self._tasks:
                    task.cancel()

    def _begin(self, scenario: Scenario, future: Future[Outcome]) -> None:
        work = self._runner.run(scenario)
        try:
            task = self._group.create_task(work)
        except RuntimeError:
            # The group is ending: nothing is begun any more.
            work.close()
            future.cancel()
            return
        task.add_done_callback(lambda done: self._settle(done, future))
        self._tasks.append(task)

    def _settle(self, task: asyncio.Task[Outcome], future: Future[Outcome]) -> None:
        self._progress_ns = time.monotonic_ns()
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            future.cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())
