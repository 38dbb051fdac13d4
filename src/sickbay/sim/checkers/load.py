"""For how long a node under suspicion has truly worked well: what is held against it has to fade with that.

Asked by EveryStateHasAnExit. Less is counted than was: only spans between two looks in which one attempt made steps all
the while, and the node had neither a case nor a verdict, whose own exits are judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sickbay.model import Doubt, NodeRecord
from sickbay.sim.world import World

LEAST_LOAD_S = 7_200.0  # of good work, before anything has to show
Work = frozenset[tuple[str, int, int]]  # job, attempt, life


@dataclass(slots=True)
class Suspect:
    strikes: int
    at: float  # of the last strike, as its record has it
    good_s: float = 0.0


class Load:
    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[str, str], Suspect] = {}
        self._working: dict[str, Work] = {}
        self._looked = world.now

    def look(self, records: Iterable[NodeRecord]) -> None:
        """`records`: of nodes without a case, as they stand after a turn."""
        now, before, stand = self._world.now, self._working, tuple(records)
        lasted, self._looked = now - self._looked, now
        doubts = [(r.node, d) for r in stand if not r.latched for d in r.doubts if d.strikes]
        self._working = {node: self._work(node) for node, _ in doubts}
        known = {key: seen for key, seen in self._known.items() if key[0] in {r.node for r in stand if r.latched}}
        for node, doubt in doubts:
            seen = self._known.get((node, doubt.part))
            if seen is None or (seen.strikes, seen.at) != (doubt.strikes, doubt.at):
                seen = Suspect(doubt.strikes, doubt.at)
            seen.good_s += lasted if before.get(node, Work()) & self._working[node] else 0.0
            known[node, doubt.part] = seen
        self._known = known

    def _work(self, name: str) -> Work:
        jobs = [self._world.jobs[job] for job in self._world.nodes[name].jobs] if name in self._world.nodes else []
        moving = [job for job in jobs if job.moves and job.step(self._world.now) > job.attempts[-1].from_step]
        return frozenset((job.id, job.attempt, job.life) for job in moving)

    def of(self, record: NodeRecord, watch: float) -> Iterator[tuple[Doubt, float, float]]:
        """Each doubt, for how long its node has worked well by the truth, and by the record."""
        for doubt in record.doubts:
            if doubt.strikes and (seen := self._known.get((record.node, doubt.part))) is not None:
                running = watch - doubt.loaded_since if doubt.loaded_since is not None else 0.0
                yield doubt, seen.good_s, doubt.load_s + max(0.0, running)
