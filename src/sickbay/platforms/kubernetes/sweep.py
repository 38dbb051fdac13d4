"""`sickbay sweep`: level-2 diagnostics (check 1) on idle GPU nodes, oldest-swept first, several at a time.

cli/sweep calls `Sweep.run`, by a CronJob as a rule. A node is closed by the maintenance taint while it is examined; the
taint carries its owner and an end, and is taken off in every ending; one that was left by a sweep that died is taken
off by the next (originals 002.12 #10: they leaked). Idle is looked at again after the taint, since work may have been
on its way. What is found is annotated for the controller (quarantine_result.py). It must never touch a node with work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from sickbay import wire
from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.conflicts import settle
from sickbay.kube.objects import NodeObject, PodObject, Taint
from sickbay.kube.results import stamp
from sickbay.model import Finding, Severity
from sickbay.platforms.kubernetes import marks, node_jobs
from sickbay.platforms.kubernetes.node_jobs import Running
from sickbay.platforms.kubernetes.quarantine_result import Verdict, annotation, verdict
from sickbay.platforms.kubernetes.sight import pods_on
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.successors import pool_of
from sickbay.platforms.kubernetes.tenants import is_work
from sickbay.platforms.kubernetes.verify import LIMITS_S, errand, findings_of, unseen

CHECKS = ("dcgm-l2",)
VALUE = "sweep"
EVERY_S = 2.0
SPARE_S = 120.0  # a taint's end lies so long after the Job's own
SYSTEM = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/disrupt", "ToBeDeletedBy")

Say = Callable[[str], None]
HandsOff = Callable[[str, str], str]  # (node, pool) -> why it is left alone, or ""


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose maintenance taint it is, and until when (wall)."""

    owner: str
    until: float


@dataclass(frozen=True, slots=True)
class Swept:
    """What became of one node."""

    node: str
    status: str  # pass | warn | fail | unknown | skipped
    why: str
    severity: Severity = Severity.NONE


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
        if why := self._closed(name):
            return Swept(name, "skipped", why)
        said: Verdict | None = None
        key = f"sweep/{self.owner}/{name}"
        try:
            if work := self._work_on(name):
                return Swept(name, "skipped", f"work arrived before the taint did: {work}")
            said = verdict(self._examined(name, key), self.checks)
            if said.status == "fail" and (work := self._work_on(name)):
                said = None
                return Swept(name, "unknown", f"work arrived while it was examined: {work}")
            return Swept(name, said.status, said.why, said.severity)
        except Stopped:
            return Swept(name, "skipped", "the sweep was stopped")
        finally:
            if said is None:
                node_jobs.stop(self.site, "check", name, key)
            self._opened(name, said, key)

    def _work_on(self, name: str) -> str:
        work = (pod for pod in pods_on(self.site, name) if is_work(self.site, pod))
        return next((f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in work), "")

    def _examined(self, name: str, key: str) -> list[Finding]:
        node = self.site.api.get(names.node(name), NodeObject)
        job = errand(key, self.checks, reserve=f"sweep by {self.owner}")
        while isinstance(stands := node_jobs.run(self.site, key, node, job), Running):
            if self.stop.wait(self.every_s):
                raise Stopped
        boot = node.status.node_info.boot_id if node.status.node_info is not None else ""
        return findings_of(self.site, key, name, self.checks, stands, boot)

    # -- the taint

    def _closed(self, name: str) -> str:
        """Taint and claim in one write; "" or why not."""
        limit = sum(LIMITS_S.get(check, 0.0) for check in self.checks)
        until = self.site.clock.now() + limit + node_jobs.START_S + SPARE_S
        claim = msgspec.json.encode(Claim(self.owner, until)).decode()

        def change(node: NodeObject) -> list[marks.Op] | str:
            if why := self._unfit(node):
                return why
            taint = Taint(self.site.keys.maintenance, marks.NO_SCHEDULE, VALUE)
            return [*marks.annotate(node, self.site.keys.sweep, claim), *marks.taint_ops(node, taint)]

        return self._changed(name, change)

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
        claim = claim_on(self.site, node)
        if claim is None or claim.until > self.site.clock.now():
            return ""
        name = node.metadata.name
        self.say(f"{name}: freed from {claim.owner}, whose sweep ended without taking its taint off")
        self._changed(name, lambda seen: freeing(self.site, seen) if claim_on(self.site, seen) == claim else "changed")
        return name


def claim_on(site: Site, node: NodeObject) -> Claim | None:
    """Who sweeps this node; one that cannot be read has ended long ago."""
    text = node.metadata.annotation(site.keys.sweep)
    try:
        return msgspec.json.decode(text.encode(), type=Claim) if text else None
    except (msgspec.MsgspecError, UnicodeError):
        return Claim("somebody", 0.0)


def room(node: NodeObject) -> list[marks.Op]:
    """A node without any annotation has no place to put one."""
    there = node.metadata.annotations
    return [] if there else [marks.same("/metadata/annotations", None), marks.add("/metadata/annotations", {})]


def freeing(site: Site, node: NodeObject) -> list[marks.Op]:
    ops = marks.annotate(node, site.keys.sweep, None)
    return ops + marks.untaint_ops(node, [(site.keys.maintenance, marks.NO_SCHEDULE)])


def _labelled(key: str, value: str) -> dict[str, Any]:
    return marks.add(f"/metadata/labels/{key.replace('~', '~0').replace('/', '~1')}", value)


def exit_code(swept: Sequence[Swept]) -> int:
    """How many failed, as the original; at most what a shell can tell from a signal."""
    return min(123, sum(one.status == "fail" for one in swept))
