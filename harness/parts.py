"""What the core asks of the catalogues, so that it names no proxy, no engine and no fault. The
suite hands it in."""

from __future__ import annotations

from typing import Protocol

from harness.model import AccessEntry, Fault, Node, NodeSpec, StreamKey, Workload


class Parts(Protocol):
    """The catalogues, as seen from the core."""

    def available(self, node: Node) -> str:
        """Empty, or why this node cannot be run here, with the command that gets it."""
        ...

    def node_spec(self, node: Node, name: str) -> NodeSpec:
        """How to run a node."""
        ...

    def request(self, workload: Workload, key: StreamKey, host: str) -> bytes:
        """The request of one stream, whole."""
        ...

    def oracle(self, workload: Workload, key: StreamKey) -> tuple[str, ...]:
        """Digests of the content events that the engine is to send; empty where nobody can know."""
        ...

    def read_access(self, node: NodeSpec, text: str) -> tuple[AccessEntry, ...]:
        """What a node's access log says."""
        ...

    def read_errors(self, node: NodeSpec, text: str) -> tuple[str, ...]:
        """What a node's error log says."""
        ...

    def stage(self, fault: Fault) -> str:
        """`module:function` that makes the stage of a stream-layer fault."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never reach the disk."""
        ...
