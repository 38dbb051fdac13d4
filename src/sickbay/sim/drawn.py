"""Settings drawn by the seed: a third of the seeds run with the defaults, the others with up to four keys changed.

Every key of [policy], [jobs] and [controller] has a row with values as they would stand in a file, the ends of its
documented range among them (settings_rules.py; tests/sim/test_drawn.py holds both). Which keys meet is no chance: the
rows of `meetings` let every pair of keys meet, so some hundred seeds in a row cover all pairs. Used by sim/check.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

from sickbay.settings import LEVELS, ControllerSettings, JobPolicy, Policy, Settings
from sickbay.settings_rules import ACTS, judge

GROUPS: Mapping[str, type[Any]] = {"policy": Policy, "jobs": JobPolicy, "controller": ControllerSettings}
CHANGED = 4  # keys at most
YEAR_S = 31_536_000


def text(value: Any) -> str:
    """As in a settings file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{k} = {text(v)}' for k, v in value.items())} }}"
    return str(value)


# What breaks the brain today, by value, with the reason. Nobody draws it until it is mended; then its line goes.
_TOLD = "the simulated platform tells steps every 90 seconds: what is shorter calls every job stalled"
SPARED: Mapping[tuple[str, str], str] = {
    ("jobs.stall_s", "0.1"): _TOLD,
    ("jobs.stall_s", "30"): _TOLD,
}
NOT_DRAWN = dict.fromkeys(("controller.listen", "controller.probe_listen"), "an address to listen on decides nothing")

_WAIT = (0.1, 3600, 86_400)
_SHORT = (0.1, 30, 3600)
VALUES: Mapping[str, tuple[Any, ...]] = {
    "policy.max_verb": LEVELS,
    "policy.max_out": ("0%", 0, 1, "30%", "100%"),
    "policy.at_once": ("0%", 0, 1, "100%"),
    "policy.max_out_fleet": ("0%", 1, "60%", "100%"),
    "policy.max_out_rack": (0, 1, "100%"),
    "policy.max_out_domain": (0, 1, "100%"),
    "policy.per_window": (*({verb: most} for verb in ACTS for most in (0, 1)), {"REBOOT": 1_000_000}),
    "policy.window_s": (0.1, 600, YEAR_S),
    "policy.jobs_hurt_per_window": (0, 1, 1_000_000),
    "policy.approval": ([], *([verb] for verb in ACTS), list(ACTS)),
    "policy.windows": (["Sun 03:00-03:01"], ["16:00-18:00"], ["Mon-Tue 22:00-02:00", "Sat 00:00-23:59"]),
    "policy.settle_s": (0, 600),
    "policy.waiting_s": _WAIT,
    "policy.hold_s": _WAIT,
    "policy.checkpoint_s": (0.1, 3600),
    "policy.cordon_s": _SHORT,
    "policy.drain_s": _SHORT,
    "policy.collect_s": _SHORT,
    "policy.queued_s": _WAIT,
    "policy.verify_s": _SHORT,
    "policy.return_s": _SHORT,
    "policy.cancel_s": _SHORT,
    "policy.suspect_s": _SHORT,
    "policy.unreachable_s": _SHORT,
    "policy.quiet_s": (0, 3600, 86_400),
    "policy.flap_window_s": (0.1, 3600, YEAR_S),
    "policy.flaps_accepted": (0, 1000),
    "policy.relapse_s": (0.1, 3600, YEAR_S),
    "policy.breaker_failures": (1, 1_000_000),
    "policy.breaker_quiet_s": (0.1, 14_400),
    "policy.evict": (True, False),
    "jobs.enabled": (True, False),
    "jobs.stall_s": _SHORT,
    "jobs.stall_steps": (1, 10_000),
    "jobs.stalled_s": _SHORT,
    "jobs.stopping_s": _SHORT,
    "jobs.examining_s": _SHORT,
    "jobs.capacity_s": (0.1, 14_400),
    "jobs.restarting_s": (0.1, 3600),
    "jobs.arrival_s": (0.1, 3600),
    "jobs.arrivals": (0, 1_000_000),
    "jobs.barren_limit": (1, 2, 1000),
    "controller.period_s": (1, 300),
    "controller.idle_period_s": (5, 3600),
    "controller.workers": (1, 1024),
    "controller.notice_s": (0, 3600),
    "controller.common_cause_nodes": (2, 1_000_000),
    "controller.common_cause_s": (0.1, YEAR_S),
    "controller.common_factor_s": (0.1, YEAR_S),
    "controller.common_share": (0, 1),
    "controller.silent_share": (0, 1),
    "controller.absent_nodes": (2, 3, 1_000_000),
    "controller.absent_share": (0, 0.05, 1),
    "controller.absent_factor_share": (0, 0.25, 1),
    "controller.company_s": (0.1, 600),
    "controller.heartbeat_s": (0.1, YEAR_S),
    "controller.archive_days": (1, 36_500),
}
# Ends of a range that cost a seed more than its second (a pass each twentieth of a second, a wait of a year): `make
# soak` plays them (`sickbay sim check --soak`).
LONG: Mapping[str, tuple[Any, ...]] = {
    **{f"policy.{name}": (YEAR_S,) for name in (
        "waiting_s", "hold_s", "checkpoint_s", "cordon_s", "drain_s", "collect_s", "queued_s", "verify_s", "return_s",
        "cancel_s", "suspect_s", "unreachable_s", "quiet_s", "breaker_quiet_s")},
    **{f"jobs.{name}": (YEAR_S,) for name in (
        "stall_s", "stalled_s", "arrival_s", "stopping_s", "examining_s", "capacity_s", "restarting_s")},
    "controller.company_s": (YEAR_S,),
    "controller.period_s": (0.05,),
    "controller.idle_period_s": (0.05,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    settings: Settings
    words: tuple[str, ...] = ()  # what differs from the defaults, as a settings file would have it


@cache
def meetings() -> tuple[tuple[str, ...], ...]:
    """Keys, four at a time, until every two of them have met. Greedy: the key that meets most new ones comes next."""
    keys = sorted(VALUES)
    open_pairs = {frozenset(pair) for pair in combinations(keys, 2)}
    rows = []
    while open_pairs:
        row = sorted(min(open_pairs, key=sorted))
        while len(row) < CHANGED:
            rest = [key for key in keys if key not in row]
            row.append(max(rest, key=lambda key: sum(frozenset((key, old)) in open_pairs for old in row)))
        open_pairs -= {frozenset(pair) for pair in combinations(row, 2)}
        rows.append(tuple(row))
    Random("meetings").shuffle(rows)
    return tuple(rows)


def draw(seed: int, pools: Sequence[str] = ("default",), *, soak: bool = False) -> Drawn:
    rng = Random(f"drawn/{seed}")
    if seed % 3 == 0:
        return _defaults(rng)
    number = seed // 3 * 2 + seed % 3 - 1  # among the seeds that change something
    cycle, at = divmod(number, len(meetings()))
    drawn = _brisk(rng) if rng.random() < 0.5 else _plain(rng)
    for key in meetings()[at]:
        values = (*VALUES[key], *(LONG.get(key, ()) if soak else ()))
        turn = sum(key in row for row in meetings()[:at]) + cycle
        drawn = _change(drawn, key, values[turn % len(values)], _pool(rng, pools))
    return drawn


def _defaults(rng: Random) -> Drawn:
    """As installed, but allowed to act: a fresh install only observes."""
    top = rng.choice(("REPLACE",) * 5 + LEVELS)
    return _change(Drawn(Settings()), "policy.max_verb", top, "")


def _plain(rng: Random) -> Drawn:
    return _change(Drawn(Settings()), "policy.max_verb", "REPLACE", "")


def _brisk(rng: Random) -> Drawn:
    """Wide limits and short waits: much happens, and a day sees the end of it."""
    drawn = _plain(rng)
    for key, value in (
        ("policy.max_out", {"percent": rng.choice((15, 30, 60)), "at_least": 2}),
        ("policy.max_out_fleet", {"percent": 60, "at_least": 2}),
        ("policy.max_out_rack", {"percent": 75, "at_least": 1}),
        ("policy.at_once", "20%"),
        ("policy.approval", rng.choice(([], ["REPLACE"]))),
        ("policy.breaker_failures", rng.choice((3, 1000))),
        ("policy.waiting_s", rng.choice((3600, 14_400))),
        ("policy.quiet_s", 7200),
        ("policy.hold_s", 14_400),
        ("policy.queued_s", 14_400),
        ("jobs.barren_limit", rng.choice((2, 3))),
    ):
        drawn = _change(drawn, key, value, "")
    return drawn


def _pool(rng: Random, pools: Sequence[str]) -> str:
    """Now and then a key is changed for one pool only."""
    return rng.choice(sorted(pools)) if rng.random() < 0.25 else ""


def _change(drawn: Drawn, key: str, value: Any, pool: str) -> Drawn:
    """One key, for all pools or for one, judged as a file's value would be."""
    table, _, name = key.partition(".")
    pool = pool if table == "policy" else ""
    settings = drawn.settings
    if (key, text(value)) in SPARED:
        return drawn
    group = settings.policy_for(pool) if pool else getattr(settings, table)
    group = replace(group, **{name: judge(GROUPS[table], name, value, getattr(group, name))})
    if pool:
        settings = replace(settings, pools={**settings.pools, pool: group})
    else:
        changed: dict[str, Any] = {table: group, "pools": _spread(settings, table, name, group)}
        settings = replace(settings, **changed)
    shown = f"{f'pool.{pool}.' if pool else ''}{key} = {text(value)}"
    return Drawn(settings, (*(w for w in drawn.words if w.partition(" = ")[0] != shown.partition(" = ")[0]), shown))


def _spread(settings: Settings, table: str, name: str, group: Any) -> Mapping[str, Policy]:
    """What is changed for all pools counts in those that have a table of their own too."""
    if table != "policy":
        return settings.pools
    return {pool: replace(policy, **{name: getattr(group, name)}) for pool, policy in settings.pools.items()}


# --- how long the calm must last --------------------------------------------------------------------------------------

CHAIN = (
    "suspect_s",
    "waiting_s",
    "cordon_s",
    "checkpoint_s",
    "drain_s",
    "collect_s",
    "queued_s",
    "verify_s",
    "return_s",
)
REST_S = 4 * 3600.0  # treatments themselves, and what follows from the first case
LONGEST_CALM_S, SOAKED_CALM_S = 16 * 3600.0, 60 * 3600.0
QUICK_S = 1.0  # a pass more often than that: sixty hours of twenty a second cost minutes and show nothing more


def calm_s(settings: Settings, *, soak: bool = False) -> float:
    """Long enough for one case to run into every deadline on its way. Waits of a day and more are sat out by a soak
    only; elsewhere the judge lets a case wait as long as its deadline is ahead."""
    policies = (settings.policy, *settings.pools.values())
    chain: float = max(sum(getattr(policy, name) for name in CHAIN) + policy.quiet_s for policy in policies)
    is_quick = min(settings.controller.period_s, settings.controller.idle_period_s) < QUICK_S
    return min(SOAKED_CALM_S if soak and not is_quick else LONGEST_CALM_S, chain + REST_S)
