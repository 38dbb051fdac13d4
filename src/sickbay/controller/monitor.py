"""What no single node can show: a cause that several share, and instruments that fall silent together.

Keeps recent sightings, asks core/causes, opens the one case about a factor. Called by
controller/desk.py; treats nothing.
"""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sickbay.catalog import Catalog
from sickbay.controller.asking import Unsaid
from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core import causes, explain, keeping
from sickbay.core.turn import Decision, NodeSlice, Now
from sickbay.model import Case, Node, NodeRecord, Notice, Sighting, Status, Verb
from sickbay.settings import Settings

REAL = ("hardware", "infrastructure")
SILENT_LEAST = 3
TEND_S = 3_600.0


class Monitor:
    def __init__(self, view: View, records: Records, catalog: Catalog, settings: Settings, unsaid: Unsaid) -> None:
        self._view, self._records, self._catalog, self._settings = view, records, catalog, settings
        self._unsaid = unsaid
        self._sightings: deque[Sighting] = deque(maxlen=4096)
        self._slow = True
        self._tended = 0.0
        self._reminded: set[str] = set()
        self._came: dict[str, dict[str, float]] = {}  # node -> value that came to it -> watch time
        self.over: dict[str, str] = {}  # factor -> why its case has ended by itself, until that is written
        self._silent: dict[str, set[str]] = defaultdict(set)  # pool -> nodes whose instruments say nothing

    def begin(self) -> None:
        """What the last leader saw counts too."""
        self._sightings.extend(self._records.ledger.sightings)

    # -- common causes

    def note(self, s: NodeSlice, d: Decision, now: Now) -> None:
        """Take down what is newly latched on this node, and whether its instruments speak."""
        if s.node is None:
            self._forget(s.record.node)
            return
        self.note_instruments(s.node)
        if d.record.latched == s.record.latched:
            return
        for latch in d.record.latched:
            fresh = latch.since == now.watch and latch.source == "agent"
            if fresh and self._catalog.faults[latch.fault].kind in REAL:
                came = self._newly(s.node.name, now)
                self._sightings.append(Sighting(s.node.name, latch.fault, now.watch, s.node.jobs, s.node.factors, came))
                self._remember(replace(self._sightings[-1], jobs=()), now)

    def _newly(self, name: str, now: Now) -> tuple[str, ...]:
        """Values that have come to the node within the last hour."""
        known = self._came.get(name, {})
        return tuple(sorted(key for key, at in known.items() if now.watch - at <= causes.FOLLOWS_S))

    def note_changes(self, now: Now) -> None:
        """What came to nodes since the last pass, of what a boot or a roll-out may bring."""
        while self._view.came:
            name, keys = self._view.came.popitem()
            known = {k: at for k, at in self._came.get(name, {}).items() if now.watch - at <= causes.FOLLOWS_S}
            fresh = {key: now.watch for key in keys if key.partition("=")[0] in causes.SOFTWARE}
            self._came[name] = {**fresh, **known}
            if not self._came[name]:
                del self._came[name]

    def _remember(self, sighting: Sighting, now: Now) -> None:
        """For the slow ones, and for the next leader: with the Ledger's next write."""
        ledger = self._records.ledger
        kept = causes.kept((*ledger.sightings, sighting), now.watch)
        self._records.put_ledger(replace(ledger, sightings=kept), patience=keeping.SOON_S)
        self._slow = True

    def _look_slowly(self, now: Now) -> None:
        """Roll-outs that take days: asked when something new was seen."""
        if not self._slow:
            return
        self._slow = False
        limits, sightings = self._settings.controller, self._records.ledger.sightings
        known = {s.node: self._view.nodes.get(s.node) for s in sightings}
        carried = {name: node.factors for name, node in known.items() if node is not None}
        for cause in causes.find_slow(sightings, self._view.members, limits, carried):
            if causes.is_news(cause, sightings, self._known(), limits):
                self._open(cause, now)

    def tend(self, now: Now) -> None:
        """Once an hour: causes that are over, and a word about those that are not."""
        if now.watch < self._tended + TEND_S:
            return
        self._tended = now.watch
        for factor in [f for f, s in self._view.cases.items() if s.value.factor and s.value.absence is None]:
            case = self._view.cases[factor].value
            why = causes.is_over(
                case, self._records.ledger.sightings, self._standing(case), self._view.members, now.watch
            )
            if why:
                self.over[factor] = why
                self._view.touch_node(factor)
            elif (told := causes.reminder(case, now.watch, now.wall)) and told.key not in self._reminded:
                self._reminded.add(told.key)
                self._records.put_case(replace(case, notices=(*case.notices, told)[-8:]), False, ())
                self._unsaid[told.key] = ("node", case.node, told)

    def _standing(self, case: Case) -> dict[str, int]:
        """Nodes that carry the value and have the fault on record now."""
        name, _, value = case.factor.partition("=")
        faults: Counter[str] = Counter()
        for node, stored in self._view.records.items():
            seen = self._view.nodes.get(node)
            if seen is not None and seen.factors.get(name) == value:
                faults.update({la.fault for la in stored.value.latched})
        return dict(faults)

    def spreads(self, node: Node | None, verb: Verb) -> str:
        """Why this treatment is not given now: it may bring the node onto what is suspected elsewhere; "" if not."""
        suspected = [f for f, s in self._view.cases.items() if s.value.factor and s.value.absence is None]
        if node is None or not suspected:
            return ""
        recorded = causes.brought(self._records.ledger.sightings)  # a new leader has seen no boot yet
        brings = self._view.by_boot | recorded
        key = causes.would_spread(verb, node.factors, suspected, brings)
        return f"{verb} may bring it onto {key}, which is suspected ({self._view.cases[key].value.id})" if key else ""

    def unproven(self, case: Case, node: Node | None, verb: Verb) -> str:
        """Why no other machine is asked for yet: what ails this one came with its software; "" if it did not."""
        if verb is not Verb.REPLACE or verb in case.approved or node is None:
            return ""
        faults = [d.fault for d in case.diagnoses]
        key = causes.came_with(self._records.ledger.sightings, case.node, faults, node.factors)
        return (
            f"it began within an hour after {key} had come to {case.node}: another machine may get that too. Take it "
            f"back and it is examined anew, or replace it all the same: sickbay case approve {case.id} --verb REPLACE"
            if key else ""
        )  # fmt: skip

    def taken_back(self, case: Case | None, node: Node | None) -> str:
        """What the case's faults had come with, if its node has nothing of it any more."""
        sightings = self._records.ledger.sightings
        if case is None or node is None or case.factor or not sightings:
            return ""
        return causes.taken_back(sightings, case.node, [d.fault for d in case.diagnoses], node.factors)

    def look(self, now: Now) -> None:
        """Open or widen the case about a factor that the recent sightings share."""
        limits = self._settings.controller
        self._look_slowly(now)
        while self._sightings and now.watch - self._sightings[0].seen > limits.common_factor_s:
            self._sightings.popleft()
        if len(self._sightings) < limits.common_cause_nodes:
            return
        for cause in causes.find(self._sightings, self._members(), limits, now.watch, self._known()):
            self._open(cause, now)

    def _known(self) -> list[causes.Open]:
        return [causes.opened(s.value) for s in self._view.cases.values() if s.value.factor and not s.value.absence]

    def _members(self) -> ChainMap[str, int]:
        """Nodes per factor, and per job that ran on a sick one."""
        jobs = {job for s in self._sightings for job in s.jobs}
        sizes = {f"job={job}": len(self._view.jobs[job].nodes) for job in jobs if job in self._view.jobs}
        return ChainMap(sizes, self._view.members)

    def _is_known(self, cause: causes.Cause) -> bool:
        if cause.factor in self._view.off.nodes:
            return True  # it may be what the case says that nobody can read
        stored = self._view.cases.get(cause.factor)
        return stored is not None and any(d.fault == cause.fault for d in stored.value.diagnoses)

    def _open(self, cause: causes.Cause, now: Now) -> None:
        if self._is_known(cause):
            return
        for name in cause.nodes:
            self._view.touch_node(name)
        stored = self._view.cases.get(cause.factor)
        if stored is not None:
            self._records.put_case(causes.widen(stored.value, cause, now.wall), False, ())
            return
        known = self._view.records.get(cause.factor)
        record = known.value if known else NodeRecord(cause.factor, cluster=self._settings.cluster)
        record = replace(record, last_n=record.last_n + 1)
        case = causes.case_of(cause, record.last_n, now.watch, now.wall, self._settings.cluster)
        told = explain.notice_of(case, cause.why, self._catalog, now.wall)
        case = replace(case, notices=(told,) if told else ())
        self._records.put_record(record)  # by itself, before the case: whoever deletes that does not take its number
        self._records.put_case(case, False, ())
        if told:
            self._unsaid[told.key] = ("node", case.node, told)

    def explains(self, node: Node | None) -> Mapping[str, str]:
        """Faults of this node that an open case about a common cause explains, and which case does."""
        causes = (*self._view.causes_over(node), *self._job_factors(node.name)) if node is not None else ()
        return {d.fault: case.id for case in causes for d in case.diagnoses}

    def _job_factors(self, name: str) -> Iterator[Case]:
        """A job that has left the node still explains what its nodes showed together."""
        for factor in [f for f in self._view.cases if f.startswith("job=")]:
            case = self._view.cases[factor].value
            if any(d.place.node == name for d in case.diagnoses):
                yield case

    # -- silent instruments

    def note_instruments(self, node: Node) -> None:
        """An instrument is silent when it could not look, or when nobody tells us what it saw."""
        if any(node.name in names for pool, names in self._silent.items() if pool != node.pool):
            self._forget(node.name)
        mute = node.name in self._view.silent or any(f.status is Status.UNKNOWN for f in node.findings)
        (self._silent[node.pool].add if mute else self._silent[node.pool].discard)(node.name)

    def _forget(self, name: str) -> None:
        """A node that is not there, or in another pool by now, has no instruments here that could be silent."""
        for names in self._silent.values():
            names.discard(name)

    def are_silent(self, pool: str) -> bool:
        """More than a tenth of a pool's instruments say nothing: that is about instruments, not about nodes."""
        count = len(self._silent[pool])
        if count < SILENT_LEAST:
            return False
        share = count / max(1, self._view.members.get(f"pool:{pool}", 0))
        return share > self._settings.controller.silent_share

    def tell_silence(self, now: Now, told: set[str]) -> tuple[Notice, ...]:
        """One notice per pool and day."""
        notices = []
        for pool in sorted(self._silent):
            if self.are_silent(pool) and (key := f"silent/{pool}/{int(now.watch // 86_400)}") not in told:
                told.add(key)
                notices.append(explain.silence(pool, sorted(self._silent[pool]), key, now.wall))
        return tuple(notices)
