"""Purity of the brain, read from its syntax. `.importlinter` holds the arrows between packages; this file holds what an
import graph cannot see: names imported inside functions, builtins that do IO, and clocks behind an innocent import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "sickbay"
CORE = sorted((SRC / "core").rglob("*.py"))

# What a decision may be built from. Anything else (clock, chance, machine, network, log) needs a reason here.
ALLOWED = {
    "__future__", "abc", "bisect", "collections", "copy", "dataclasses", "enum", "functools", "hashlib", "heapq",
    "itertools", "math", "operator", "re", "statistics", "string", "textwrap", "types", "typing",
}  # fmt: skip
OURS = {"model", "errors", "ports", "settings", "catalog", "core"}
CLOCKS = {"now", "utcnow", "today"}  # what `datetime` could be asked
# To write a given time for people is pure, whatever else its module can do. `CLOCKS` holds for these too.
EXCUSED = {"core/moment.py": ["imports datetime"]}
IO_BUILTINS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where an arrow points"
            yield from ([f"sickbay.{a.name}" for a in node.names] if node.module == "sickbay" else [str(node.module)])


def impurities(source: str) -> list[str]:
    """What in this source would let a decision depend on anything but its arguments."""
    tree = ast.parse(source)
    found = [f"imports {name}" for name in imported(tree) if not _pure(name)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IO_BUILTINS:
            found.append(f"calls {node.func.id}()")
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("datetime", "date")
        ):
            found += [f"reads a clock: {node.value.id}.{node.attr}"] if node.attr in CLOCKS else []
        if isinstance(node, ast.Global):
            found.append(f"keeps state in global {', '.join(node.names)}")
    return found


def _pure(name: str) -> bool:
    first, _, rest = name.partition(".")
    return rest.split(".")[0] in OURS if first == "sickbay" else first in ALLOWED


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(SRC)))
def test_core_decides_from_its_arguments_alone(path: Path) -> None:
    assert impurities(path.read_text()) == EXCUSED.get(str(path.relative_to(SRC)), [])


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from datetime import datetime",
        "def f():\n    import random",
        "from os.path import exists",
        "from sickbay.controller import loop",
        "from sickbay import wire",
        "open('x')",
        "def f():\n    global seen",
    ],
)
def test_the_reader_of_impurities_sees_each_kind(source: str) -> None:
    assert impurities(source)


def test_a_clock_is_seen_where_datetime_itself_is_excused() -> None:
    assert "reads a clock: datetime.now" in impurities("from datetime import datetime\ndatetime.now()")


def test_the_nouns_import_only_the_standard_library() -> None:
    names = {name.partition(".")[0] for name in imported(ast.parse((SRC / "model.py").read_text()))}
    assert names <= set(sys.stdlib_module_names)


def test_no_file_names_a_dumping_ground() -> None:
    banned = {"utils", "helpers", "common", "manager", "handler", "misc"}
    assert [path for path in SRC.rglob("*.py") if set(path.stem.split("_")) & banned] == []
