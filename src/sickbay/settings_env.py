"""Settings from the environment: SICKBAY_<GROUP>__<KEY>, and the variable names of the original samples as aliases.

Called by settings_load with the environment it was given. It turns names into keys and text into values, and says which
names it could not understand; whether a value is a good one is for settings_rules. It must never read os.environ.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_origin

from sickbay import settings_rules as rules
from sickbay.settings import Limit, Policy

PREFIX = "SICKBAY_"
NOT_SETTINGS = frozenset({"SICKBAY_CONFIG", "SICKBAY_SHARED", "SICKBAY_SEED"})  # read elsewhere, by name

# The originals' names, from their scripts and ConfigMaps. An empty value means "not set", as it did there.
ALIASES: Mapping[str, str] = {
    "CLUSTER_NAME": "cluster",
    "ECS_CLUSTER_NAME": "cluster",
    "LOG_LEVEL": "log_level",
    "NODE_NAME": "agent.node_name",
    "MONITOR_INTERVAL": "agent.host_metrics_s",
    "CHECK_INTERVAL": "agent.check_interval_s",
    "CHECKS_LIGHTWEIGHT": "agent.light_checks",
    "CHECK_TIMEOUT": "agent.check_timeout_s",
    "DCGM_TIMEOUT": "agent.dcgm_timeout_s",
    "DCGM_L2_INTERVAL": "agent.dcgm_l2_interval_s",
    "DCGM_L4_TIMEOUT": "agent.dcgm_l4_timeout_s",
    "NCCL_TIMEOUT": "agent.nccl_timeout_s",
    "EFA_TEST_TIMEOUT": "agent.efa_timeout_s",
    "KERNEL_LOG_LINES": "agent.kernel_log_lines",
    "MAX_RETIRED_PAGES_SBE": "agent.max_retired_pages_sbe",
    "ENABLE_LABEL": "agent.label",
    "ENABLE_TAINT": "agent.taint",
    "WEBHOOK_URL": "notify.webhook_url",
    "SNS_TOPIC_ARN": "notify.sns_topic_arn",
    "SNS_ARN": "notify.sns_topic_arn",
}

# Originals that named the severity of whole groups of codes.
SEVERITY_ALIASES: Mapping[str, tuple[str, ...]] = {
    "NVLINK_DEFAULT": ("xid.74",),
    "NVLINK5_DEFAULT": tuple(f"xid.{code}" for code in range(144, 151)),
    "STRICT_PSHC": ("xid.165",),
}
_STRICT = {"1": "REPLACE", "0": ""}  # STRICT_PSHC is a switch; off means the catalog decides

_TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_LOG_LEVELS = {"WARN": "WARNING", "CRITICAL": "ERROR", "FATAL": "ERROR", "TRACE": "DEBUG"}


@dataclass(frozen=True, slots=True)
class Given:
    """One setting that somebody gave: which key, what, and who says so."""

    section: str  # "" for the top, "policy", "pool.NAME.policy", "jobs", ...
    name: str
    value: object
    where: str  # "sickbay.toml:12" or "environment NAME"
    file: str  # for error messages
    key: str  # as the person wrote it


@dataclass(frozen=True, slots=True)
class Stranger:
    """A variable that looks like ours and is not."""

    variable: str
    wrong: str
    right: str


Groups = Mapping[str, type[Any]]


def read(environ: Mapping[str, str], groups: Groups, pools: Mapping[str, object]) -> Iterator[Given | Stranger]:
    """Aliases first, so that a name of our own wins where both are set."""
    for name in sorted(environ.keys() & ALIASES.keys()):
        if environ[name].strip():
            yield _alias(name, environ[name].strip(), groups)
    for name in sorted(environ.keys() & SEVERITY_ALIASES.keys()):
        if severity := _severity(name, environ[name].strip()):
            table = dict.fromkeys(SEVERITY_ALIASES[name], severity)
            yield Given("", "severity_overrides", table, f"environment {name}", "environment", name)
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS and environ[name].strip():
            yield from _ours(name, environ[name].strip(), groups, pools)


def _alias(name: str, text: str, groups: Groups) -> Given:
    section, _, field = ALIASES[name].rpartition(".")
    value = _value(groups[section], field, text)
    if field == "log_level":
        value = _LOG_LEVELS.get(text.upper(), text.upper())
    return Given(section, field, value, f"environment {name}", "environment", name)


def _severity(name: str, text: str) -> str:
    return _STRICT.get(text, text) if name == "STRICT_PSHC" else text.upper()


def _ours(name: str, text: str, groups: Groups, pools: Mapping[str, object]) -> Iterator[Given | Stranger]:
    parts = name.removeprefix(PREFIX).lower().split("__")
    section, parts = _section(parts, groups, pools)
    if section is None:
        yield Stranger(name, f'there is no group "{parts[0].upper()}"', _known_groups(groups))
        return
    group = Policy if section.startswith("pool.") else groups[section]
    field = parts[0] if parts else ""
    if field not in rules.hints(group) or field in groups or field == "pools":
        yield from _stranger(name, section, field, group)
        return
    value = _value(group, field, text) if len(parts) == 1 else _leaf(group, field, parts[1], text)
    yield Given(section, field, value, f"environment {name}", "environment", name)


def _section(parts: list[str], groups: Groups, pools: Mapping[str, object]) -> tuple[str | None, list[str]]:
    if parts[0] == "pool" and len(parts) > 3 and parts[2] == "policy":
        named = {re.sub(r"[^a-z0-9]", "_", pool.lower()): pool for pool in pools}
        return f"pool.{named.get(parts[1], parts[1])}.policy", parts[3:]
    if len(parts) == 1 or (parts[0] in rules.hints(groups[""]) and parts[0] not in groups):
        return "", parts
    return (parts[0], parts[1:]) if parts[0] in groups else (None, parts)


def _stranger(name: str, section: str, field: str, group: type[Any]) -> Iterator[Stranger]:
    """At the top only what is nearly right is reported: Kubernetes sets SICKBAY_SERVICE_HOST for a Service's sake."""
    known = [key for key in rules.hints(group) if key != "pools"]
    meant = rules.nearest(field, known)
    prefix = PREFIX + (section.upper().replace(".", "__") + "__" if section else "")
    if section:
        right = f"did you mean {prefix}{meant.upper()}?" if meant else "`sickbay config show` lists every key"
        yield Stranger(name, "there is no such setting", right)
    elif meant and abs(len(meant) - len(field)) <= 2:
        yield Stranger(name, "there is no such setting", f"did you mean {prefix}{meant.upper()}?")


def _known_groups(groups: Groups) -> str:
    names = ", ".join(f"{PREFIX}{name.upper()}__KEY" for name in groups if name)
    return f"write {PREFIX}KEY, {names} or {PREFIX}POOL__NAME__POLICY__KEY"


# --- text to value ----------------------------------------------------------------------------------------------------


def _value(group: type[Any], field: str, text: str) -> object:
    hint = rules.hints(group)[field]
    if text[0] in "[{" and hint is not str:
        return _toml(text)
    if get_origin(hint) is tuple:
        apart = r"[,\s]+" if f"{group.__name__}.{field}" in rules.CHOICES else r"\s*,\s*"
        return [word for word in re.split(apart, text) if word]
    if hint is bool:
        return _TRUTH.get(text.lower(), text)
    return _number(text) if hint in (int, float, Limit) else text


def _leaf(group: type[Any], field: str, leaf: str, text: str) -> object:
    """SICKBAY_POLICY__MAX_OUT__COUNT, SICKBAY_POLICY__PER_WINDOW__REBOOT, SICKBAY_CEILINGS__WEBHOOK."""
    if rules.hints(group)[field] is Limit:
        return {leaf: _number(text)}
    if field == "ceilings":
        return {leaf: [word.upper() for word in re.split(r"[,\s]+", text) if word]}
    return {leaf.upper(): _number(text)}


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _toml(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
