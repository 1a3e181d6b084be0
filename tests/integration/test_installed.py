"""What a user gets: the wheel in an environment of its own, used from another folder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("faults", "harness", "reports", "stacks", "requirements", "tools")
README_EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command's output, whatever its exit code."""
    return subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds our wheel; libraries are borrowed from this one."""
    sources = tmp_path_factory.mktemp("sources")
    shutil.copy(ROOT / "pyproject.toml", sources)
    for name in SOURCES:
        ignore = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / name, sources / name, ignore=ignore)
    home = tmp_path_factory.mktemp("environment")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    pip = (sys.executable, "-m", "pip")
    offline = ("-q", "--no-index", "--no-deps")
    made = run(*pip, "wheel", *offline, "--no-build-isolation", "-w", home, sources, cwd=home)
    assert made.returncode == 0, made.stderr
    (wheel,) = home.glob("streamchaos-*.whl")
    python = home / "bin" / "python"
    done = run(*pip, "--python", python, "install", *offline, wheel, cwd=home)
    assert done.returncode == 0, done.stderr
    borrowed = next(home.glob("lib/python*/site-packages")) / "borrowed.pth"
    borrowed.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return home / "bin"


def test_installed_command_runs_a_story_from_another_folder(
    installed: Path, tmp_path: Path
) -> None:
    """One JSON document on stdout, all as told, the results below the current folder."""
    argv = ("warstory", "1", "--arm", "*/direct", "--arm", "*/engine-clumps", "--format", "json")
    done = run(installed / "streamchaos", *argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [o["told"] for o in report["outcomes"]] == ["as_told", "as_told"]
    assert (tmp_path / "chaos-results" / "latest" / "report.json").exists()


def test_installed_code_is_the_wheels(installed: Path, tmp_path: Path) -> None:
    """What ran above was not this checkout."""
    told = run(installed / "python", "-c", "import harness; print(harness.__file__)", cwd=tmp_path)
    assert str(ROOT) not in told.stdout


def test_readme_example_passes_in_a_repository_of_its_own(installed: Path, tmp_path: Path) -> None:
    """The fixture works as the README shows it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = README_EXAMPLE.findall(text)
    (tmp_path / "test_ours.py").write_text(example, encoding="utf-8")
    done = run(installed / "python", "-m", "pytest", "-q", "-m", "chaos", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
