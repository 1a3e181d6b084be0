"""What an engine is started with, and how it is read from its JSON file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from harness.model import Defects, StreamScript
from stacks.reference import schema

VERSION = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """An engine's settings.

    `port` 0 lets the kernel choose. At most `max_num_seqs` requests run, the rest wait; the KV
    ledger holds `num_blocks` blocks of `block_tokens` tokens; steps lie `step_ms` apart;
    `prefill_ms` comes on top of a script's first token. `api_key_env` names the environment
    variable that holds the key clients must present ("" = none). `defects` and `script` serve
    requests that bring none of their own.
    """

    host: str = "127.0.0.1"
    port: int = 0
    model: str = "reference"
    max_num_seqs: int = 256
    num_blocks: int = 4096
    block_tokens: int = 16
    step_ms: int = 5
    prefill_ms: int = 0
    api_key_env: str = ""
    log_path: str = "engine.jsonl"
    defects: Defects = field(default_factory=Defects)
    script: StreamScript = field(default_factory=StreamScript)

    @property
    def step_ns(self) -> int:
        """Length of a step in ns."""
        return self.step_ms * 1_000_000


def parse(text: bytes, where: str) -> EngineSettings:
    """Settings from JSON; raises SchemaError whose text begins with `where` and names the field."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise schema.SchemaError(f"{where}: {error}") from None
    settings = schema.convert(value, EngineSettings, where)
    script = schema.script(value.get("script", {}), f"{where}.script")
    defects = schema.defects(value.get("defects", {}), f"{where}.defects")
    for name in ("max_num_seqs", "num_blocks", "block_tokens", "step_ms"):
        if getattr(settings, name) < 1:
            raise schema.SchemaError(f"{where}.{name}: {getattr(settings, name)} is below 1")
    if settings.prefill_ms < 0:
        raise schema.SchemaError(f"{where}.prefill_ms: {settings.prefill_ms} is below 0")
    if not 0 <= settings.port <= 65535:
        raise schema.SchemaError(f"{where}.port: {settings.port} is not in 0..65535")
    return replace(settings, script=script, defects=defects)


def load(path: Path) -> EngineSettings:
    """Settings from a file; raises SchemaError, or OSError where it cannot be read."""
    return parse(path.read_bytes(), str(path))


def api_key(settings: EngineSettings) -> str:
    """The key that clients must present, "" for none; raises SchemaError where its variable is not
    set.
    """
    if not settings.api_key_env:
        return ""
    key = os.environ.get(settings.api_key_env, "")
    if not key:
        raise schema.SchemaError(f"api_key_env: {settings.api_key_env} is not set")
    return key
