"""What a setting may be: its type, its range, its allowed words. One value in, one good value or one sentence out.

Called by settings_load for every value from a file or the environment, and by settings_doc for the tables. The rules
are data: a new setting needs a row only where its name and type do not say it already. It must never read a file.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, NoReturn, get_origin, get_type_hints

from sickbay.model import Severity, Verb
from sickbay.settings import CEILINGS, LEVELS, Limit

SUITE = ("nvidia-smi", "dcgm-l2", "efa-enumeration", "topology", "dcgm-l4", "nccl-allreduce", "efa-loopback")
CHECKS = (  # tests/checks/test_registry.py: the same names as checks.ALL, which settings may not import
    *SUITE, "kernel-log", "dcgm-health", "nvlink-errors", "gpu-slowdown", "gpu-processes", "pcie", "infiniband",
    "efa-counters", "peermem", "stuck-processes", "local-disks", "disk-space", "shared-storage", "host-memory", "clock",
    "instance-events", "gpu-matmul", "gpu-speed",
)  # fmt: skip
PUBLISHERS = ("kubernetes", "http", "stdout", "textfile", "emf")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PORT = r"(?:6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]?\d{1,4})"
_LISTEN = (rf"\S*:{_PORT}", 'an address and a port such as "0.0.0.0:9464"')
ACTS = LEVELS[1:]  # what may be counted or need approval

# Allowed words, by "Group.field" (for tuples and mappings: of each word in it).
CHOICES: Mapping[str, tuple[str, ...]] = {
    "Settings.store": ("sqlite", "kubernetes", "memory"),
    "Settings.platform": ("simulated", "kubernetes"),
    "Settings.log_level": ("DEBUG", "INFO", "WARNING", "ERROR"),
    "Settings.severity_overrides": tuple(severity.name for severity in Severity),
    "Settings.ceilings": tuple(Verb),
    "Policy.max_verb": LEVELS,
    "Policy.approval": ACTS,
    "Policy.per_window": ACTS,
    "SqliteSettings.synchronous": ("FULL", "NORMAL", "EXTRA", "OFF"),
    "AgentSettings.light_checks": CHECKS,
    "AgentSettings.mode": ("managed", "standalone"),
    "AgentSettings.publishers": PUBLISHERS,
    "AgentSettings.condition_owner": ("agent", "npd"),
    "EvidenceSettings.store": ("folder", "s3", "none"),
    "KubernetesSettings.drain": ("gpu", "all"),
    "KubernetesSettings.machines": ("auto", "ec2", "node-job", "none"),
    "KubernetesSettings.checkpoint": ("annotation", "signal", "hook"),
}

# Other spellings that are understood, most of them the originals'.
SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "Settings.severity_overrides": {"ISOLATE": "REPLACE", "PASS": "NONE"},
    "AgentSettings.light_checks": {str(number): name for number, name in enumerate(SUITE)},
}

# Smallest and largest, where the convention of `_range` does not fit.
RANGES: Mapping[str, tuple[float, float]] = {
    "Limit.percent": (0, 100),
    "Limit.at_least": (0, 1_000_000),
    "Limit.count": (0, 1_000_000),
    "Policy.flaps_accepted": (0, 1000),
    "Policy.jobs_hurt_per_window": (0, 1_000_000),
    "Policy.per_window": (0, 1_000_000),
    "Policy.breaker_failures": (1, 1_000_000),
    "Policy.settle_s": (0, 600),
    "Policy.quiet_s": (0, 31_536_000),
    "JobPolicy.stall_steps": (1, 10_000),
    "JobPolicy.barren_limit": (1, 1000),
    "ControllerSettings.period_s": (0.05, 300),
    "ControllerSettings.idle_period_s": (0.05, 3600),
    "ControllerSettings.notice_s": (0, 3600),
    "ControllerSettings.archive_days": (1, 36_500),
    "ControllerSettings.workers": (1, 1024),
    "ControllerSettings.common_cause_nodes": (2, 1_000_000),
    "ControllerSettings.absent_nodes": (2, 1_000_000),
    "SqliteSettings.busy_s": (0, 300),
    "IngestSettings.connections_per_source": (1, 2_048),
    "AgentSettings.check_interval_s": (5, 86_400),
    "AgentSettings.kernel_log_lines": (0, 1_000_000),
    "AgentSettings.max_retired_pages_sbe": (0, 64),
    "AgentSettings.spool_mb": (1, 4_096),
    "AgentSettings.host_metrics_s": (1, 86_400),
    "EvidenceSettings.archive_mb": (0.1, 64),
    "EvidenceSettings.total_mb": (1, 10_000_000),
    "EvidenceSettings.keep_days": (1, 36_500),
    "KubernetesSettings.sweep_at_once": (1, 1_000),
    "KubernetesSettings.sweep_max": (1, 100_000),
    "KubernetesSettings.lease_s": (3, 300),
}

# Allowed, as trials and tests want it, and of no use to a cluster: less than so many seconds, and why.
_PLACE = "a case asks for its place once a minute, so its time is over before it asks again"
_GRACE = "pods have 30 s to end, by Kubernetes' own default"
SHORTEST: Mapping[str, tuple[float, str]] = {
    "policy.waiting_s": (60, _PLACE),
    "policy.queued_s": (60, _PLACE),
    "policy.drain_s": (30, _GRACE),
    "jobs.stopping_s": (30, _GRACE),
    "jobs.restarting_s": (
        60,
        "hardly a job pulls its image, begins and makes a step in that time",
    ),
}

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = "(?:" + "|".join(DAYS) + ")"
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
PATTERNS: Mapping[str, tuple[str, str]] = {
    "Policy.windows": (
        rf"(?:{_DAY}(?:-{_DAY})? )?{_TIME}-(?:{_TIME}|24:00)",
        'a window such as "Mon-Fri 02:00-05:00", in UTC',
    ),
    "Settings.cluster": (r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,252}", 'a name such as "east-1", without spaces'),
    "Settings.data_dir": (r"[^\0]+", "a folder"),
    "AgentSettings.ingest_url": (r"https?://[^\s/]+\S*", 'an address such as "https://sickbay.example.com:8443"'),
    "AgentSettings.listen": _LISTEN,
    "ControllerSettings.listen": _LISTEN,
    "ControllerSettings.probe_listen": _LISTEN,
    "AgentSettings.host_root": (r"/[^\0]*", 'a folder from the root on, such as "/host"'),
    "IngestSettings.listen": _LISTEN,
    "KubernetesSettings.namespace": (_LABEL, 'a namespace such as "sickbay"'),
    "KubernetesSettings.prefix": (rf"{_LABEL}(?:\.{_LABEL})*", 'a DNS name such as "gpu-healthcheck.aws-samples.io"'),
    "KubernetesSettings.gpu_selector": (r"\S+", 'a label selector such as "nvidia.com/gpu.present=true"'),
    "KubernetesSettings.conditions": (
        r"[A-Za-z][A-Za-z0-9./_-]*(?:=(?:True|False|Unknown),\d+(?:s|m|h))?",
        'such as "GPUProblem=True,60s"',
    ),
    "KubernetesSettings.image": (r"\S+", "an image, best by its digest"),
    "EvidenceSettings.bucket": (r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", 'a bucket such as "acme-sickbay-evidence"'),
    "EvidenceSettings.endpoint": (r"https?://[^\s/]+\S*", 'an address such as "https://s3.example.com"'),
    "KubernetesSettings.aws_endpoint": (r"https?://[^\s/]+\S*", 'an address such as "https://vpce.example.com"'),
    "NotifySettings.webhook_url": (r"https?://[^\s/]+\S*", 'an address such as "https://chat.example.com/hook"'),
    "NotifySettings.sns_topic_arn": (r"arn:aws[a-z-]*:sns:\S+:\d+:\S+", 'such as "arn:aws:sns:REGION:ACCOUNT:TOPIC"'),
}
MAY_BE_EMPTY = frozenset(
    {
        "NotifySettings.webhook_url",
        "NotifySettings.sns_topic_arn",
        "AgentSettings.ingest_url",
        "AgentSettings.listen",
        "ControllerSettings.listen",
        "ControllerSettings.probe_listen",
        "IngestSettings.listen",
        "EvidenceSettings.bucket",
        "EvidenceSettings.endpoint",
        "KubernetesSettings.aws_endpoint",
    }
)
CODE = re.compile(r"[a-z][a-z0-9_-]*(\.[A-Za-z0-9_-]+)+")

SECRET = frozenset({"notify.webhook_url"})  # shown with its host only


class Wrong(Exception):
    """One value that will not do: what is wrong, and what would be right."""

    def __init__(self, wrong: str, right: str) -> None:
        self.wrong, self.right = wrong, right
        super().__init__(f"{wrong}; {right}")


@cache
def _hints(group: Any) -> Mapping[str, Any]:
    return get_type_hints(group)


def hints(group: Any) -> Mapping[str, Any]:
    """field -> type. (A door of its own, because mypy holds that a class is not hashable.)"""
    return _hints(group)


def judge(group: type[Any], name: str, value: object, now: Any) -> Any:
    """`value`, as the field `name` of `group` wants it; `now` is what it would replace. Raises Wrong."""
    rule, hint = f"{group.__name__}.{name}", hints(group)[name]
    if hint is Limit:
        return _limit(value, now)
    if get_origin(hint) is tuple:
        return _words(rule, value)
    if get_origin(hint) is Mapping:
        return _MAPPINGS[rule](rule, value, now)
    return _JUDGES[hint](rule, value)


def nearest(word: str, known: Iterable[str]) -> str:
    """What was probably meant, or ""."""
    plain = {name.casefold().replace("-", "_"): name for name in known}
    close = get_close_matches(word.casefold().replace("-", "_"), plain, n=1, cutoff=0.6)
    return plain[close[0]] if close else ""


def one_of(words: Sequence[str]) -> str:
    return f"one of {', '.join(words)}" if len(words) > 1 else f'only "{words[0]}" exists so far'


def range_of(rule: str, hint: object) -> tuple[float, float] | None:
    if rule in RANGES:
        return RANGES[rule]
    if rule.endswith("_s"):
        return (0.1, 31_536_000)  # up to a year
    if rule.endswith("_share"):
        return (0, 1)
    return (0, 1_000_000) if hint in (int, float) else None


# --- by type ----------------------------------------------------------------------------------------------------------


def _refuse(value: object, right: str) -> NoReturn:
    raise Wrong(
        f"{shown(value)} is {_kind(value)}" if not isinstance(value, str) else f"{shown(value)} will not do", right
    )


def shown(value: object) -> str:
    """A value as it would stand in the file, short."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= 80 else text[:79] + "…"


def _kind(value: object) -> str:
    names = {bool: "a truth value", int: "a whole number", float: "a number", list: "a list", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")


def _truth(rule: str, value: object) -> bool:
    if not isinstance(value, bool):
        _refuse(value, "write true or false")
    return value


def _whole(rule: str, value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(value, f"write a whole number, {_span(rule, int)}")
    return int(_within(rule, value, int))


def _number(rule: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(value, f"write a number, {_span(rule, float)}")
    if not math.isfinite(value):
        raise Wrong(f"{shown(value)} is not finite", f"write a number, {_span(rule, float)}")
    return float(_within(rule, value, float))


def _within(rule: str, value: float, hint: object) -> float:
    low, high = range_of(rule, hint) or (-math.inf, math.inf)
    if not low <= value <= high:
        raise Wrong(f"{shown(value)} is too {'small' if value < low else 'large'}", f"write {_span(rule, hint)}")
    return value


def _span(rule: str, hint: object) -> str:
    low, high = range_of(rule, hint) or (-math.inf, math.inf)
    unit = " seconds" if rule.endswith("_s") else ""
    return f"{low:,g} to {high:,.0f}{unit}" if high >= 10 else f"{low:g} to {high:g}{unit}"


def _word(rule: str, value: object) -> str:
    if rule in CHOICES:
        return _choice(rule, value)
    if not isinstance(value, str):
        _refuse(value, 'write text in quotes, "like this"')
    if rule in PATTERNS and not (value == "" and rule in MAY_BE_EMPTY):
        _matching(rule, value)
    return value


def _matching(rule: str, value: str) -> None:
    pattern, right = PATTERNS[rule]
    if not re.fullmatch(pattern, value):
        raise Wrong(f"{shown(value)} will not do", f"write {right}")
    if rule == "Policy.windows":
        _lasting(value)


def _lasting(window: str) -> None:
    days, begin, end = window[:-11], window[-11:-6], window[-5:]
    if begin == end:
        raise Wrong(
            f"{shown(window)} ends when it begins: nobody can tell whether it is empty or a whole day",
            f'write "{days}00:00-24:00" for the whole day, or a later end',
        )


def _choice(rule: str, value: object) -> str:
    words = CHOICES[rule]
    text = SPELLINGS.get(rule, {}).get(str(value).upper(), value)
    if isinstance(text, str) and text in words:
        return str(text)
    meant = nearest(str(value), words)
    raise Wrong(f"{shown(value)} is not known", (f'did you mean "{meant}"? ' if meant else "write ") + one_of(words))


def _words(rule: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | frozenset):
        _refuse(value, 'write a list, ["like", "this"]')
    return tuple(dict.fromkeys(_word(rule, item) for item in value))


_JUDGES: Mapping[Any, Callable[[str, object], Any]] = {bool: _truth, int: _whole, float: _number, str: _word}


# --- limits and tables ------------------------------------------------------------------------------------------------

_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


def _limit(value: object, now: Limit) -> Limit:
    """4, "10%", or a table with any of count, percent, at_least; what a table leaves out stays as it was."""
    if isinstance(value, Limit):
        return value
    if isinstance(value, dict):
        return dataclasses.replace(now, **_limit_fields(value))
    if isinstance(value, str) and (share := _SHARE.fullmatch(value)):
        return Limit(percent=_number("Limit.percent", float(share[1])))
    if isinstance(value, int) and not isinstance(value, bool):
        return Limit(count=_whole("Limit.count", value), at_least=0)
    _refuse(value, 'write a number of nodes (4), a share ("10%"), or { count = 4, percent = 10, at_least = 1 }')


def _limit_fields(table: Mapping[str, object]) -> dict[str, Any]:
    known = hints(Limit)
    for name in table:
        if name not in known:
            raise Wrong(f'a limit has no "{name}"', f"it has {', '.join(known)}")
    return {name: judge(Limit, name, value, None) for name, value in table.items()}


def _per_window(rule: str, value: object, now: Mapping[str, int]) -> dict[str, int]:
    given = _table(value, "{ REBOOT = 10, REPLACE = 2 }")
    return {**now, **{_choice(rule, verb): _whole(rule, count) for verb, count in given.items()}}


def _ceilings(rule: str, value: object, now: Mapping[str, frozenset[Verb]]) -> dict[str, frozenset[Verb]]:
    given = _table(value, '{ webhook = ["CORDON", "VERIFY"] }')
    for source in given:
        if source not in CEILINGS:
            meant = nearest(source, CEILINGS)
            hint = f'did you mean "{meant}"? ' if meant else "write "
            raise Wrong(f'there is no source "{source}"', hint + one_of(tuple(CEILINGS)))
    return {**now, **{source: frozenset(map(Verb, _words(rule, verbs))) for source, verbs in given.items()}}


def _overrides(rule: str, value: object, now: Mapping[str, str]) -> dict[str, str]:
    given = _flat(_table(value, '{ "xid.94" = "RESET" }'))
    for code in given:
        if not CODE.fullmatch(code):
            raise Wrong(f'"{code}" is no code', 'write one such as "xid.94" or "dcgm.DCGM_FR_ROW_REMAP_FAILURE"')
    return {**now, **{code: _choice(rule, severity) for code, severity in given.items()}}


def _flat(table: Mapping[str, object], before: str = "") -> dict[str, object]:
    """xid.94 without its quotes is a table in a table: take it as it was meant."""
    found: dict[str, object] = {}
    for name, value in table.items():
        found.update(_flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value})
    return found


def _table(value: object, example: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        _refuse(value, f"write a table, {example}")
    return value


_MAPPINGS: Mapping[str, Callable[[str, object, Any], Any]] = {
    "Policy.per_window": _per_window,
    "Settings.ceilings": _ceilings,
    "Settings.severity_overrides": _overrides,
}
