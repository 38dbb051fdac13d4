"""The simulated platform: the Platform door onto a sim.World. Guards, keys and answers exactly as ports.Platform says.

The controller calls it as it calls any platform. It answers at once; what takes time takes virtual time. Changes are
pushed while the world runs, so a sink must only take them down and never call back into the world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from sickbay.errors import EvidenceError, Unreachable
from sickbay.evidence.keeping import name_of
from sickbay.model import (
    TREATMENTS,
    Action,
    Change,
    Done,
    Failed,
    Finding,
    Fleet,
    JobChanged,
    Lost,
    Node,
    NodeChanged,
    NodeDeleted,
    Outcome,
    Progress,
    Refuted,
    Retry,
    Started,
    Status,
    Unguarded,
    Verb,
)
from sickbay.platforms.simulated import gang_door
from sickbay.platforms.simulated.evidence import gather, gather_gang, packed
from sickbay.platforms.simulated.gang_door import ASK_AGAIN_S
from sickbay.platforms.simulated.views import seen_step, show_again, show_job, show_node
from sickbay.ports import EvidenceStore
from sickbay.sim import judge
from sickbay.sim.hardware import SimNode
from sickbay.sim.jobs import SimJob
from sickbay.sim.treatments import Treatment
from sickbay.sim.world import Removed, Watcher, World

Sink = Callable[[Change], None]

# How long each check takes, virtual seconds: nvidia-smi and a log scan are quick, a diagnostic is not.
CHECK_S = {"nvidia-smi": (2.0, 20.0), "kernel-log": (1.0, 3.0), "dcgm-l2": (110.0, 180.0), "dcgm-l4": (3600.0, 5400.0)}
EVICT_S = (5.0, 30.0)
COLLECT_S = (20.0, 60.0)
LINE_S = 180.0  # what has not begun by then is taken back


@dataclass(slots=True)
class Work:
    """Something under way that is no treatment: a drain, an examination, a collection. Kept by key."""

    ends: float
    answer: Outcome | None = None


class SimulatedPlatform:
    verbs = frozenset(Verb)

    def __init__(
        self,
        world: World,
        *,
        evidence: EvidenceStore | None = None,
        progress_s: float = 60.0,
        verbs: frozenset[Verb] | None = None,
    ) -> None:
        self.world, self.evidence, self.progress_s = world, evidence, progress_s
        self.verbs = frozenset(Verb) if verbs is None else verbs
        self._work: dict[str, Work] = {}
        self._sinks: list[Sink] = []
        self._ticking = False
        self._stop_watch: Callable[[], None] | None = None
        self._missed: tuple[dict[str, Removed], dict[str, SimNode], dict[str, SimJob]] = ({}, {}, {})

    # -- seeing -------------------------------------------------------------------------------------------------------

    def observe(self) -> Fleet:
        world = self.world
        self._reach_api()
        nodes = tuple(show_node(world, n) for n in world.nodes.values() if n.present)
        return Fleet(nodes, tuple(show_job(world, j) for j in world.jobs.values()), world.now)

    def _reach_api(self) -> None:
        if self.world.services.is_away("api"):
            raise Unreachable("the simulated API server", "connection refused")

    def look(self, node: str) -> Node | None:
        self._reach_api()
        found = self.world.nodes.get(node)
        return show_node(self.world, found) if found and found.present else None

    def provider_status(self, node: str) -> str:
        """running | stopped | impaired | terminated | unknown: what the provider, or the BMC, says of the machine."""
        found = self.world.nodes.get(node)
        if found is None or self.world.services.is_away("provider"):
            return "unknown"
        return found.provider_status

    def ask_after(self, node: str, instance: str) -> None:
        """Also of one whose successor has a name of its own, or was exchanged more than once: whichever machine stood
        there last is gone, and so are those before it."""
        found = self.world.nodes.get(node) or self.world.nodes.former.get(node)
        if found is not None and found.gone and not found.present:
            self._tell(NodeDeleted(node, found.version, gone=True))

    def watch(self, sink: Sink) -> Callable[[], None]:
        self._sinks.append(sink)
        if self._stop_watch is None:
            self._stop_watch = self.world.watch(Watcher(self._changed))
        if not self._ticking and self.progress_s > 0:
            self._ticking = True
            self.world.after(self.progress_s, self._tick)
        return lambda: self._sinks.remove(sink) if sink in self._sinks else None

    def _changed(self, nodes: list[SimNode], removed: list[Removed], jobs: list[SimJob]) -> None:
        if not self._sinks:
            return
        if self.world.services.is_away("api"):
            self._miss(nodes, removed, jobs)
            return
        changes: list[Change] = [NodeDeleted(r.name, r.version, r.gone) for r in removed]
        changes += [NodeChanged(show_again(self.world, node)) for node in nodes]
        changes += [JobChanged(show_job(self.world, job)) for job in jobs]
        for change in changes:
            self._tell(change)

    def _miss(self, nodes: list[SimNode], removed: list[Removed], jobs: list[SimJob]) -> None:
        """A watch that broke lists again when it can: each object once, as it is then."""
        gone, changed, moved = self._missed
        if not (gone or changed or moved):
            self.world.services.when_there("api", self._list_again)
        gone.update({r.name: r for r in removed})
        changed.update({n.name: n for n in nodes})
        moved.update({j.id: j for j in jobs})

    def _list_again(self) -> None:
        (gone, changed, moved), self._missed = self._missed, ({}, {}, {})
        present = [node for node in changed.values() if node.present]
        self._changed(present, list(gone.values()), list(moved.values()))

    def _tell(self, change: Change) -> None:
        for sink in tuple(self._sinks):
            sink(change)

    def _tick(self) -> None:
        """Heartbeats of running jobs: only those that made a step since the last one."""
        if not self._sinks:
            self._ticking = False
            return
        if self.world.services.is_away("api"):
            self.world.after(self.progress_s, self._tick)
            return
        now = self.world.now
        for job in self.world.jobs.values():
            if (job.live or job.still_writes) and (said := seen_step(self.world, job))[0] != job.told_step:
                if job.engine:
                    job.settle(now)
                job.told_step, job.told_at = said
                self._tell(Progress(job.id, 0, *said))
        self.world.after(self.progress_s, self._tick)

    # -- doing --------------------------------------------------------------------------------------------------------

    def perform(self, action: Action) -> Outcome:
        if action.verb not in self.verbs:
            return Failed(f"this platform cannot {action.verb}")
        if self.world.services.is_away("api"):
            return Retry(ASK_AGAIN_S, "the API server does not answer")
        outcome = self._doors[action.verb](self, action)
        self.world.flush()
        return outcome

    def _node(self, action: Action) -> SimNode | None:
        node = self.world.nodes.get(action.place.node)
        return node if node is not None and node.present else None

    def _cordon(self, action: Action) -> Outcome:
        node, case = self._node(action), case_of(action)
        if node is None:
            return Failed(f"there is no node {action.place.node}")
        if action.before.instance and node.instance != action.before.instance:
            return Failed(f"{node.name} is another machine now: {node.instance}")
        if node.mark not in ("", case, action.args.get("adopts")):
            return Failed(f"{node.name} carries the mark of {node.mark}")
        served = node.ready and not node.others and not node.gate and not node.closed
        if action.args.get("unless") == "in service" and served:
            return Refuted(f"{node.name} was out and is in service again")
        if action.args.get("unless") == "opened" and node.mark and not node.closed and not node.gate:
            return Refuted(f"{node.name} carries our mark, and somebody has opened it")
        if not (node.mark == case and node.closed):
            if self.world.services.is_away("marks"):
                return Failed(f"a right is missing: we cannot put our mark on {node.name}", lacks=True)
            was = {"was": node.mark} if node.mark and node.closed else {}  # closed in our name already
            self._write_mark(node, case)
            sick, gate = not self.world.truly_healthy(node.name), node.gate
            held, stuck = ",".join(node.others) or "-", {"stuck": ",".join(node.stuck)} if node.stuck else {}
            self.world.note("cordon", node.name, case=case, others=held, sick=sick, gate=gate, **was, **stuck)
            self.world.touch(node)
        held = f"; also held by {', '.join(node.others)}" if node.others else ""
        return Done(f"{node.name} is closed for new work{held}")

    def _write_mark(self, node: SimNode, mark: str) -> None:
        node.written = (self.world.now, node.mark, node.closed)
        node.mark, node.closed = mark, bool(mark)

    def _release(self, action: Action) -> Outcome:
        node, case = self._node(action), case_of(action)
        if node is None:
            return Done(f"{action.place.node} is not there any more")
        if node.mark not in ("", case, action.args.get("adopts")):
            return Done(f"{node.name} carries no mark of {case}")
        cancel = action.args.get("cancel") == "1"
        if not cancel and not node.ready:
            return Retry(ASK_AGAIN_S, f"{node.name} is not ready")
        if not cancel and node.allocatable() < node.expected:
            return Failed(f"only {node.allocatable()} of {node.expected} GPUs are allocatable")
        if node.mark or node.closed or (node.gate and not cancel):
            if self.world.services.is_away("rights"):
                return Failed(f"a right is missing: we cannot take our mark off {node.name}", lacks=True)
            self._write_mark(node, "")
            node.gate = node.gate and cancel
            self.world.note(
                "release", node.name, case=case, cancel=cancel, others=",".join(node.others) or "-",
                treating=node.treating or "-",
                healthy=self.world.truly_healthy(node.name, ("nvidia-smi", "dcgm-l2")),
            )  # fmt: skip
            self.world.touch(node)
        return Done(
            f"our mark is off {node.name}" + (f"; still held by {', '.join(node.others)}" if node.others else "")
        )

    def _drain(self, action: Action) -> Outcome:
        node, case = self._node(action), action.args.get("case") or case_of(action)
        if node is None:
            return Failed(f"there is no node {action.place.node}")
        work = self._work.get(action.key)
        if work and work.answer:
            return work.answer
        if not node.ready and (said := self.provider_status(node.name)) in ("stopped", "terminated"):
            return Done(f"{node.name} is empty: its provider says {said}")
        if not node.ready:
            return Started(ASK_AGAIN_S, f"{node.name} does not answer; its work cannot be confirmed gone")
        if not (node.mark == case and node.cordoned):
            return Retry(ASK_AGAIN_S, f"{node.name} is not closed in the name of {case}")
        if node.jobs and action.args.get("evict", "1") != "1":
            return Started(ASK_AGAIN_S, f"waiting for {', '.join(node.jobs)} to end")
        if work is None and node.jobs and self.world.services.is_away("rights"):
            return Failed(f"a right is missing: we cannot evict {', '.join(node.jobs)} from {node.name}", lacks=True)
        if work is None:
            work = self._begin(action.key, EVICT_S, "drain")
            self._evict(node, case)
        return self._later(work, lambda: self._drained(node, case))

    def _evict(self, node: SimNode, case: str) -> None:
        moving = {"moving": True} if any(self.world.jobs[name].moves for name in node.jobs) else {}
        self.world.note("drain", node.name, case=case, job=",".join(node.jobs) or "-", **moving)
        for name in tuple(node.jobs):
            job = self.world.jobs[name]
            if job.live:
                self.world.gangs.stop(job, f"drain:{case}")

    def _drained(self, node: SimNode, case: str) -> Outcome:
        if node.jobs:  # somebody placed work here in spite of the cordon
            self._evict(node, case)
            return Started(ASK_AGAIN_S, f"{node.name} got new work and is emptied again")
        if node.orphans:
            return Started(ASK_AGAIN_S, f"{node.name} does not answer; its work cannot be confirmed gone")
        if node.stuck:
            return Done(f"empty but for processes of {', '.join(node.stuck)} in D state, which only a boot removes")
        return Done(f"{node.name} is empty")

    def _collect(self, action: Action) -> Outcome:
        node, job = self._node(action), self.world.jobs.get(action.args.get("job", ""))
        if node is None and job is None:
            return Failed(f"there is no {action.place.node or action.args.get('job', 'such job')}")
        work = self._work.get(action.key) or self._begin(action.key, COLLECT_S, "collect")
        return self._later(work, lambda: self._collected(node or job, action.key))

    def _collected(self, subject: SimNode | SimJob | None, key: str) -> Outcome:
        assert subject is not None
        world, is_node = self.world, isinstance(subject, SimNode)
        files = gather(world, subject, key) if isinstance(subject, SimNode) else gather_gang(world, subject, key)
        name = subject.name if isinstance(subject, SimNode) else subject.id
        self.world.note("collect", name if is_node else "", key=key, files=len(files))
        if self.evidence is None:
            return Done(f"{len(files)} pieces of evidence about {name} (kept nowhere: there is no evidence store)")
        try:
            kept = self.evidence.put(name_of(key), packed(key, files))
        except EvidenceError as full:
            return Failed(f"what {name} could tell is not kept: {full}")
        return Done(f"{len(files)} files about {name} are kept as {kept.name}", archive=kept)

    def _verify(self, action: Action) -> Outcome:
        names = tuple(n for n in action.args.get("checks", "nvidia-smi").split(",") if n)
        where = (action.place.node,) if action.place.node else action.nodes
        work = self._work.get(action.key)
        if work is None:
            spans = [CHECK_S.get(name, (5.0, 60.0)) for name in names]
            work = self._begin(action.key, (sum(s[0] for s in spans), sum(s[1] for s in spans)), "verify")
            self._note_verify(action, names)
        return self._later(work, lambda: self._verified(action.key, where, names))

    def _note_verify(self, action: Action, names: tuple[str, ...]) -> None:
        """One fact for a gang, which may have thousands of nodes."""
        name, checks = action.place.node, "+".join(names)
        node = self.world.nodes.get(name)
        if not name:
            self.world.note("verify-gang", "", key=action.key, checks=checks, nodes=len(action.nodes))
        else:
            self.world.note(
                "verify-start", name, key=action.key, checks=checks, mark=node.mark if node else "-",
                job=(",".join(node.jobs) or "-") if node and node.up else "-",  # nothing runs on a host that is down
            )  # fmt: skip

    def _verified(self, key: str, where: tuple[str, ...], names: tuple[str, ...]) -> Outcome:
        found = [finding for name in where for finding in self._examined(key, name, names, noted=len(where) == 1)]
        bad = sum(f.status.value != "OK" for f in found)
        return Done(f"{len(found)} findings, {bad} not OK", tuple(found))

    def _examined(self, key: str, name: str, names: tuple[str, ...], *, noted: bool) -> list[Finding]:
        world, node = self.world, self.world.nodes.get(name)
        if node is None or not node.present or not node.answers or not node.ready:
            return [
                judge.unreachable(name, check, at=world.now, answers=key, identity=f"{key}/{i}")
                for i, check in enumerate(names)
            ]
        found = world.agents.examine(node, names, answers=key)
        bad = sum(f.status is not Status.OK for f in found)
        if not bad and [g.serial for g in node.gpu_map] != [g.serial for g in node.gpus]:
            node.gpu_map = tuple(g.as_gpu() for g in node.gpus)
        if bad or noted:
            world.note("verify", name, key=key, checks="+".join(names), bad=bad)
        return [world.agents.named(node, f) for f in found]

    def _treat(self, action: Action) -> Outcome:
        known = self.world.treatments.delivered.get(action.key)
        if known is not None:
            if action.args.get("withdraw") == "1":
                self.world.treatments.withdraw(action.key)
            return self._kept_out(known) or self._under_way(known)
        if not action.call:
            return Lost(f"{action.key} never arrived at {action.place.node}")
        node = self._node(action)
        why = self._unguarded(action, node)
        if why or node is None:
            self.world.note("unguarded", action.place.node, key=action.key, why=why.replace(" ", "_"))
            return Unguarded(why)
        if action.args.get("unless") == "ready" and node.ready:
            return Refuted(f"{node.name} was away and is ready again")
        if self.world.services.is_away("provider") and self.world.network.by_provider(action.verb):
            return Retry(ASK_AGAIN_S, "the provider's API does not answer")
        if not self.world.network.reaches(action.verb, node):
            return Retry(ASK_AGAIN_S, f"{node.name} does not answer: {action.verb} cannot be delivered to it")
        if action.verb is Verb.REPLACE:
            if self.world.stock <= 0:
                return Failed("no capacity: the provider has no machine of this kind; nothing was terminated")
            self.world.stock -= 1
        return self._under_way(self.world.treatments.begin(action.key, action.verb, node, action.place.device))

    def _unguarded(self, action: Action, node: SimNode | None) -> str:
        """The door re-reads what the case believes, at the moment of the call. "" when all of it is true."""
        if node is None:
            return f"there is no node {action.place.node}"
        if node.mark != case_of(action):
            return f"our mark on {node.name} is {node.mark or 'gone'}, not {case_of(action)}"
        if not node.cordoned:
            return f"{node.name} is not cordoned"
        if node.jobs and node.ready:
            return f"{node.name} is not empty: {', '.join(node.jobs)}"
        if action.before.boot_id and node.told_boot != action.before.boot_id:
            return f"{node.name} has booted since: {node.told_boot}, not {action.before.boot_id}"
        if action.before.instance and node.instance != action.before.instance:
            return f"{node.name} is another machine now: {node.instance}"
        if node.treating:
            return f"{node.name} is under treatment: {node.treating}"
        return ""

    def _kept_out(self, treatment: Treatment) -> Outcome | None:
        """What waits too long is taken back: nothing was tried, so nothing harsher is next."""
        waited = self.world.now - treatment.started
        if waited < LINE_S or not self.world.treatments.withdraw(treatment.key):
            return None
        return Unguarded(f"{treatment.verb} of {treatment.node} waited {waited:.0f} s in a line and was taken back")

    def _under_way(self, treatment: Treatment) -> Outcome:
        if treatment.state == "done":
            return Done(treatment.detail)
        if treatment.state == "failed":
            return Failed(treatment.detail)
        if treatment.state == "withdrawn":
            return Lost(f"{treatment.verb} of {treatment.node}: {treatment.detail}")
        if treatment.state == "waiting":
            left = max(1.0, treatment.started + LINE_S - self.world.now)
            return Started(min(left, ASK_AGAIN_S), f"{treatment.verb} of {treatment.node} waits and has not begun")
        left = max(1.0, treatment.ends - self.world.now)
        return Started(min(left, 120.0), f"{treatment.verb} of {treatment.node} is under way")

    # -- jobs (gang_door.py) ------------------------------------------------------------------------------------------

    def _checkpoint(self, action: Action) -> Outcome:
        job = gang_door.job_of(self.world, action)
        if job is None or not job.live:
            return Done("no job runs there")
        work = self._work.get(action.key)
        if work is None:
            ends = self.world.gangs.save(job)
            if ends is None:
                return Failed(f"{job.id} makes no steps and cannot save")
            work = self._work[action.key] = Work(ends)
        return self._later(work, lambda: gang_door.has_saved(job))

    def _stop_job(self, action: Action) -> Outcome:
        return gang_door.stop(self.world, action)

    def _restart_job(self, action: Action) -> Outcome:
        return gang_door.restart(self.world, action)

    # -- work under way -----------------------------------------------------------------------------------------------

    def _begin(self, key: str, span: tuple[float, float], concern: str) -> Work:
        work = Work(self.world.now + self.world.stream(concern).uniform(*span))
        self._work[key] = work
        return work

    def _later(self, work: Work, finish: Callable[[], Outcome]) -> Outcome:
        """Started until its time has come; then the answer, made once and remembered."""
        if work.answer is not None:
            return work.answer
        left = work.ends - self.world.now
        if left > 1e-6:
            return Started(left)
        outcome = finish()
        if not isinstance(outcome, Started):
            work.answer = outcome
        return outcome

    _doors: ClassVar[dict[Verb, Callable[[SimulatedPlatform, Action], Outcome]]] = {
        Verb.CORDON: _cordon,
        Verb.RELEASE: _release,
        Verb.DRAIN: _drain,
        Verb.COLLECT: _collect,
        Verb.VERIFY: _verify,
        Verb.CHECKPOINT_JOB: _checkpoint,
        Verb.STOP_JOB: _stop_job,
        Verb.RESTART_JOB: _restart_job,
        **dict.fromkeys(TREATMENTS, _treat),
    }


def case_of(action: Action) -> str:
    """Keys of cases begin with the case: "{case}/{step}-{opened}"."""
    return action.key.rsplit("/", 1)[0]
