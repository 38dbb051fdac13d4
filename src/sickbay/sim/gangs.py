"""Running jobs in the world: placing, hurting, stopping, restarting, saving. Asked by the platform and by illness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sickbay.model import Checkpoint, JobPhase, RankExit
from sickbay.sim.faults import Ailment
from sickbay.sim.hardware import SimNode
from sickbay.sim.jobs import KEPT_EXITS, JobSpec, Orphans, RealEngine, SimJob
from sickbay.sim.progress import Pace

if TYPE_CHECKING:
    from sickbay.sim.world import World

NOTICE_S = (3.0, 25.0)  # until the ranks that live notice that a peer died
SAVE_S = 45.0  # an extra checkpoint on request, at least this long
MEND_S = 1_800.0  # until its owner has mended a program: whoever starts it sooner starts the same bug
LONG_DARK_S = 120.0  # who has not been heard of for so long is known to be away by everybody who looks
SLOW = 1.4  # a degrading GPU holds the whole gang back by this much


class Gangs:
    def __init__(self, world: World) -> None:
        self.world = world
        self.restarts: dict[str, str] = {}  # key of a delivered RESTART_JOB -> what came of it
        self.stops: dict[str, str] = {}  # key of a delivered STOP_JOB -> what came of it
        self.submitted: dict[str, int] = {}  # job -> how often its owner has submitted one of that name

    def submit(self, spec: JobSpec, engine: RealEngine | None = None) -> SimJob:
        world = self.world
        pace = Pace(spec.step_s, spec.checkpoint_every, spec.write_s, spec.first_step)
        self.submitted[spec.id] = self.submitted.get(spec.id, 0) + 1
        uid = f"job-{spec.id}-{self.submitted[spec.id]}"
        old = world.jobs.get(spec.id)
        earlier = (*old.earlier, *old.attempts) if old is not None else ()
        job = SimJob(spec, world.now, spec.nodes, pace, attempt=0, engine=engine, uid=uid, earlier=earlier)
        world.jobs[spec.id] = job
        self._place(job, 1, spec.first_step, spec.nodes, by="owner")
        return job

    def _place(self, job: SimJob, attempt: int, from_step: int, nodes: tuple[str, ...], by: str) -> None:
        world = self.world
        job.begin(world.now, attempt, from_step, nodes)
        world.note("place", "", job=job.id, attempt=attempt, from_step=from_step, nodes=",".join(nodes), by=by)
        for old in job.orphans if not job.spec.fenced else ():
            world.note(
                "two-attempts", "", job=job.id, attempt=attempt, beside=old.attempt, nodes=",".join(old.nodes),
                writes=old.pace is not None, by=by,
            )  # fmt: skip
        if job.corrupted:
            world.note("corrupt-restart", "", job=job.id, attempt=attempt, from_step=from_step)
        lacking = [name for name in nodes if job.id not in world.nodes[name].pulled]
        for name in nodes:
            world.nodes[name].jobs[job.id] = self._slots(job, world.nodes[name])
            world.touch_work(world.nodes[name])
        if lacking and world.services.is_away("registry"):
            self._wait_for_image(job, lacking)
        else:
            self._pull(job, lacking)
        self._plan_ending(job)
        world.touch_job(job)
        for name in nodes:
            world.illness.under_load(world.nodes[name], job.id)
        self.data_lost(job)
        self.storage_lost(job)
        self._seek_peers(job)
        self._miss_the_dead(job)

    def _pull(self, job: SimJob, lacking: Iterable[str]) -> None:
        for name in lacking:
            self.world.nodes[name].pulled.add(job.id)

    def _wait_for_image(self, job: SimJob, lacking: list[str]) -> None:
        """ImagePullBackOff: ranks are placed and do not start until the registry is back."""
        world = self.world
        job.phase = JobPhase.PENDING
        job.pace.freeze(world.now)
        life = job.life
        world.note("no-image", "", job=job.id, attempt=job.attempt, nodes=len(lacking))

        def pulled() -> None:
            if job.life == life and job.live:
                self._pull(job, lacking)
                self._start_anew(job)

        world.services.when_there("registry", pulled)

    def _start_anew(self, job: SimJob) -> None:
        """Its ranks start only now."""
        job.phase, job.life = JobPhase.RUNNING, job.life + 1
        job.pace.thaw(self.world.now)
        job.pace.anchor = self.world.now + job.spec.init_s
        self.world.note("started", "", job=job.id, attempt=job.attempt)
        self._plan_ending(job)
        self.world.touch_job(job)

    def has_room(self, job: SimJob, node: SimNode) -> bool:
        """Is as much of the node free as this job needs: all of it, or so many GPUs?"""
        need = job.spec.gpus_per_node
        if not self.suits(job, node):
            return False
        return len(node.free_slots()) >= need if need else not node.jobs

    def suits(self, job: SimJob, node: SimNode) -> bool:
        """Is it of the pool that its pods ask for, and has it a GPU for each of their ranks?"""
        spec = job.spec
        return spec.pool in ("", node.pool) and len(node.gpus) >= min(spec.ranks_per_node, self.world.gpus_per_node)

    def _looks_open(self, job: SimJob, node: SimNode) -> bool:
        """To a scheduler: it knows what is in use and what the device plugin calls allocatable, and no more."""
        need = job.spec.gpus_per_node or min(job.spec.ranks_per_node, self.world.gpus_per_node)
        return self.has_room(job, node) and node.allocatable() >= need

    def _slots(self, job: SimJob, node: SimNode) -> tuple[int, ...]:
        need = job.spec.gpus_per_node
        return node.free_slots()[:need] if need else tuple(range(len(node.gpus)))

    def _plan_ending(self, job: SimJob) -> None:
        """The moment at which this attempt completes, or meets the bug that is in it."""
        spec, life = job.spec, job.life
        bug_at = job.pace.from_step + 1 if self.world.now < job.buggy_until else spec.bug_at_step
        buggy = job.pace.from_step <= bug_at < spec.total_steps
        when = job.pace.when(bug_at if buggy else spec.total_steps)
        if when != float("inf"):
            self.world.at(when, lambda: self._ending(job, life, buggy))

    def _ending(self, job: SimJob, life: int, buggy: bool) -> None:
        if job.life != life or not job.live:
            return None
        if not buggy:
            return self._finish(job, JobPhase.SUCCEEDED, "completed")
        if job.spec.bug:
            self.world.strike(job.spec.bug, job.nodes[0])
            return None
        ranks = range(len(job.rank_nodes))
        return self._fail(job, list(ranks), "traceback", "user code", user_code=True)

    # -- being hurt ---------------------------------------------------------------------------------------------------

    def struck(self, node: SimNode, ailment: Ailment) -> None:
        """An ailment of this node acts on the job that runs there."""
        for name, slots in tuple(node.jobs.items()):
            job = self.world.jobs[name]
            if job.live:
                self._strike(job, node, ailment, slots)

    def _strike(self, job: SimJob, node: SimNode, ailment: Ailment, slots: tuple[int, ...]) -> None:
        """What ails a GPU hurts the rank on it, and no job that has other GPUs of the node."""
        ranks = job.ranks_on(node.name)
        if ailment.kind.scope == "gpu":
            slot = ailment.values["index"]
            if slot not in slots:
                return
            at = slots.index(slot) % len(ranks)
            ranks = ranks[at : at + 1]
        self._hurt(job, node, ailment, ranks)

    def _hurt(self, job: SimJob, node: SimNode, ailment: Ailment, ranks: list[int]) -> None:
        now, effect = self.world.now, ailment.effect
        if effect in ("corrupt", "corrupt_quietly"):
            job.corrupt(now)
        if effect in ("kill", "corrupt"):
            if ailment.kind.scope == "job":
                user = ailment.kind.name == "user_bug"
                job.buggy_until = now + MEND_S if user else job.buggy_until
                return self._fail(
                    job, ranks, ailment.kind.tail, "user code" if user else ailment.kind.name, user_code=user
                )
            return self._die(job, ranks, ailment)
        if effect in ("hang", "stuck"):
            if effect == "stuck":
                node.stuck = sorted({*node.stuck, job.id})
            return self._hang(job, ranks)
        if effect == "slow":
            job.settle(now)
            job.pace.change_pace(now, SLOW)
            job.life += 1
            self._plan_ending(job)
        return None

    def _die(self, job: SimJob, ranks: list[int], ailment: Ailment) -> None:
        """Some ranks die now; the gang ends when the others notice."""
        world = self.world
        job.kill(world.now, ranks)
        user = ailment.kind.name == "app_fault_13_31"
        code, life = (1 if ailment.kind.tail != "node_gone" else 137), job.life
        delay = world.stream("notice").uniform(*NOTICE_S)
        world.note("ranks-dead", "", job=job.id, ranks=_short(ranks), why=ailment.kind.name)

        def others_notice() -> None:
            if job.life == life and job.live:
                self._fail(job, ranks, ailment.kind.tail, ailment.kind.name, code=code, user_code=user)

        world.after(delay, others_notice)

    def _hang(self, job: SimJob, ranks: list[int]) -> None:
        world = self.world
        job.hang(world.now, ranks)
        life = job.life
        world.note("ranks-hung", "", job=job.id, ranks=_short(ranks))
        world.after(job.spec.watchdog_s, lambda: self._watchdog(job, life))

    def _watchdog(self, job: SimJob, life: int) -> None:
        """All ranks but the silent ones log a time-out. They go on waiting: that is how 3 a.m. incidents look."""
        if job.life != life or not job.live:
            return
        job.silent = tuple(sorted(job.hung))
        job.exits = job.watchdog_exits()
        self.world.note("watchdog", "", job=job.id, silent=_short(job.silent))
        self.world.touch_job(job)

    def node_lost(self, node: SimNode) -> None:
        """The host under these ranks goes away."""
        for name in tuple(node.jobs):
            job = self.world.jobs[name]
            if job.live:
                self._fail(job, job.ranks_on(node.name), "node_gone", f"{node.name} went down", code=137)
        node.jobs = {}
        self.orphans_end(node, f"{node.name} went down")

    def _fail(
        self, job: SimJob, culprits: Sequence[int], tail: str, why: str, *, code: int = 1, user_code: bool = False
    ) -> None:
        job.exits = job.exits_of(culprits, tail, code)
        deaf = [
            name for name in self._dark(job) if "data" in self.world.nodes[name].cuts
        ]  # others hear that peers died
        self._finish(job, JobPhase.FAILED, why, user_code=user_code, dark=deaf)

    def _finish(
        self, job: SimJob, phase: JobPhase, why: str, *, user_code: bool = False, dark: Sequence[str] = ()
    ) -> None:
        world = self.world
        if dark:
            self._orphan(job, dark)
        if job.waits_for == "storage":
            self._stick(job)
        job.finish(world.now, phase, why, user_code=user_code)
        world.note("job-end", "", job=job.id, attempt=job.attempt, phase=phase.value, step=job.step(world.now), why=why)
        for name in job.nodes:
            node = world.nodes[name]
            if node.jobs.pop(job.id, None) is not None:
                world.touch_work(node)
        world.touch_job(job)
        if phase is JobPhase.FAILED and job.spec.requeue_s is not None:
            life = job.life
            world.after(job.spec.requeue_s, lambda: self._requeue(job, life))

    def _requeue(self, job: SimJob, life: int, *, again: bool = True) -> None:
        """A platform's own scheduler: same size, whatever nodes look open, newest checkpoint. For comparisons."""
        world = self.world
        if job.life != life or job.live or world.jobs.get(job.id) is not job:
            return
        want = self.open_for(job)
        if len(want) < len(job.nodes):
            if again:
                world.after(60.0, lambda: self._requeue(job, life))
            return
        newest = job.newest_checkpoint()
        step = newest.step if newest else job.spec.first_step
        self._place(job, job.attempt + 1, step, want, by="scheduler")

    def open_for(self, job: SimJob) -> tuple[str, ...]:
        """As many nodes as it has that look open, its own first; fewer if there are fewer."""
        nodes = self.world.nodes.values()
        free = [n.name for n in nodes if n.serving() and not n.stuck and self._looks_open(job, n)]
        is_free, own = frozenset(free), frozenset(job.nodes)
        want = [name for name in job.nodes if name in is_free]
        want += [name for name in free if name not in own]
        return tuple(want[: len(job.nodes)])

    def resubmit(self, job: SimJob) -> bool:
        """Its owner starts it again on whatever looks open; the time since an ending by the user's own code is the
        owner's. False while there is no room."""
        last, life = job.attempts[-1], job.life
        ended = last.ended if last.ended is not None else self.world.now
        self._requeue(job, life, again=False)
        if job.life == life:
            return False
        if last.user_code:
            job.excused_s += self.world.now - ended
        return True

    # -- out of reach -------------------------------------------------------------------------------------------------

    def _dark(self, job: SimJob) -> list[str]:
        """Nodes where ranks of this attempt live and nobody can end them."""
        nodes = self.world.nodes
        return [n for n in job.nodes if nodes[n].cuts and nodes[n].up and not nodes[n].reachable]

    def evict(self, job: SimJob) -> None:
        """The platform gives up the pods of nodes that it has not heard of for long. Those it reaches are ended; of the
        others it only shows that they are being deleted."""
        dark = self._dark(job)
        if not job.live or not dark:
            return
        lost = [rank for name in dark for rank in job.ranks_on(name)]
        said = ("Taint manager: deleting due to NoExecute taint (node.kubernetes.io/unreachable)",)
        job.exits = tuple(RankExit(rank, job.rank_nodes[rank], None, said) for rank in lost[:KEPT_EXITS])
        self.world.note("evict", "", job=job.id, attempt=job.attempt, nodes=",".join(dark))
        self._finish(job, JobPhase.FAILED, f"evicted from {len(dark)} nodes that do not answer", dark=dark)

    def _orphan(self, job: SimJob, dark: Sequence[str]) -> None:
        whole = len(dark) == len(set(job.nodes)) and job.pace.frozen_at is None
        job.orphans.append(Orphans(job.attempt, list(dark), replace(job.pace) if whole else None))
        self.world.note(
            "orphans", "", job=job.id, attempt=job.attempt, nodes=",".join(dark), writes=whole
        )  # fmt: skip
        for name in dark:
            self.world.nodes[name].orphans.append(job.id)

    def orphans_end(self, node: SimNode, why: str) -> None:
        """Ranks here that were given up are over at last: killed by a kubelet that is back, or gone with the host."""
        for job_id in node.orphans:
            job = self.world.jobs[job_id]
            job.settle(self.world.now)
            for orphans in job.orphans:
                if node.name in orphans.nodes:
                    orphans.nodes.remove(node.name)
                    orphans.pace = None  # whoever is left waits for this one
            job.orphans = [o for o in job.orphans if o.nodes]
            self.world.note("orphans-end", node.name, job=job_id, why=why.replace(" ", "_"))
            self.world.touch_job(job)
        if node.orphans:
            node.orphans = []
            self.world.touch(node)

    def data_lost(self, job: SimJob) -> None:
        """A gang that spans nodes needs the network between them: its collectives wait."""
        cut = [name for name in job.nodes if "data" in self.world.nodes[name].cuts]
        if cut and len(job.nodes) > 1 and job.live and job.pace.frozen_at is None:
            job.cut_at = self.world.now
            self.world.note("no-data", "", job=job.id, nodes=len(cut))
            self._hang(
                job, [rank for name in cut if not self.world.nodes[name].reachable for rank in job.ranks_on(name)]
            )

    def storage_lost(self, job: SimJob) -> None:
        """Every rank waits for the file system in D state: nothing is logged, and no signal ends one."""
        world = self.world
        if not world.services.is_away("storage") or not job.live or job.pace.frozen_at is not None:
            return
        job.settle(world.now)
        job.pace.freeze(world.now)
        job.life, job.waits_for = job.life + 1, "storage"
        attempt = job.attempt
        world.note("storage-hangs", "", job=job.id)
        world.services.when_there("storage", lambda: self._storage_back(job, attempt))

    def _storage_back(self, job: SimJob, attempt: int) -> None:
        world = self.world
        if job.waits_for == "storage" and job.live and job.attempt == attempt:
            job.pace.thaw(world.now)
            job.waits_for, job.life = "", job.life + 1
            world.note("goes-on", "", job=job.id)
            self._plan_ending(job)

    def _stick(self, job: SimJob) -> None:
        """Killed while it waits for storage: the ranks stay where they are until the file system answers."""
        nodes = [
            (node, node.boot_id) for node in map(self.world.nodes.__getitem__, dict.fromkeys(job.nodes)) if node.up
        ]
        for node, _ in nodes:
            node.stuck = sorted({*node.stuck, job.id})
        self.world.services.when_there("storage", lambda: self._unstick(job, nodes))

    def _unstick(self, job: SimJob, nodes: Sequence[tuple[SimNode, str]]) -> None:
        for node, boot in nodes:
            if node.boot_id == boot and job.id in node.stuck:
                node.stuck = [name for name in node.stuck if name != job.id]
                self.world.touch(node)

    def _miss_the_dead(self, job: SimJob) -> None:
        """Placed on a host that went down a moment ago and still looks ready: those ranks never start."""
        dead = [name for name in dict.fromkeys(job.nodes) if not self.world.nodes[name].up]
        down = [rank for name in dead for rank in job.ranks_on(name)]
        if down and job.live and job.pace.frozen_at is None:
            self._hang(job, down)

    def _seek_peers(self, job: SimJob) -> None:
        """Without a subnet manager a gang that starts finds no path to its peers, and says so when its time is up."""
        if self.world.services.is_away("subnet") and len(job.nodes) > 1 and job.pace.frozen_at is None:
            self.world.note("no-peers", "", job=job.id, attempt=job.attempt)
            self._hang(job, [])

    def pace_again(self, job: SimJob) -> None:
        """What slowed it may be over: as fast as the slowest of its nodes."""
        nodes = [self.world.nodes[name] for name in job.nodes]
        slow = any(a.effect == "slow" and not a.dormant for node in nodes for _, a in node.all_ailments())
        if job.live and not slow and job.pace.slow != 1.0:
            job.settle(self.world.now)
            job.pace.change_pace(self.world.now, 1.0)
            job.life += 1
            self._plan_ending(job)

    def data_regained(self, jobs: Iterable[SimJob], rides_s: float) -> None:
        """What retransmits bridge goes on; after that communicators are broken for good."""
        world = self.world
        for job in jobs:
            away = world.now - job.cut_at if job.cut_at is not None else rides_s
            if away >= rides_s or not job.live or any("data" in world.nodes[n].cuts for n in job.nodes):
                continue
            job.pace.thaw(world.now)
            job.hung, job.cut_at, job.life = set(), None, job.life + 1
            world.note("goes-on", "", job=job.id)
            self._plan_ending(job)

    # -- what the platform asks ---------------------------------------------------------------------------------------

    def stop(self, job: SimJob, by: str, phase: JobPhase = JobPhase.STOPPED) -> None:
        """The whole gang ends. Ranks in D state stay where they are, as `stuck`, and hold no later attempt back."""
        job.stopped_by = by
        self._finish(job, phase, f"stopped by {by}", dark=self._dark(job))

    def save(self, job: SimJob) -> float | None:
        """Ask for a checkpoint now; returns when it will be complete, None if the job cannot save."""
        world = self.world
        job.settle(world.now)
        if not job.live or job.hung or job.pace.frozen_at is not None or world.now < job.pace.anchor:
            return None
        if self._dark(job):
            return None
        took = max(SAVE_S, job.spec.write_s)
        step = job.step(world.now)
        job.pace.pause(world.now, took)
        job.life += 1
        life = job.life
        self._plan_ending(job)
        world.after(took, lambda: self._saved(job, life, step))
        return world.now + took

    def _saved(self, job: SimJob, life: int, step: int) -> None:
        if job.life != life or not job.live:
            return
        if job.engine:
            job.settle(self.world.now)
            job.engine.checkpoint()
        job.checkpoints.append(Checkpoint(step, self.world.now, job.attempt))
        self.world.note("saved", "", job=job.id, step=step)
        self.world.touch_job(job)

    def unended(self, job: SimJob, *, silent: bool) -> list[str]:
        """Nodes where ranks of an earlier attempt live on: those whose kubelet says nothing (`silent`), or those that
        answer and have not ended them yet."""
        left = dict.fromkeys(name for orphans in job.orphans for name in orphans.nodes)
        if silent:
            left |= dict.fromkeys(node.name for node in self.world.nodes.values() if job.id in node.stuck)
        return [name for name in left if self.is_silent(self.world.nodes[name]) == silent]

    @staticmethod
    def is_silent(node: SimNode) -> bool:
        """As far as the platform knows: one whose kubelet is no longer heard counts as ready for a while."""
        return not (node.present and node.ready)

    def refusal(self, job: SimJob, nodes: tuple[str, ...], from_step: int, behind: str = "") -> str:
        """Why this gang cannot be started on these nodes now; "" if it can.

        A rank of an earlier attempt that is stuck on a node which answers and carries our mark does not hold the job
        back: no signal ends it. Anywhere else it does, and on a node that does not answer no mark is a fence:
        `behind` are the nodes whose ranks may be left there ("all": by its owner's word, or they write apart).
        """
        world = self.world
        if job.live:
            return f"attempt {job.attempt} of {job.id} still lives"
        if from_step != job.spec.first_step and all(c.step != from_step for c in job.checkpoints):
            return f"{job.id} has no complete checkpoint at step {from_step}"
        if why := self._beside(job, behind):
            return why
        loose = [n.name for n in world.nodes.values() if job.id in n.stuck and not n.mark]
        if loose:
            return f"ranks of an earlier attempt live on {', '.join(loose)}, which carries no mark of ours"
        for name in nodes:
            why = self._unfit(job, name)
            if why:
                return f"{name}: {why}"
        return "" if len(nodes) == len(job.spec.nodes) else f"{len(nodes)} nodes given, {len(job.spec.nodes)} needed"

    def _beside(self, job: SimJob, behind: str) -> str:
        """Ranks of an earlier attempt that live on; told where whoever asks should have known better for long."""
        world = self.world
        if ending := self.unended(job, silent=False):
            return f"ranks of an earlier attempt still end on {', '.join(ending[:3])}"
        left = () if job.spec.fenced or behind == "all" else self.unended(job, silent=True)
        hidden = [name for name in left if name not in behind.split(",")]
        if not hidden:
            return ""
        known = all(world.now >= world.nodes[name].dark_since + LONG_DARK_S for name in hidden)
        if job.still_writes and known:
            world.note("asked-beside", "", job=job.id, attempt=job.attempt, nodes=",".join(hidden))
        where, own = ", ".join(hidden[:3]), "if you know that they write nothing any more"
        words = f"ranks of an earlier attempt may still run on {where}, where nobody answers; {own}"
        return f"{words}: sickbay job restart {job.id}"

    def _unfit(self, job: SimJob, name: str) -> str:
        node = self.world.nodes.get(name)
        if node is None or not node.present:
            return "no such node"
        if node.mark or node.cordoned:
            return f"cordoned by {node.mark or ', '.join(node.others)}"
        if not node.ready or node.treating:
            return "not ready"
        if not self.suits(job, node):
            return f"its pods ask for pool {job.spec.pool or 'any'} and {job.spec.ranks_per_node} GPUs a node"
        if not self.has_room(job, node) or node.stuck or node.orphans:
            return f"busy with {', '.join([*node.jobs, *node.stuck, *node.orphans])}"
        return "behind the newcomer gate" if node.gate else ""

    def restart(self, key: str, job: SimJob, attempt: int, from_step: int, nodes: tuple[str, ...]) -> None:
        self.restarts[key] = f"attempt {attempt} from step {from_step} on {len(nodes)} nodes"
        self._place(job, attempt, from_step, nodes, by=key)


def _short(ranks: Sequence[int]) -> str:
    return ",".join(map(str, ranks[:8])) + (f",+{len(ranks) - 8}" if len(ranks) > 8 else "")
