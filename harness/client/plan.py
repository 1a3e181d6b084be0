"""What the harness tells the sampler of one stream. The sampler knows no scenario and no stack."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model import Leave


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """One stream to drive.

    `request` is sent as it is, `start_ms` after `go`. With `leave`, the client goes away once it
    has `leave_after_events` content events (0: as soon as the request is sent), `leave_after_ms`
    later. `tls_ca` names the CA's PEM file; empty means plaintext.
    """

    key: str
    host: str
    port: int
    request: bytes
    method: str = "POST"
    start_ms: int = 0
    deadline_ms: int = 30_000
    tls_ca: str = ""
    server_name: str = "localhost"
    leave: Leave | None = None
    leave_after_events: int = 0
    leave_after_ms: int = 0
