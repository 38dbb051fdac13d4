"""What has happened since this process began, for /metrics: counted when it is written, from the records themselves.

controller/metered.py tells it of every write, call and notice; controller/app.py of passes and leads; metrics.py reads
it. Definitions: docs/metrics.md. It keeps nothing that the store does not have, is bounded, and must never decide or
raise: a figure is not worth a pass.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sickbay.controller.job_accounts import JobBook
from sickbay.controller.tallies import Histogram, Tally
from sickbay.controller.view import View
from sickbay.core import spans
from sickbay.model import Case, NodeRecord, Phase, Recovery, Verb

MTTR_BOUNDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 86_400.0, 604_800.0)
PASS_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REMEMBERED = 20_000  # resolved cases that may still relapse
AWAITED = 1_000  # replaced machines whose successor is not there yet
MISHAPS = ("store", "lead lost", "pass")
ASKING = (Phase.WAITING, Phase.QUEUED)  # phases in which a case asks to be admitted; in HOLDING once it is ready
LOOK_S = 10.0  # the fleet is looked over at most this often

# Words of a refusal -> its reason as a label. Refusals are sentences; tests/controller/test_accounts.py makes every
# rule of core/admit.py refuse, so that a sentence that changes is noticed.
REASONS = (
    ("the breaker is open", "breaker"), ("approval", "approval"), ("maintenance windows", "maintenance-window"),
    ("are out already", "max-out"), ("are being treated", "at-once"),
    ("may be taken out", "max-out"), ("may be treated", "at-once"), ("our drains ", "jobs-hurt"),
    (", at most ", "per-window"), ("policy.max_verb is OBSERVE", "observe-only"),
    ("the source of this verdict", "ceiling"), ("policy.per_window.", "per-window"),
)  # fmt: skip


def reason_of(case: Case) -> str:
    """Why it waits, as a label: "" when it does not, "other" for words nobody has taught us. A case that is past
    admission waits for what its action waits for (a budget, an image, a boot): that is the platform's to say."""
    if case.held or case.paused:
        return "held" if case.held else "paused"
    if not case.refusal:
        return ""
    if case.phase not in ASKING and not case.ready:
        return "platform"
    return next((reason for words, reason in REASONS if words in case.refusal), "other")


def kind_of(case: Case) -> str:
    return "common-cause" if case.factor else "newcomer" if case.newcomer else "node"


def fault_of(case: Case) -> str:
    """The gravest of its diagnoses; of equals the first."""
    return max(case.diagnoses, key=lambda d: d.severity).fault if case.diagnoses else ""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A case whose machine was replaced: its MTTR ends when the successor may take work."""

    case: Case
    since: float  # wall: a successor was first seen after this


class Accounts:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._lock = now, threading.Lock()
        self.opened, self.ends = Tally(), Tally()
        self.disruptive, self.false_disruptions = Tally(), Tally()
        self.resolved, self.relapses = Tally(), Tally()
        self.refusals, self.actions, self.notices = Tally(), Tally(), Tally()
        self.store_writes, self.store_errors = Tally(), Tally()
        self.leads, self.mishaps, self.contained = Tally(), Tally(), Tally()
        self.mttr, self.passes = Histogram(MTTR_BOUNDS), Histogram(PASS_BOUNDS)
        self.jobs = JobBook()
        self.awaited: dict[str, Awaited] = {}
        self.gated: dict[str, tuple[str, float]] = {}  # node -> (pool, wall time since when it is gated)
        self._known: dict[str, tuple[int, str]] = {}  # case -> (step, reason of its refusal) as last written
        self._healed: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()  # (place, fault) -> (case, at)
        self._uids: dict[str, float] = {}  # node objects and machines -> wall time first seen
        self._pools: set[str] = set()
        self._looked = 0.0
        for what in MISHAPS:
            self.mishaps.begin(what)
        for what in ("node", "job", "rule"):
            self.contained.begin(what)
        for what in ("stale", "failed"):
            self.store_errors.begin(what)

    def begin_lead(self) -> None:
        """What was under way when we last led went on without us: how long it took is not known, so it is not told."""
        self.leads.add()
        with self._lock:
            self.jobs.open.clear()
            self.awaited.clear()
            self._uids.clear()

    # -- what the store was told

    def know(self, values: Iterable[object]) -> None:
        """What another leader wrote is the ground to count from, and not counted again."""
        with self._lock:
            for value in values:
                if isinstance(value, Case):
                    self._known[value.id] = (value.step, reason_of(value))
                elif isinstance(value, Recovery):
                    self.jobs.know(value)
                elif isinstance(value, NodeRecord):
                    self._remember_past(value)

    def wrote(self, value: object, ended: bool) -> None:
        self.store_writes.add(type(value).__name__)
        with self._lock:
            if isinstance(value, Case):
                self._case(value, ended)
            elif isinstance(value, Recovery):
                self.jobs.wrote(value, ended)

    def _case(self, case: Case, ended: bool) -> None:
        known, reason = self._known.get(case.id), reason_of(case)
        if known is None:
            self.opened.add(kind_of(case), fault_of(case), case.pool)
            self._note_relapse(case)
        if reason and (known is None or known[1] != reason):
            self.refusals.add(reason, case.pool)
        self._known[case.id] = (case.step, reason)
        if ended:
            del self._known[case.id]
            self._end(case)

    def _end(self, case: Case) -> None:
        self.ends.add(kind_of(case), fault_of(case), case.pool, case.phase.value)
        if case.factor or case.newcomer:
            return
        if spans.is_disruptive(case):
            self.disruptive.add(case.pool)
            self.false_disruptions.add(case.pool, by=float(spans.is_false(case)))
        if case.phase is not Phase.RESOLVED:
            return
        self._remember(case)
        if not spans.is_disruptive(case):
            return
        if spans.is_replaced(case):
            if len(self.awaited) < AWAITED:
                self.awaited[case.id] = Awaited(case, _machine_left(case))
        else:
            self._returned(case, spans.end(case))

    def _returned(self, case: Case, well_at: float) -> None:
        parts = spans.split(case, well_at)
        for part, seconds in parts.items():
            self.mttr.observe(seconds, part, case.pool)
        self.mttr.observe(sum(parts.values()), "total", case.pool)

    # -- relapses: the same fault on the same part or node within seven days of its return

    def _remember(self, case: Case) -> None:
        self.resolved.add(case.pool)
        for diagnosis in case.diagnoses:
            self._heal(case.id, diagnosis.part, diagnosis.fault, spans.end(case))
            if Verb.REPLACE not in case.rungs_tried:
                self._heal(case.id, f"node {case.node}", diagnosis.fault, spans.end(case))

    def _remember_past(self, record: NodeRecord) -> None:
        for past in record.past:
            if past.end == Phase.RESOLVED.value:
                self._heal(past.case, past.part, past.fault, past.ended_at)
                if past.rung is not Verb.REPLACE:
                    self._heal(past.case, f"node {record.node}", past.fault, past.ended_at)

    def _heal(self, case: str, place: str, fault: str, at: float) -> None:
        if place:
            self._healed[(place, fault)] = (case, at)
            self._healed.move_to_end((place, fault))
        while len(self._healed) > REMEMBERED:
            self._healed.popitem(last=False)

    def _note_relapse(self, case: Case) -> None:
        again: set[str] = set()
        for diagnosis in case.diagnoses:
            for place in (diagnosis.part, f"node {case.node}"):
                healed, at = self._healed.get((place, diagnosis.fault), ("", 0.0))
                if healed and case.opened_at - at <= spans.RELAPSE_S and not case.newcomer:
                    again.add(healed)
        if again:
            self.relapses.add(case.pool, by=len(again))
            self._healed = OrderedDict((k, v) for k, v in self._healed.items() if v[0] not in again)

    # -- what the fleet shows, looked over between passes

    def look(self, view: View, monotonic: float) -> None:
        """By the thread that makes the passes, after one. Cost: one turn over nodes and jobs every few seconds."""
        if monotonic - self._looked < LOOK_S and self._uids:
            return
        self._looked, now = monotonic, self._now()
        with self._lock:
            self.jobs.look(view, now)
            self._look_at_nodes(view, now)

    def _look_at_nodes(self, view: View, now: float) -> None:
        first = not self._uids
        seen: dict[str, float] = {}
        gated: dict[str, tuple[str, float]] = {}
        for node in view.nodes.values():
            machine = f"{node.uid} {node.instance}"
            seen[machine] = self._uids.get(machine, 0.0 if first else now)
            if node.gate:
                gated[node.name] = self.gated.get(node.name, (node.pool, now))
        self._uids, self.gated = seen, gated
        self._meet_pools({node.pool for node in view.nodes.values()})
        for waiting in list(self.awaited.values()):
            self._find_successor(waiting, view, now)

    def _meet_pools(self, pools: set[str]) -> None:
        """Their figures are there before the first case is: from absent to 1 is no increase."""
        for pool in pools - self._pools:
            for tally in (self.disruptive, self.false_disruptions, self.resolved, self.relapses):
                tally.begin(pool)
            for part in (*spans.PARTS, "total"):
                self.mttr.begin(part, pool)
        self._pools |= pools

    def _find_successor(self, waiting: Awaited, view: View, now: float) -> None:
        """A machine of the same pool, first seen since the old one was being replaced, that may take work."""
        for node in view.nodes.values():
            machine = f"{node.uid} {node.instance}"
            if node.pool != waiting.case.pool or self._uids[machine] < waiting.since:
                continue
            if node.ready and not node.gate and not node.cordoned and node.name not in view.cases:
                del self.awaited[waiting.case.id]
                self._uids[machine] = 0.0  # one successor heals one case
                self._returned(waiting.case, max(now, spans.end(waiting.case)))
                return


def _machine_left(case: Case) -> float:
    treated = [at for phase, at in case.timeline if phase == Phase.REPAIRING.value]
    return treated[-1] if treated else case.opened_at
