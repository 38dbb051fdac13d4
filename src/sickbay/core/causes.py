"""Common cause: the same fault on several nodes that share a job, a driver, an image, a rack or a switch is one case
about that factor, and no node is treated for it.

A bad driver once made a fleet report NVLink down after boot and an automaton rebooted 214 of 288 nodes for it
(NVSentinel, reference/nvsentinel.md). Called by controller/desk.py with recent sightings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

from sickbay.core.moment import how_long
from sickbay.model import Case, Diagnosis, Entry, Notice, Phase, Place, Plan, Severity, Sighting, Verb, When
from sickbay.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class Cause:
    factor: str  # "driver=570.12", "rack=r7", "job=llama"
    fault: str
    nodes: tuple[str, ...]
    why: str


def find(
    sightings: Iterable[Sighting], members: Mapping[str, int], limits: ControllerSettings, now: float
) -> Iterator[Cause]:
    """For each fault the most telling factor that enough of its sightings share. `members`: nodes per factor."""
    by_fault: dict[str, list[Sighting]] = defaultdict(list)
    for s in sightings:
        by_fault[s.fault].append(s)
    for fault, seen in sorted(by_fault.items()):
        cause = _of_one_job(fault, seen, limits, now) or _of_one_factor(fault, seen, members, limits, now)
        if cause is not None:
            yield cause


def _of_one_job(fault: str, seen: list[Sighting], limits: ControllerSettings, now: float) -> Cause | None:
    nodes: dict[str, set[str]] = defaultdict(set)
    for s in seen:
        if now - s.seen <= limits.common_cause_s:
            for job in s.jobs:
                nodes[job].add(s.node)
    for job, hit in sorted(nodes.items()):
        if len(hit) >= limits.common_cause_nodes:
            why = f"{len(hit)} nodes of job {job} show it within {limits.common_cause_s:.0f} seconds"
            return Cause(f"job={job}", fault, tuple(sorted(hit)), why)
    return None


def _of_one_factor(
    fault: str, seen: list[Sighting], members: Mapping[str, int], limits: ControllerSettings, now: float
) -> Cause | None:
    nodes: dict[str, set[str]] = defaultdict(set)
    for s in seen:
        if now - s.seen <= limits.common_factor_s:
            for name, value in s.factors.items():
                nodes[f"{name}={value}"].add(s.node)
    best: tuple[float, str] | None = None
    for factor, hit in sorted(nodes.items()):
        share = len(hit) / max(1, members.get(factor, 0))
        if len(hit) >= limits.common_cause_nodes and share >= limits.common_share and (best is None or share > best[0]):
            best = (share, factor)
    if best is None:
        return None
    share, factor = best
    hit = nodes[factor]
    why = f"{len(hit)} nodes, {share:.0%} of those with {factor}, show it in {how_long(limits.common_factor_s)}"
    return Cause(factor, fault, tuple(sorted(hit)), why)


# --- slow roll-outs ---------------------------------------------------------------------------------------------------

SLOW_S = 259_200.0  # 72 h: a bad driver that reaches a node every ten minutes is three days on its way through 432
ENDS_S = 86_400.0  # no commoner there than elsewhere for so long: the cause is over
CHANCE = 0.001  # that nodes with one value are as sick as the others, and it only looks otherwise
KEPT = 128  # sightings on record, the newest
SOFTWARE = frozenset({"driver", "image", "kernel", "efa", "nccl", "cuda", "vbios", "agent"})  # what a boot may bring


def kept(sightings: Iterable[Sighting], now: float) -> tuple[Sighting, ...]:
    """What is worth remembering: the newest of each node and fault within three days."""
    newest: dict[tuple[str, str], Sighting] = {}
    for s in (s for s in sightings if now - s.seen <= SLOW_S):
        before = newest.get((s.node, s.fault))  # that it came with a value is not forgotten when it is seen again
        came = {key for key in (before.came if before else ()) if _has(s, key)} | set(s.came)
        newest[s.node, s.fault] = replace(s, came=tuple(sorted(came)))
    return tuple(sorted(newest.values(), key=lambda s: s.seen)[-KEPT:])


def find_slow(sightings: Sequence[Sighting], members: Mapping[str, int], limits: ControllerSettings) -> Iterator[Cause]:
    """For each fault the value (driver, image ...) whose nodes have it clearly more often than the nodes without."""
    for fault in sorted({s.fault for s in sightings}):
        seen = [s for s in sightings if s.fault == fault]
        best = max((found for key in _keys(seen) if (found := _is_clear(key, seen, members, limits))), default=None)
        after = max((found for key in _keys(seen) if (found := _came_with(key, seen, members, limits))), default=None)
        if best is not None:
            share, key, nodes = best
            why = f"{len(nodes)} nodes with {key} ({share:.0%} of them) show it within three days, and hardly any other"
            yield Cause(key, fault, nodes, why)
        elif after is not None:
            share, key, nodes = after
            why = f"{len(nodes)} nodes ({share:.0%} of those with {key}) showed it within an hour after that had come"
            yield Cause(key, fault, nodes, why)


def _keys(seen: Iterable[Sighting]) -> set[str]:
    return {f"{name}={value}" for s in seen for name, value in s.factors.items() if name in SOFTWARE}


def _is_clear(
    key: str, seen: Sequence[Sighting], members: Mapping[str, int], limits: ControllerSettings
) -> tuple[float, str, tuple[str, ...]] | None:
    name, _, value = key.partition("=")
    there = {s.node for s in seen if s.factors.get(name) == value}
    else_where = {s.node for s in seen} - there
    with_it, without = max(members.get(key, 0), len(there)), max(0, members.get("fleet", 0) - members.get(key, 0))
    share = len(there) / max(1, with_it)
    if len(there) < limits.common_cause_nodes or share < limits.common_share or not without:
        return None
    clear = by_chance(len(there), with_it, len(else_where), without) <= CHANCE
    return (share, key, tuple(sorted(there))) if clear else None


FOLLOWS_S = 3_600.0  # what begins so soon after a value came to its node may well have come with it
FOLLOWED = 0.1  # share of the nodes with a value that must have fallen ill so


def _came_with(
    key: str, seen: Sequence[Sighting], members: Mapping[str, int], limits: ControllerSettings
) -> tuple[float, str, tuple[str, ...]] | None:
    """For fleets too small for a test of chance: on enough nodes it began within an hour after the value had come to
    that very node. Hardware that fails by itself does not wait for that."""
    there = {s.node for s in seen if key in s.came}
    alone = {s.node for s in seen} - {s.node for s in seen if _has(s, key)}
    with_it, without = max(members.get(key, 0), len(there)), max(0, members.get("fleet", 0) - members.get(key, 0))
    share, elsewhere = len(there) / max(1, with_it), len(alone) / max(1, without)
    if len(there) < limits.common_cause_nodes or share < FOLLOWED or share <= 3 * elsewhere:
        return None
    return share, key, tuple(sorted(there))


def came_with(sightings: Iterable[Sighting], node: str, faults: Iterable[str], carried: Mapping[str, str]) -> str:
    """The value that a fault of this node came with, and that it still has; "" if none."""
    return next((key for key in _came(sightings, node, faults) if _is_on(carried, key)), "")


def taken_back(sightings: Iterable[Sighting], node: str, faults: Iterable[str], carried: Mapping[str, str]) -> str:
    """Likewise, if it has nothing any more that its faults came with."""
    keys = _came(sightings, node, faults)
    return keys[0] if keys and not any(_is_on(carried, key) for key in keys) else ""


def _came(sightings: Iterable[Sighting], node: str, faults: Iterable[str]) -> list[str]:
    told = set(faults)
    return [key for s in sightings if s.node == node and s.fault in told for key in s.came]


def _is_on(carried: Mapping[str, str], key: str) -> bool:
    name, _, value = key.partition("=")
    return carried.get(name) == value


def _has(s: Sighting, key: str) -> bool:
    return _is_on(s.factors, key)


def by_chance(sick: int, of: int, sick_elsewhere: int, elsewhere: int) -> float:
    """How likely so many or more of the sick are among `of`, if sickness does not care (Fisher's exact test)."""
    ill = sick + sick_elsewhere
    ways = comb(of + elsewhere, ill)
    return sum(comb(of, k) * comb(elsewhere, ill - k) for k in range(sick, min(of, ill) + 1)) / ways if ways else 1.0


def is_over(
    case: Case, sightings: Iterable[Sighting], standing: Mapping[str, int], members: Mapping[str, int], now: float
) -> str:
    """Why a cause explains no more; "" while it does. `standing`: how many nodes with the value have each fault now."""
    name, _, value = case.factor.partition("=")
    if now < case.entered + ENDS_S or name == "job":
        return "its job's nodes have shown nothing new for a day" if now >= case.entered + ENDS_S else ""
    recent = [s for s in sightings if now - s.seen <= ENDS_S]
    for fault in {d.fault for d in case.diagnoses}:
        there = {s.node for s in recent if s.fault == fault and s.factors.get(name) == value}
        others = {s.node for s in recent if s.fault == fault} - there
        rate = max(len(there), standing.get(fault, 0)) / max(1, members.get(case.factor, 0))
        if rate > len(others) / max(1, members.get("fleet", 0) - members.get(case.factor, 0)):
            return ""
    return f"for a day it was no commoner on nodes with {case.factor} than elsewhere"


def reminder(case: Case, now: float, at: float) -> Notice | None:
    """Once a day while it is open: somebody has to deal with it."""
    days = int((now - case.entered) // 86_400)
    if not days:
        return None
    faults = ", ".join(sorted({d.fault for d in case.diagnoses}))
    body = f"{case.id} has been open for {days} days: {faults} on nodes with {case.factor}. None of them is treated "
    body += f"while it is. When the cause is dealt with: sickbay case abort {case.id}."
    return Notice(f"{case.id}/open/{days}", "warning", f"{case.factor}: still open", body, case.id, at)


def would_spread(verb: Verb, carried: Mapping[str, str], suspected: Iterable[str], by_boot: Iterable[str]) -> str:
    """The suspected value that this treatment may bring to a node without it; "" if none. A new machine comes with the
    newest image; a boot brings what boots were seen to bring."""
    brings = set(by_boot)
    for key in sorted(suspected):
        name, _, value = key.partition("=")
        fresh = name in SOFTWARE and carried.get(name) != value
        if fresh and (verb is Verb.REPLACE or (key in brings and verb in (Verb.REBOOT, Verb.POWER_CYCLE))):
            return key
    return ""


def case_of(cause: Cause, n: int, now: float, at: float, cluster: str) -> Case:
    """The one case about the factor. A person owns it from the start; no node is touched."""
    why = f"{cause.fault} shared by {cause.factor}: {cause.why}"
    return Case(
        id=f"{cause.factor}.{n}", node=cause.factor, uid="", pool="", diagnoses=_diagnoses(cause, at), plan=Plan(),
        phase=Phase.ESCALATED, step=0, opened_at=at, entered=now, deadline=None, cluster=cluster, factor=cause.factor,
        first_evidence_at=at, journal=(Entry(0, "OPENED", at, "sickbay", why, Phase.ESCALATED.value),),
        timeline=((Phase.ESCALATED.value, at),),
    )  # fmt: skip


def widen(case: Case, cause: Cause, at: float) -> Case:
    """The same factor explains another fault too."""
    entry = Entry(case.step, "MERGED", at, "sickbay", f"also {cause.fault}: {cause.why}", case.phase.value)
    return replace(case, diagnoses=(*case.diagnoses, *_diagnoses(cause, at)), journal=(*case.journal, entry))


def _diagnoses(cause: Cause, at: float) -> tuple[Diagnosis, ...]:
    return tuple(
        Diagnosis(
            cause.fault,
            Place(node),
            Severity.MONITOR,
            When.IDLE,
            0.9,
            (cause.why,),
            at,
            "monitor.common-cause",
            "monitor",
        )
        for node in cause.nodes
    )
