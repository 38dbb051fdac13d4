"""Instance profiles of a person's own: `instance-profiles.conf` of the original suite, or TOML as in profiles.toml.

Called by whoever composes an agent or a check run (setting `agent.profiles_file`). It must never guess: a row it cannot
read is a ConfigError with its line. What a row leaves open comes from the built-in row of that type, if there is one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from sickbay.catalog import Profile, load
from sickbay.catalog.reading import PROFILE_COLUMNS, profile
from sickbay.catalog.rows import Row
from sickbay.errors import ConfigError

COLUMNS = ("TYPE", "GPU", "EFA", "NVLINK", "PROVIDER")
MOST = 4_096  # of GPUs or adapters in one node, and of rows in one file
ANY_WIDTH = "NV"  # the original format knows only "true": NVLink, of a width it does not say

# A row about a type we do not know says nothing about times: those of the ladders (catalog/ladders.toml).
_BLANK = Profile("", 0, "", 0, "", reboot_s=1800.0, power_cycle_s=2400.0, replace_s=3600.0, source="")


def read_profiles(text: str, name: str) -> tuple[Profile, ...]:
    """The rows of one file, in order; `name` is what a complaint calls the file, and .toml at its end decides."""
    rows = _toml(text, name) if _is_toml(text, name) else _conf(text, name)
    found: dict[str, Profile] = {}
    for place, one in rows:
        if one.type in found:
            raise ConfigError(name, place, f"{one.type} is there twice", "keep one row for a type")
        if len(found) >= MOST:
            raise ConfigError(name, place, f"more than {MOST} rows", "is this the right file?")
        found[one.type] = one
    return tuple(found.values())


def _is_toml(text: str, name: str) -> bool:
    if name.endswith(".toml"):
        return True
    first = next((line for _, line in _lines(text)), "")
    return not name.endswith(".conf") and first.startswith("[")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        kept = line.partition("#")[0].strip()
        if kept:
            yield number, kept


def _conf(text: str, name: str) -> Iterator[tuple[str, Profile]]:
    for number, line in _lines(text):
        place = f"line {number}"
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != len(COLUMNS):
            right = "write " + "|".join(COLUMNS) + ", such as p5.48xlarge|8|32|true|efa"
            raise ConfigError(name, place, f"{len(cells)} columns instead of {len(COLUMNS)}: {line[:80]!r}", right)
        yield place, _conf_row(name, place, cells)


def _conf_row(name: str, place: str, cells: list[str]) -> Profile:
    kind, gpus, efas, nvlink, provider = cells
    if not kind or len(kind) > 64 or any(c.isspace() for c in kind):
        raise ConfigError(name, place, f"TYPE is {kind[:80]!r}", "write an instance type, such as p5.48xlarge")
    if nvlink.lower() not in ("true", "false"):
        raise ConfigError(name, place, f"NVLINK is {nvlink[:80]!r}", "write true or false")
    if not provider:
        raise ConfigError(name, place, "PROVIDER is empty", "write efa, or what fi_info calls yours")
    known = load().profiles.get(kind)
    base = known or replace(_BLANK, type=kind)
    width = base.nvlink or ANY_WIDTH if nvlink.lower() == "true" else ""
    many, nets = _count(name, place, "GPU", gpus), _count(name, place, "EFA", efas)
    return replace(base, gpus=many, efas=nets, nvlink=width, source=f"{name}, {place}")


def _count(name: str, place: str, column: str, cell: str) -> int:
    if not (cell.isascii() and cell.isdecimal() and len(cell) < 6 and int(cell) <= MOST):
        raise ConfigError(name, place, f"{column} is {cell[:80]!r}", "write how many; 0 means that it is not judged")
    return int(cell)


def _toml(text: str, name: str) -> Iterator[tuple[str, Profile]]:
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as why:
        raise ConfigError(name, "the whole file", f"not TOML: {why}", "correct the line it names") from None
    for kind, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(name, kind, "not a table", f'write ["{kind}"] and its columns below')
        yield kind, _toml_row(name, kind, table)


def _toml_row(name: str, kind: str, table: Mapping[str, Any]) -> Profile:
    Row(name, kind, table).only(PROFILE_COLUMNS)
    base = {key: value for key, value in asdict(load().profiles.get(kind) or _BLANK).items() if key != "type"}
    row = Row(name, kind, {**base, "gpu_model": base["gpu_model"] or "unknown", **table, "source": "yours"})
    read = profile(row, {"yours": f"{name}, {kind}"})
    for column in ("gpus", "efas", "nvmes"):
        if getattr(read, column) > MOST:
            raise row.wrong(column, "too many to be true", "write how many one node has; 0: not judged")
    return read
