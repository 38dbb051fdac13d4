"""What the controller knows in memory: the newest look at every node and job, the records behind them, and indexes.

Everything here can be thrown away and read again from the platform and the store. Cost of an update follows the change,
never the size of the fleet. It decides nothing.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from sickbay.controller.hands_off import HandsOff
from sickbay.core.admit import Counts
from sickbay.core.frozen import replace
from sickbay.core.parts import is_name
from sickbay.model import (
    Case,
    Change,
    Fleet,
    Job,
    JobChanged,
    Node,
    NodeChanged,
    NodeDeleted,
    NodeRecord,
    Pause,
    Progress,
    Recovery,
    Status,
)
from sickbay.ports import Stored

HAD_MOST = 4096  # names that left and may never come back


class View:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.gone: set[str] = set()
        self.jobs: dict[str, Job] = {}
        self.records: dict[str, Stored[NodeRecord]] = {}
        self.cases: dict[str, Stored[Case]] = {}  # by node: one open case each
        self.recoveries: dict[str, Stored[Recovery]] = {}
        self.lost: dict[str, Case] = {}  # by node: open cases whose record somebody deleted
        self.read_again: set[str] = set()  # nodes left alone until now, for a record that nobody could read
        self.lost_jobs: dict[str, Recovery] = {}  # recoveries whose record somebody deleted
        self.unknown_jobs: set[str] = set()  # whose record somebody removed before anybody could read it
        self.frozen_jobs: dict[str, str] = {}  # jobs that we may neither stop nor restart, and why
        self.condemned: dict[str, tuple[str, ...]] = {}  # part -> machines that may show it all the same
        self.carriers: dict[str, tuple[str, ...]] = {}  # a GPU's serial or UUID -> the nodes that show it
        self.returned: frozenset[str] = frozenset()
        self.pauses: dict[str, Pause] = {}
        self.off = HandsOff()  # whom a record that cannot be read is about
        self.free: set[str] = set()  # ready, open for work, nothing on them
        self.members: dict[str, int] = defaultdict(int)  # nodes per factor and per scope
        self.down: dict[str, set[str]] = defaultdict(set)
        self.away: dict[str, float | None] = {}  # not ready -> watch time since when; None: seen by no pass yet
        self.touched_nodes: dict[str, None] = {}  # ordered sets
        self.touched_jobs: dict[str, None] = {}
        self.waiting_jobs: set[str] = set()
        self.retold: dict[str, None] = {}  # jobs on a node that tells other versions than before
        self.heard: dict[str, None] = {}  # whose agent has given a sign of life since the last pass
        self.silent: set[str] = set()  # whose agent we no longer hear (controller/heartbeats.py)
        self.by_boot: set[str] = set()  # "driver=580": values that a node was seen to have after a boot and not before
        self.came: dict[str, set[str]] = defaultdict(set)  # node -> values that it has and had not: seen by no pass yet
        self.joined: set[str] = set()  # names that nobody had seen before: seen by no pass yet
        self._had: dict[str, Mapping[str, str]] = {}  # factors of machines that left, by name: their successors'
        self._was_away: dict[str, tuple[str, float | None]] = {}  # objects deleted meanwhile: their machine, since when
        self.answered: set[str] = set()  # seen ready by this very process: of others nobody knows when they went away
        self._deleted: dict[str, int] = {}  # version at which a name was deleted, until the next resync
        self._began = False  # all were read once: whoever is not known by then has joined
        self._watching = False  # a node not seen before is new: not while all are read for the first time
        self._due: list[tuple[float, str, str]] = []
        self._due_at: dict[tuple[str, str], float] = {}
        self._second_looks: set[tuple[str, str]] = set()

    # -- changes from the platform

    def apply(self, change: Change) -> None:
        if isinstance(change, NodeChanged):
            self.put_node(change.node)
        elif isinstance(change, NodeDeleted):
            self._delete_node(change)
        elif isinstance(change, JobChanged):
            self.put_job(change.job)
        else:
            self._progress(change)

    def replace_all(self, fleet: Fleet) -> None:
        """A resync: what is not in it is not there any more."""
        seen = {n.name for n in fleet.nodes}
        self._deleted.clear()
        self._watching = False
        for name in [n for n in self.nodes if n not in seen]:
            self._forget(name)
            self.touch_node(name)
        for node in fleet.nodes:
            self.put_node(node)
        self._watching = self._began = True
        live = {j.id for j in fleet.jobs}
        for gone in [j for j in self.jobs if j not in live]:
            del self.jobs[gone]
            self.touch_job(gone)
        for job in fleet.jobs:
            self.put_job(job)

    def put_node(self, node: Node) -> None:
        name = node.name
        old = self.nodes.get(name)
        if old is not None and old.version > node.version:
            return  # a late answer of an older look
        if self._deleted and node.version < self._deleted.get(name, 0):
            return
        if self._deleted:
            self._deleted.pop(name, None)
        self.nodes[name] = node
        if old is None or (old.gpus is not node.gpus and old.gpus != node.gpus) or old.gone != node.gone:
            self._index_gpus(old, node)
        if old is None and self._began and not (name in self._had or name in self.records or name in self.cases):
            self.joined.add(name)
        if old is not None and old.boot_id != node.boot_id and old.instance == node.instance:
            self._note_boot(old, node)
        self._note_change(old.factors if old is not None else self._had.pop(name, None), node)
        if node.last_check and (old is None or old.last_check != node.last_check):
            self.heard[name] = None
        if node.jobs and (old is None or (old.factors is not node.factors and old.factors != node.factors)):
            self.retold.update(dict.fromkeys(node.jobs))
        if old is not None and _looks_as(old, node):
            self._index_free(node)
            if self._is_known_sick(name):
                self.touch_node(name)
            return
        self._reindex(old, node)
        self.touch_node(name)

    def _index_gpus(self, old: Node | None, new: Node | None) -> None:
        """Whoever shows the same GPU as one that goes away is looked at again: now it may be told which it is."""
        for name, gpu in _gpu_names(old):
            left = tuple(other for other in self.carriers.pop(gpu, ()) if other != name)
            if left:
                self.carriers[gpu] = left
            if len(left) == 1:
                self.touch_node(left[0])
        for name, gpu in _gpu_names(new):
            self.carriers[gpu] = (*self.carriers.get(gpu, ()), name)

    def _note_boot(self, old: Node, node: Node) -> None:
        """What a boot changed, another boot may change too."""
        if len(self.by_boot) < 256:
            self.by_boot |= {f"{k}={v}" for k, v in node.factors.items() if old.factors.get(k, v) != v}

    def _note_change(self, before: Mapping[str, str] | None, node: Node) -> None:
        """What came to it. Of one that nobody has seen before it is what few others have: only that may be new."""
        if before is node.factors or (before is None and not self._watching):
            return
        for name, value in node.factors.items():
            key = f"{name}={value}"
            rare = before is None and 2 * self.members.get(key, 0) < self.members.get("fleet", 0)
            if rare or (before is not None and before.get(name) != value):
                self.came[node.name].add(key)

    def is_news(self, node: Node) -> bool:
        """Is a pass due for it at once? A sign of life from a node that nobody has anything against can wait for the
        next one: of 5,000 agents seventeen speak every second. Called from other threads, so it only looks."""
        old = self.nodes.get(node.name)
        quiet = old is not None and old.jobs == node.jobs and _looks_as(old, node)
        return not quiet or self._is_known_sick(node.name)

    def _is_known_sick(self, name: str) -> bool:
        """Has anybody something against it? If not, work that comes to it or goes is no reason to decide anything:
        when a gang of 2,000 nodes is placed, that is 2,000 such changes."""
        known = self.records.get(name)
        latched = known is not None and bool(known.value.latched)
        return latched or name in self.cases or name in self.away or self.is_doubted(name)

    def is_doubted(self, name: str) -> bool:
        """Is it under suspicion? Then it matters when work begins on it and ends."""
        known = self.records.get(name)
        return known is not None and any(doubt.strikes for doubt in known.value.doubts)

    def _reindex(self, old: Node | None, node: Node) -> None:
        if old is not None:
            self._uncount(old)
            if old.machine != node.machine:  # ranks on a machine without power write nothing any more
                self.touched_jobs.update(dict.fromkeys((*node.jobs, *sorted(self.waiting_jobs))))
        self._count(node, +1)
        self.gone.discard(node.name)
        self._index_down(node)
        self._index_free(node)

    def _index_down(self, node: Node) -> None:
        unavailable = _is_unavailable(node)
        if node.ready == (node.name in self.away):  # it went away, or is back
            self.touched_jobs.update(dict.fromkeys(node.jobs))
        if node.ready:
            self.answered.add(node.name)
        known, since = self._was_away.pop(node.name, ("", None))
        since = since if known == node.instance else None
        (self.away.pop(node.name, None) if node.ready else self.away.setdefault(node.name, since))
        for scope in scopes_of(node):
            (self.down[scope].add if unavailable else self.down[scope].discard)(node.name)

    def _index_free(self, node: Node) -> None:
        if node.jobs or node.gone or _is_unavailable(node):
            self.free.discard(node.name)
        elif node.name not in self.free:
            self.free.add(node.name)
            self.touched_jobs.update(dict.fromkeys(sorted(self.waiting_jobs)))

    def _count(self, node: Node, by: int) -> None:
        for scope in (*scopes_of(node), *(f"{name}={value}" for name, value in node.factors.items())):
            self.members[scope] += by
            if not self.members[scope]:
                del self.members[scope]  # nodes name their own versions: what nobody has any more is forgotten

    def _uncount(self, node: Node) -> None:
        """Take it out of every count; it may come back under another pool or rack."""
        self._count(node, -1)
        for scope in scopes_of(node):
            self.down[scope].discard(node.name)

    def _delete_node(self, change: NodeDeleted) -> None:
        old = self.nodes.get(change.name)
        if old is not None and old.version > change.version:
            return
        self._forget(change.name)
        self._deleted[change.name] = change.version
        if change.gone:
            self.gone.add(change.name)
            self.touched_jobs.update(dict.fromkeys(sorted(self.waiting_jobs)))  # no rank writes there any more
        self.touch_node(change.name)

    def _forget(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is None:
            return
        self._uncount(node)
        self._index_gpus(node, None)
        if len(self._had) < HAD_MOST:
            self._had[name] = node.factors
        self.free.discard(name)
        self.silent.discard(name)
        if (since := self.away.pop(name, None)) is not None and len(self._was_away) < HAD_MOST:
            self._was_away[name] = (node.instance, since)

    def out_of_reach(self, names: Iterable[str]) -> dict[str, float | None]:
        """Those that do not answer, and since when. An object that was deleted meanwhile says nothing of its machine:
        work may go on there until its provider says that it is gone."""
        lost = {name: self._was_away[name][1] for name in names if name in self._was_away and name not in self.gone}
        return lost | {name: self.away[name] for name in names if name in self.away}

    def left_on(self, job: str) -> dict[str, float | None]:
        """Those that do not answer and are shown with ranks of this job, of whichever attempt; and since when."""
        silent = ((self.nodes[name], since) for name, since in self.away.items())
        return {node.name: since for node, since in silent if job in node.jobs or job in node.stuck}

    def machines(self, names: Iterable[str]) -> dict[str, str]:
        """What stands, or stood, behind each of them."""
        there = {name: self.nodes[name].instance for name in names if name in self.nodes}
        return {name: self._was_away[name][0] for name in names if name in self._was_away} | there

    def put_job(self, job: Job) -> None:
        old = self.jobs.get(job.id)
        if old is not None and old.version > job.version:
            return
        self.jobs[job.id] = job
        self.touch_job(job.id)
        if old is None or old.phase is not job.phase:
            for node in job.nodes:
                if node in self.cases:
                    self.touch_node(node)

    def _progress(self, p: Progress) -> None:
        """A lower step counts too: a trainer that was restarted in place begins again where it last saved."""
        job = self.jobs.get(p.job)
        if job is None or p.at < job.step_at:
            return  # a late word
        moved = not p.unread and p.step != job.step
        if moved or p.unread != job.unread:
            step, at = (p.step, p.at) if moved else (job.step, job.step_at)
            self.jobs[p.job] = replace(job, step=step, step_at=at, unread=p.unread)
            self.touch_job(p.job)

    # -- what wants a turn

    def touch_node(self, name: str) -> None:
        self.touched_nodes[name] = None

    def touch_job(self, job: str) -> None:
        self.touched_jobs[job] = None

    def causes_over(self, node: Node | None) -> list[Case]:
        """Open cases about a common cause that this node shares."""
        if node is None or not any("=" in name for name in self.cases):
            return []
        carried = [f"{k}={v}" for k, v in node.factors.items()] + [f"job={j}" for j in node.jobs]
        return [self.cases[factor].value for factor in carried if factor in self.cases]

    def explained_no_more(self, case: Case) -> None:
        """A case about a common cause is over, or its record was deleted: what it explained is each node's own again,
        and no change of a node may come for days."""
        if case.factor and case.absence is None:
            self.touched_nodes.update({name: None for name, stored in self.records.items() if stored.value.latched})

    def due(self, kind: str, name: str, at: float | None, *, second_look: bool = False) -> None:
        """Ask for a turn at this watch time; the newest wish counts. A second look is no deadline: nothing follows
        from the time alone, it is only asked again."""
        (self._second_looks.add if second_look else self._second_looks.discard)((kind, name))
        if at is None:
            self._due_at.pop((kind, name), None)
            return
        self._due_at[(kind, name)] = at
        heapq.heappush(self._due, (at, kind, name))

    def touch_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            at, kind, name = heapq.heappop(self._due)
            if self._due_at.get((kind, name)) != at:
                continue  # an older wish
            del self._due_at[(kind, name)]
            (self.touch_node if kind == "node" else self.touch_job)(name)

    def next_due(self) -> float | None:
        while self._due and self._due_at.get(self._due[0][1:]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def looks_again_next(self) -> bool:
        """What is due next is a second look and no deadline."""
        return self.next_due() is not None and self._due[0][1:] in self._second_looks

    # -- questions

    def counts(self, absent: frozenset[str] = frozenset()) -> Counts:
        return Counts(self.members, self.down, absent)

    def case_by_id(self, case_id: str) -> Case | None:
        """The open case of this name; its node may have another by now."""
        stored = self.cases.get(case_id.rpartition(".")[0])
        return stored.value if stored is not None and stored.value.id == case_id else None

    def open_cases(self) -> Iterator[Case]:
        return (stored.value for stored in self.cases.values())

    def with_room(self, gpus: int) -> set[str]:
        """Nodes that are open for work and have so many GPUs that nobody holds, whatever else lives on them."""
        roomy = (n for n in self.nodes.values() if n.gpus_allocatable - n.gpus_taken >= gpus)
        return {n.name for n in roomy if not n.gone and not _is_unavailable(n)}

    def is_off(self, name: str) -> bool:
        """May something that nobody can read be about this node?"""
        return bool(self.off.unread) and self.off.of_node(name, self.nodes.get(name)) is not None

    def active_pauses(self, wall: float) -> frozenset[str]:
        """Scopes on which hands are off now."""
        return frozenset(p.scope for p in self.pauses.values() if p.until is None or wall < p.until)

    def pause_over(self, node: Node | None, name: str, wall: float) -> Pause | None:
        if not self.pauses:
            return None
        active = self.active_pauses(wall)
        scopes = ("fleet", f"node:{name}", f"pool:{self._pool(node, name)}")
        return next((self.pauses[scope] for scope in scopes if scope in active), None)

    def _pool(self, node: Node | None, name: str) -> str:
        """Also of a node whose object somebody has just deleted: its case went on in a paused pool (seed 60029)."""
        case = self.cases.get(name) if node is None else None
        return node.pool if node else case.value.pool if case else ""

    def paused(self, node: Node | None, name: str, wall: float) -> str:
        """Why hands are off this node, or ""."""
        pause = self.pause_over(node, name, wall)
        if pause is None:
            return ""
        return f"{pause.scope} is paused by {pause.by}" + (f": {pause.why}" if pause.why else "")

    def pause_over_job(self, nodes: Sequence[str], wall: float) -> Pause | None:
        """By the first of its nodes: a gang lives in one pool."""
        return self.pause_over(*self.first_of(nodes), wall)

    def first_of(self, nodes: Sequence[str]) -> tuple[Node | None, str]:
        """Of a gang the first node; where its object is gone, the first one that tells their pool, under its name."""
        known = next((self.nodes[name] for name in nodes if name in self.nodes), None)
        return known, nodes[0] if nodes else ""


def _is_unavailable(node: Node) -> bool:
    return not node.ready or node.cordoned or node.gate


# All that anybody counts or decides by, but for a node's findings, work, heartbeat and version. (When a gang of 2,000
# nodes is placed that is 2,000 looks at this: attrgetter takes half the time of a function.)
_sight = attrgetter(
    "ready", "boot_id", "cordoned", "mark", "gate", "gone", "opted_out", "uid", "instance", "others",
    "stuck", "gpus", "gpus_allocatable", "pool", "rack", "domain", "factors", "leaving", "machine",
)  # fmt: skip


def _looks_as(old: Node, new: Node) -> bool:
    """Of a node that nobody has anything against, the same checks passed once more under other numbers is no change."""
    return _sight(old) == _sight(new) and (old.findings == new.findings or _all_passed(old) == _all_passed(new) != ())


def _gpu_names(node: Node | None) -> Iterator[tuple[str, str]]:
    """(node, name of a GPU of it), each once; none of a machine that does not exist any more."""
    if node is not None and not node.gone:
        for name in dict.fromkeys(name for gpu in node.gpus for name in (gpu.serial, gpu.uuid)):
            if is_name(name):
                yield node.name, name


def _all_passed(node: Node) -> tuple[tuple[str, str], ...]:
    """Which checks passed; () if any did not."""
    passed = tuple((f.check, f.code) for f in node.findings if f.status is Status.OK)
    return passed if len(passed) == len(node.findings) else ()


def scopes_of(node: Node) -> list[str]:
    scopes = ["fleet", f"pool:{node.pool}"]
    if node.rack:
        scopes.append(f"rack:{node.rack}")
    if node.domain:
        scopes.append(f"domain:{node.domain}")
    return scopes
