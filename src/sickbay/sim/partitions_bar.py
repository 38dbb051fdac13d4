"""What may be done to a healthy fleet for having been cut off: the bar of `sickbay sim partitions`, row by row.

Called by sim/partitions.py once a row has been played. Judged by the world's log alone: who was cut off and when, who
had power, whose ranks made steps, what was begun. It must never ask the brain, its records or its notices' words; only
how many notices there were, and about which node.

The bar: no treatment of healthy nodes where many are away or somebody else says that they are alive; else REBOOT alone,
within `at_once`; no cordon where many are away; no job given up; never two live attempts; at most three notices to
operators an incident. Nodes that are away together are one incident, and each that is away alone is one of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sickbay.model import Verb
from sickbay.sim.world import Fact

MANY = 3  # away from the same moment on, wherever they stand
SMALL_POOLS = (2, 3)  # all of such a pool are many
NOTICES = 3  # to operators, an incident
HEARD_S = 120.0  # a platform asks its provider about silent machines that often
NAMES = 3  # of nodes or jobs in a sentence


@dataclass(frozen=True, slots=True)
class Cut:
    """What befell the fleet in one row."""

    kind: str
    members: tuple[str, ...]
    place: str = "share"  # of the fleet; or they are all of a "rack", or of a "pool"
    told: bool = False  # does the provider say of a silent machine whether it runs?

    @property
    def many(self) -> bool:
        return len(self.members) >= MANY or (self.place == "pool" and len(self.members) in SMALL_POOLS)

    @property
    def incidents(self) -> tuple[str, ...]:
        return ("",) if self.many else self.members


@dataclass(frozen=True, slots=True)
class Treated:
    """A treatment that was begun, and what was true of its node at that moment."""

    node: str
    verb: str
    powerless: bool  # it was dead: no power came to it
    alive: str  # who else said that it was alive; "" if nobody did


@dataclass(slots=True)
class Seen:
    """What the world's log says of one row."""

    cordons: list[str] = field(default_factory=list)
    treated: list[Treated] = field(default_factory=list)
    at_once: int = 0  # at the worst moment
    restarts: int = 0
    two_attempts: list[str] = field(default_factory=list)  # jobs


def read(log: Iterable[Fact], cut: Cut) -> Seen:
    """In order, for who had power and whose ranks made steps changes on the way."""
    seen, power, work, busy = Seen(), _Power(), _Work(), set[str]()
    for fact in log:
        work.fact(fact)
        power.fact(fact)
        if fact.kind == "cordon":
            seen.cordons.append(fact.node)
        elif fact.kind == "treat-start":
            busy.add(fact.node)
            alive, verb = _alive(fact, cut, work, power), str(fact.detail["verb"])
            seen.treated.append(Treated(fact.node, verb, fact.node in power.off, alive))
            seen.at_once = max(seen.at_once, len(busy))
        elif fact.kind == "treat-end":
            busy.discard(fact.node)
        elif fact.kind == "place":
            seen.restarts += int(fact.detail["attempt"]) > 1
        elif fact.kind == "two-attempts":
            seen.two_attempts.append(str(fact.detail["job"]))
    return seen


class _Power:
    def __init__(self) -> None:
        self.off: set[str] = set()
        self._on_since: dict[str, float] = {}

    def fact(self, fact: Fact) -> None:
        names = str(fact.detail.get("nodes", "")).split(",")
        if fact.kind == "cut" and fact.detail["what"] == "power":
            self.off.update(names)
        elif fact.kind in ("mended", "joined"):  # no provider starts a machine without power
            back = self.off.intersection(names if fact.kind == "mended" else (fact.node,))
            self.off -= back
            self._on_since.update(dict.fromkeys(back, fact.t))

    def is_said_to_run(self, node: str, t: float) -> bool:
        """Long enough that a platform has asked."""
        return node not in self.off and t - self._on_since.get(node, float("-inf")) >= HEARD_S


class _Work:
    """Where a whole gang makes steps that can be seen: the shared storage is not cut off, whoever else is."""

    def __init__(self) -> None:
        self._on: dict[str, set[str]] = {}  # job -> nodes

    def fact(self, fact: Fact) -> None:
        job, names = str(fact.detail.get("job", "")), set(str(fact.detail.get("nodes", "")).split(","))
        if fact.kind == "place" or (fact.kind == "orphans" and fact.detail["writes"]):
            self._on[job] = names
        elif fact.kind in ("job-end", "orphans-end"):
            self._on.pop(job, None)

    def on(self, node: str) -> str:
        return next((job for job, names in self._on.items() if node in names), "")


def _alive(fact: Fact, cut: Cut, work: _Work, power: _Power) -> str:
    """Who says, at this moment, that the node is alive."""
    if fact.detail["ready"]:
        return "it was ready"
    if cut.told and power.is_said_to_run(fact.node, fact.t):
        return "its provider said that it runs"
    job = work.on(fact.node) if cut.kind == "control" else ""
    return f"{job}, which had ranks on it, made steps" if job else ""


# --- the bar ----------------------------------------------------------------------------------------------------------


def beyond(
    seen: Seen, cut: Cut, at_once: int, given_up: Sequence[str], notices: Mapping[str, int]
) -> tuple[str, ...]:  # fmt: skip
    """A plain sentence for each thing that the bar does not allow. `at_once`: the setting, as a number of nodes;
    `notices`: to operators, by the incident that they are about."""
    found = [*_treatments(seen.treated, cut)]
    if seen.at_once > at_once:
        found.append(f"{seen.at_once} nodes were treated at the same time; at_once allows {at_once}")
    if cut.many and seen.cordons:
        found.append(f"{_named(seen.cordons)} cordoned while away with many others")
    if given_up:
        found.append(f"{_named(given_up)} given up: nobody runs it six hours after the cut has ended")
    if seen.two_attempts:
        found.append(f"{_named(seen.two_attempts)} started beside ranks of an earlier attempt that were alive")
    for incident, n in notices.items():
        if n > NOTICES:
            about = f" about {incident}" if incident else ""
            found.append(f"operators got {n} notices{about}; at most {NOTICES} an incident")
    return tuple(found)


def _treatments(treated: Iterable[Treated], cut: Cut) -> Iterator[str]:
    """One sentence for each verb and reason, with the nodes."""
    wrong: dict[tuple[str, str], list[str]] = {}
    for each in treated:
        if why := _why_wrong(each, cut):
            wrong.setdefault((each.verb, why), []).append(each.node)
    for (verb, why), nodes in wrong.items():
        yield f"{verb} of {_named(nodes)}, with nothing wrong: {why}"


def _why_wrong(treated: Treated, cut: Cut) -> str:
    """A node without power that is away alone is dead indeed: it is let have what its ladder has."""
    if cut.many and cut.kind != "data":
        return "away with many others"
    if treated.alive:
        return treated.alive
    return "" if treated.verb == Verb.REBOOT or treated.powerless else "away alone, which allows a REBOOT and no more"


def by_incident(keys: Iterable[str], cut: Cut) -> dict[str, int]:
    """Notices to operators, by their keys: what names no lone node is told with each of them."""
    about = Counter(next((name for name in cut.members if key.startswith(f"{name}.")), "") for key in keys)
    if cut.many:
        return {"": about.total()}
    others = about.total() - sum(about[name] for name in cut.members)
    return {name: about[name] + others for name in cut.incidents}


def _named(names: Iterable[str]) -> str:
    each = [f"{name} ({n} times)" if n > 1 else name for name, n in sorted(Counter(names).items())]
    more = f" and {len(each) - NAMES} more" if len(each) > NAMES else ""
    return ", ".join(each[:NAMES]) + more
