"""What nodes truly had in common when they fell ill, or were said to be: a case about that excuses them, no other does.

Kept by the Judge, fed every fact. It must never ask what the brain has seen: a brain that explains too much would
acquit itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from sickbay.model import Case
from sickbay.settings import ControllerSettings
from sickbay.sim.faults import kinds
from sickbay.sim.hardware import SimNode
from sickbay.sim.world import Fact, World

MANY = 3  # nodes that show the same; fewer where the settings ask for fewer
AWAY = frozenset({"away"})  # what nodes show that are cut off
LIES = frozenset({"lost"})  # what a bad agent sees where nothing is (sim/rollouts.py)
PLACES = ("driver", "image", "agent", "pool", "rack", "domain", "switch", "zone", "capacity")


@dataclass(frozen=True, slots=True)
class Shown:
    """A node fell ill, or was said to be."""

    node: str
    signs: frozenset[str]
    factors: frozenset[str]  # "driver=570.12", "job=llama": what it had then


class Commons:
    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: list[Shown] = []
        self._bad: set[str] = set()  # values of a roll-out that harmed a node

    def note(self, fact: Fact) -> None:
        d = fact.detail
        if fact.kind in ("fault", "relapse"):
            self._add(fact.node, signs_of(str(d["what"])))
        cut_off = str(d["nodes"]).split(",") if fact.kind == "cut" else ()
        for name in filter(None, cut_off):  # a cut may find nobody left to cut off
            self._add(name, AWAY)
        if fact.kind == "outsider":
            self._add(fact.node, signs_of_code(str(d["code"])))
        if fact.kind == "rolled-out" and d["bad"]:
            self._bad.add(f"{d['factor']}={d['value']}")
            if d["factor"] == "agent":
                self._add(fact.node, LIES)

    def _add(self, name: str, signs: frozenset[str]) -> None:
        self._seen.append(Shown(name, signs, _factors(self._world.nodes[name])))

    def explain(self, node: SimNode, cases: Iterable[Case], limits: ControllerSettings) -> bool:
        """Is there a case about something that this node has, and that truly makes ill what it shows?"""
        about = [case for case in cases if case.factor and case.absence is None]
        return any(self._is_truly_shared(case, node, limits) for case in about)

    def _is_truly_shared(self, case: Case, node: SimNode, limits: ControllerSettings) -> bool:
        own = [shown for shown in self._seen if shown.node == node.name]
        has = _factors(node).union(*(s.factors for s in own if case.factor.startswith("job=")))
        if case.factor not in has:
            return False
        signs = frozenset[str]().union(*(s.signs for s in own))
        alike = {s.node for s in self._seen if case.factor in s.factors and signs & s.signs}
        needed = max(2, min(MANY, limits.common_cause_nodes))
        return len(alike | {node.name}) >= needed or (case.factor in self._bad and bool(signs))


def _factors(node: SimNode) -> frozenset[str]:
    """As people name them: the kind of a machine is its instance type."""
    named = {f"{name}={getattr(node, name)}" for name in PLACES}
    return frozenset({*named, f"instance-type={node.kind}", *(f"job={job}" for job in node.jobs)})


@cache
def signs_of(name: str) -> frozenset[str]:
    """What tools show of it; one that they do not show is like itself alone."""
    kind = kinds()[name]
    return frozenset(kind.signs) or frozenset({kind.name})


@cache
def signs_of_code(code: str) -> frozenset[str]:
    """Of all kinds that print this code."""
    number = code.rpartition(".")[2]
    found = [k for k in kinds().values() if any(f"): {number}," in line.text for line in k.lines)]
    return frozenset[str]().union(*map(signs_of, (k.name for k in found))) or LIES
