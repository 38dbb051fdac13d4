"""docs/settings.md from the settings themselves: `python -m sickbay.settings_doc > docs/settings.md`.

The docstring under each field of settings.py is its documentation; a test keeps the page current. `words` below is also
what `sickbay config show` prints values with. It must never hold a sentence about a single setting.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, get_origin

from sickbay import settings
from sickbay import settings_rules as rules
from sickbay.settings import ALL_VERBS, Limit
from sickbay.settings_env import ALIASES, SEVERITY_ALIASES
from sickbay.settings_load import GROUPS

_INTRO = """\
# Settings

<!-- Written by `python -m sickbay.settings_doc` from src/sickbay/settings.py: change it there. -->

One TOML file (`--config FILE`, or `SICKBAY_CONFIG`) and the environment. Later wins: default, file, an original's
variable, a `SICKBAY_` variable. Every key below can be set by `SICKBAY_<GROUP>__<KEY>`, such as
`SICKBAY_POLICY__MAX_VERB=CORDON`; keys of no group by `SICKBAY_<KEY>`. `sickbay config check FILE` says everything that
is wrong with a file; `sickbay config show` prints what is in force, and where each value came from. Examples:
[observe](../examples/observe.toml), [careful](../examples/careful.toml), [full](../examples/full.toml).

Every key of `[policy]` can be overridden for one pool under `[pool.NAME.policy]` (`SICKBAY_POOL__NAME__POLICY__<KEY>`).
A limit is a number of nodes (`4`), a share (`"10%"`), or a table such as `{ percent = 10, at_least = 2 }`, of which the
parts left out stay as they were. In `per_window` and `[ceilings]`, too, what is left out stays.
"""


def page() -> str:
    return "\n".join([_INTRO, *_sections(), *_aliases()])


def _sections() -> Iterator[str]:
    for name, group in GROUPS.items():
        yield f"## {f'[{name}]' if name else 'Outside of any table'}\n"
        yield f"{inspect.getdoc(group)}\n"
        yield from _table(group)
        if name == "policy":
            yield "### The parts of a limit\n"
            yield from _table(Limit)


def _table(group: type[Any]) -> Iterator[str]:
    yield "| key | default | may be | what and why |\n|---|---|---|---|"
    for field, said in field_docs(group).items():
        if field in GROUPS or field == "pools":
            continue
        default = words(getattr(group(), field))
        yield f"| `{field}` | {_cell(default)} | {_may_be(group, field)} | {said.replace('|', '/')} |"
    yield ""


def _cell(default: str) -> str:
    return f"`{default}`" if default else "empty"


def _may_be(group: type[Any], field: str) -> str:
    rule, hint = f"{group.__name__}.{field}", rules.hints(group)[field]
    if hint is Limit:
        return "a limit"
    if hint is bool:
        return "true, false"
    choices = rules.CHOICES.get(rule, ())
    several = "any of " if get_origin(hint) in (tuple, Mapping) else ""
    if choices:
        return several + ", ".join(choices)
    found = rules.range_of(rule, hint)
    return f"{found[0]:,g} to {found[1]:,.12g}" if found else "a list" if several else "text"


def _aliases() -> Iterator[str]:
    yield "## Variables of the original samples\n"
    yield "They work as aliases. An empty value means not set.\n"
    yield "| variable | here |\n|---|---|"
    for name, key in sorted(ALIASES.items()):
        yield f"| `{name}` | `{key}` |"
    for name, codes in sorted(SEVERITY_ALIASES.items()):
        switch = "; `1` means REPLACE" if name == "STRICT_PSHC" else ""
        yield f"| `{name}` | `severity_overrides` of {', '.join(codes)}{switch} |"
    yield ""


@lru_cache
def _source() -> Mapping[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(settings))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def field_docs(group: type[Any]) -> dict[str, str]:
    """field -> the string that stands under it in settings.py, "" where there is none."""
    found: dict[str, str] = {}
    last = ""
    for node in _source()[group.__name__].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
            found[last] = ""
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            found[last] = " ".join(str(node.value.value).split())
    return found


def words(value: object) -> str:
    """A value as it would stand in the file; "" for what is empty."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Limit):
        return _limit(value)
    if isinstance(value, frozenset):
        return "every verb" if value == ALL_VERBS else f"[{', '.join(sorted(value))}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {words(item)}" for name, item in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _limit(limit: Limit) -> str:
    parts = [f"count = {limit.count}"] if limit.count != Limit().count else []
    parts += [f"percent = {limit.percent:g}"] if limit.percent != Limit().percent or not parts else []
    return "{ " + ", ".join([*parts, f"at_least = {limit.at_least}"]) + " }"


def undocumented() -> list[str]:
    groups = (*GROUPS.values(), Limit)
    return [f"{group.__name__}.{field}" for group in groups for field, said in field_docs(group).items() if not said]


if __name__ == "__main__":
    print(page(), end="")
