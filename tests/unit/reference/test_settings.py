"""An engine's settings, its node specification, its metrics page and its log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import MissingPart, PlanError
from harness.model import Defects, LedgerEntry, Node, StreamScript
from stacks.reference import log, metrics, settings
from stacks.reference.node import engine_spec, node_spec
from stacks.reference.scheduler import Counters, Gauges
from stacks.reference.schema import SchemaError
from stacks.reference.settings import EngineSettings


def test_parse_empty_object_gives_the_defaults() -> None:
    """Everything has a default."""
    assert settings.parse(b"{}", "f") == EngineSettings()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"prot": 1}', "f.prot: unknown field"),
        ('{"port": "1"}', "f.port"),
        ('{"port": 70000}', "f.port"),
        ('{"step_ms": 0}', "f.step_ms"),
        ('{"defects": {"clump": 1}}', "f.defects.clump: unknown field"),
        ('{"script": {"event_count": 0}}', "f.script.event_count"),
        ("{", "f: "),
        ("[]", "f: "),
    ],
)
def test_parse_bad_settings_name_the_field(text: str, named: str) -> None:
    """The error tells the file and the field."""
    with pytest.raises(SchemaError) as caught:
        settings.parse(text.encode(), "f")
    assert str(caught.value).startswith(named)


def test_api_key_variable_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that should demand a key does not start without one."""
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    with pytest.raises(SchemaError, match="ENGINE_KEY"):
        settings.api_key(EngineSettings(api_key_env="ENGINE_KEY"))


def test_engine_spec_config_reads_back_as_the_settings() -> None:
    """With its placeholders filled in, the node's file gives the settings again."""
    wanted = EngineSettings(
        step_ms=50, defects=Defects(clump_events=3), script=StreamScript(event_count=9)
    )
    spec = engine_spec("engine", wanted)
    (file,) = spec.files
    text = file.text.replace("@{port.http}", "8123").replace("@{dir}", "/d")
    text = text.replace("@{listen}", "127.0.0.1")
    read = settings.parse(text.encode(), "f")
    assert (read.host, read.port, read.log_path) == ("127.0.0.1", 8123, "/d/engine.jsonl")
    assert (read.step_ms, read.defects, read.script) == (50, wanted.defects, wanted.script)
    assert spec.argv[-1] == "@{dir}/engine.json"
    assert spec.log_path("engine") == "engine.jsonl"


def test_node_spec_takes_switches_as_lines_and_refuses_others() -> None:
    """The kind's contract: a plain node gets the defaults, a line names a switch of Defects."""
    node = Node(kind="reference")
    assert node_spec(node, name="e") == engine_spec("e", EngineSettings())
    switched = EngineSettings(defects=Defects(stale_gauges=True))
    stale = replace(node, lines=("stale_gauges",))
    assert node_spec(stale, name="e") == engine_spec("e", switched)
    with pytest.raises(PlanError, match="no switch 'x'"):
        node_spec(replace(node, lines=("x",)), name="e")
    with pytest.raises(PlanError, match="nor TLS"):
        node_spec(replace(node, tls=True), name="e")
    with pytest.raises(MissingPart, match="9"):
        node_spec(replace(node, version="9"), name="e")


def test_metrics_page_has_the_names_of_vllm() -> None:
    """Gauges, counters and the finish reasons stand under vLLM's names with the model's label."""
    counters = Counters(prompt_tokens=3, generation_tokens=4)
    counters.success["abort"] = 2
    gauges = Gauges(running=5, waiting=6, kv_usage=0.25)
    page = metrics.render('a"b', gauges, counters, [1_000_000, 3_000_000], 2).decode()
    label = r'model_name="a\"b"'
    for line in (
        f"vllm:num_requests_running{{{label}}} 5.0",
        f"vllm:num_requests_waiting{{{label}}} 6.0",
        f"vllm:kv_cache_usage_perc{{{label}}} 0.25",
        f"vllm:prompt_tokens_total{{{label}}} 3.0",
        f"vllm:generation_tokens_total{{{label}}} 4.0",
        f'vllm:request_success_total{{finished_reason="abort",{label}}} 2.0',
        f'reference:step_lateness_seconds{{quantile="1",{label}}} 0.003000',
    ):
        assert line in page.splitlines()


def test_log_cut_in_its_last_line_is_readable(tmp_path: Path) -> None:
    """What was flushed reads back; a line that was being written when the engine was killed does
    not disturb.
    """
    path = tmp_path / "engine.jsonl"
    entry = LedgerEntry(at_ns=1, what="freed", key="k", request="r1", blocks=2)
    written = log.Log(path)
    written.pending.append(entry)
    written.close()
    path.write_bytes(path.read_bytes() + b'{"at_ns":2,"wh')
    assert log.read(path) == (entry,)
    assert json.loads(path.read_bytes().split(b"\n")[0])["blocks"] == 2
