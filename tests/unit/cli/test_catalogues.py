"""`streamchaos list`: every catalogue, as text and as JSON, and `streamchaos schema`."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from harness.cli.catalogues import ROWS, What
from harness.cli.output import table
from harness.cli.schema import recording
from harness.cli.version import version
from harness.model import Outcome
from harness.suite import catalogue
from harness.suite.stories import STORIES
from tests.unit.cli.commands import streamchaos


@pytest.mark.parametrize("what", list(What))
def test_list_as_json_is_one_document(what: What, tmp_path: Path) -> None:
    """stdout holds the rows, nothing else, and stderr is empty."""
    done = streamchaos(tmp_path, "list", what.value, "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert len(json.loads(done.out)) == len(ROWS[what]())


@pytest.mark.parametrize("what", list(What))
def test_list_as_text_is_a_line_for_each_row(what: What, tmp_path: Path) -> None:
    """The first word of a line is what the thing is called by."""
    rows = ROWS[what]()
    lines = streamchaos(tmp_path, "list", what.value).out.splitlines()
    assert [line.split()[0] for line in lines] == [str(next(iter(r.values()))) for r in rows]


def test_list_of_scenarios_holds_the_whole_catalogue() -> None:
    """Nothing that a session would run is left out."""
    ids = [row["id"] for row in ROWS[What.SCENARIOS]()]
    assert ids == [s.id for s in catalogue.scenarios()]


def test_list_of_stories_holds_each_story() -> None:
    """A story is listed by the number that tells it."""
    assert [row["number"] for row in ROWS[What.STORIES]()] == list(STORIES)


def test_schema_of_a_recording_has_each_type_that_it_names() -> None:
    """Each reference leads somewhere, and a scenario's file is a must."""
    schema = recording()
    names = {part.split('"')[0] for part in json.dumps(schema).split("#/$defs/")[1:]}
    assert names <= schema["$defs"].keys()
    assert schema["required"] == ["scenario.json"]
    fields = {field.encode_name for field in msgspec.inspect.type_info(Outcome).fields}  # type: ignore[attr-defined]
    assert set(schema["$defs"]["Outcome"]["properties"]) == fields


@pytest.mark.parametrize("name", ["report", "recording"])
def test_schema_of_each_format_is_json_with_its_version(name: str, tmp_path: Path) -> None:
    """The title names the format and its major."""
    done = streamchaos(tmp_path, "schema", name)
    assert done.code == 0
    assert f"streamchaos.{name}/1" in json.loads(done.out)["title"]


def test_table_pads_all_but_the_last_column() -> None:
    """Columns stand below each other, and no line ends in blanks."""
    assert table([("a", "bb", "c"), ("aaa", "b", "")]) == "a    bb  c\naaa  b"


def test_version_is_never_empty() -> None:
    """Also where the command runs from a folder that was not installed."""
    assert version()
