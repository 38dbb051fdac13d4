"""Reading and writing the store for one leader: versions, the epoch, and what a stale write means.

Called by controller/loop.py. A StaleWrite is dropped and the record read again;
NotLeader if a newer leader wrote the Ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sickbay.controller.view import View
from sickbay.errors import AlreadyExists, NotLeader, StaleWrite
from sickbay.model import Case, Command, Ledger, NodeRecord, Part, Pause, Recovery
from sickbay.ports import Store, Stored


class Records:
    def __init__(self, store: Store, view: View, cluster: str) -> None:
        self.store, self._view, self.cluster = store, view, cluster
        self.epoch = 0
        self.ledger = Ledger(cluster=cluster)
        self._ledger_version = 0

    # -- taking the lead

    def take_over(self) -> None:
        """Become the newest epoch, then stamp every open record with it, so that an older leader's writes bounce."""
        stored = self.store.get(Ledger, "ledger")
        if stored is None:
            self._ledger_version = self.store.create(Ledger(cluster=self.cluster, epoch=1), 1)
            self.epoch, self.ledger = 1, Ledger(cluster=self.cluster, epoch=1)
        else:
            self.epoch = max(stored.epoch, stored.value.epoch) + 1
            self.ledger = replace(stored.value, epoch=self.epoch)
            self._ledger_version = self.store.commit(self.ledger, stored.version, self.epoch)
        self._load()

    def _load(self) -> None:
        view = self._view
        for case in self.store.list(Case):
            version = self.store.commit(case.value, case.version, self.epoch)
            view.cases[case.value.node] = Stored(case.value, version, self.epoch)
            view.touch_node(case.value.node)
        for recovery in self.store.list(Recovery):
            version = self.store.commit(recovery.value, recovery.version, self.epoch)
            view.recoveries[recovery.value.job] = Stored(recovery.value, version, self.epoch)
            view.touch_job(recovery.value.job)
        for record in self.store.list(NodeRecord):
            version = self.store.commit(record.value, record.version, self.epoch)
            view.records[record.value.node] = Stored(record.value, version, self.epoch)
        self.read_parts()

    def read_parts(self) -> None:
        self._view.condemned = frozenset(p.value.serial for p in self.store.list(Part) if p.value.condemned)

    def read_people(self) -> list[Command]:
        """Pauses and commands as they stand now."""
        self._view.pauses = {p.value.scope: p.value for p in self.store.list(Pause)}
        return [c.value for c in self.store.list(Command)]

    def still_leads(self) -> None:
        stored = self.store.get(Ledger, "ledger")
        if stored is None or stored.epoch > self.epoch:
            raise NotLeader("a newer controller has taken the lead")

    # -- writing

    def put_ledger(self, ledger: Ledger) -> bool:
        """Compare-and-set; False when somebody else wrote it in between (then ours is read anew)."""
        try:
            self._ledger_version = self.store.commit(ledger, self._ledger_version, self.epoch)
        except StaleWrite:
            self.still_leads()
            stored = self.store.get(Ledger, "ledger")
            assert stored is not None
            self.ledger, self._ledger_version = stored.value, stored.version
            return False
        self.ledger = ledger
        return True

    def put_record(self, record: NodeRecord) -> bool:
        old = self._view.records.get(record.node)
        try:
            if old is None:
                version = self.store.create(record, self.epoch)
            else:
                version = self.store.commit(record, old.version, self.epoch)
        except (StaleWrite, AlreadyExists):
            return self._reload_node(record.node)
        self._view.records[record.node] = Stored(record, version, self.epoch)
        return True

    def put_case(self, case: Case, ended: bool, consumes: Sequence[str]) -> bool:
        old = self._view.cases.get(case.node)
        try:
            if old is None:
                version = self.store.create(case, self.epoch)
                old = Stored(case, version, self.epoch)
            if ended:
                self.store.archive(case, old.version, self.epoch, consumes)
                self._view.cases.pop(case.node, None)
                return True
            version = self.store.commit(case, old.version, self.epoch, consumes)
        except (StaleWrite, AlreadyExists):
            return self._reload_node(case.node)
        self._view.cases[case.node] = Stored(case, version, self.epoch)
        return True

    def put_recovery(self, recovery: Recovery, ended: bool) -> bool:
        old = self._view.recoveries.get(recovery.job)
        try:
            if old is None:
                version = self.store.create(recovery, self.epoch)
                old = Stored(recovery, version, self.epoch)
            if ended:
                self.store.archive(recovery, old.version, self.epoch)
                self._view.recoveries.pop(recovery.job, None)
                return True
            version = self.store.commit(recovery, old.version, self.epoch)
        except (StaleWrite, AlreadyExists):
            return self._reload_job(recovery.job)
        self._view.recoveries[recovery.job] = Stored(recovery, version, self.epoch)
        return True

    def put_part(self, serial: str, node: str, case: str, condemned: str) -> None:
        stored = self.store.get(Part, serial)
        part = stored.value if stored else Part(serial, cluster=self.cluster)
        part = replace(
            part,
            nodes=tuple(dict.fromkeys((*part.nodes, node)))[-16:],
            cases=tuple(dict.fromkeys((*part.cases, case)))[-32:],
            condemned=condemned or part.condemned,
            strikes=part.strikes + (case not in part.cases),
        )
        if stored is None:
            self.store.create(part, self.epoch)
        else:
            self.store.commit(part, stored.version, self.epoch)

    def consume(self, commands: Sequence[str]) -> None:
        """Commands that no record carries (their target is not there any more)."""
        for command in commands:
            self.store.delete(Command, command)

    def _reload_node(self, name: str) -> bool:
        self.still_leads()
        view = self._view
        record = self.store.get(NodeRecord, name)
        view.records.pop(name, None)
        if record is not None:
            view.records[name] = record
        view.cases.pop(name, None)
        for case in self.store.list(Case):
            if case.value.node == name:
                view.cases[name] = case
        view.touch_node(name)
        return False

    def _reload_job(self, job: str) -> bool:
        self.still_leads()
        self._view.recoveries.pop(job, None)
        stored = self.store.get(Recovery, job)
        if stored is not None:
            self._view.recoveries[job] = stored
        self._view.touch_job(job)
        return False
