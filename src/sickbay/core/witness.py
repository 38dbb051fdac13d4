"""How much a source's word may cause, in whoever's case it is said: rungs, haste and severity within its own ceiling.

Called by core/triage.py and core/turn.py. A ceiling (settings.ceilings) is the set of verbs a source
may cause; without this file it would leak by merging, for a case may use what any of its sources may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from sickbay.model import TREATMENTS, Diagnosis, Finding, Latch, Severity, Verb, When

Ceilings = Mapping[str, frozenset[Verb]]

_FORCE = {verb: 1 << n for n, verb in enumerate(Verb)}  # verbs are in the order of force: the strongest decides
_MOST = {Verb.RESET_GPU: Severity.RESET, Verb.REBOOT: Severity.REBOOT, Verb.POWER_CYCLE: Severity.REBOOT,
         Verb.REPLACE: Severity.REPLACE}  # fmt: skip


def weight(source: str, ceilings: Ceilings) -> int:
    """Of two witnesses the one who may cause the stronger thing is the stronger one."""
    return _force(ceilings.get(source, frozenset()))


@cache
def _force(verbs: frozenset[Verb]) -> int:
    return sum(_FORCE[verb] for verb in verbs)


def may_treat(source: str, ceilings: Ceilings) -> bool:
    return bool(ceilings.get(source, frozenset()) & frozenset(TREATMENTS))


def bounded(d: Diagnosis, ceilings: Ceilings) -> Diagnosis:
    """As grave and as urgent as its source may make it: who may not have a node drained cannot say that it must be."""
    ceiling = ceilings.get(d.source, frozenset())
    most = max((_MOST[verb] for verb in ceiling & frozenset(TREATMENTS)), default=Severity.MONITOR)
    when = d.when if Verb.DRAIN in ceiling else When.IDLE
    return replace(d, severity=min(d.severity, most), when=when)


def groups(findings: Iterable[Finding], ceilings: Ceilings) -> list[list[Finding]]:
    """By source, the strongest first: each is read by itself, so that nobody's word changes another's meaning."""
    by_source: dict[str, list[Finding]] = {}
    for finding in findings:
        by_source.setdefault(finding.source, []).append(finding)
    return [by_source[source] for source in sorted(by_source, key=lambda s: (-weight(s, ceilings), s))]


def at_least(findings: Iterable[Finding], source: str, ceilings: Ceilings) -> list[Finding]:
    """What witnesses as strong as this one say."""
    least = weight(source, ceilings)
    return [f for f in findings if weight(f.source, ceilings) >= least]


def outranks(latch: Latch, source: str, ceilings: Ceilings) -> bool:
    """A verdict keeps its strongest witness: a weaker one's repeat neither renews it nor takes it over."""
    return weight(latch.source, ceilings) > weight(source, ceilings)
