"""What was truly said of each node, by whom and when: what its tools printed, and what outsiders told the world.

Whether something could wait, and whose word it was, the judge works out from this and the catalog's rows. A case says
what it is about; that somebody said so, and how urgent that is, is never taken from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sickbay.catalog import load
from sickbay.model import Case, Diagnosis, When
from sickbay.sim.checkers.checker import URGENCY
from sickbay.sim.outsiders import SOURCES
from sickbay.sim.world import Fact, World

AGENT, MONITOR = "agent", "monitor."  # who reads the tools; codes of what only the controller can see
BACK = "monitor.condemned-part"  # said of a GPU that was sent away
ASKS_FOR_MORE = frozenset({"reset-required", "reboot-required"})  # the driver itself raises what another line says


class Told:
    def __init__(self, world: World) -> None:
        self._world = world
        self._outside: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)  # node -> (source, code) -> when
        self._known = {gpu.serial for node in world.nodes.values() for gpu in node.gpus}  # GPUs that have served
        self._back: set[str] = set()  # those that have come with a machine once more

    def fact(self, fact: Fact) -> None:
        if fact.kind == "outsider":
            self._outside[fact.node][str(fact.detail["source"]), str(fact.detail["code"])] = fact.t
        if fact.kind == "joined":
            self._came(str(fact.detail.get("serials", "")).split(","))
        if fact.kind == "rejoined":
            self._came([gpu.serial for gpu in self._world.nodes[fact.node].gpus])

    def _came(self, serials: list[str]) -> None:
        self._back.update(self._known.intersection(serials))
        self._known.update(serials)

    def printed(self, node: str) -> Mapping[str, float]:
        """Code -> when the node's tools printed it last, to its agent or to who examined it."""
        return self._world.agents.printed.get(node, {})

    def last(self, node: str) -> float:
        """When anything was said of it last, the controller's own monitor left out."""
        return max((*self.printed(node).values(), *self._outside[node].values()), default=float("-inf"))

    def is_said(self, d: Diagnosis, node: str) -> bool:
        """Has its source truly said so? What only the controller sees (a node that is away, a newcomer, a silent rank)
        has codes of its own, which nobody else's word comes under. That a GPU is back which was sent away is true of
        one that came with two machines, or twice: others were condemned on the machine they came with (50001073)."""
        name = node or d.place.node
        if d.source == AGENT:
            return d.code in self.printed(name)
        if d.source in SOURCES:
            return (d.source, d.code) in self._outside[name]
        if d.code == BACK:
            return d.part in self._back
        return d.code.startswith(MONITOR)

    def when(self, d: Diagnosis, node: str) -> When:
        """How long it may wait, by the catalog's rows for what was said of it: a diagnosis may say later, and sooner
        only where the driver on that node asked for more than the line itself."""
        name = node or d.place.node
        if self._driver_asks(name):
            return d.when
        return max(self._by_catalog(d, name), d.when, key=URGENCY.index)

    def _by_catalog(self, d: Diagnosis, node: str) -> When:
        """Several lines may say the same fault: the most urgent of them counts."""
        fault = load().faults[d.fault]
        said = (*self.printed(node), *(code for _, code in self._outside[node]), d.code)
        known = [row for code in said if (row := load().code(code)) is not None]
        rows = [r for row in known for r in (row, *(v.code for v in row.variants)) if r.fault == d.fault]
        return min((r.when or fault.when for r in rows), key=URGENCY.index, default=fault.when)

    def _driver_asks(self, node: str) -> bool:
        rows = [row for code in self.printed(node) if (row := load().code(code)) is not None]
        return any(r.fault in ASKS_FOR_MORE for row in rows for r in (row, *(v.code for v in row.variants)))

    def soonest(self, case: Case) -> When:
        """How long the most urgent of what was truly said may wait."""
        said = [self.when(d, case.node) for d in case.diagnoses if self.is_said(d, case.node)]
        return min(said, key=URGENCY.index, default=When.IDLE)
