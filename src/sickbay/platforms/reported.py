"""A platform whose nodes speak for themselves: the same door, with each node's newest report folded into what it shows.

For platforms that carry no findings (ECS, Slurm, bare machines), and for what outsiders say of nodes (Alertmanager,
webhooks) on any platform. Composed by controller/app.py; `report` and `tell` are called by the ingest, from its own
thread. Keeps one report per node, and apart from it what each outsider said last; forgets them all at a restart: agents
and Alertmanager say everything again.

Why a report changes no version: `Node.version` is the platform's, it is written into cases (`cordon_version`), and
must mean the same after a restart without this wrapper. Neither side can undo the other all the same: the newest node
and the newest report are kept here, every showing is made of both, and showings leave one at a time, in order. So the
view, which lets an equal version through and drops a lower one, never ends with less than the newest of each.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sickbay.model import (
    TREATMENTS,
    Action,
    Change,
    Finding,
    Fleet,
    Node,
    NodeChanged,
    NodeDeleted,
    Outcome,
    Place,
    Report,
    Unguarded,
)
from sickbay.ports import Clock, Platform

Sink = Callable[[Change], None]

MOST_EARLY = 4_096  # reports kept for nodes that the platform does not show yet
EARLY_S = 3_600.0  # how long; an agent may start well before its node is shown, not a day before
MOST_OUTSIDE = 64  # findings of one outsider about one node
RESTARTED_S = 900.0  # an agent silent this long that counts lower has lost its state folder and is believed


@dataclass(frozen=True, slots=True)
class Heard:
    """A report and when it came, by our own clocks."""

    report: Report
    at: float  # wall: shown as last_check
    mono: float


class ReportedFleet:
    """ports.Platform over another one. Never calls the inner platform with its lock held: that one has its own."""

    def __init__(self, inner: Platform, clock: Clock) -> None:
        self._inner, self._clock = inner, clock
        self.verbs = inner.verbs
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}  # as the platform showed them last, without reports
        self._heard: dict[str, Heard] = {}
        self._early: OrderedDict[str, Heard] = OrderedDict()
        self._outside: dict[str, dict[str, tuple[Finding, ...]]] = {}  # node -> source -> what it says now
        self._sinks: list[Sink] = []

    # -- the ingest's side

    def knows(self, node: str) -> bool:
        """Does the platform show such a node?"""
        with self._lock:
            return node in self._nodes

    def tell(self, node: str, source: str, findings: Sequence[Finding]) -> str:
        """All that an outsider says of a node now, in place of what it said before: "taken", "same", or "unknown" when
        there is no such node, and nothing is kept. Each finding becomes one about this node, its boot and its GPU."""
        with self._lock:
            known = self._nodes.get(node)
            if known is None:
                return "unknown"
            shown, said = self._shown(known), self._outside.setdefault(node, {})
            fresh = tuple(_placed(finding, source, shown) for finding in findings[:MOST_OUTSIDE])
            if said.get(source, ()) == fresh:
                return "same"
            said[source] = fresh
            self._tell(NodeChanged(self._shown(known)))
            return "taken"

    def report(self, report: Report) -> str:
        """Take a report: "taken", "early" (no such node yet; it is kept for a while) or "old" (we have a newer one)."""
        with self._lock:
            heard = Heard(report, self._clock.now(), self._clock.monotonic())
            if _is_older(heard, self._heard.get(report.node) or self._early.get(report.node)):
                return "old"
            if report.node not in self._nodes:
                self._keep_early(heard)
                return "early"
            self._heard[report.node] = heard
            self._tell(NodeChanged(self._shown(self._nodes[report.node])))
            return "taken"

    def _keep_early(self, heard: Heard) -> None:
        self._early[heard.report.node] = heard
        self._early.move_to_end(heard.report.node)
        oldest = next(iter(self._early.values()))
        if len(self._early) > MOST_EARLY or heard.mono - oldest.mono > EARLY_S:
            self._early.popitem(last=False)

    # -- seeing

    def observe(self) -> Fleet:
        fleet = self._inner.observe()
        with self._lock:
            there = {node.name for node in fleet.nodes}
            for name in [name for name in self._nodes if name not in there]:
                self._lose(name)
            return replace(fleet, nodes=tuple(self._taken(node) for node in fleet.nodes))

    def look(self, node: str) -> Node | None:
        found = self._inner.look(node)
        with self._lock:
            return None if found is None else self._taken(found)

    def ask_after(self, node: str, instance: str) -> None:
        self._inner.ask_after(node, instance)

    def watch(self, sink: Sink) -> Callable[[], None]:
        """One watch of the inner platform per sink; reports are told to all sinks."""
        with self._lock:
            self._sinks.append(sink)
        unwatch = self._inner.watch(lambda change: self._pass_on(change, sink))

        def stop() -> None:
            with self._lock:
                if sink in self._sinks:
                    self._sinks.remove(sink)
            unwatch()

        return stop

    def _pass_on(self, change: Change, sink: Sink) -> None:
        with self._lock:
            if isinstance(change, NodeChanged):
                change = NodeChanged(self._taken(change.node))
            elif isinstance(change, NodeDeleted):
                known = self._nodes.get(change.name)
                if known is not None and known.version <= change.version:
                    self._forget(change.name)
            sink(change)

    def _tell(self, change: Change) -> None:
        for sink in tuple(self._sinks):
            sink(change)

    # -- doing

    def perform(self, action: Action) -> Outcome:
        """Passed on. Where only reports know the boot id, the guard about it is ours: the inner door cannot look."""
        with self._lock:
            known = self._nodes.get(action.place.node)
            heard = self._heard.get(action.place.node)
        if action.verb not in TREATMENTS or known is None or known.boot_id or not action.before.boot_id:
            return self._inner.perform(action)
        boot = heard.report.boot_id if heard else ""
        if action.call and boot and boot != action.before.boot_id:
            return Unguarded(f"{known.name} has booted since: {boot}, not {action.before.boot_id}")
        return self._inner.perform(replace(action, before=replace(action.before, boot_id="")))

    # -- folding one into the other (with the lock held)

    def _taken(self, node: Node) -> Node:
        """Remember a showing of the platform unless a newer one is known, and show it with its report."""
        known = self._nodes.get(node.name)
        if known is None or known.version <= node.version:
            if known is not None and (known.uid, known.instance) != (node.uid, node.instance):
                self._heard.pop(node.name, None)  # another machine under the same name: what the old one said is void
                self._outside.pop(node.name, None)
            self._nodes[node.name] = node
        early = self._early.pop(node.name, None)
        if early is not None and self._clock.monotonic() - early.mono <= EARLY_S:
            self._heard.setdefault(node.name, early)
        return self._shown(node)

    def _forget(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._heard.pop(name, None)
        self._outside.pop(name, None)

    def _lose(self, name: str) -> None:
        """Not in this look, which may be an old one: what its agent said is kept for a while."""
        heard = self._heard.get(name)
        self._forget(name)
        if heard is not None:
            self._keep_early(heard)

    def _shown(self, node: Node) -> Node:
        heard = self._heard.get(node.name)
        shown = node if heard is None else fold(node, heard.report, heard.at)
        outside = [f for said in self._outside.get(node.name, {}).values() for f in said if f.boot_id == shown.boot_id]
        return replace(shown, findings=_joined(shown.findings, tuple(outside))) if outside else shown


def _placed(finding: Finding, source: str, node: Node) -> Finding:
    """About this node as it is now. Of a boot that is over an outsider's word counts no more, so it is stamped with the
    boot in which it was said; a GPU that it names by UUID or index is found on the map of the node's agent."""
    uuid, index = finding.traits.get("uuid", ""), finding.traits.get("gpu", "")
    gpu = next((g for g in node.gpus if uuid and g.uuid == uuid), None)
    if gpu is None and not uuid and index.isdecimal():
        gpu = next((g for g in node.gpus if g.index == int(index)), None)
    number = finding.id.rpartition("/")[2]
    return replace(
        finding,
        id=f"{node.boot_id}/{number}",
        source=source,
        place=Place(node.name, gpu.pci if gpu else finding.place.device),
        boot_id=node.boot_id,
        part=gpu.serial if gpu else "",
        answers="",
    )


def fold(node: Node, report: Report, at: float) -> Node:
    """The node as the platform shows it, with what its agent said. Of another machine or boot nothing is believed."""
    if report.instance and node.instance and report.instance != node.instance:
        return node
    same_boot = not (node.boot_id and report.boot_id) or node.boot_id == report.boot_id
    return replace(
        node,
        findings=_joined(node.findings, report.findings) if same_boot else node.findings,
        last_check=max(node.last_check, at),
        gpus=report.gpus or node.gpus,
        factors={**node.factors, **report.factors} if report.factors else node.factors,
        boot_id=node.boot_id or report.boot_id,
    )


def _joined(platforms: tuple[Finding, ...], agents: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Both, each id once, worst first: an agent that also speaks through the platform is not silenced by one door."""
    if not platforms or not agents:
        return platforms or agents
    by_id = {finding.id + finding.source: finding for finding in (*platforms, *agents)}
    return tuple(sorted(by_id.values(), key=lambda f: (-f.severity, -f.at, f.id)))


def _is_older(new: Heard, known: Heard | None) -> bool:
    """The same report again, or one overtaken on the way.

    After a boot its numbers may begin anew (a state folder that does not survive): then the node's own clock decides,
    compared with itself.
    """
    if known is None or new.mono - known.mono >= RESTARTED_S or new.report.sequence > known.report.sequence:
        return False
    return new.report.boot_id == known.report.boot_id or new.report.at < known.report.at
