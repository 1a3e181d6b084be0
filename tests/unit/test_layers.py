"""The arrows between the parts, read off the sources by `ast`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("harness", "faults", "stacks", "reports", "tests")
PURE = ("harness.model", "harness.errors")
BASE = (*PURE, "harness.clock", "harness.seeds")
JUDGES = ("harness.check", "harness.checks", "harness.blame", "harness.figures")
ROOTS = ("harness.suite", "harness.audit", "harness.plugin", "harness.cli")
READERS = ("harness.trace", "harness.answers", "harness.record", "harness.correlate")
PROCESSES = ("harness.relay", "harness.client")
UNDER_PROCESSES = ("harness.reactor", "harness.sockets", "harness.control", "harness.instrument")
PLANNERS = ("harness.run", "harness.drive", "harness.launch", *JUDGES, *ROOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What `part` (a module, or a package with all below it) may import of the project, and why.

    `only` lists all that is allowed besides the part itself (None: anything); `never` what is not;
    `apart` names parts below it that the row does not speak of.
    """

    part: str
    only: tuple[str, ...] | None = None
    never: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    because: str


ROWS = (
    Row(
        part="harness",
        never=("faults", "stacks", "reports"),
        apart=ROOTS,
        because="the core names no concrete fault, node or report: composition roots hand them in",
    ),
    *(Row(part=top, never=("tests",), because="tests are not shipped") for top in TOPS[:-1]),
    *(Row(part=part, only=BASE, because="everything stands on it") for part in BASE),
    Row(
        part="harness.wire",
        only=PURE,
        because="sans-I/O: bytes in, events out, and the other way round",
    ),
    Row(
        part="harness.link",
        only=(*PURE, "harness.wire"),
        because="sans-I/O stages; a trigger by progress reads a copy of the bytes",
    ),
    *(
        Row(part=part, only=(*PURE, *JUDGES), because="a verdict is a pure function of a recording")
        for part in JUDGES
    ),
    *(
        Row(
            part=part,
            only=(*BASE, *READERS, "harness.wire"),
            because="recordings are read and joined without what made them",
        )
        for part in READERS
    ),
    *(
        Row(
            part=part,
            never=PLANNERS,
            because="a measuring process does not know who started it or judges what it saw",
        )
        for part in (*PROCESSES, *UNDER_PROCESSES)
    ),
    *(
        Row(part=part, never=PROCESSES, because="the ground under all measuring processes")
        for part in UNDER_PROCESSES
    ),
    *(
        Row(part=part, never=ROOTS, because="a shell starts a run, never the reverse")
        for part in ("harness.run", "harness.drive", "harness.launch", "harness.schedule")
    ),
    Row(
        part="harness.drive",
        never=(*JUDGES, "harness.run"),
        because="run first, judge later",
    ),
    Row(
        part="harness.launch",
        never=(*JUDGES, *PROCESSES, "harness.run", "harness.drive"),
        because="it executes a NodeSpec and knows nothing of scenarios",
    ),
    Row(
        part="faults",
        only=(*PURE, "harness.link", "harness.wire", "harness.relay"),
        because="a fault is data plus a stage; it does not know who runs or judges it",
    ),
    Row(
        part="stacks",
        only=(*BASE, "harness.wire", "harness.link"),
        because="a node is data; the launcher executes it, and the engine is a node",
    ),
    Row(part="reports", only=PURE, because="a report is rendered from findings alone"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """One import between modules of the project."""

    importer: str
    imported: str
    file: Path
    line: int


def is_in(module: str, part: str) -> bool:
    """True where `module` is `part` or lies below it."""
    return module == part or module.startswith(part + ".")


def modules(root: Path) -> dict[str, Path]:
    """The project's modules by dotted name; a package is its `__init__.py`."""
    files = (file for top in TOPS for file in sorted((root / top).rglob("*.py")))
    return {".".join(file.relative_to(root).with_suffix("").parts): file for file in files}


def named(node: ast.AST, package: str) -> Iterator[str]:
    """Dotted names that a node may import; `from a import b` gives a.b, which may be no module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")
        above = parents[: len(parents) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        values = (arg.value for arg in node.args if isinstance(arg, ast.Constant))
        yield from (value for value in values if isinstance(value, str))


def arrows(root: Path) -> Iterator[Arrow]:
    """All imports between the modules below `root`, relative and deferred ones included."""
    found = modules(root)
    known = {name.removesuffix(".__init__") for name in found} | set(TOPS)
    for name, file in found.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            targets = named(node, name.rpartition(".")[0])
            imported = {t if t in known else t.rpartition(".")[0] for t in targets}
            for module in sorted(m for m in imported if m.partition(".")[0] in TOPS):
                yield Arrow(
                    importer=name.removesuffix(".__init__"),
                    imported=module,
                    file=file.relative_to(root),
                    line=getattr(node, "lineno", 0),
                )


def breaks(arrow: Arrow, row: Row) -> bool:
    """True where the row speaks of the importer and does not allow the arrow."""
    if not is_in(arrow.importer, row.part) or any(is_in(arrow.importer, p) for p in row.apart):
        return False
    if any(is_in(arrow.imported, part) for part in row.never):
        return True
    allowed = (row.part, *(row.only or ()))
    return row.only is not None and not any(is_in(arrow.imported, part) for part in allowed)


def violations(root: Path) -> list[str]:
    """Each arrow against a row, as one line of text."""
    return [
        f"{arrow.file}:{arrow.line}: {row.part} must not import {arrow.imported} ({row.because})"
        for arrow in arrows(root)
        for row in ROWS
        if breaks(arrow, row)
    ]


def plant(root: Path, path: str, text: str) -> None:
    """Write a module of a synthetic tree, with all packages above it and the usual targets."""
    for name in ("harness/check", "harness/model", "harness/relay/loop", "stacks/nginx/node"):
        file = root / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def test_layers_as_they_are_keep_every_row() -> None:
    """No module of the project imports what its row forbids."""
    found = violations(ROOT)
    assert not found, "\n".join(found)


def test_rows_with_parts_and_reasons_are_well_formed() -> None:
    """Every row gives a reason, and a part's rows lie in a known folder."""
    assert all(row.because and row.part.partition(".")[0] in TOPS for row in ROWS)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("harness/run.py", "import stacks.nginx.node"),
        ("harness/run.py", "def f():\n    from stacks import nginx"),
        ("harness/run.py", "import importlib\nimportlib.import_module('faults.latency')"),
        ("harness/run.py", "from harness.cli import main"),
        ("harness/wire/sse.py", "from harness import model, check"),
        ("harness/wire/sse.py", "from .. import check"),
        ("harness/wire/sse.py", "import harness"),
        ("harness/wire/__init__.py", "from ..relay import loop"),
        ("harness/relay/loop.py", "from ..run import life"),
        ("harness/client/stream.py", "from harness.launch.process import Process"),
        ("harness/checks/ending.py", "from harness.record import load"),
        ("harness/model.py", "from harness.wire import sse"),
        ("harness/record.py", "from harness.relay.loop import Loop"),
        ("harness/drive.py", "from harness import check"),
        ("harness/launch/process.py", "from harness.relay.loop import Loop"),
        ("harness/reactor.py", "from harness.relay import loop"),
        ("faults/latency.py", "from harness.run import life"),
        ("stacks/nginx/node.py", "from harness.launch import process"),
        ("stacks/nginx/node.py", "import tests.unit"),
        ("reports/terminal.py", "from harness.check import judge"),
    ],
)
def test_layers_with_a_forbidden_import_report_it(path: str, text: str, tmp_path: Path) -> None:
    """An import against the rows is reported with its file, however it is written."""
    plant(tmp_path, path, text)
    found = violations(tmp_path)
    assert found
    assert all(line.startswith(f"{path}:") for line in found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("harness/suite/nginx.py", "from stacks.nginx import node"),
        ("harness/cli/warstory.py", "import reports.terminal\nfrom harness.run import life"),
        ("harness/wire/sse.py", "from harness.model import EventKind\nfrom . import http1"),
        ("harness/checks/ending.py", "from ..check import check"),
        ("stacks/nginx/node.py", "from ..contract import Kind\nimport harness.model as model"),
        ("harness/run.py", "import runpy, testsuite, stacksmith"),
        ("tests/unit/test_all.py", "import harness.run, stacks.nginx.node, tests.unit.streams"),
    ],
)
def test_layers_with_an_allowed_import_report_nothing(path: str, text: str, tmp_path: Path) -> None:
    """Composition roots, a part's own modules and the tests import freely."""
    plant(tmp_path, path, text)
    assert violations(tmp_path) == []
