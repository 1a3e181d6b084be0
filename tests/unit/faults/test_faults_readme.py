"""The contract page of faults/ holds what it says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import faults
from harness.link.stage import Chain, Data, Eof, Fire
from harness.model import Injection

README = Path(faults.__file__).with_name("README.md")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_readme_example_is_found_and_holds_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the catalogue's folder is a fault: found by name, made with its parameters, run."""
    (block,) = BLOCK.findall(README.read_text(encoding="utf-8"))
    (tmp_path / "hold_until_end.py").write_text(block, encoding="utf-8")
    monkeypatch.setattr(faults, "__path__", [*faults.__path__, str(tmp_path)])
    assert "hold-until-end" in faults.names()
    injection = Injection(fault=faults.fault("hold-until-end"), hop=1)
    module, _, function = faults.stage(injection.fault).partition(":")
    stage = getattr(importlib.import_module(module), function)(injection, 3, 1, 0)
    chain = Chain([stage])
    assert chain.push(Data(b"ab"), 1) == []
    assert chain.push(Data(b"cd"), 2) == []
    assert chain.push(Eof(), 3) == [Fire(3, 4), Data(b"abcd"), Eof()]


def test_readme_names_every_member_of_a_module() -> None:
    """What the table asks for is what the modules have."""
    text = README.read_text(encoding="utf-8")
    for name in faults.names():
        module = faults.module(name)
        for member in ("NAME", "LAYER", "PARAMETERS", "SOURCE", "stage"):
            assert hasattr(module, member), (name, member)
            assert f"`{member}" in text
        assert name == module.NAME
