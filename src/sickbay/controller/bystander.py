"""Who is left as he is because the policy or a pause keeps our hands off, gathered over passes and told once.

Called by controller/desk.py. That people know is written on the records at once, so that a new leader does not say it
again. It must never decide what is done about anybody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core import bystander
from sickbay.core.bystander import Seen
from sickbay.core.keeping import NOW
from sickbay.core.turn import Context, Now
from sickbay.model import NodeRecord, Notice, RecoveryPhase

LOOK_S = 10.0  # it looks at every open case

ContextOf = Callable[[str, Now], Context]


class Bystander:
    def __init__(self, view: View, records: Records, context: ContextOf) -> None:
        self._view, self._records, self._context = view, records, context
        self._since: dict[tuple[bool, str], float] = {}  # job or node -> watch time since when it is to be told
        self._told: dict[str, list[float]] = defaultdict(list)  # group -> watch times of its messages
        self._noted: dict[tuple[bool, str], tuple[Seen, Now]] = {}  # not yet seen to be on record
        self._look_at = float("-inf")

    def notices(self, now: Now) -> list[Notice]:
        if now.watch < self._look_at:
            return []
        self._look_at = now.watch + LOOK_S
        self._note_again()
        seen = [*self._nodes(now), *self._jobs(now)]
        self._since = {_key(each): self._since.get(_key(each), now.watch) for each in seen}
        groups: dict[str, list[Seen]] = defaultdict(list)
        for each in seen:
            groups[f"{each.bar.group}/{'jobs' if each.is_job else 'nodes'}"].append(each)
        return [notice for group, some in sorted(groups.items()) for notice in self._tell(group, some, now)]

    def _tell(self, group: str, seen: list[Seen], now: Now) -> list[Notice]:
        lately = [at for at in self._told[group] if now.watch - at < bystander.HOUR_S]
        first = min(self._since[_key(each)] for each in seen)
        if now.watch < first + bystander.wait_s(lately, now.watch):
            return []
        self._told[group] = [*lately, now.watch]
        for each in seen:
            self._note(each, now)
        return bystander.notices(seen, now.watch, now.wall)

    # -- who

    def _nodes(self, now: Now) -> Iterator[Seen]:
        view, contexts = self._view, dict[str, Context]()
        for case in view.open_cases():
            if case.phase not in bystander.PHASES or view.is_off(case.node):
                continue
            if case.pool not in contexts:
                contexts[case.pool] = self._context(case.pool, now)
            ctx, node = contexts[case.pool], view.nodes.get(case.node)
            pause = view.pause_over(node, case.node, now.wall) if case.paused else None
            if each := bystander.of_case(case, self._record(case.node), ctx, pause, node.jobs if node else ()):
                yield each

    def _record(self, name: str) -> NodeRecord:
        known = self._view.records.get(name)
        return known.value if known else NodeRecord(name, cluster=self._records.cluster)

    def _jobs(self, now: Now) -> Iterator[Seen]:
        view = self._view
        for job_id, why in view.frozen_jobs.items():
            stored, job = view.recoveries.get(job_id), view.jobs.get(job_id)
            if stored is None or stored.value.phase is RecoveryPhase.RUNNING or job_id in view.off.jobs:
                continue
            nodes = job.nodes if job else stored.value.nodes
            cases = [view.cases[name].value for name in nodes if name in view.cases]
            pause = view.pause_over_job(nodes, now.wall)
            if each := bystander.of_job(stored.value, job, cases, self._context("default", now), pause, why):
                yield each

    # -- that they were told

    def _note(self, seen: Seen, now: Now) -> None:
        self._noted[_key(seen)] = (seen, now)
        (self._note_job if seen.is_job else self._note_node)(seen, now)

    def _note_again(self) -> None:
        """Where somebody else had moved the record, the note was dropped and the notice was not: people heard the same
        words again within minutes (seeds 43, 178)."""
        for key, (seen, at) in list(self._noted.items()):
            if self._is_unread(seen):
                continue
            if self._is_dropped(seen, at):
                self._note(seen, at)
            else:
                del self._noted[key]

    def _is_unread(self, seen: Seen) -> bool:
        return seen.name in self._view.off.jobs if seen.is_job else self._view.is_off(seen.name)

    def _is_dropped(self, seen: Seen, at: Now) -> bool:
        """From the same case, or the same story of the job: of another one nobody was told."""
        if seen.is_job:
            stored = self._view.recoveries.get(seen.name)
            began = next((entry.at for entry in stored.value.journal), at.wall) if stored else at.wall
            left = stored.value.left_at if stored else at.watch
            return began < at.wall and (left is None or left < at.watch)
        case, known = self._view.cases.get(seen.name), self._record(seen.name).told
        return case is not None and case.value.id == seen.case and not _fresh(seen, at).keys() <= known.keys()

    def _note_node(self, seen: Seen, now: Now) -> None:
        case, record = bystander.noted(self._view.cases[seen.name].value, now.wall), self._record(seen.name)
        told = bystander.remembered(record.told, _fresh(seen, now))
        self._records.put_case(case, False, (), patience=NOW)
        self._records.put_record(replace(record, told=told), patience=NOW)

    def _note_job(self, seen: Seen, now: Now) -> None:
        left = bystander.left(self._view.recoveries[seen.name].value, seen.cases, now.watch)
        self._records.put_recovery(left, False, patience=NOW)


def _key(seen: Seen) -> tuple[bool, str]:
    return (seen.is_job, seen.name)


def _fresh(seen: Seen, now: Now) -> dict[str, float]:
    """Of what its record remembers: what people were told then."""
    return {key: at for key, at in seen.told.items() if at == now.watch}
