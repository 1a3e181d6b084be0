"""The wheel holds the four packages with their data, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("faults", "harness", "reports", "stacks")
# Read by people in the repository, by nobody at run time.
NOT_SHIPPED = ("README.md",)
JUNK = shutil.ignore_patterns("__pycache__", "*.py[co]", ".*", *NOT_SHIPPED)


def files_below(folder: Path) -> set[str]:
    """Paths of all files from `folder`, in the form that a zip archive uses."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix() for file in files}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all that a wheel is made of: building in place would leave old modules behind."""
    folder = tmp_path_factory.mktemp("sources")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in (*PACKAGES, "requirements", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=JUNK)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The wheel as a tree, built from `sources` without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps")
    argv = (*pip, "--no-build-isolation", "--wheel-dir", folder, sources)
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("streamchaos-*.whl")
    return zipfile.Path(file)


def names_in(wheel: zipfile.Path) -> set[str]:
    """Paths of all files in the wheel."""
    return {name for name in wheel.root.namelist() if not name.endswith("/")}


def test_wheel_beside_its_metadata_holds_every_file_of_the_packages(
    sources: Path, wheel: zipfile.Path
) -> None:
    """Each module and data file is shipped; a new kind of file must be listed in pyproject.toml."""
    expected = {f"{name}/{file}" for name in PACKAGES for file in files_below(sources / name)}
    shipped = {name for name in names_in(wheel) if ".dist-info/" not in name}
    assert sorted(expected - shipped) == []
    assert sorted(shipped - expected) == []


def test_wheel_folders_are_the_packages_and_the_metadata(wheel: zipfile.Path) -> None:
    """Nothing of the tests, the tools or the build is installed into a user's environment."""
    tops = {PurePosixPath(name).parts[0] for name in names_in(wheel)}
    assert tops == {*PACKAGES, "streamchaos-0.1.0.dist-info"}


def test_wheel_metadata_names_requirements_command_and_plugin(wheel: zipfile.Path) -> None:
    """The wheel asks for all of requirements/runtime.in and offers the command and the plugin."""
    info = wheel / "streamchaos-0.1.0.dist-info"
    metadata = message_from_bytes((info / "METADATA").read_bytes())
    lines = (ROOT / "requirements/runtime.in").read_text(encoding="utf-8").splitlines()
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Requires-Dist", [])) == {
        line for line in lines if line and not line.startswith("#")
    }
    points = (info / "entry_points.txt").read_text(encoding="utf-8")
    assert "streamchaos = harness.cli:main" in points
    assert "[pytest11]\nstreamchaos = harness.plugin" in points


@pytest.mark.parametrize("name", ["runtime", "dev"])
def test_pins_of_a_set_are_hashed_and_name_no_host(name: str) -> None:
    """Every requirement is an exact version with hashes; where it comes from is left open."""
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    lines = text.replace("\\\n", " ").splitlines()
    pins = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert pins
    assert all("==" in line and "--hash=sha256:" in line for line in pins)


def test_pins_of_both_sets_agree() -> None:
    """What the tests run with is what a user gets."""
    found = {}
    for name in ("runtime", "dev"):
        text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
        found[name] = {line.split(" \\")[0] for line in text.splitlines() if "==" in line}
    assert found["runtime"] <= found["dev"]


def test_build_backend_is_pinned_for_the_tests() -> None:
    """Building without isolation needs the backend in the venv, as new as it is asked for."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    dev = (ROOT / "requirements/dev.in").read_text(encoding="utf-8").splitlines()
    assert set(table["build-system"]["requires"]) <= set(dev)
