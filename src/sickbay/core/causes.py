"""Common cause: the same fault on several nodes that share a job, a driver, an image, a rack or a switch is one case
about that factor, and no node is treated for it.

A bad driver once made a fleet report NVLink down after boot and an automaton rebooted 214 of 288 nodes for it
(NVSentinel, reference/nvsentinel.md). Called by controller/desk.py with recent sightings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sickbay.model import Case, Diagnosis, Entry, Phase, Place, Plan, Severity, When
from sickbay.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class Sighting:
    """A treatable fault, newly seen on a node."""

    node: str
    fault: str
    seen: float  # watch time
    jobs: tuple[str, ...] = ()
    factors: Mapping[str, str] = field(default_factory=dict)


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
    why = f"{len(hit)} nodes, {share:.0%} of those with {factor}, show it in {limits.common_factor_s / 60:.0f} minutes"
    return Cause(factor, fault, tuple(sorted(hit)), why)


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
