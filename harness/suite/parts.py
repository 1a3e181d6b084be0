"""The catalogues as the core asks for them: the composition root of what runs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

import faults
import stacks
from harness.client.request import StreamRequest
from harness.model import AccessEntry, Defects, Fault, Node, NodeSpec, StreamKey, Workload
from stacks.reference import frames
from stacks.reference.settings import EngineSettings

MODEL = EngineSettings().model
SECRET_VARIABLES = ("STREAMCHAOS_API_KEY", "OPENAI_API_KEY")


class SuiteParts:
    """Implements `harness.parts.Parts` over stacks/ and faults/."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._secrets = tuple(environ[name] for name in SECRET_VARIABLES if environ.get(name))
        self._api_key = self._secrets[0] if self._secrets else ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """API keys of the environment: they go on the wire and nowhere else."""
        return self._secrets

    def available(self, node: Node) -> str:
        """Empty, or why not and the command that gets it."""
        return stacks.available(node)

    def node_spec(self, node: Node, name: str) -> NodeSpec:
        """How to run a node."""
        return stacks.node_spec(node, name=name)

    def request(self, workload: Workload, key: StreamKey, host: str) -> bytes:
        """The request of one stream; the reference engine finds its script in the body."""
        request = StreamRequest(
            endpoint=workload.endpoint,
            model=MODEL,
            max_tokens=workload.script.event_count,
            accept_encoding=workload.accept_encoding,
            api_key=self._api_key,
            extension=_extension(workload),
        )
        return request.encode(key, host)

    def oracle(self, workload: Workload, key: StreamKey) -> tuple[str, ...]:
        """What the reference engine's script comes to for this key."""
        rendered = frames.render(
            workload.script, key=str(key), endpoint=workload.endpoint, model=MODEL
        )
        return frames.digests(rendered)

    def read_access(self, node: NodeSpec, text: str) -> tuple[AccessEntry, ...]:
        """What the node's access log says."""
        return stacks.read_access(node.kind, text, node.name)

    def read_errors(self, node: NodeSpec, text: str) -> tuple[str, ...]:
        """What the node's error log says."""
        return stacks.read_errors(node.kind, text)

    def stage(self, fault: Fault) -> str:
        """Where the stage of a stream-layer fault is made."""
        return faults.stage(fault)


def _extension(workload: Workload) -> dict[str, object]:
    """Without defects of its own a request gets those that the engine was started with."""
    told: dict[str, object] = {"script": msgspec.to_builtins(workload.script)}
    if workload.defects != Defects():
        told["defects"] = msgspec.to_builtins(workload.defects)
    return told
