"""The controller's eyes on a cluster: nodes and pods followed for ever, told as changes, kept small.

Made by the platform, one per process. Two reflectors (kube/watch.py) feed it, each on its own thread; jobs are seen by
`Gangs`, which is fed with the pods from here. Kept per node: its showing, and the few fields that a cordon without a
read needs; per pod that is work: whose, and whether it leaves. Everything else is dropped as it is decoded.

A sink is called with our lock held, so that changes of one node leave in order: it must only take them down.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from sickbay.errors import ApiError, Unreachable, UserError
from sickbay.kube import names
from sickbay.kube.objects import Anything, Meta, NodeObject, NodeSpec, PodObject
from sickbay.kube.watch import Gone, Put, Reflector, Synced
from sickbay.model import Change, Fleet, Job, JobChanged, JobPhase, Node, NodeChanged, NodeDeleted, Progress
from sickbay.platforms.kubernetes import marks, sight, strays
from sickbay.platforms.kubernetes.claims import Expiry
from sickbay.platforms.kubernetes.clerk import Clerk
from sickbay.platforms.kubernetes.gangs import bare, index
from sickbay.platforms.kubernetes.gangs.kinds import GangObject
from sickbay.platforms.kubernetes.gate import Gatekeeper, MayClose
from sickbay.platforms.kubernetes.job_watch import JobWatch
from sickbay.platforms.kubernetes.machines.aws import instance_id, region_of
from sickbay.platforms.kubernetes.memory import Memory
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.tenants import Tenant, job_of, tenant_of
from sickbay.platforms.kubernetes.views import Shown, lodged, machine_by_taint, show

Sink = Callable[[Change], None]
AskMachines = Callable[[Collection[str]], Mapping[str, str]]  # provider ids -> what machines.what_is_said says

AGAIN_S = 5.0  # after a look that the API server did not answer
STRAY_S = 10.0  # between two looks at a node that is marked and not selected
PROBE_S = 3.0  # of waiting for a list, before we ask why; and again, for an answer may get lost
GATHER_S = 0.25
FORGET_S = 3_600.0  # long after anybody still asks about an attempt that has ended
SYNC_S = 120.0  # for the first list of everything; a large cluster takes seconds
# Machines that do not answer are asked about in one call, of so many at most: the provider is the second witness.
WITNESS_S, WITNESS_AGAIN_S, MOST_ASKED = 90.0, 120.0, 100
# A provider may say "terminated" only minutes after the object went.
ASK_GONE_S = (0.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(slots=True)
class Seen:
    node: Node
    known: NodeObject


class Eyes:
    """observe, watch and look of the platform. `is_gone` is asked of the provider, off the watch threads."""

    def __init__(
        self, site: Site, *, is_gone: Callable[[str], bool] = lambda provider_id: False,
        may_close: MayClose = lambda pool: True, ask_gone_s: tuple[float, ...] = ASK_GONE_S, sync_s: float = SYNC_S,
        ask_machines: AskMachines | None = None, witness_s: tuple[float, float] = (WITNESS_S, WITNESS_AGAIN_S),
    ) -> None:  # fmt: skip
        self._site, self._is_gone, self._ask_gone_s, self._sync_s = site, is_gone, ask_gone_s, sync_s
        self._ask_machines, self._witness_s = ask_machines, witness_s
        self._asked: dict[str, float] = {}  # node that is away -> when its provider was last asked
        self.gangs = index.Gangs(site, self.mark_of)  # safe from several threads; `known_as` takes no lock
        self._lock = threading.RLock()  # nodes and tenants
        self._job_lock = threading.RLock()  # jobs leave in order; never taken with the other one held
        self._memory = Memory(site.clock)
        self._nodes: dict[str, Seen] = {}
        self._tenants: dict[str, dict[str, Tenant]] = {}  # node -> pod uid -> tenant
        self._where: dict[str, str] = {}  # pod uid -> node
        self._strays: dict[str, Gone] = {}  # marked nodes that are not selected (any more)
        self._ours: set[str] = set()  # jobs that have been on a node of ours
        self._sinks: list[Sink] = []
        self._telling = False  # nothing is told before everything was listed: a node without its pods looks free
        self._started = self._sought = False
        self._clerk = Clerk(site.clock)
        self._claims = Expiry(site, self._clerk)
        self._gatekeeper = Gatekeeper(site, may_close)
        selector = {"labelSelector": site.settings.gpu_selector}
        self._node_watch = Reflector(site.api, names.NODES, NodeObject, self._hear_node, params=selector)
        self._pod_watch = Reflector(site.api, names.PODS, PodObject, self._hear_pod)
        self._job_watches = [JobWatch(site, source, self._hear_job, self._clerk) for source in index.sources(site)]

    # -- the door

    def start(self) -> Eyes:
        with self._lock:
            if self._started:
                return self
            self._started = True
        self._node_watch.start()
        self._pod_watch.start()
        for watch in self._job_watches:
            watch.start()
        return self

    def close(self) -> None:
        self._clerk.stop()
        self._gatekeeper.stop()
        self._node_watch.stop()
        self._pod_watch.stop()
        for watch in self._job_watches:
            watch.stop()

    def observe(self) -> Fleet:
        """Waits until everything was listed once; from then on what is kept. Unreachable when that takes too long."""
        self.start()
        self._wait()
        self._seek()
        with self._job_lock, self._lock:
            self._telling = True
            nodes = tuple(seen.node for seen in self._nodes.values())
            jobs = tuple(job for job in self.gangs.all() if self.is_ours(job))
            for job in jobs:
                self._forget_later(job)
            return Fleet(nodes, jobs, self._site.clock.now() - self.age_s())

    def age_s(self) -> float:
        """Seconds since the API server last said anything about nodes or pods; a quiet one does so every minute."""
        return max(0.0, time.monotonic() - min(self._node_watch.heard_at, self._pod_watch.heard_at))

    def _wait(self) -> None:
        end = self._site.clock.monotonic() + self._sync_s
        waits = [(names.NODES, self._node_watch.synced), (names.PODS, self._pod_watch.synced)]
        for path, synced in waits + [(watch.source.path, watch.synced) for watch in self._job_watches]:
            while not synced.wait(min(PROBE_S, max(0.1, end - self._site.clock.monotonic()))):
                self._probe(path)
                if self._site.clock.monotonic() >= end:
                    why = f"not all of it could be listed within {self._sync_s:.0f} s; the log has what the server said"
                    raise Unreachable(f"GET {path}", why)

    def _probe(self, path: str) -> None:
        """A list that takes long may never come: without the rights no waiting helps."""
        try:
            self._site.api.get(path, Anything, limit="1")
        except ApiError as error:
            if error.refused:
                raise UserError(
                    f"the API server does not let us list {path}: {error.said}. Give Sickbay's service account the "
                    "rights that come with it (deploy/kubernetes, or the chart)"
                ) from error

    def watch(self, sink: Sink) -> Callable[[], None]:
        self.start()
        with self._lock:
            self._sinks.append(sink)

        def stop() -> None:
            with self._job_lock, self._lock:
                if sink in self._sinks:
                    self._sinks.remove(sink)

        return stop

    def look(self, name: str) -> Node | None:
        shown = self._look(name)
        return shown.node if shown is not None else None

    def _look(self, name: str) -> Shown | None:
        found = sight.read(self._site, name)
        if found is None:
            return None
        node, pods = found
        with self._lock:
            tenants = [t for t in (self._tenant(pod) for pod in pods) if t is not None]
            return show(self._site, node, tenants, self._memory, self.gangs.known_as)

    def known(self, name: str) -> NodeObject | None:
        """What the watch knows of a node, as far as cordon.py needs it: a patch tests that it is still true."""
        seen = self._nodes.get(name)
        return seen.known if seen is not None else None

    def mark_of(self, name: str) -> str:
        seen = self._nodes.get(name)
        return seen.node.mark if seen is not None else ""

    def instance(self, name: str) -> str:
        """The machine of a node; "" when the watch does not know the node (any more)."""
        seen = self._nodes.get(name)
        return seen.node.instance if seen is not None else ""

    # -- nodes (on their own thread)

    def _hear_node(self, told: Put[NodeObject] | Gone | Synced) -> None:
        if isinstance(told, Put):
            self._put_node(told.object)
        elif isinstance(told, Gone):
            self._lose_node(told)

    def _put_node(self, node: NodeObject) -> None:
        name, before = node.metadata.name, self.mark_of(node.metadata.name)
        with self._lock:
            stray = self._strays.pop(name, None)
            if stray is not None and stray.uid != node.metadata.uid:
                self._drop_node(stray)
            tenants = self._tenants.get(name, {}).values()
            shown = show(self._site, node, tenants, self._memory, self.gangs.known_as)
            known = self._nodes.get(name)
            self._nodes[name] = Seen(shown.node, slim(self._site, node))
            self._tell(NodeChanged(shown.node))
        self._show_later(name, shown.due_s)
        self._witness_later(node.spec.provider_id, self._witness_s[0], away=not shown.node.ready)
        self._claims.meet(node)
        if known is None or known.node.uid != node.metadata.uid:
            self._gatekeeper.meet(node, busy=bool(shown.node.jobs))
        if shown.node.mark != before:  # who stopped a job depends on it
            self._tell_jobs(lambda: self.gangs.on_node(name))

    def _lose_node(self, gone: Gone) -> None:
        """Deleted, or no longer selected. A node whose last GPU has fallen off the bus loses the label that selects it:
        while it carries our mark it is looked after all the same, or its case could never be finished."""
        with self._lock:
            seen = self._nodes.get(gone.name)
            if seen is not None and seen.node.uid == gone.uid and seen.node.mark:
                self._strays[gone.name] = gone
                self._clerk.at(0.0, ("stray", gone.name), lambda: self._follow(gone))
                return
        self._drop_node(gone)

    def _seek(self) -> None:
        """Once: those that lost their label before we began to watch. Whoever followed them is not there any more."""
        for name in () if self._sought else strays.marked(self._site):
            self._adopt(name)
        self._sought = True

    def _adopt(self, name: str) -> None:
        found = sight.read(self._site, name)
        if found is None or not strays.is_ours(self._site, found[0]):
            return
        node, pods = found
        stray = Gone(name, "", node.metadata.uid, node.metadata.version)
        with self._lock:
            if name in self._nodes:
                return
            tenants = [t for t in (self._tenant(pod) for pod in pods) if t is not None]
            shown = show(self._site, node, tenants, self._memory, self.gangs.known_as)
            self._nodes[name], self._strays[name] = Seen(shown.node, slim(self._site, node)), stray
            self._tell(NodeChanged(shown.node))
        self._witness_later(node.spec.provider_id, self._witness_s[0], away=not shown.node.ready)
        self._clerk.at(STRAY_S, ("stray", name), lambda: self._follow(stray))

    def _follow(self, stray: Gone) -> None:
        """One that the watch no longer shows: looked at from time to time, until it is gone or not ours any more."""
        self._clerk.at(STRAY_S, ("stray", stray.name), lambda: self._follow(stray))
        shown = self._look(stray.name)
        with self._lock:
            seen = self._nodes.get(stray.name)
            if stray.name not in self._strays or seen is None:
                self._clerk.drop(("stray", stray.name))  # it was selected again, or is dropped already
            elif shown is None or shown.node.uid != stray.uid or not shown.node.mark:
                self._drop_node(stray)
            elif shown.node.version > seen.node.version:
                seen.node = shown.node
                self._tell(NodeChanged(shown.node))

    def _drop_node(self, gone: Gone) -> None:
        with self._lock:
            seen = self._nodes.get(gone.name)
            if seen is None or seen.node.uid != gone.uid:
                return
            del self._nodes[gone.name]
            self._strays.pop(gone.name, None)
            self._memory.forget(gone.name)
            self._tell(NodeDeleted(gone.name, gone.version, gone=False))
        self._ask_provider(gone, seen.known.spec.provider_id, 0)

    def _ask_provider(self, gone: Gone, provider_id: str, turn: int) -> None:
        """Is the machine gone, too? Told once more when it is. Another object under this name ends the asking; after
        the last turn it is whoever has a case about it who asks (`ask_after`)."""
        if not provider_id or turn >= len(self._ask_gone_s):
            return

        def ask() -> None:
            if gone.name in self._nodes:
                return
            if not self._is_gone(provider_id):
                self._ask_provider(gone, provider_id, turn + 1)
                return
            with self._lock:
                if gone.name not in self._nodes:
                    self._tell(NodeDeleted(gone.name, gone.version, gone=True))

        self._clerk.at(self._ask_gone_s[turn], ("gone", gone.name), ask)

    # -- machines that are away: what their provider says (the clerk's thread)

    def _witness_later(self, provider_id: str, after_s: float, *, away: bool) -> None:
        if away and self._ask_machines is not None and instance_id(provider_id):
            self._clerk.at(after_s, ("machines", ""), self._witness)

    def _witness(self) -> None:
        """Whoever was asked longest ago first; then again while somebody is away."""
        with self._lock:
            away = {n: s.known.spec.provider_id for n, s in self._nodes.items() if not s.node.ready}
            away = {name: machine for name, machine in away.items() if instance_id(machine)}
            self._asked = {name: at for name, at in self._asked.items() if name in away}
            turn = sorted(away, key=lambda name: (self._asked.get(name, 0.0), name))[:MOST_ASKED]
        if not turn or self._ask_machines is None:
            return
        self._witness_later(away[turn[0]], self._witness_s[1], away=True)
        said = self._ask_machines([away[name] for name in turn])
        for name in turn:
            self._hear_provider(name, away[name], said.get(away[name], ""))

    def _hear_provider(self, name: str, provider_id: str, word: str) -> None:
        with self._lock:
            seen = self._nodes.get(name)
            if seen is None or seen.node.ready or seen.known.spec.provider_id != provider_id:
                return  # it is back, or is another machine: what was said is about nobody
            self._asked[name] = self._site.clock.monotonic()
            self._memory.hear_provider(name, seen.node.instance, word)
            machine = word or machine_by_taint(seen.known)
            if seen.node.machine != machine:
                seen.node = replace(seen.node, machine=machine)
                self._tell(NodeChanged(seen.node))

    def ask_after(self, name: str, instance: str) -> None:
        """One that went while nobody watched, or whose provider took longer than `ask_gone_s` to say so. Of its machine
        only the short id is on record; where it is, the nodes that are there say, if they all say the same."""
        with self._lock:
            known = {seen.known.spec.provider_id for seen in self._nodes.values()}
            version = self._node_watch.version
        chosen = self._site.settings.aws_region
        homes = {region_of(one, chosen): one.rpartition("/")[0] for one in known if instance_id(one)}
        if instance_id(instance) and len(homes) <= 1:
            provider_id = f"{next(iter(homes.values()))}/{instance}" if homes else instance
            self._ask_provider(Gone(name, "", "", version), provider_id, 0)

    def _show_again(self, name: str) -> None:
        """Time has passed and something has become due: a condition has stood long enough, or a pod will not die."""
        try:
            shown = self._look(name)
        except ApiError:  # not now: what is due stays due
            self._show_later(name, AGAIN_S)
            return
        if shown is None:
            return
        node = shown.node
        with self._lock:
            seen = self._nodes.get(name)
            if seen is None or node.version < seen.node.version or node.uid != seen.node.uid:
                return
            seen.node = node
            self._tell(NodeChanged(node))
        self._show_later(name, shown.due_s)

    def _show_later(self, name: str, due_s: float | None) -> None:
        if due_s is not None:
            self._clerk.at(due_s, ("node", name), lambda: self._show_again(name))

    # -- pods (on their own thread)

    def _hear_pod(self, told: Put[PodObject] | Gone | Synced) -> None:
        if isinstance(told, Put):
            pod = told.object
            self._put_pod(pod)
            self._tell_jobs(lambda: self.gangs.put_pod(pod))
        elif isinstance(told, Gone):
            gone = told
            self._lose_pod(gone.uid)
            self._tell_jobs(lambda: self.gangs.gone_pod(gone.namespace, gone.name, gone.version))

    def _put_pod(self, pod: PodObject) -> None:
        uid = pod.metadata.uid
        tenant = self._tenant(pod)
        if tenant is None:
            self._lose_pod(uid)
            return
        with self._lock:
            lodgers = self._tenants.setdefault(tenant.node, {})
            if lodgers.get(uid) == tenant:
                return
            lodgers[uid] = tenant
            self._where[uid] = tenant.node
            self._retell(tenant.node)

    def _lose_pod(self, uid: str) -> None:
        with self._lock:
            self._memory.forget_pod(uid)
            name = self._where.pop(uid, "")
            if not name:
                return
            lodgers = self._tenants[name]
            del lodgers[uid]
            if not lodgers:
                del self._tenants[name]
            self._retell(name)

    def _retell(self, name: str) -> None:
        """The work on a node has changed: tell the node again, if that shows."""
        seen = self._nodes.get(name)
        if seen is None:
            return
        tenants = self._tenants.get(name, {}).values()
        jobs, stuck, due_s = lodged(tenants, self._memory, self.gangs.known_as, ready=seen.node.ready)
        self._show_later(name, due_s)
        taken = sum(tenant.gpus for tenant in tenants)
        if (jobs, stuck, taken) != (seen.node.jobs, seen.node.stuck, seen.node.gpus_taken):
            seen.node = replace(seen.node, jobs=jobs, stuck=stuck, gpus_taken=taken)
            self._tell(NodeChanged(seen.node))

    def _tenant(self, pod: PodObject) -> Tenant | None:
        return tenant_of(self._site, pod, job_of)

    # -- jobs (each source on its own thread)

    def _hear_job(self, source: str, told: Put[GangObject] | Gone | Synced) -> None:
        if isinstance(told, Put):
            obj = told.object
            self._tell_jobs(lambda: self.gangs.put(source, obj))
        elif isinstance(told, Gone):
            gone = told
            self._tell_jobs(lambda: self.gangs.gone(source, gone.namespace, gone.name, gone.version))

    def _tell_jobs(self, change: Callable[[], tuple[str, ...]]) -> None:
        with self._job_lock:
            for job in change():
                if self._telling and self.gangs.is_large(job):  # once for the many pods that start or end together
                    self._clerk.at(GATHER_S, ("job", job), partial(self._tell_job, job))
                elif self._telling:
                    self._show_job(job)

    def _tell_job(self, job: str) -> None:
        with self._job_lock:
            self._show_job(job)

    def _show_job(self, job: str) -> None:
        shown = self.gangs.show(job)
        if self.is_ours(shown):
            self._tell(JobChanged(shown))
        self._forget_later(shown)
        if shown.phase is JobPhase.GONE:
            self._ours.discard(job)

    def _forget_later(self, job: Job) -> None:
        """What is kept of a bare gang goes some time after its end."""
        if job.phase in bare.ENDED and self.gangs.is_kept(job.id):
            self._clerk.at(FORGET_S, ("kept", job.id), partial(bare.forget, self._site, job.id))

    def is_ours(self, job: Job) -> bool:
        """A gang that never had a rank on a node we look after is somebody else's, and none of our business. One that
        we have written on had: also when its nodes are gone, or it has none yet in this attempt."""
        if job.id in self._ours:
            return True
        if any(node in self._nodes for node in job.nodes) or self.gangs.is_written_on(job.id):
            self._ours.add(job.id)
        return job.id in self._ours

    def tell(self, progress: Progress) -> None:
        """Of whoever reads the jobs' progress."""
        with self._job_lock:
            self._tell(progress)

    def _tell(self, change: Change) -> None:
        if self._telling:
            for sink in tuple(self._sinks):
                sink(change)


def slim(site: Site, node: NodeObject) -> NodeObject:
    """The fields of a node that cordon.py reads, and no others: 5,000 of them are kept."""
    meta = node.metadata
    kept = (site.keys.case, site.keys.before, *marks.HOLD_OFF)
    annotations = {key: value for key, value in (meta.annotations or {}).items() if key in kept}
    if meta.annotations and not annotations:
        annotations = {"": ""}  # there are some: whoever adds one must know
    small = Meta(name=meta.name, uid=meta.uid, resource_version=meta.resource_version, annotations=annotations)
    return NodeObject(small, NodeSpec(node.spec.unschedulable, node.spec.provider_id, node.spec.taints))
