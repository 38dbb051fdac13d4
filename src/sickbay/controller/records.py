"""Reading and writing the store for one leader: versions, the epoch, and what a stale write means.

Called by controller/loop.py. What a pass puts is seen in the view at once and written by `flush` at its end, see
drafts.py. A stale write is dropped and the record read again; NotLeader if a newer leader wrote the Ledger. What cannot
be read is never written over, and what it is about is left alone (controller/hands_off.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any, TypeVar

from sickbay.controller import restored
from sickbay.controller.drafts import WAVES, Draft, Writers, patiently
from sickbay.controller.hands_off import LOOK_AGAIN_S, HandsOff, hands_off
from sickbay.controller.view import View
from sickbay.core import rebuild
from sickbay.core.frozen import replace
from sickbay.core.keeping import NOW
from sickbay.errors import AlreadyExists, NotLeader, StaleWrite, StoreError, Unreadable
from sickbay.model import Case, Command, Ledger, NodeRecord, Part, Pause, Recovery
from sickbay.ports import Store, Stored

log = logging.getLogger(__name__)

Attend = Callable[[str, Callable[[], object]], bool]
T = TypeVar("T")
S = TypeVar("S", NodeRecord, Case, Recovery)
LEDGER = ("Ledger", "ledger")
UNWRITTEN = 0  # the version of a record that has no place of its own yet


def _at_once(record: str, work: Callable[[], object]) -> bool:
    work()
    return True


class Records:
    def __init__(self, store: Store, view: View, cluster: str) -> None:
        self.store, self._view, self.cluster = store, view, cluster
        self.epoch = 0
        self.ledger = Ledger(cluster=cluster)
        self._ledger_version = 0
        self._ledger_watch = 0.0  # watch time in the Ledger as it was last written
        self._looked = 0.0  # monotonic: when we last asked what cannot be read
        self._writers = Writers(store)
        self.attend: Attend = _at_once  # who contains what is raised about one record
        self._drafts: dict[tuple[str, str], Draft] = {}  # by kind and key, in the order of their first put
        self.reread: set[str] = set()  # whose decision of this pass was dropped
        self.spoilt: list[tuple[Draft, Exception]] = []  # what could not be written in this pass, and why

    # -- taking the lead

    def take_over(self) -> None:
        """Become the newest epoch, then stamp every open record with it, so that an older leader's writes bounce."""
        self._view.off = hands_off(self.store.unread())
        stored = None if self._view.off.ledger else self.store.get(Ledger, "ledger")
        if self._view.off.ledger:
            self._do_without_ledger()
        elif stored is None:
            self.epoch = self._last_epoch() + 1
            self.ledger = Ledger(cluster=self.cluster, epoch=self.epoch)
            self._ledger_version = self.store.create(self.ledger, self.epoch)
        else:
            self.epoch = max(stored.epoch, stored.value.epoch) + 1
            self.ledger = replace(stored.value, epoch=self.epoch)
            self._ledger_version = self.store.commit(self.ledger, stored.version, self.epoch)
        self._ledger_watch = self.ledger.watch_time
        self._load()
        self._catch_up()

    def _of_record(self, record: Case | Recovery | NodeRecord, ask: Callable[[], T], otherwise: T) -> T:
        """What one record says; an error of ours about it costs no other record, and not the lead."""
        said: list[T] = []
        name = record.id if isinstance(record, Case) else record.job if isinstance(record, Recovery) else record.node
        self.attend(name, lambda: said.append(ask()))
        return said[0] if said else otherwise

    def _last_epoch(self) -> int:
        """As stamped on the records: a Ledger that was deleted must not let an older leader's writes in again."""
        kinds: tuple[type[Any], ...] = (Case, Recovery, NodeRecord, Part)
        return max((stored.epoch for kind in kinds for stored in self.store.list(kind)), default=0)

    def _catch_up(self) -> None:
        """The Ledger says no less than the records know."""
        view = self._view
        cases = [stored.value for stored in view.cases.values()]
        recoveries = (stored.value for stored in view.recoveries.values())
        passed = self.ledger.watch_time if isfinite(self.ledger.watch_time) else 0.0
        records: list[Case | Recovery | NodeRecord] = [*cases, *recoveries]
        for record in (*records, *(stored.value for stored in view.records.values())):
            passed = max(passed, self._of_record(record, partial(rebuild.watched, record), 0.0))
        caught = replace(self.ledger, watch_time=passed)
        for case in () if self._view.off.ledger else cases:
            seats = self._of_record(case, partial(rebuild.seats, caught, (case,)), caught.seats)
            caught = replace(caught, seats=seats)
        if caught.seats != self.ledger.seats:
            self.put_ledger(caught)
        self.ledger = caught

    def _do_without_ledger(self) -> None:
        """It says who leads and who holds which place. The lead's lock still says the first; for the second, hands are
        off the fleet until it can be read. Times of the records go on from the latest they know."""
        last = max(one.epoch for one in self._view.off.unread if one.kind is Ledger)
        self.epoch = last + 1
        watched = max((stored.value.entered for stored in self.store.list(Case)), default=0.0)
        self.ledger = Ledger(cluster=self.cluster, epoch=self.epoch, watch_time=watched)

    def _load(self) -> None:
        view = self._view
        for case in self._stamped(self.store.list(Case)):
            view.cases[case.value.node] = case
            view.touch_node(case.value.node)
        for recovery in self._stamped(self.store.list(Recovery)):
            view.recoveries[recovery.value.job] = recovery
            view.touch_job(recovery.value.job)
        for record in self._stamped(self.store.list(NodeRecord)):
            view.records[record.value.node] = record
        for case in view.cases.values():
            self._carried(case.value)
        self._heed_numbers()
        self.read_parts()

    def _heed_numbers(self) -> None:
        """A case that cannot be read has a number all the same; so had one that a place is kept for, though it is not
        there any more. Whoever leads remembers it: such a record may be removed, or be gone from a store that is put
        back, and the next case had its number (seed 1670)."""
        used = (*(seat.case for seat in self.ledger.seats), *self._view.off.cases)
        for name, number in rebuild.numbers(used).items():
            self._never_repeat(name, number)

    def _carried(self, case: Case) -> None:
        """An open case knows its node's record better than the record's own place, which is as it was before."""
        if case.record is not None:
            old = self._view.records.get(case.node)
            self._view.records[case.node] = Stored(case.record, old.version if old else UNWRITTEN, self.epoch)

    def _stamped(self, found: list[Stored[S]]) -> list[Stored[S]]:
        drafts = [Draft(stored.value, stored.version) for stored in found]
        versions = self._writers.write(drafts, self.epoch)
        if None in versions:
            raise NotLeader("somebody else writes while we take over")
        return [  # one that cannot be written is taken as it was read: what is decided about it will show why
            Stored(stored.value, version or 0, self.epoch) if isinstance(version, int) else stored
            for stored, version in zip(found, versions, strict=True)
        ]

    def read_parts(self) -> None:
        condemned = [p.value for p in self.store.list(Part) if p.value.condemned]
        self._view.condemned = {part.serial: part.unseen for part in condemned}
        self._view.returned = frozenset(part.serial for part in condemned if part.strikes > 1)

    def read_people(self) -> list[Command]:
        """Pauses and commands as they stand now."""
        pauses = {p.value.scope: p.value for p in patiently(lambda: self.store.list(Pause))}
        self._view.pauses = pauses | self._view.off.pauses()
        return [c.value for c in patiently(lambda: self.store.list(Command))]

    def find_lost(self) -> None:
        """Open cases whose record somebody deleted, told by the store: one at rest is written to by nobody for days."""
        written = {stored.value.id: name for name, stored in self._view.cases.items() if stored.version}
        missing = patiently(lambda: self.store.missing(Case, written)) if written else []
        if missing:  # a newer leader ends cases: that is no person who deleted one
            self.still_leads()
        for name in [written[case_id] for case_id in missing]:
            self.attend(name, partial(self._lose, name))
        self._find_lost_jobs()

    def _lose(self, name: str) -> None:
        if self._is_archived(self._view.cases[name].value):
            self._reload_node(name)  # it has ended: nobody deleted it
        else:
            self._forget(name)

    def _find_lost_jobs(self) -> None:
        written = [job for job, stored in self._view.recoveries.items() if stored.version]
        missing = patiently(lambda: self.store.missing(Recovery, written)) if written else []
        if missing:
            self.still_leads()
        for job in missing:
            self._drafts = {key: draft for key, draft in self._drafts.items() if draft.owner != job}
            self._miss(self._view.recoveries.pop(job))
            self._view.touch_job(job)

    def _miss(self, known: Stored[Recovery]) -> None:
        """It is not there any more: what that means is for core to say, unless it has ended."""
        if known.version and not self._has_ended(known.value):
            self._view.lost_jobs[known.value.job] = known.value

    def _forget(self, name: str) -> None:
        """What was remembered of its node, its number above all, was in that record: it is written by itself now."""
        self._drafts = {key: draft for key, draft in self._drafts.items() if draft.owner != name}
        self._view.lost[name] = self._view.cases.pop(name).value
        if name in self._view.records:
            self.put_record(self._view.records[name].value)
        self._view.touch_node(name)
        self._view.explained_no_more(self._view.lost[name])

    # -- a store that was put back

    def heed_restore(self, at: float) -> None:
        """Was the store put back to what it held hours ago? Then what we know is written over it, at the end of this
        pass: what ended stays ended, and what was sent is not sent again."""
        if self._view.off.ledger or not self.store.moved(Ledger, LEDGER[1], self._ledger_version):
            return
        found = patiently(lambda: self.store.get(Ledger, LEDGER[1]))
        if found is None or not restored.is_older(found, self._ledger_watch, self.epoch):
            return
        log.warning("the store was put back to an earlier state: what we know is written over it epoch=%d", self.epoch)
        self._rewrite(self.ledger, LEDGER[1], found.version)
        self._ledger_version = found.version
        self._rewrite_nodes()
        self._rewrite_cases(at)
        self._rewrite_recoveries(at)

    def _rewrite_nodes(self) -> None:
        view, there = self._view, {stored.value.node: stored for stored in self.store.list(NodeRecord)}
        for name, known in list(view.records.items()):
            version = there[name].version if name in there else UNWRITTEN
            if version != known.version:
                view.records[name] = replace(known, version=version)
                if name not in view.cases or view.cases[name].value.record is None:  # else its case carries it
                    self._rewrite(known.value, name, version or None)
        view.records.update({name: stored for name, stored in there.items() if name not in view.records})

    def _rewrite_cases(self, at: float) -> None:
        view, there = self._view, {stored.value.id: stored for stored in self.store.list(Case)}
        for name, known in list(view.cases.items()):
            stored = there.pop(known.value.id, None)
            if stored is None or stored.version != known.version:
                self._rewrite(known.value, known.value.id, stored.version if stored else None)
                view.cases[name] = replace(known, version=stored.version if stored else UNWRITTEN)
            view.touch_node(name)
        for case, stored in there.items():
            self.attend(case, partial(self._end_again, stored, at))

    def _end_again(self, stored: Stored[Case], at: float) -> None:
        ended = restored.ended_case(stored.value, self._view, at)
        self._rewrite(ended, stored.value.id, stored.version, ended=True)
        self._view.touch_node(stored.value.node)

    def _rewrite_recoveries(self, at: float) -> None:
        view, there = self._view, {stored.value.job: stored for stored in self.store.list(Recovery)}
        for job, known in list(view.recoveries.items()):
            stored = there.pop(job, None)
            if stored is None or stored.version != known.version:
                self._rewrite(known.value, job, stored.version if stored else None)
                view.recoveries[job] = replace(known, version=stored.version if stored else UNWRITTEN)
            view.touch_job(job)
        for job, stored in there.items():
            self._rewrite(restored.ended_recovery(stored.value, view, at), job, stored.version, ended=True)

    def _rewrite(
        self, value: Ledger | NodeRecord | Case | Recovery, key: str, version: int | None, *, ended: bool = False
    ) -> None:
        self._draft(value, key, version, ended)
        draft = self._drafts.get((type(value).__name__, key))
        if draft is not None:  # one that waited for its next write was for the version that is gone
            draft.version = version

    # -- what cannot be read

    def wants_a_look(self, mono: float) -> bool:
        """Is it time to see whether somebody has mended what could not be read?"""
        return bool(self._view.off.unread) and mono - self._looked >= LOOK_AGAIN_S

    def read_unread(self, mono: float) -> None:
        """Whom to leave alone from now on; what can be read again is taken up."""
        self._looked = mono
        self._leave_alone()

    def _leave_alone(self) -> None:
        view, found = self._view, tuple(patiently(self.store.unread))
        if found == view.off.unread:
            return
        before, view.off = view.off, hands_off(found)
        for one in set(found) - set(before.unread):
            log.warning("unreadable record=%r where=%r why=%r", one.name, one.where, one.why)
        if before.ledger != view.off.ledger:
            raise NotLeader(f"the Ledger can{'not be read any more' if view.off.ledger else ' be read again'}")
        self._drafts = {name: draft for name, draft in self._drafts.items() if not self._is_left_alone(draft)}
        for name in before.nodes.keys() - view.off.nodes.keys():
            self._reload_node(name)
            view.read_again.add(name)  # also what is no node: the case about many that are away has a time limit too
        for job in before.jobs.keys() - view.off.jobs.keys():
            self._reload_job(job)
            if job not in view.recoveries and job not in view.lost_jobs:  # whoever leads by now has never read it
                view.unknown_jobs.add(job)
        if before.parts.keys() != view.off.parts.keys():
            self.read_parts()
        self._heed_numbers()
        self._take_up(before)

    def _is_left_alone(self, draft: Draft) -> bool:
        off = self._view.off.jobs if isinstance(draft.value, Recovery) else self._view.off.nodes
        return draft.owner in off

    def _take_up(self, before: HandsOff) -> None:
        """Whoever was left alone, for a record of its own, of a cause that it shares or of a part in it, and is not any
        more: what came due meanwhile was passed over, and nothing else would wake it (seed 1315)."""
        for name, node in self._view.nodes.items():
            if before.of_node(name, node) is not None and not self._view.is_off(name):
                self._view.read_again.add(name)
                self._view.touch_node(name)

    def still_leads(self) -> None:
        if self._view.off.ledger:
            return  # the lock says who leads
        try:
            stored = patiently(lambda: self.store.get(Ledger, "ledger"))
        except Unreadable as error:
            raise NotLeader(f"the Ledger cannot be read any more: {error}") from error
        if stored is None:
            self._make_ledger_again()
        elif stored.epoch > self.epoch:
            raise NotLeader("a newer controller has taken the lead")
        elif stored.epoch < self.epoch:  # it was deleted, and a leader of before us has made it again
            with suppress(StaleWrite):  # that one wrote once more: the next look finds out
                self._ledger_version = self.store.commit(self.ledger, stored.version, self.epoch)

    def _make_ledger_again(self) -> None:
        """Somebody deleted it. We know what it said, unless somebody leads by now who has not missed it yet: whoever
        takes the lead stamps every record."""
        if self._last_epoch() > self.epoch:
            raise NotLeader("a newer controller has taken the lead; it will miss the Ledger")
        try:
            self._ledger_version = self.store.create(self.ledger, self.epoch)
        except AlreadyExists as taken:
            raise NotLeader("a newer controller has taken the lead") from taken
        log.warning("the Ledger was deleted and is written again epoch=%d", self.epoch)

    # -- putting: seen in the view at once, written by flush

    def put_ledger(self, ledger: Ledger, *, patience: float = NOW) -> None:
        self.ledger = ledger
        if not self._view.off.ledger:
            self._draft(ledger, LEDGER[1], self._ledger_version, patience=patience)

    def put_record(self, record: NodeRecord, *, patience: float = NOW) -> None:
        """With the node's open case if there is one, so that both are one write; by itself when there is none."""
        old, case = self._view.records.get(record.node), self._view.cases.get(record.node)
        version = old.version if old else UNWRITTEN
        self._view.records[record.node] = Stored(record, version, self.epoch)
        if case is not None:
            waiting = self._drafts.get((NodeRecord.__name__, record.node))
            if waiting is not None and waiting.patience != NOW:
                del self._drafts[NodeRecord.__name__, record.node]  # the case says more
            self.put_case(replace(case.value, record=record), False, (), patience=patience)
        else:
            self._draft(record, record.node, version or None, patience=patience)

    def put_case(
        self, case: Case, ended: bool, consumes: Sequence[str], *, patience: float = NOW,
        first: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        old = self._view.cases.get(case.node)
        case = replace(case, record=None) if ended else case
        self._draft(case, case.id, old.version if old else None, ended, consumes, patience, first)
        if ended:
            self._view.cases.pop(case.node, None)
        else:
            self._view.cases[case.node] = Stored(case, old.version if old else 0, self.epoch)

    def put_recovery(
        self, recovery: Recovery, ended: bool, consumes: Sequence[str] = (), *, patience: float = NOW
    ) -> None:
        old = self._view.recoveries.get(recovery.job)
        self._draft(recovery, recovery.job, old.version if old else None, ended, consumes, patience)
        if ended:
            self._view.recoveries.pop(recovery.job, None)
        else:
            self._view.recoveries[recovery.job] = Stored(recovery, old.version if old else 0, self.epoch)

    def _draft(
        self, value: Ledger | NodeRecord | Case | Recovery, key: str, version: int | None, ended: bool = False,
        consumes: Sequence[str] = (), patience: float = NOW, first: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        name, patience = (type(value).__name__, key), patience if self.store.frugal else NOW
        draft = self._drafts.get(name)
        if draft is None:
            draft = Draft(value, version, patience=patience)
            if self._is_left_alone(draft):
                return
            self._drafts[name] = draft
        draft.value, draft.ended = value, ended
        draft.consumes = (*draft.consumes, *consumes)
        draft.first.extend((first,) if first else ())
        draft.hurry(NOW if consumes or ended else patience)

    # -- writing

    def flush(self, watch: float) -> bool:
        """Write what this pass has put. What somebody else had moved is read again, and will be decided again.

        True when the Ledger was among it: then nobody else leads, and nobody need ask."""
        due = {name: draft for name, draft in self._drafts.items() if draft.is_due(watch)}
        if not due:
            return False
        for name in due:
            del self._drafts[name]
        for wave in range(WAVES):
            if drafts := [draft for draft in due.values() if draft.wave == wave]:
                self._write(drafts, due)
        return LEDGER in due

    def next_due(self, watch: float) -> float:
        """When the next of what waits falls due: nobody may sleep longer, or the ward list is older than promised."""
        return min((draft.falls_due(watch) for draft in self._drafts.values()), default=float("inf"))

    def _write(self, drafts: list[Draft], due: dict[tuple[str, str], Draft]) -> None:
        ready = [draft for draft in drafts if self._is_ready(draft, due)]
        for draft, version in zip(ready, self._writers.write(ready, self.epoch), strict=True):
            if isinstance(version, Exception):
                self._spoilt(draft, version, due)
            elif version is None:
                self._lost(draft, due)
            else:
                self._written(draft, version)

    def _is_ready(self, draft: Draft, due: dict[tuple[str, str], Draft]) -> bool:
        """What must be written before it is."""
        try:
            for before in draft.first:
                before()
        except (NotLeader, StoreError):
            raise
        except Exception as error:
            self._spoilt(draft, error, due)
            return False
        return True

    def _spoilt(self, draft: Draft, error: Exception, due: dict[tuple[str, str], Draft]) -> None:
        """It cannot be written at all: nothing that was decided with it is, and its owner is left alone."""
        self.spoilt.append((draft, error))
        self._drop(draft, due)

    def _written(self, draft: Draft, version: int) -> None:
        """Values stay as they are in the view, which may know more by now; the version is the new one."""
        value, view = draft.value, self._view
        if isinstance(value, Ledger):
            self._ledger_version, self._ledger_watch = version, value.watch_time
        elif isinstance(value, NodeRecord):
            _new_version(view.records, value.node, version)
        elif not draft.ended:
            if isinstance(value, Case):
                view.read_again.discard(value.node)  # not before: what was decided may have been dropped (seed 1528)
                _new_version(view.cases, value.node, version)
            else:
                _new_version(view.recoveries, value.job, version)

    def _lost(self, draft: Draft, due: dict[tuple[str, str], Draft]) -> None:
        """Somebody else moved it: nothing that was decided with it may be written. No seat is known: no case moves."""
        self.still_leads()
        self._leave_alone()
        self._drop(draft, due)

    def _drop(self, draft: Draft, due: dict[tuple[str, str], Draft]) -> None:
        if isinstance(draft.value, Ledger):
            stored = self.store.get(Ledger, "ledger")
            assert stored is not None
            self.ledger, self._ledger_version = stored.value, stored.version
            self._ledger_watch = stored.value.watch_time
            fallen = [name for name, other in due.items() if other.wave > 0]
        else:
            fallen = [name for name, other in due.items() if other.owner == draft.owner and other is not draft]
        for other in [draft, *(due.pop(name) for name in fallen)]:
            self._reload(other)

    def _reload(self, draft: Draft) -> None:
        self._drafts = {name: other for name, other in self._drafts.items() if other.owner != draft.owner}
        if isinstance(draft.value, Recovery):
            self._reload_job(draft.value.job)
        elif not isinstance(draft.value, Ledger):
            self._reload_node(draft.value.node)

    def undo(self, kind: str, owner: str) -> None:
        """Whoever decided about it raised: nothing of that is written, its number neither, and what is on record counts
        again."""
        (self._reload_node if kind == "node" else self._reload_job)(owner)
        self._drafts = {name: draft for name, draft in self._drafts.items() if draft.owner != owner}

    def put_part(self, serial: str, node: str, case: str, condemned: str, unseen: tuple[str, ...]) -> None:
        """Written at once. The same case may say it again: it counts once."""
        try:
            patiently(lambda: self._put_part(serial, node, case, condemned, unseen))
        except Unreadable as error:
            log.warning("part=%s case=%s is not noted: %s", serial, case, error)

    def _put_part(self, serial: str, node: str, case: str, condemned: str, unseen: tuple[str, ...]) -> None:
        stored = self.store.get(Part, serial)
        part = stored.value if stored else Part(serial, cluster=self.cluster)
        part = replace(
            part,
            nodes=tuple(dict.fromkeys((*part.nodes, node)))[-16:],
            cases=tuple(dict.fromkeys((*part.cases, case)))[-32:],
            condemned=condemned or part.condemned,
            unseen=unseen if condemned and case not in part.cases else part.unseen,
            strikes=part.strikes + (case not in part.cases),
        )
        if stored is None:
            self.store.create(part, self.epoch)
        else:
            self.store.commit(part, stored.version, self.epoch)

    def pardon(self, parts: Sequence[tuple[str, str]]) -> None:
        """A verdict that a person has lifted: it stays on record, with who and why."""
        for serial, why in parts:
            try:
                patiently(partial(self._pardon, serial, why))
            except Unreadable as error:
                log.warning("part=%s is not pardoned: %s", serial, error)
        self.read_parts()

    def _pardon(self, serial: str, why: str) -> None:
        stored = self.store.get(Part, serial)
        if stored is not None and stored.value.condemned:
            said = f"{why} (it was condemned for {stored.value.condemned})"
            self.store.commit(replace(stored.value, condemned="", pardoned=said), stored.version, self.epoch)

    def consume(self, commands: Sequence[str]) -> None:
        """Commands that no record carries (their target is not there any more)."""
        for command in commands:
            self.store.delete(Command, command)

    def close(self) -> None:
        self._writers.close()

    def _reload_node(self, name: str) -> None:
        view = self._view
        if name in view.off.nodes:
            return  # what we know stays as it is, and nothing is decided by it
        known = view.records.pop(name, None)
        record = self.store.get(NodeRecord, name)
        if record is not None:
            view.records[name] = record
        open_case = view.cases.pop(name, None)
        for case in self.store.list(Case):
            if case.value.node == name:
                view.cases[name] = case
                self._carried(case.value)
        if open_case is not None and name not in view.cases:
            view.explained_no_more(open_case.value)
            if open_case.version != UNWRITTEN and not self._is_archived(open_case.value):  # else nobody deleted it
                view.lost[name] = open_case.value
        self._never_repeat(name, known.value.last_n if known else 0)
        if record is None:
            self._never_repeat(name, self.last_ended(name))
        self.reread.add(name)
        view.touch_node(name)

    def last_ended(self, name: str) -> int:
        """The number of its last case in the archive: somebody may have removed the record that said it."""
        ended = patiently(lambda: list(self.store.history(Case, node=name, limit=1)))
        return rebuild.numbers(case.id for case in ended).get(name, 0)

    def numbered_on(self, record: NodeRecord) -> NodeRecord:
        """The same, with the next number. One that knows of no case may have been made anew."""
        return replace(record, last_n=(record.last_n or self.last_ended(record.node)) + 1)

    def _is_archived(self, case: Case) -> bool:
        """By us, perhaps, and only the answer got lost."""
        return any(ended.id == case.id for ended in self.store.history(Case, node=case.node, limit=8))

    def _has_ended(self, recovery: Recovery) -> bool:
        """By us, perhaps, and only the answer got lost. A job may have had other recoveries before this one."""
        node = recovery.nodes[0] if recovery.nodes else ""
        past = self.store.history(Recovery, node=node, limit=64)
        first = recovery.journal[:1]
        return any(ended.job == recovery.job and ended.journal[:1] == first for ended in past)

    def _never_repeat(self, name: str, last_n: int) -> None:
        """Somebody may have deleted the case that carried the number: its actions were asked for by that number. It is
        written at once: an open case that rests with a person has no next write that would carry it."""
        stored = self._view.records.get(name)
        record = stored.value if stored else NodeRecord(name, cluster=self.cluster)
        if record.last_n < last_n:
            self.put_record(replace(record, last_n=last_n))

    def _reload_job(self, job: str) -> None:
        if job in self._view.off.jobs:
            return
        known = self._view.recoveries.pop(job, None)
        stored = self.store.get(Recovery, job)
        if stored is not None:
            self._view.recoveries[job] = stored
        elif known is not None:
            self._miss(known)
        self.reread.add(job)
        self._view.touch_job(job)


def _new_version(shelf: dict[str, Stored[S]], key: str, version: int) -> None:
    if key in shelf:
        shelf[key] = replace(shelf[key], version=version)
