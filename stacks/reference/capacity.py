"""How many streams one engine holds: `python -m stacks.reference.capacity --streams 1000 --rate
20`.

Starts an engine in one process and a light client (epoll, no parsing) in another, and prints one
JSON document. The engine itself records how late each step was: planned until its last write was
done. Exit code 0 means that everything arrived and the p99 was below one step.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.request import urlopen

import msgspec

from harness.model import StreamScript
from stacks.reference.settings import EngineSettings

DONE = b"data: [DONE]"
EVENT = b"data: {"
CONNECTING_AT_ONCE = 64
_QUANTILE = re.compile(r'reference:step_lateness_seconds\{quantile="([\d.]+)".*\} ([\d.]+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`streams` at once, each with `rate` events/s for `seconds`; steps lie `step_ms` apart."""

    streams: int = 1000
    rate: int = 20
    seconds: int = 5
    step_ms: int = 50

    @property
    def script(self) -> StreamScript:
        """What each stream plays."""
        return StreamScript(event_count=self.rate * self.seconds, gap_ms=1000 // self.rate)


@dataclass(slots=True)
class Received:
    """What the client has got of all streams."""

    streams: int = 0
    events: int = 0
    terminators: int = 0
    body_bytes: int = 0
    broken: int = 0
    tails: dict[int, bytes] = field(default_factory=dict)


def _request(load: Load) -> bytes:
    script = msgspec.to_builtins(load.script)
    body = msgspec.json.encode(
        {"prompt": "hello", "stream": True, "streamchaos": {"script": script}}
    )
    head = f"POST /v1/completions HTTP/1.1\r\nhost: engine\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _take(received: Received, number: int, data: bytes) -> bool:
    """Counts markers, also those that lie across two reads; True once the stream is complete."""
    received.body_bytes += len(data)
    seen = received.tails.get(number, b"") + data
    done = DONE in seen
    received.terminators += done
    received.events += seen.count(EVENT) - done  # The frame with the finish reason is no token.
    # Only a marker that is not complete yet is kept: what was counted must not count again.
    cut = seen.rfind(b"d", max(0, len(seen) - len(DONE) + 1))
    tail = seen[cut:] if cut >= 0 else b""
    received.tails[number] = tail if DONE.startswith(tail) or EVENT.startswith(tail) else b""
    return done


def receive(port: int, load: Load) -> Received:
    """Opens all streams and reads them to their ends."""
    received = Received()
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    request = _request(load)
    deadline_ns = time.monotonic_ns() + (load.seconds * 4 + 30) * 1_000_000_000
    while (sockets or received.streams < load.streams) and time.monotonic_ns() < deadline_ns:
        for _ in range(min(CONNECTING_AT_ONCE, load.streams - received.streams)):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(request)
            client.settimeout(0)
            sockets[client.fileno()] = client
            poll.register(client, select.EPOLLIN)
            received.streams += 1
        for number, _ in poll.poll(1 if received.streams < load.streams else 1000):
            data = sockets[number].recv(1 << 16)
            done = bool(data) and _take(received, number, data)
            if done or not data:
                received.broken += not done
                received.tails.pop(number, None)
                poll.unregister(number)
                sockets.pop(number).close()
    received.broken += len(sockets)
    for client in sockets.values():
        client.close()
    poll.close()
    return received


@contextmanager
def engine(settings: EngineSettings) -> Iterator[int]:
    """An engine in its own process, in a folder that goes with it; gives its port."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "engine.json")
        log = str(Path(folder, "engine.jsonl"))
        config.write_bytes(msgspec.json.encode(replace(settings, log_path=log)))
        argv = (sys.executable, "-m", "stacks.reference", "--config", str(config))
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield int(process.stdout.readline().rpartition(":")[2])
            finally:
                process.send_signal(signal.SIGTERM)


def _lateness_ms(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {share: round(float(seconds) * 1e3, 3) for share, seconds in _QUANTILE.findall(text)}


def measure(load: Load) -> dict[str, object]:
    """Runs the load; gives the figures. The engine has one core to itself where the machine has
    two.
    """
    settings = EngineSettings(
        step_ms=load.step_ms, max_num_seqs=load.streams, num_blocks=load.streams * 64
    )
    client = [sys.executable, "-m", "stacks.reference.capacity", *_arguments(load)]
    with engine(settings) as port:
        done = subprocess.run([*client, "--client", str(port)], stdout=subprocess.PIPE, check=True)
        received = msgspec.json.decode(done.stdout)
        late = _lateness_ms(port)
    expected = load.streams * load.script.event_count
    return {
        "streams": load.streams,
        "events_expected": expected,
        "events_received": received["events"],
        "streams_complete": received["terminators"],
        "streams_broken": received["broken"],
        "step_ms": load.step_ms,
        "step_lateness_ms": {"p50": late["0.5"], "p99": late["0.99"], "max": late["1"]},
        "holds": received["events"] == expected and late["0.99"] < load.step_ms,
        "cores": len(os.sched_getaffinity(0)),
    }


def _arguments(load: Load) -> list[str]:
    return [
        text
        for name in ("streams", "rate", "seconds", "step_ms")
        for text in (f"--{name.replace('_', '-')}", str(getattr(load, name)))
    ]


def main(arguments: list[str]) -> int:
    """Prints the figures as JSON; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stacks.reference.capacity")
    for name in ("streams", "rate", "seconds", "step_ms"):
        default = getattr(Load(), name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--client", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    load = Load(
        streams=options.streams,
        rate=options.rate,
        seconds=options.seconds,
        step_ms=options.step_ms,
    )
    if options.client:
        sys.stdout.buffer.write(msgspec.json.encode(receive(options.client, load)))
        return 0
    figures = measure(load)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(figures)).decode() + "\n")
    return 0 if figures["holds"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
