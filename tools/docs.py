"""Write the pages that are made from the code: `python tools/docs.py`, or `make docs`.

Called by people, and by tests/test_docs.py, which compares `pages()` with what is committed. It invents nothing: phases
come from core/machine.py, settings from the words beside each key in settings.py, runbooks from the catalog.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from sickbay import settings
from sickbay.catalog import load, runbooks
from sickbay.core.machine import TABLE

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- made from core/machine.py: begin -->", "<!-- made from core/machine.py: end -->"
PREFACE = """# Settings

Made from [settings.py](../src/sickbay/settings.py) by `make docs`. `sickbay config check FILE` says what is wrong
with a file, `sickbay config show` prints each value with where it came from. Keys that end in `_s` are seconds; those
of the policy and of jobs pass only while a controller is watching. A limit is a count, a percentage of the pool, and a
floor below which it never falls: the smaller of the first two holds.
"""


def pages() -> dict[Path, str]:
    """The pages made here, as they should stand in the repository."""
    cases = ROOT / "docs" / "cases.md"
    return {cases: _cases(cases.read_text()), ROOT / "docs" / "settings.md": settings_page()}


def _cases(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([before + BEGIN, "", "| phase | goes to |", "|---|---|", *_rows(), "", END]) + after


def _rows() -> Iterator[str]:
    for phase, row in TABLE.items():
        by_target: dict[str, list[str]] = {}
        for event, target in row.items():
            by_target.setdefault(target.value, []).append(event.value)
        moves = [f"{', '.join(events)} → {target}" for target, events in by_target.items()]
        yield f"| {phase.value} | {'; '.join(moves) or 'the end'} |"


def settings_page() -> str:
    """Every key with its default and its words."""
    lines = [PREFACE]
    for name, group in groups().items():
        head = f"## `[{name}]`" if name else "## At the top of the file"
        lines += [head, "", "| key | default | what it is |", "|---|---|---|", *_keys(group), ""]
    return "\n".join(lines).rstrip() + "\n"


def groups() -> dict[str, Any]:
    """The tables of a settings file: name -> its defaults; "" is the file itself."""
    whole = settings.Settings()
    inner = {field.name: getattr(whole, field.name) for field in fields(whole)}
    return {"": whole, **{name: value for name, value in inner.items() if is_dataclass(value)}}


def _keys(group: Any) -> Iterator[str]:
    words = _words()[type(group).__name__]
    for field in fields(group):
        yield f"| `{field.name}` | {_default(getattr(group, field.name))} | {words.get(field.name, '')} |"


def _default(value: Any) -> str:
    if isinstance(value, settings.Limit):
        return f"{value.count if value.count < 1_000_000 else 'any'}, {value.percent:g} %, at least {value.at_least}"
    if is_dataclass(value):
        return "see below"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_value(item)}" for key, item in value.items()) or "none"
    return f"`{_value(value)}`" if value not in ((), "") else "none"


def _value(value: Any) -> str:
    if isinstance(value, frozenset):
        everything = len(value) == len(settings.ALL_VERBS)
        return "every verb" if everything else " ".join(sorted(verb.value for verb in value)) or "nothing"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) and value < 1e5 else str(value).removesuffix(".0")


def _words() -> dict[str, dict[str, str]]:
    """The string that stands under each key in settings.py."""
    tree = ast.parse((ROOT / "src" / "sickbay" / "settings.py").read_text())
    return {node.name: dict(_described(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _described(group: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for key, text in zip(group.body, group.body[1:], strict=False):
        match key, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                yield name, " ".join(said.split()).replace("|", "\\|")


def main() -> None:
    for path, text in pages().items():
        path.write_text(text)
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    written = runbooks.write(load(), ROOT / "docs" / "runbooks")
    sys.stdout.write(f"wrote {len(written)} pages in docs/runbooks\n")


if __name__ == "__main__":
    main()
