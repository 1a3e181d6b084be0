"""Each module of the core has a unit test, or stands below with the test that covers it instead.

The test of `harness/x.py` is `tests/unit/test_x.py`; that of `harness/pkg/y.py` is `test_y.py` in
`tests/unit/` or `tests/unit/pkg/`, or any test module named after the package (`tests/unit/pkg/`,
`test_pkg.py`, `test_pkg_*.py`) that imports it by name.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = "tests/unit"

# Module: the test that covers it. An entry that is no longer needed fails, and is then removed.
COVERED_ELSEWHERE: dict[str, str] = {
    "harness/parts.py": "tests/unit/suite/test_parts.py",
}


def holds_code(file: Path) -> bool:
    """True where a module holds more than its docstring and its `__future__` import."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return any(
        not isinstance(node, ast.Expr)
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        for node in body
    )


def imports(test: Path) -> set[str]:
    """Dotted names that a test module imports; `from a import b` gives both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(test.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def is_mirrored(root: Path, module: Path) -> bool:
    """True where a unit test bears the module's name, or its package's name and imports it."""
    unit = root / UNIT
    package = module.parts[1:-1]
    folders = {unit, unit.joinpath(*package)}
    if any((folder / f"test_{module.stem}.py").exists() for folder in folders):
        return True
    if not package:
        return False
    dotted = ".".join(module.with_suffix("").parts)
    name = package[0]
    patterns = (f"{'/'.join(package)}/test_*.py", f"test_{name}.py", f"test_{name}_*.py")
    tests = (test for pattern in patterns for test in unit.glob(pattern))
    return any(dotted in imports(test) for test in tests)


def core(root: Path) -> list[Path]:
    """The core's modules with code in them, as paths from `root`."""
    files = (file for file in sorted((root / "harness").rglob("*.py")) if holds_code(file))
    return [file.relative_to(root) for file in files if not file.stem.startswith("__")]


def gaps(root: Path, elsewhere: dict[str, str]) -> list[str]:
    """Modules without a test, and entries of `elsewhere` that no longer hold."""
    found = {str(module): is_mirrored(root, module) for module in core(root)}
    return [
        *(f"{m}: no unit test" for m, good in found.items() if not good and m not in elsewhere),
        *(f"{m}: gone or empty, remove its entry" for m in elsewhere if m not in found),
        *(f"{m}: has a unit test, remove its entry" for m in elsewhere if found.get(m)),
        *(f"{m}: {t} does not exist" for m, t in elsewhere.items() if not (root / t).exists()),
    ]


def test_mirror_as_it_is_has_no_gap() -> None:
    """Each module of the core is tested where a reader looks for it."""
    found = gaps(ROOT, COVERED_ELSEWHERE)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("test", "text", "gap_count"),
    [
        ("test_clock.py", "", 1),
        ("test_sse.py", "", 1),
        ("wire/test_sse.py", "", 1),
        ("wire/test_splits.py", "from harness.wire.sse import Reader", 1),
        ("wire/test_splits.py", "from harness.wire import sse", 1),
        ("test_wire_fuzz.py", "import harness.wire.sse", 1),
        ("wire/test_splits.py", "import harness.wire", 2),
        ("test_splits.py", "from harness.wire import sse", 2),
    ],
)
def test_mirror_of_two_modules_counts_the_untested(
    test: str, text: str, gap_count: int, tmp_path: Path
) -> None:
    """A test counts by its own name, or by its package's name and an import; no other way."""
    files = {"harness/clock.py": "A = 1", "harness/wire/sse.py": "B = 1", "harness/empty.py": '""'}
    for path, content in {**files, f"{UNIT}/{test}": text}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, encoding="utf-8")
    assert len(gaps(tmp_path, {})) == gap_count


@pytest.mark.parametrize(
    ("elsewhere", "reported"),
    [
        ({}, ["no unit test"]),
        ({"run": "test_clock"}, []),
        ({"run": "test_gone"}, ["tests/unit/test_gone.py does not exist"]),
        ({"run": "test_clock", "clock": "test_clock"}, ["has a unit test, remove its entry"]),
        ({"run": "test_clock", "old": "test_clock"}, ["gone or empty, remove its entry"]),
    ],
)
def test_mirror_entry_without_need_expires(
    elsewhere: dict[str, str], reported: list[str], tmp_path: Path
) -> None:
    """An entry whose module is tested or gone, or whose own test is missing, is reported."""
    for path in ("harness/clock.py", "harness/run.py", f"{UNIT}/test_clock.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("A = 1", encoding="utf-8")
    entries = {f"harness/{m}.py": f"{UNIT}/{test}.py" for m, test in elsewhere.items()}
    assert [line.partition(": ")[2] for line in gaps(tmp_path, entries)] == reported
