"""The originals' behaviour on the same Platform door: what `sickbay sim compare` sets Sickbay against.

A small, faithful stand-in of the DCGM monitor and its reboot and replace scripts (reference/originals.md 000.2 to
000.6), mistakes included; where the code and its README differ the kinder reading is taken, and said so. It must never
borrow anything from Sickbay's brain. A job's own operator restarts it (JobSpec.requeue_s), as theirs does.
"""

from __future__ import annotations

from dataclasses import dataclass

from sickbay.model import Action, Before, JobPhase, Place, Verb
from sickbay.ports import Platform
from sickbay.sim.hardware import SimNode
from sickbay.sim.nobody import end_hangs, open_gate
from sickbay.sim.world import Watcher, World

POLL_S = 300.0  # README; the code says 30
TAIL = 20  # dmesg | grep -i xid | tail -20
REPLACE_ABOVE = 5  # error_count > 5 replaces, else reboots
EXCLUDED_S = {Verb.REBOOT: 200.0, Verb.REPLACE: 900.0}
REBOOT_WAIT_S = 30.0  # fixed, then uncordon whatever the node does
DRAIN_S = 30.0  # kubectl drain --grace-period=30
REQUEUE_S = 60.0  # the job operator makes the gang's pods again


@dataclass(slots=True)
class _Script:
    """One run of gpu-instance-reboot.sh or gpu-instance-replace.sh. Started and never looked at again."""

    case: str
    node: str
    verb: Verb


class Originals:
    """Polls every node; any XID among the last log lines is acted on at once, without limit."""

    def __init__(self, world: World, platform: Platform) -> None:
        self.world, self.platform = world, platform
        self._excluded: dict[str, float] = {}  # instance -> until
        self._talked: dict[str, None] = {}  # nodes whose kernel log got a line since their boot: only these can match
        self._returning: dict[str, None] = {}  # uncordoned while they still boot
        self._runs = 0
        self.acted: list[tuple[str, Verb]] = []
        world.on_kernel(lambda node: self._talked.__setitem__(node.name, None))
        world.watch(Watcher(lambda nodes, _removed, _jobs: self._joined(nodes)))
        world.after(POLL_S, self._poll)

    def _poll(self) -> None:
        end_hangs(self.world)
        for name in list(self._talked):
            node = self.world.nodes[name]
            count = self._errors(node)
            if count and not self._is_excluded(node):
                self._act(node, Verb.REPLACE if count > REPLACE_ABOVE else Verb.REBOOT)
        self.world.after(POLL_S, self._poll)

    def _errors(self, node: SimNode) -> int:
        """XID lines of this boot. Not a count of the code's value, which their field 230 would have been."""
        if not (node.present and node.up and node.agent_up) or node.node_sign("dcgm_dead"):
            return 0  # no pod to exec into: skipped, and not a sign of anything
        said = self.world.agents.host(node).run(("dmesg",), 60.0).stdout.splitlines()
        lines = [line for line in said if "xid" in line.lower()]
        if not lines:
            self._talked.pop(node.name, None)
        return len(lines[-TAIL:])

    def _is_excluded(self, node: SimNode) -> bool:
        return self.world.now < self._excluded.get(node.instance, 0.0)

    def _act(self, node: SimNode, verb: Verb) -> None:
        self._runs += 1
        self._excluded[node.instance] = self.world.now + EXCLUDED_S[verb]
        self.acted.append((node.name, verb))
        script = _Script(f"{node.name}.{self._runs}", node.name, verb)
        node.mark = ""  # no owner of a cordon is known there: the newest run owns the node
        self._ask(script, Verb.CORDON)
        self._evict(node)
        self.world.after(DRAIN_S, lambda: self._treat(script))

    def _evict(self, node: SimNode) -> None:
        """kubectl drain: the gang loses its pods there and its operator starts all of it again."""
        job = self.world.jobs.get(node.job) if node.job else None
        self.world.note("drain", node.name, job=job.id if job else "-")
        if job and job.live:
            self.world.gangs.stop(job, "drain", JobPhase.FAILED)

    def _treat(self, script: _Script) -> None:
        node = self.world.nodes[script.node]
        if node.mark != script.case or not node.present:
            return
        self._evict(node)  # the forced second drain; a failure is ignored
        self._ask(script, script.verb)
        if script.verb is Verb.REBOOT:
            self.world.after(REBOOT_WAIT_S, lambda: self._uncordon(script))

    def _uncordon(self, script: _Script) -> None:
        """Not asked: is it ready, are its GPUs there, is the XID gone?"""
        node = self.world.nodes[script.node]
        if node.mark == script.case:
            self._ask(script, Verb.RELEASE)
            self._returning[node.name] = None

    def _ask(self, script: _Script, verb: Verb) -> None:
        node = self.world.nodes[script.node]
        before = Before(node.boot_id, node.instance, node.uid)
        args = {"cancel": "1"} if verb is Verb.RELEASE else {}  # kubectl uncordon checks nothing
        self.platform.perform(Action(f"{script.case}/{verb}", verb, Place(node.name), args, before=before))

    def _joined(self, nodes: list[SimNode]) -> None:
        """A new instance of the scaling group takes work as soon as it has joined."""
        for node in nodes:
            if node.gate:
                self.world.after(0.0, lambda node=node: open_gate(self.world, node))  # type: ignore[misc]
            if node.name in self._returning and node.serving():
                self._note_return(node)

    def _note_return(self, node: SimNode) -> None:
        """For the count of nodes that take work again while something is wrong with them."""
        del self._returning[node.name]
        healthy = self.world.truly_healthy(node.name, ("nvidia-smi", "dcgm-l2"))
        self.world.note("returned", node.name, healthy=healthy)
