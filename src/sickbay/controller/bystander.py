"""Who is left as he is because the policy or a pause keeps our hands off, gathered over passes and told once.

Called by controller/desk.py. That people know is written on the records, so that a new leader does not say it again.
It must never decide what is done about anybody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core import bystander
from sickbay.core.bystander import Seen
from sickbay.core.keeping import LATER_S
from sickbay.core.turn import Context, Now
from sickbay.model import NodeRecord, Notice, RecoveryPhase

LOOK_S = 10.0  # it looks at every open case

ContextOf = Callable[[str, Now], Context]


class Bystander:
    def __init__(self, view: View, records: Records, context: ContextOf) -> None:
        self._view, self._records, self._context = view, records, context
        self._since: dict[tuple[bool, str], float] = {}  # job or node -> watch time since when it is to be told
        self._told: dict[str, list[float]] = defaultdict(list)  # group -> watch times of its messages
        self._look_at = float("-inf")

    def notices(self, now: Now) -> list[Notice]:
        if now.watch < self._look_at:
            return []
        self._look_at = now.watch + LOOK_S
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
            (self._note_job if each.is_job else self._note_node)(each, now)
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

    def _note_node(self, seen: Seen, now: Now) -> None:
        case = bystander.noted(self._view.cases[seen.name].value, now.wall)
        self._records.put_case(case, False, (), patience=LATER_S)
        self._records.put_record(replace(self._record(seen.name), told=seen.told), patience=LATER_S)

    def _note_job(self, seen: Seen, now: Now) -> None:
        left = bystander.left(self._view.recoveries[seen.name].value, seen.cases, now.watch)
        self._records.put_recovery(left, False, patience=LATER_S)


def _key(seen: Seen) -> tuple[bool, str]:
    return (seen.is_job, seen.name)
