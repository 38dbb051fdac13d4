"""What a simulated run cost, counted as docs/metrics.md says: from the world's truth, and from cases where they exist.

`sickbay sim run` and `compare` print it. It reads finished runs and changes nothing. Figures that a policy has no
notion of (cases, for the originals) are None: "not measured", never a guess.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sickbay.core.spans import PARTS, RELAPSE_S, begin, end, is_disruptive, is_false, is_replaced, split
from sickbay.model import Case, Phase, Verb
from sickbay.sim.accounts import JobAccount
from sickbay.sim.workload import Scene, Staff
from sickbay.sim.world import Fact, World


@dataclass(frozen=True, slots=True)
class Mttr:
    """Mean time to return in seconds with its five parts; cases without an end yet are censored, never dropped."""

    cases: int = 0
    mean_s: float = 0.0
    parts_s: dict[str, float] = field(default_factory=dict)
    censored: int = 0
    censored_at_least_s: float = 0.0  # mean age so far of those


@dataclass(frozen=True, slots=True)
class Relapse:
    resolved: int = 0  # that ended at least 7 days ago
    relapsed: int = 0
    censored: int = 0  # resolved, but younger


@dataclass(frozen=True, slots=True)
class Report:
    policy: str
    seed: int
    nodes: int
    days: float
    faults: int
    ettr: float | None
    useful_gpu_hours: float  # of steps that survived and hold right numbers
    gpu_hours_lost: float  # of jobs: W - R, weighted by GPUs
    gpu_hours_out: float  # of nodes that could take no work
    interruptions: int
    user_code_attempts: int
    lost_steps: int
    corrupt_restarts: int
    disruptions: int  # nodes taken out of service by the policy
    wrong_disruptions: int  # of those, with nothing wrong in truth
    treatments: dict[str, int]
    returned_sick: int  # released while something on it was still wrong and visible to the checks
    people_called: int
    exchanged_by_hand: int
    resubmitted: int
    digest: str
    cases: dict[str, int] | None = None
    mttr: Mttr | None = None
    relapse: Relapse | None = None
    false_disruption_rate: float | None = None
    turns: int | None = None
    seconds: float = 0.0
    node_days_per_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def report(
    scene: Scene, policy: str, world: World, staff: Staff, faults: int, seconds: float, *,
    ended: Sequence[Case] | None = None, still_open: Sequence[Case] = (), turns: int | None = None,
) -> Report:  # fmt: skip
    """Count everything, once, at the end of a run."""
    jobs = world.accounts()
    ettr, lost = fleet_ettr(jobs, world)
    taken = [f for f in world.log if f.kind == "cordon" and not f.detail["gate"]]
    return Report(
        policy=policy, seed=scene.seed, nodes=scene.nodes, days=scene.days, faults=faults, ettr=ettr,
        useful_gpu_hours=sum(a.useful_gpu_hours for a in jobs), gpu_hours_lost=lost,
        gpu_hours_out=world.gpu_hours_out(),
        interruptions=sum(a.interruptions for a in jobs),
        user_code_attempts=sum(x.user_code for j in world.jobs.values() for x in j.attempts),
        lost_steps=sum(a.lost_steps for a in jobs),
        corrupt_restarts=corrupted_lineages(world.log),
        disruptions=len(taken), wrong_disruptions=sum(not f.detail["sick"] for f in taken),
        treatments=dict(Counter(f.detail["verb"] for f in world.log if f.kind == "treat-start")),
        returned_sick=sum(_is_sick_return(f) for f in world.log),
        people_called=staff.called, exchanged_by_hand=staff.exchanged, resubmitted=staff.resubmitted,
        digest=digest(world, (*(ended or ()), *still_open)),
        turns=turns, seconds=seconds, node_days_per_s=scene.node_days / max(seconds, 1e-9),
        **({} if ended is None else of_cases(ended, still_open, world.now)),
    )  # fmt: skip


def corrupted_lineages(log: Iterable[Fact]) -> int:
    """How often a job went on from wrong numbers. Later restarts of the same lineage are the same mistake."""
    corrupt: dict[str, bool] = {}
    count = 0
    place: Fact | None = None
    for fact in log:
        if fact.kind == "corrupt-restart":
            count += not corrupt.get(fact.detail["job"], False)
            corrupt[fact.detail["job"]], place = True, None
        elif fact.kind == "place":
            place, before = fact, place
            if before is not None:
                corrupt[before.detail["job"]] = False
    return count


def _is_sick_return(fact: Fact) -> bool:
    """Work may land there though checks would have found something. A node under treatment takes no work yet."""
    if fact.kind not in ("release", "returned"):
        return False
    return not fact.detail["healthy"] and fact.detail.get("treating", "-") == "-"


def fleet_ettr(jobs: Sequence[JobAccount], world: World) -> tuple[float | None, float]:
    """R and W summed over jobs, each weighted by its GPUs, before dividing; and the GPU-hours in between."""
    weight = {j.id: len(j.nodes) * world.gpus_per_node for j in world.jobs.values()}
    wall = sum(a.wall_s * weight[a.job] for a in jobs)
    productive = sum(a.productive_s * weight[a.job] for a in jobs)
    return (productive / wall if wall else None), (wall - productive) / 3600


def digest(world: World, cases: Iterable[Case]) -> str:
    """One number for the whole virtual trace: what happened in the world and what was decided about it."""
    total = hashlib.sha256(world.digest().encode())
    for case in sorted(cases, key=lambda c: c.id):
        for e in case.journal:
            total.update(f"{case.id} {e.step} {e.event} {e.at:.3f} {e.phase} {e.why}\n".encode())
    return total.hexdigest()


# --- from the cases ---------------------------------------------------------------------------------------------------


def of_cases(ended: Sequence[Case], still_open: Sequence[Case], now: float) -> dict[str, Any]:
    nodes = [c for c in ended if not c.factor]
    return {
        "cases": endings(ended, still_open),
        "mttr": mttr(nodes, [c for c in still_open if not c.factor], now),
        "relapse": relapse(nodes, now),
        "false_disruption_rate": false_disruption_rate(nodes),
    }


def endings(ended: Sequence[Case], still_open: Sequence[Case]) -> dict[str, int]:
    """Cases by ending; open ones by the phase they are in; the gate for new machines and common causes apart."""
    count: Counter[str] = Counter()
    for case in ended:
        kind = "common cause " if case.factor else "newcomer " if case.newcomer else ""
        count[f"{kind}{case.phase.value}"] += 1
    for case in still_open:
        count[f"open {case.phase.value}" if case.phase is not Phase.ESCALATED else "ESCALATED"] += 1
    return dict(sorted(count.items()))


def mttr(ended: Sequence[Case], still_open: Sequence[Case], now: float) -> Mttr:
    arrivals = {(c.node, c.instance): end(c) for c in ended if c.newcomer and c.phase is Phase.RESOLVED}
    spans, ages = [], []
    for case in (c for c in ended if c.phase is Phase.RESOLVED and not c.newcomer and is_disruptive(c)):
        well_at = _well_at(case, arrivals)
        if well_at is None:
            ages.append(now - begin(case))
        else:
            spans.append(split(case, well_at))
    ages += [now - begin(c) for c in still_open if is_disruptive(c) and not c.newcomer]
    parts = {part: sum(s[part] for s in spans) / len(spans) for part in PARTS} if spans else {}
    return Mttr(len(spans), sum(parts.values()), parts, len(ages), sum(ages) / len(ages) if ages else 0.0)


def _well_at(case: Case, arrivals: dict[tuple[str, str], float]) -> float | None:
    """When the node could take work again: released, or its successor has passed its checks. None: not yet."""
    if not is_replaced(case):
        return end(case)
    later = [at for (node, instance), at in arrivals.items() if node == case.node and instance != case.instance]
    return min((at for at in later if at >= end(case)), default=None)


def relapse(ended: Sequence[Case], now: float) -> Relapse:
    """Resolved cases followed by another of the same fault on the same part or node within 7 days."""
    real = [c for c in ended if not c.newcomer]
    resolved = [c for c in real if c.phase is Phase.RESOLVED]
    old = [c for c in resolved if now - end(c) >= RELAPSE_S]
    return Relapse(len(old), sum(_has_relapsed(c, real) for c in old), len(resolved) - len(old))


def _has_relapsed(case: Case, real: Sequence[Case]) -> bool:
    """The part counts before the node: after a replacement only the part can relapse."""
    faults, parts = {d.fault for d in case.diagnoses}, {d.part for d in case.diagnoses if d.part}
    replaced = Verb.REPLACE in case.rungs_tried
    for other in real:
        soon = 0 <= other.opened_at - end(case) <= RELAPSE_S and other.id != case.id
        if not soon or not faults & {d.fault for d in other.diagnoses}:
            continue
        if parts & {d.part for d in other.diagnoses if d.part} or (other.node == case.node and not replaced):
            return True
    return False


def false_disruption_rate(ended: Sequence[Case]) -> float | None:
    """Disruptive cases in which no fault was found: no rung was needed, or a person aborted it."""
    hurt = [c for c in ended if is_disruptive(c) and not c.newcomer]
    return sum(is_false(c) for c in hurt) / len(hurt) if hurt else None
