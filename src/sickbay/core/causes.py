"""Common cause: the same fault on several nodes that share a job, a driver, an image, a rack or a switch is one case
about that factor, and no node is treated for it.

A bad driver once made a fleet report NVLink down after boot and an automaton rebooted 214 of 288 nodes for it
(NVSentinel, reference/nvsentinel.md). Called by controller/desk.py with recent sightings.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
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


@dataclass(frozen=True, slots=True)
class Open:
    """What an open case about a common cause explains."""

    factor: str
    faults: frozenset[str]
    nodes: frozenset[str] = frozenset()  # of a job: on which they showed it together, wherever it runs by now

    def explains(self, s: Sighting) -> bool:
        name, _, value = self.factor.partition("=")
        carried = value in s.jobs if name == JOB else s.factors.get(name) == value
        return s.fault in self.faults and (carried or s.node in self.nodes)


def opened(case: Case) -> Open:
    is_job = case.factor.startswith(f"{JOB}=")
    nodes = frozenset(d.place.node for d in case.diagnoses) if is_job else frozenset()
    return Open(case.factor, frozenset(d.fault for d in case.diagnoses), nodes)


@dataclass(frozen=True, slots=True)
class _Shared:
    """A value that some of the sick nodes have in common."""

    factor: str
    hit: frozenset[str]  # sick nodes with it
    fresh: frozenset[str]  # of these, whom nothing explains yet
    members: int  # nodes with it, well or sick
    share: float
    alike: tuple[str, ...] = ()  # other values that the same nodes share

    def is_cause(self, limits: ControllerSettings) -> bool:
        """By those alone whom nothing explains yet."""
        if len(self.fresh) < limits.common_cause_nodes:
            return False
        others = self.members - len(self.hit - self.fresh)
        return self.is_job or len(self.fresh) / max(1, others) >= limits.common_share

    @property
    def is_job(self) -> bool:
        return self.factor.startswith(f"{JOB}=")

    def is_wider(self, than: _Shared, limits: ControllerSettings) -> bool:
        """Does it explain those too, and others beside them who are about as often sick? Three racks that are all ill
        among eight are three racks; some of each rack are no rack."""
        beside = len(self.hit - than.hit)
        if beside < limits.common_cause_nodes or self.share < limits.common_share:
            return False
        if len(self.hit) <= len(than.hit) or not than.fresh <= self.hit:
            return False
        return beside / max(1, self.members - than.members) >= ALIKE * than.share


JOB = "job"
ALIKE = 0.5  # so often, compared with those who share something narrower, are the others ill


def find(
    sightings: Iterable[Sighting], members: Mapping[str, int], limits: ControllerSettings, now: float,
    known: Sequence[Open] = (),
) -> Iterator[Cause]:  # fmt: skip
    """For each fault what its sightings share, until too few are left that nothing explains; of several the most
    telling. `members`: nodes per factor, and per job. `known`: open causes: whom they explain makes no further one."""
    by_fault: dict[str, list[Sighting]] = defaultdict(list)
    for s in sightings:
        by_fault[s.fault].append(s)
    for fault, seen in sorted(by_fault.items()):
        explained = {s.node for s in seen if any(one.explains(s) for one in known)}
        while (shared := _most_telling(seen, explained, members, limits, now)) is not None:
            yield Cause(shared.factor, fault, tuple(sorted(shared.hit)), _why(shared, limits))
            explained |= shared.hit


def _most_telling(
    seen: Sequence[Sighting], explained: Set[str], members: Mapping[str, int], limits: ControllerSettings, now: float
) -> _Shared | None:
    """A job before anything else, then what most of its nodes show; unless something wider shows itself beside it. Of
    48 sick nodes 30 had one job: it was named, and the other 18 were rebooted, power-cycled and replaced."""
    shared = _shared(seen, explained, members, limits, now)
    causes = [one for one in shared if one.is_cause(limits)]
    best = max(causes, key=lambda one: (one.is_job, one.share), default=None)
    while best is not None:
        wider = max((one for one in shared if one.is_wider(best, limits)), key=lambda one: one.share, default=None)
        if wider is None:
            same = [one.factor for one in shared if (one.hit, one.members) == (best.hit, best.members)]
            return replace(best, alike=tuple(factor for factor in same if factor != best.factor))
        best = wider
    return None


def _shared(
    seen: Iterable[Sighting], explained: Set[str], members: Mapping[str, int], limits: ControllerSettings, now: float
) -> list[_Shared]:
    nodes: dict[str, set[str]] = defaultdict(set)
    for s in seen:
        for key in _values(s, limits, now):
            nodes[key].add(s.node)
    found = []
    for key, hit in sorted(nodes.items()):
        total = max(members.get(key, 0), len(hit))
        found.append(_Shared(key, frozenset(hit), frozenset(hit - explained), total, len(hit) / total))
    return found


def _values(s: Sighting, limits: ControllerSettings, now: float) -> Iterator[str]:
    if now - s.seen <= limits.common_cause_s:
        yield from (f"{JOB}={job}" for job in s.jobs)
    if now - s.seen <= limits.common_factor_s:
        yield from (f"{name}={value}" for name, value in s.factors.items())


def _why(shared: _Shared, limits: ControllerSettings) -> str:
    n, factor = len(shared.hit), shared.factor
    if shared.is_job:
        return f"{n} nodes of job {factor.partition('=')[2]} show it within {limits.common_cause_s:.0f} seconds"
    also = f" (as many of those with {', '.join(shared.alike[:3])})" if shared.alike else ""
    lasted = how_long(limits.common_factor_s)
    return f"{n} nodes, {shared.share:.0%} of those with {factor}{also}, show it in {lasted}"


def is_news(cause: Cause, sightings: Iterable[Sighting], known: Sequence[Open], limits: ControllerSettings) -> bool:
    """Does a slow one explain enough nodes that no open cause of its kind does? A rack or a job that was suspected
    first does not hide the driver: that must not be spread."""
    software = [one for one in known if one.factor.partition("=")[0] in SOFTWARE]
    seen = [s for s in sightings if s.fault == cause.fault and s.node in cause.nodes]
    explained = {s.node for s in seen if any(one.explains(s) for one in software)}
    return len(set(cause.nodes) - explained) >= limits.common_cause_nodes


# --- slow roll-outs ---------------------------------------------------------------------------------------------------

SLOW_S = 259_200.0  # 72 h: a bad driver that reaches a node every ten minutes is three days on its way through 432
ENDS_S = 86_400.0  # no commoner there than elsewhere for so long: the cause is over
CHANCE = 0.001  # that nodes with one value are as sick as the others, and it only looks otherwise
KEPT = 256  # sightings on record: each fault its newest ones, the commonest fault gives way first
SOFTWARE = frozenset({"driver", "image", "kernel", "efa", "nccl", "cuda", "vbios", "agent"})  # what a boot may bring


def kept(sightings: Iterable[Sighting], now: float) -> tuple[Sighting, ...]:
    """What is worth remembering: the newest of each node and fault within three days. A fault that fills the record
    (forty a day are enough) pushes out its own oldest, never the few of a slow roll-out."""
    newest: dict[tuple[str, str], Sighting] = {}
    for s in (s for s in sightings if now - s.seen <= SLOW_S):
        before = newest.get((s.node, s.fault))  # that it came with a value is not forgotten when it is seen again
        came = {key for key in (before.came if before else ()) if _has(s, key)} | set(s.came)
        newest[s.node, s.fault] = replace(s, came=tuple(sorted(came)))
    by_fault: dict[str, deque[Sighting]] = defaultdict(deque)
    for s in sorted(newest.values(), key=lambda s: s.seen):
        by_fault[s.fault].append(s)
    for _ in range(len(newest) - KEPT):
        by_fault[max(by_fault, key=lambda fault: (len(by_fault[fault]), fault))].popleft()
    return tuple(sorted((s for some in by_fault.values() for s in some), key=lambda s: s.seen))


def brought(sightings: Iterable[Sighting]) -> set[str]:
    """Values that boots may bring, by what is on record: they had come to nodes that then fell ill. An image comes with
    a machine, unless somebody saw a boot bring one."""
    return {key for s in sightings for key in s.came if not key.startswith("image=")}


NOTHING: Mapping[str, Mapping[str, str]] = {}


def find_slow(
    sightings: Sequence[Sighting], members: Mapping[str, int], limits: ControllerSettings,
    carried: Mapping[str, Mapping[str, str]] = NOTHING,
) -> Iterator[Cause]:  # fmt: skip
    """For each fault the value (driver, image ...) whose nodes have it clearly more often than the nodes without.
    `carried`: what those nodes have now. One that was seen ill before it showed the value, and has it now, speaks for
    neither side: nine nodes had fallen ill with a bad agent, and the two whose version was shown late made it look
    common elsewhere (seed 50001957)."""
    for fault in sorted({s.fault for s in sightings}):
        seen = [s for s in sightings if s.fault == fault]
        found = list[tuple[float, str, tuple[str, ...]]]()
        later = list[tuple[float, str, tuple[str, ...]]]()
        for key in _keys(seen):
            sure = [s for s in seen if _has(s, key) or not _is_on(carried.get(s.node, {}), key)]
            found += filter(None, [_is_clear(key, sure, members, limits)])
            later += filter(None, [_came_with(key, sure, members, limits)])
        best, after = max(found, default=None), max(later, default=None)
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
