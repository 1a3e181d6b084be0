"""The list of what is known to fail: which files are taken, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import known_failing
from harness.errors import ConfigError
from harness.known_failing import Known, find, load, parse

ROOT = Path(__file__).parents[2]
ENTRY = '[[known]]\npattern = "nginx/*"\nreason = "why"\nlink = "https://example.org/1"\n'


def test_parse_of_a_whole_entry_gives_it() -> None:
    """An entry with its three texts is taken as it stands."""
    known = Known(pattern="nginx/*", reason="why", link="https://example.org/1")
    assert parse(ENTRY, where="f") == (known,)


@pytest.mark.parametrize("text", ["", "# nothing\n", "known = []\n"])
def test_parse_of_an_empty_file_gives_nothing(text: str) -> None:
    """Nothing is known to fail where nothing is listed."""
    assert parse(text, where="f") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[known]\n", "is no TOML"),
        (ENTRY + 'color = "red"\n', "unknown key 'color'"),
        ('colour = "red"\n', "unknown key 'colour'"),
        ('[[known]]\npattern = "a"\nreason = "b"\n', "no 'link'"),
        (ENTRY.replace('"why"', '" "'), "no 'reason'"),
        (ENTRY.replace('"why"', "3"), "no 'reason'"),
        ('known = ["a"]\n', "is no table"),
        ('known = "a"\n', "no list of tables"),
        ('[known]\npattern = "a"\n', "no list of tables"),
    ],
)
def test_parse_of_anything_else_is_refused_with_its_place(text: str, said: str) -> None:
    """What is wrong, where, and what an entry looks like."""
    with pytest.raises(ConfigError) as caught:
        parse(text, where="known_failing.toml")
    assert said in caught.value.what
    assert caught.value.where.startswith("known_failing.toml")


def test_load_without_a_file_gives_nothing(tmp_path: Path) -> None:
    """A repository need not have such a list."""
    assert load(tmp_path / known_failing.FILE) == ()


def test_load_of_a_folder_is_a_config_error(tmp_path: Path) -> None:
    """What is no file is refused, not taken for an empty list."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_load_of_our_own_list_succeeds() -> None:
    """The list of this repository is well-formed."""
    load(ROOT / known_failing.FILE)


@pytest.mark.parametrize(
    ("scenario_id", "found"), [("nginx/a/b", True), ("nginx", False), ("envoy/nginx/a", False)]
)
def test_find_by_pattern_matches_whole_ids(scenario_id: str, found: bool) -> None:
    """A pattern speaks of whole ids, and `*` crosses their slashes."""
    assert (find(parse(ENTRY, where="f"), scenario_id) is not None) is found
