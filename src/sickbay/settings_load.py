"""One TOML file plus the environment -> Settings, validated whole, each value with where it came from.

Called once at the start of every process, by `sickbay config` and by tests. Later wins: default, [policy] for a pool,
file, an original's variable, SICKBAY_ variable. All mistakes are reported at once. It must never guess past a mistake.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sickbay import atomic, settings_env
from sickbay import settings_rules as rules
from sickbay.errors import ConfigError
from sickbay.settings import (
    AgentSettings,
    ControllerSettings,
    EvidenceSettings,
    IngestSettings,
    JobPolicy,
    KubernetesSettings,
    NotifySettings,
    Policy,
    Settings,
    SqliteSettings,
)
from sickbay.settings_env import Given, Stranger

MAX_BYTES = 1_000_000
GROUPS: Mapping[str, type[Any]] = {
    "": Settings,
    "policy": Policy,
    "jobs": JobPolicy,
    "controller": ControllerSettings,
    "sqlite": SqliteSettings,
    "agent": AgentSettings,
    "ingest": IngestSettings,
    "notify": NotifySettings,
    "evidence": EvidenceSettings,
    "kubernetes": KubernetesSettings,
}
_TOP = tuple(field.name for field in dataclasses.fields(Settings) if field.name not in (*GROUPS, "pools"))
Values = dict[str, dict[str, Any]]  # section -> key -> value


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    origins: Mapping[str, str]  # "policy.max_verb" -> "default", "sickbay.toml:12", "environment SICKBAY_..."
    path: str = ""  # "" when there was no file


class ConfigProblems(ConfigError):
    """Everything that is wrong, not only the first thing."""

    def __init__(self, problems: tuple[ConfigError, ...]) -> None:
        self.problems = problems
        first = problems[0]
        super().__init__(first.file, first.key, first.wrong, first.right)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def load(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Loaded:
    """Read the file (or SICKBAY_CONFIG, or none) and the environment (this process's by default), or ConfigProblems."""
    environ = os.environ if environ is None else environ
    path = path or environ.get("SICKBAY_CONFIG") or None
    text = _read(Path(path).expanduser()) if path else ""
    return parse(text, str(path or ""), environ)


def parse(text: str, file: str = "", environ: Mapping[str, str] | None = None) -> Loaded:
    """As load, from the file's text."""
    sheet = _Sheet(file)
    tree = _tree(text, file)
    pools = tree.get("pool", {})
    given = list(_from_file(tree, _lines(text), sheet))
    for found in settings_env.read(environ or {}, GROUPS, pools if isinstance(pools, dict) else {}):
        if isinstance(found, Stranger):
            sheet.problem("environment", found.variable, found.wrong, found.right)
        else:
            given.append(found)
    for setting in sorted(given, key=lambda one: one.section.startswith("pool.")):  # pools inherit, so they come last
        sheet.write(setting)
    settings = sheet.build()
    if sheet.problems:
        raise ConfigProblems(tuple(sheet.problems))
    return Loaded(settings, sheet.origins(), file)


def flat(settings: Settings) -> dict[str, Any]:
    """Every key with its effective value, in the order of the file: "policy.max_verb" -> "OBSERVE"."""
    found = {name: getattr(settings, name) for name in _TOP}
    for section in GROUPS:
        if section:
            found.update(_fields(section, getattr(settings, section)))
    for pool, policy in settings.pools.items():
        found.update(_fields(f"pool.{pool}.policy", policy))
    return found


def hasty(settings: Settings) -> list[str]:
    """Times in which nothing can be done, in words. A pool that only inherits one is not named."""
    values, found = flat(settings), []
    for key, value in values.items():
        rule = ".".join(key.split(".")[-2:])
        least, why = rules.SHORTEST.get(rule, (0.0, ""))
        if why and value < least and (key == rule or value != values[rule]):
            found.append(f"{key} ({value:g}) is shorter than {least:g} seconds: {why}")
    return found


def unkept(settings: Settings) -> list[str]:
    """What is said to be kept and is not, in words."""
    evidence, found = settings.evidence, list[str]()
    if settings.platform == "simulated":
        return found
    if settings.store == "memory":
        found.append("store is memory: every case, mark and limit is forgotten when the controller ends")
    if evidence.store != "folder" or evidence.claim:
        return found
    return [
        *found,
        "evidence.store is folder and evidence.claim names no PersistentVolumeClaim: what is collected before a "
        "treatment lies in a volume of the controller's pod, and a rollout of the controller loses it. Name a claim "
        "(evidence.claim of the chart) or set evidence.store to s3",
    ]


def _fields(section: str, group: Any) -> dict[str, Any]:
    return {f"{section}.{field.name}": getattr(group, field.name) for field in dataclasses.fields(group)}


# --- the sheet: values as they are filled in --------------------------------------------------------------------------


class _Sheet:
    """Starts as the defaults; every given setting is judged and written over them, or becomes a problem."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[ConfigError] = []
        self._values: Values = {section: _defaults(group) for section, group in GROUPS.items()}
        self._where: dict[str, str] = {}

    def problem(self, file: str, key: str, wrong: str, right: str) -> None:
        self.problems.append(ConfigError(file, key, wrong, right))

    def write(self, given: Given) -> None:
        values = self.section(given.section)
        group = Policy if given.section.startswith("pool.") else GROUPS[given.section]
        try:
            values[given.name] = rules.judge(group, given.name, given.value, values[given.name])
        except rules.Wrong as refused:
            self.problem(given.file, given.key, refused.wrong, refused.right)
        self._where[_dotted(given.section, given.name)] = given.where

    def section(self, name: str) -> dict[str, Any]:
        if name not in self._values:  # a pool begins as [policy] stands
            self._values[name] = dict(self._values["policy"])
            for key in self._values["policy"]:
                if base := self._where.get(f"policy.{key}"):
                    self._where[f"{name}.{key}"] = f"{base}, by [policy]"
        return self._values[name]

    def build(self) -> Settings:
        groups = {name: group(**self._values[name]) for name, group in GROUPS.items() if name}
        pools = {name[5:-7]: Policy(**values) for name, values in self._values.items() if name.startswith("pool.")}
        settings = Settings(**self._values[""], **groups, pools=pools)
        for key, wrong, right in _contradictions(settings):
            where = self._where.get(key, "default")
            self.problem(where if where.startswith("env") else self.file or "settings", key, wrong, right)
        return settings

    def origins(self) -> dict[str, str]:
        keys = [_dotted(section, name) for section, values in self._values.items() for name in values]
        return {key: self._where.get(key, "default") for key in keys}


def _defaults(group: type[Any]) -> dict[str, Any]:
    blank = group()
    names = _TOP if group is Settings else tuple(rules.hints(group))
    return {name: getattr(blank, name) for name in names}


def _dotted(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _contradictions(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """What is wrong only together."""
    loop = settings.controller
    if loop.idle_period_s < loop.period_s:
        yield (
            "controller.idle_period_s",
            f"{loop.idle_period_s:g} is shorter than controller.period_s ({loop.period_s:g})",
            "an idle loop sleeps at least as long as a busy one",
        )
    if settings.controller.heartbeat_s < settings.agent.check_interval_s:
        yield (
            "controller.heartbeat_s",
            f"{loop.heartbeat_s:g} is shorter than one cycle of the agent ({settings.agent.check_interval_s:g})",
            "every node would count as unseen between cycles: three cycles are usual",
        )
    if settings.ingest.listen and not settings.ingest.secret_file:
        yield (
            "ingest.secret_file",
            f"not set, though ingest.listen is {settings.ingest.listen!r}",
            "name a file with one secret a line: tokens are made and checked with it",
        )
    if loop.listen and loop.listen == loop.probe_listen and not loop.listen.endswith(":0"):
        yield (
            "controller.probe_listen",
            f"{loop.probe_listen!r}, which is controller.listen as well",
            "two doors need two addresses: the probes are answered whatever happens at the other one",
        )
    if settings.evidence.store == "s3" and not settings.evidence.bucket:
        yield ("evidence.bucket", "not set, though evidence.store is s3", "name the bucket that archives go to")
    if settings.ingest.key_file and not settings.ingest.cert_file:
        yield ("ingest.cert_file", "not set, though ingest.key_file is", "name the certificate that belongs to the key")


# --- the file ---------------------------------------------------------------------------------------------------------


def _read(path: Path) -> str:
    try:
        with atomic.named(path) as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise _single(path, "", "larger than 1 MB", "this does not look like a settings file: check the path")
        return data.decode("utf-8-sig")
    except OSError as error:
        right = "check the path; `sickbay config show` works without a file"
        raise _single(path, "", f"cannot be read: {error.strerror}", right) from error
    except UnicodeDecodeError as error:
        raise _single(path, f"byte {error.start}", "not UTF-8 text", "save it as UTF-8") from error


def _tree(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        wrong = re.sub(r" \(at .*\)$", "", str(error))
        right = 'one `key = value` a line; text in "quotes"; see https://toml.io'
        raise _single(file, f"line {found[1]}" if found else "at its end", f"not TOML: {wrong}", right) from error


def _single(file: str | Path, key: str, wrong: str, right: str) -> ConfigProblems:
    return ConfigProblems((ConfigError(str(file), key or "the file", wrong, right),))


def _from_file(tree: Mapping[str, Any], lines: Mapping[str, int], sheet: _Sheet) -> Iterator[Given]:
    for name, value in tree.items():
        if name in _TOP:
            yield _given(sheet.file, lines, "", name, value)
        elif name in GROUPS and name:
            yield from _section(name, value, lines, sheet)
        elif name == "pool":
            yield from _pools(value, lines, sheet)
        else:
            _unknown(sheet, lines, "", name)


def _section(section: str, table: object, lines: Mapping[str, int], sheet: _Sheet) -> Iterator[Given]:
    known = rules.hints(Policy if section.startswith("pool.") else GROUPS[section])
    for name, value in _inside(section, table, lines, sheet):
        if name in known:
            yield _given(sheet.file, lines, section, name, value)
        else:
            _unknown(sheet, lines, section, name)


def _pools(table: object, lines: Mapping[str, int], sheet: _Sheet) -> Iterator[Given]:
    for pool, inside in _inside("pool", table, lines, sheet):
        if not pool.strip():
            sheet.problem(sheet.file, _at("pool", lines), "a pool has no name", "write [pool.NAME.policy]")
            continue
        for name, policy in _inside(f"pool.{pool}", inside, lines, sheet):
            if name == "policy":
                yield from _section(f"pool.{pool}.policy", policy, lines, sheet)
            else:
                key = _at(f"pool.{pool}.{name}", lines)
                sheet.problem(sheet.file, key, "a pool has only a policy", f"write it under [pool.{pool}.policy]")


def _inside(section: str, table: object, lines: Mapping[str, int], sheet: _Sheet) -> list[tuple[str, Any]]:
    if isinstance(table, dict):
        return list(table.items())
    right = "write [pool.NAME.policy]" if section.startswith("pool") else f"write [{section}]"
    sheet.problem(sheet.file, _at(section, lines), f"{rules.shown(table)} is not a table", right)
    return []


def _given(file: str, lines: Mapping[str, int], section: str, name: str, value: object) -> Given:
    key = _dotted(section, name)
    line = _line(key, lines)
    where = f"{file or 'file'}:{line}" if line else file or "file"
    return Given(section, name, value, where, file or "settings", _at(key, lines))


def _unknown(sheet: _Sheet, lines: Mapping[str, int], section: str, name: str) -> None:
    group = Policy if section.startswith("pool.") else GROUPS[section]
    known = (*_TOP, *filter(None, GROUPS), "pool") if group is Settings else tuple(rules.hints(group))
    home = next((other for other, kind in GROUPS.items() if other and name in rules.hints(kind)), "")
    meant = rules.nearest(name, known)
    if home and home != section:
        right = f"it belongs in [{home}]"
    else:
        right = f'did you mean "{meant}"?' if meant else f"known here: {', '.join(known)}"
    sheet.problem(sheet.file, _at(_dotted(section, name), lines), "there is no such key", right)


# --- line numbers -----------------------------------------------------------------------------------------------------

_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")


def _lines(text: str) -> dict[str, int]:
    """Dotted key -> line. tomllib keeps none; this reads the simple shapes, and a key it misses has no line number."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = _bare(header[1])
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            found.setdefault(_dotted(section, _bare(key[1])), number)
    return found


def _bare(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", key))


def _line(key: str, lines: Mapping[str, int]) -> int:
    """Its own line, or that of the first key inside it (max_out.count = 3)."""
    return lines.get(key) or next((line for name, line in lines.items() if name.startswith(key + ".")), 0)


def _at(key: str, lines: Mapping[str, int]) -> str:
    line = _line(key, lines)
    return f"line {line}: {key}" if line else key
