"""`sickbay sweep`: level-2 diagnostics (check 1) on idle GPU nodes, oldest-swept first, several at a time.

cli/sweep calls `Sweep.run`, by a CronJob as a rule. A node is closed by the maintenance taint while it is examined; the
taint carries its owner and an end (claims.py), and is taken off in every ending: an API server that is away is asked
again until that end, and what a dead sweep left is taken off by the controller or the next sweep (originals 002.12 #10:
they leaked). Idle is looked at again after the taint, since work may have been on its way. What is found is annotated
for the controller (quarantine_result.py). It must never touch a node with work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from sickbay import wire
from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.conflicts import settle
from sickbay.kube.objects import NodeObject, PodObject, Taint
from sickbay.kube.results import stamp
from sickbay.model import Finding, Severity
from sickbay.platforms.kubernetes import claims, marks, node_jobs
from sickbay.platforms.kubernetes.answer import Answer, Blind
from sickbay.platforms.kubernetes.claims import Claim, claim_on, freeing
from sickbay.platforms.kubernetes.node_jobs import Errand, Running
from sickbay.platforms.kubernetes.quarantine_result import Verdict, annotation, verdict
from sickbay.platforms.kubernetes.sight import pods_on
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.successors import pool_of
from sickbay.platforms.kubernetes.tenants import is_work
from sickbay.platforms.kubernetes.verify import errand, findings_of, unseen

CHECKS = ("dcgm-l2",)
VALUE = "sweep"
EVERY_S = 2.0
PAUSES_S = (1.0, 30.0)  # between two tries to open a node: the first, and the longest
SPARE_S = 120.0  # a taint's end lies so long after the Job's own
SYSTEM = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/disrupt", "ToBeDeletedBy")

T = TypeVar("T")
Say = Callable[[str], None]
HandsOff = Callable[[str, str], str]  # (node, pool) -> why it is left alone, or ""


@dataclass(frozen=True, slots=True)
class Swept:
    """What became of one node."""

    node: str
    status: str  # pass | warn | fail | unknown | skipped
    why: str
    severity: Severity = Severity.NONE


@dataclass(frozen=True, slots=True)
class Turn:
    """One node's turn: its Job, and when our claim on the node ends (the API server's time)."""

    node: str
    key: str
    job: Errand
    until: float


class Stopped(Exception):
    """Somebody ended the sweep."""


@dataclass(slots=True)
class Sweep:
    site: Site
    owner: str
    hands_off: HandsOff = lambda node, pool: ""
    say: Say = lambda _: None
    checks: tuple[str, ...] = CHECKS
    stop: threading.Event = field(default_factory=threading.Event)
    every_s: float = EVERY_S
    only: frozenset[str] = frozenset()  # these nodes; none: all of kubernetes.gpu_selector
    keeps_out: bool = False  # standalone mode: no controller takes a failed node out, so it stays tainted for a person

    def run(self) -> list[Swept]:
        """Each examined node once. Told to stop, whatever was closed is opened before it returns."""
        nodes = self._nodes()
        freed = [name for name in map(self._freed, nodes) if name]
        chosen, skipped = self._chosen([node for node in nodes if node.metadata.name not in freed])
        self.say(
            f"{len(chosen)} nodes to examine, {len(skipped)} left alone" + (f", {len(freed)} freed" if freed else "")
        )
        if not chosen:
            return skipped
        with ThreadPoolExecutor(min(self.site.settings.sweep_at_once, len(chosen))) as pool:
            swept = list(pool.map(self._one, chosen))
        return [*swept, *skipped]

    # -- which

    def _nodes(self) -> list[NodeObject]:
        chosen = {"labelSelector": self.site.settings.gpu_selector} if self.site.settings.gpu_selector else {}
        found = self.site.api.list(names.NODES, NodeObject, **chosen)
        return [node for node in found if not self.only or node.metadata.name in self.only]

    def _chosen(self, nodes: Sequence[NodeObject]) -> tuple[list[str], list[Swept]]:
        """Idle ones, longest unswept first, as many as one sweep takes."""
        busy = self._busy()
        skipped, fit = [], []
        for node in nodes:
            name = node.metadata.name
            why = self._unfit(node) or ("it has work" if name in busy else "")
            (skipped.append(Swept(name, "skipped", why)) if why else fit.append(node))
        fit.sort(key=lambda node: (node.metadata.annotation(self.site.keys.last_sweep), node.metadata.name))
        return [node.metadata.name for node in fit[: self.site.settings.sweep_max]], skipped

    def _busy(self) -> set[str]:
        """Nodes with work. Pods that have ended are not (originals 002.12 #10)."""
        living = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        pages = self.site.api.pages(names.PODS, PodObject, **living)
        return {pod.spec.node_name for page, _ in pages for pod in page if is_work(self.site, pod)}

    def _unfit(self, node: NodeObject) -> str:
        """Why this node is left alone, apart from work."""
        meta, keys = node.metadata, self.site.keys
        if why := unseen(self.site, meta.name, node, patience_s=0.0):
            return why if isinstance(why, str) else why.why
        if node.spec.unschedulable:
            return "it is cordoned"
        if case := meta.annotation(keys.case):
            return f"case {case} has it"
        if meta.label(keys.opt_out) == "true":
            return "it is opted out"
        if meta.label(keys.mode) == "quarantine":
            return "it is in quarantine"
        ours = {keys.unhealthy, keys.maintenance, keys.newcomer, keys.case}
        tainted = [t.key for t in node.spec.taints or () if t.key in ours or t.key.startswith(SYSTEM)]
        if tainted:
            return f"it is tainted {tainted[0]}"
        return self.hands_off(meta.name, pool_of(self.site, meta.labels or {}))

    # -- one node

    def _one(self, name: str) -> Swept:
        try:
            swept = self._swept(name)
        except ApiError as error:
            swept = Swept(name, "unknown", f"the API server: {error}")
        self.say(f"{name}: {swept.status}" + (f": {swept.why}" if swept.why else ""))
        return swept

    def _swept(self, name: str) -> Swept:
        if self.stop.is_set():
            return Swept(name, "skipped", "the sweep was stopped")
        job = errand(f"sweep/{self.owner}/{name}", self.checks, reserve=f"sweep by {self.owner}")
        turn = Turn(
            name, f"sweep/{self.owner}/{name}", job, self.site.server_now() + job.limit_s + job.start_s + SPARE_S
        )
        said: Verdict | None = None
        try:  # around the closing as well: a write that was not answered may have arrived
            if why := self._closed(turn):
                return Swept(name, "skipped", why)
            if work := self._asked(turn, partial(self._work_on, name)):
                return Swept(name, "skipped", f"work arrived before the taint did: {work}")
            found = verdict(self._examined(turn), self.checks)
            if found.status == "fail" and (work := self._asked(turn, partial(self._work_on, name))):
                return Swept(name, "unknown", f"work arrived while it was examined: {work}")
            said = found
            return Swept(name, said.status, said.why, said.severity)
        except Stopped:
            return Swept(name, "skipped", "the sweep was stopped")
        finally:
            self._left(turn, said)

    def _work_on(self, name: str) -> str:
        work = (pod for pod in pods_on(self.site, name) if is_work(self.site, pod))
        return next((f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in work), "")

    def _examined(self, turn: Turn) -> list[Finding]:
        node = self._asked(turn, lambda: self.site.api.get(names.node(turn.node), NodeObject))
        while isinstance(stands := self._asked(turn, partial(self._stands, turn, node)), Running):
            self._pause()
        boot = node.status.node_info.boot_id if node.status.node_info is not None else ""
        return findings_of(self.site, turn.key, turn.node, self.checks, stands, boot)

    def _stands(self, turn: Turn, node: NodeObject) -> Answer | Running | Blind:
        """A Job that would outlast our taint is not begun: work could land beside it."""
        found = node_jobs.find(self.site, turn.job.kind, turn.node, turn.key)
        if found is not None:
            return node_jobs.standing(self.site, turn.key, found)
        if self.site.server_now() > turn.until - turn.job.limit_s - turn.job.start_s:
            return Blind("the API server was away for so long that its examination could not end in time")
        return node_jobs.start(self.site, turn.key, node, turn.job)

    def _asked(self, turn: Turn, ask: Callable[[], T]) -> T:
        """What it answers. An API server that is away is asked again as long as the node is ours."""
        while True:
            try:
                return ask()
            except ApiError as error:
                if error.refused or error.not_found or self.site.server_now() >= turn.until:
                    raise
                self._pause()

    def _pause(self) -> None:
        if self.stop.wait(self.every_s):
            raise Stopped

    # -- the taint

    def _closed(self, turn: Turn) -> str:
        """Taint and claim in one write; "" or why not."""
        claim = msgspec.json.encode(Claim(self.owner, turn.until)).decode()

        def change(node: NodeObject) -> list[marks.Op] | str:
            if why := self._unfit(node):
                return why
            taint = Taint(self.site.keys.maintenance, marks.NO_SCHEDULE, VALUE)
            return [*marks.annotate(node, self.site.keys.sweep, claim), *marks.taint_ops(node, taint)]

        return self._changed(turn.node, change)

    def _left(self, turn: Turn, said: Verdict | None) -> None:
        """A Job without an answer is ended, then the node opened: tried until our claim ends, told to stop or not."""
        pause, longest = PAUSES_S
        while True:
            last = self.site.server_now() >= turn.until  # by then the Job's own time limit has ended it
            try:
                if said is None and not last:
                    node_jobs.stop(self.site, turn.job.kind, turn.node, turn.key)
                self._opened(turn.node, said, turn.key)
                return
            except ApiError as error:
                if last:
                    self.say(
                        f"{turn.node}: its taint could not be taken off, the controller or the next sweep will: {error}"
                    )
                    return
                time.sleep(min(pause, max(0.0, turn.until - self.site.server_now())))
                pause = min(longest, 2 * pause)

    def _opened(self, name: str, said: Verdict | None, key: str) -> None:
        """Taint and claim off, and what was found on, in one write. Only our own claim."""

        def change(node: NodeObject) -> list[marks.Op] | str:
            claim = claim_on(self.site, node)
            if claim is None or claim.owner != self.owner:
                return "it is not ours"
            return [*freeing(self.site, node), *self._result(node, said, key)]

        self._changed(name, change)

    def _result(self, node: NodeObject, said: Verdict | None, key: str) -> list[marks.Op]:
        if said is None or said.status == "unknown":
            return []  # not swept: it stays the next in the row
        keys, now = self.site.keys, self.site.clock.now()
        text = annotation(node.metadata.name, VALUE, said, key, now, act=True)
        ops = marks.annotate(node, keys.quarantine_result, text) + marks.annotate(node, keys.last_sweep, stamp(now))
        if said.status == "fail":  # as the original; a pass is for the agent to say, who looks at more
            ops += [_labelled(keys.status, "fail"), _labelled(keys.severity, wire.to_originals(said.severity))]
            ops += marks.taint_ops(node, Taint(keys.unhealthy, marks.NO_SCHEDULE, "true")) if self.keeps_out else []
        return ops

    def _changed(self, name: str, change: Callable[[NodeObject], list[marks.Op] | str]) -> str:
        """Read, patch, and again while somebody else was faster. "" when done, else why not."""
        return settle(partial(self._change, name, change))

    def _change(self, name: str, change: Callable[[NodeObject], list[marks.Op] | str]) -> str:
        node = self.site.api.find(names.node(name), NodeObject)
        if node is None:
            return "it is not there any more"
        ops = change(node)
        if isinstance(ops, str) or not ops:
            return ops if isinstance(ops, str) else ""
        body = [marks.same("/metadata/uid", node.metadata.uid), *room(node), *ops]
        self.site.api.patch(names.node(name), body, NodeObject, how="json")
        return ""

    # -- what others left

    def _freed(self, node: NodeObject) -> str:
        """A claim that is past its end belongs to a sweep that died: its taint goes. Returns the node's name if so."""
        if claims.left_s(self.site, node) != 0.0:
            return ""
        name = node.metadata.name
        if owner := claims.free(self.site, name):
            self.say(f"{name}: freed from {owner}, whose sweep ended without taking its taint off")
        return name


def room(node: NodeObject) -> list[marks.Op]:
    """A node without any annotation has no place to put one."""
    there = node.metadata.annotations
    return [] if there else [marks.same("/metadata/annotations", None), marks.add("/metadata/annotations", {})]


def _labelled(key: str, value: str) -> dict[str, Any]:
    return marks.add(f"/metadata/labels/{key.replace('~', '~0').replace('/', '~1')}", value)


def exit_code(swept: Sequence[Swept]) -> int:
    """How many failed, as the original; at most what a shell can tell from a signal."""
    return min(123, sum(one.status == "fail" for one in swept))
