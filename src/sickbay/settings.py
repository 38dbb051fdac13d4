"""Settings: frozen groups, validated once at start. Loading (TOML plus environment) lives in `settings_load`.

Everything a person may tune is here with its unit, its default and why that default. Nothing else reads the environment.
Core gets the narrowest slice: a Policy for one pool, never Settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sickbay.model import Verb

# How far `policy.max_verb` lets us go, weakest first. A fresh install only observes.
LEVELS = ("OBSERVE", "CORDON", "DRAIN", "RESET_GPU", "REBOOT", "POWER_CYCLE", "REPLACE")

ALL_VERBS = frozenset(Verb)

# Who may cause what (plan, section 6). A source that is not listed may cause nothing.
CEILINGS: Mapping[str, frozenset[Verb]] = {
    "agent": ALL_VERBS,
    "monitor": ALL_VERBS,
    "operator": ALL_VERBS,
    "condition": frozenset({Verb.CORDON, Verb.DRAIN, Verb.VERIFY}),
    "alertmanager": frozenset({Verb.CORDON, Verb.VERIFY}),
    "webhook": frozenset({Verb.CORDON, Verb.VERIFY}),
    "llm": frozenset({Verb.CORDON, Verb.VERIFY}),
    "job": frozenset(),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` nodes and at most `percent` of the pool; the smaller counts, but never below `at_least`."""

    count: int = 1_000_000
    percent: float = 100.0
    at_least: int = 1


@dataclass(frozen=True, slots=True)
class Policy:
    """What we may do to the nodes of one pool. Every key can be overridden per pool."""

    max_verb: str = "OBSERVE"
    """How far we may go: one of LEVELS. OBSERVE by default: trust is earned rung by rung."""
    max_out: Limit = Limit(percent=10.0, at_least=2)
    """Nodes out of service at once: our cordons, ESCALATED, NotReady and others' cordons together."""
    at_once: Limit = Limit(percent=5.0, at_least=1)
    """Nodes treated at the same time."""
    max_out_fleet: Limit = Limit(percent=10.0, at_least=2)
    max_out_rack: Limit = Limit(percent=50.0, at_least=2)
    max_out_domain: Limit = Limit(percent=50.0, at_least=1)
    per_window: Mapping[str, int] = field(
        default_factory=lambda: {"CORDON": 20, "RESET_GPU": 20, "REBOOT": 10, "POWER_CYCLE": 6, "REPLACE": 4}
    )
    """Grants per pool in `window_s`, per verb; fewer for the rungs that cost more."""
    window_s: float = 3600.0
    jobs_hurt_per_window: int = 8
    """Running jobs that our drains may stop in `window_s`."""
    approval: tuple[str, ...] = ("REPLACE",)
    """Verbs that wait for `sickbay case approve`."""
    windows: tuple[str, ...] = ()
    """Maintenance windows in UTC, "Mon-Fri 02:00-05:00"; empty = always. Only `idle` faults wait for them."""
    settle_s: float = 10.0
    """XIDs arrive in families: drain and the choice of rung wait this long after the newest finding."""
    waiting_s: float = 86_400.0
    hold_s: float = 604_800.0
    """Longest wait in HOLDING for a job to end (idle faults) before a person is asked."""
    checkpoint_s: float = 600.0
    """Longest wait for a newer checkpoint before the drain goes ahead."""
    cordon_s: float = 120.0
    drain_s: float = 1_800.0
    collect_s: float = 300.0
    queued_s: float = 86_400.0
    verify_s: float = 1_800.0
    return_s: float = 600.0
    cancel_s: float = 3_600.0
    suspect_s: float = 900.0
    unreachable_s: float = 300.0
    """A node not ready this long will not answer a drain."""
    quiet_s: float = 14_400.0
    """No new case for the same fault after a person's abort, a deferral or a time-out."""
    flap_window_s: float = 86_400.0
    flaps_accepted: int = 2
    relapse_s: float = 604_800.0
    breaker_failures: int = 5
    """Cases escalated in `window_s` that stop all new disruption in the fleet."""
    breaker_quiet_s: float = 3_600.0
    evict: bool = True
    """May a drain evict work? False: wait until the node is empty."""


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """How hurt jobs are brought back."""

    enabled: bool = True
    stall_s: float = 300.0
    stall_steps: float = 5.0
    """Stalled: no step for max(stall_s, stall_steps x median step)."""
    stalled_s: float = 60.0
    stopping_s: float = 300.0
    examining_s: float = 120.0
    capacity_s: float = 3_600.0
    restarting_s: float = 900.0
    barren_limit: int = 3
    """Restarts in a row without a new complete checkpoint before we stop and tell the owner."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    period_s: float = 10.0
    """Longest sleep while a case is open: watch time advances by at most two of these per pass."""
    idle_period_s: float = 60.0
    workers: int = 16
    notice_s: float = 5.0
    common_cause_nodes: int = 3
    common_cause_s: float = 60.0
    common_factor_s: float = 600.0
    common_share: float = 0.25
    silent_share: float = 0.10
    heartbeat_s: float = 900.0
    """Three missed heartbeats: we cannot see this node."""


@dataclass(frozen=True, slots=True)
class Settings:
    cluster: str = "default"
    data_dir: str = "~/.local/share/sickbay"
    store: str = "sqlite"
    platform: str = "simulated"
    policy: Policy = Policy()
    pools: Mapping[str, Policy] = field(default_factory=dict)
    jobs: JobPolicy = JobPolicy()
    controller: ControllerSettings = ControllerSettings()
    ceilings: Mapping[str, frozenset[Verb]] = field(default_factory=lambda: dict(CEILINGS))
    severity_overrides: Mapping[str, str] = field(default_factory=dict)
    """code -> severity, e.g. "xid.94" = "RESET"."""

    def policy_for(self, pool: str) -> Policy:
        return self.pools.get(pool, self.policy)
