"""COLLECT: evidence about a node, gathered on the node; of one that is dead, what the API server alone knows.

`platform.perform` calls `collect`. A case waits for it at most five minutes and goes on without it: evidence is worth
much, a node more. The archive leaves the node before a treatment can destroy it: by the log of the Job's pod
(parcel.py) into the evidence store, under a name of ours. It must never fail a case because a machine that is to be
rebooted no longer answers, and never believe a node about where anything is.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict

from sickbay.errors import ApiError, EvidenceError
from sickbay.evidence.keeping import name_of
from sickbay.kube import names
from sickbay.kube.objects import Condition, EventObject, NodeObject, PodObject
from sickbay.model import Action, Done, Failed, Outcome, Retry, Started
from sickbay.platforms.kubernetes import node_jobs, parcel
from sickbay.platforms.kubernetes.answer import Answer, Blind
from sickbay.platforms.kubernetes.node_jobs import Errand, Running
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.verify import Waiting, unseen

LIMIT_S = 240.0
PATIENCE_S = 30.0
MOST_NODES = 16  # of a job whose stacks are wanted: the silent rank is nearly always on one of the first asked
GANG_SHARE, GANG_S = 4, 2.0  # each of them may hand over a fourth of an archive: stacks are short. Seconds of one call
MOST_EVENTS, MOST_CHARS = 8, 900
AGAIN_S = 1.0  # before a log is asked for a second time
_FETCHED: OrderedDict[str, str] = OrderedDict()  # of a node of a gang that has collected: where that is kept
MOST_FETCHED = 256
_AT_ONCE = threading.BoundedSemaphore(4)  # archives held in memory: the controller has many workers and little of it


def collect(site: Site, action: Action) -> Outcome:
    if not action.place.node:
        return _gang(site, action)
    name = action.place.node
    node = site.api.find(names.node(name), NodeObject)
    why = unseen(site, name, node, patience_s=PATIENCE_S)
    if isinstance(why, Waiting):
        return Started(5.0, why.why)
    if node is None:
        return Failed(f"there is no node {name}, and nothing is left to collect")
    if why:
        return Done(_from_afar(site, node, str(why)))
    most = site.archive_bytes if site.evidence is not None else 0
    stands = node_jobs.run(site, action.key, node, errand(action.key, most))
    if isinstance(stands, Running):
        return Started(stands.again_s(5.0), f"evidence on {name}: {stands.detail}", held=stands.held)
    if isinstance(stands, Answer) and stands.did:
        return _brought(site, action.key, name, stands, name_of(action.key))
    return Done(_from_afar(site, node, stands.why if isinstance(stands, Blind) else stands.error))


def errand(key: str, most: int = 0) -> Errand:
    """`most`: bytes of an archive that is to be handed over; 0: it stays where it is."""
    words = ("collect", "--answers", key, "--limit", f"{LIMIT_S:.0f}", *(("--most", str(most)) if most else ()))
    return Errand("collect", words, LIMIT_S, start_s=60)


# --- from the node into the store -------------------------------------------------------------------------------------


def _brought(site: Site, key: str, name: str, said: Answer, called: str) -> Outcome:
    """What the node has made, kept by us under this name. Failed where it is not: the case says why, and goes on."""
    there = f"a copy stays on {name} until that is replaced: {said.did[:200]}"
    if site.evidence is None or not said.sha256:
        return Done(f"not kept elsewhere (no evidence store, or an older agent); {there}")
    if not 0 < said.size <= site.archive_bytes:
        return Failed(f"the archive of {name} has {said.size} bytes, and {site.archive_bytes} are taken; {there}")
    pod = node_jobs.pod_of(site, "collect", name, key)
    if not pod:
        return Failed(f"the pod that collected on {name} is gone, and its log with it; {there}")
    if not _AT_ONCE.acquire(blocking=False):
        return Started(2.0, f"the archive of {name} is there; those of other nodes are fetched first")
    try:
        data = parcel.opened(_log(site, pod, said.size), said.size)
        if hashlib.sha256(data).hexdigest() != said.sha256:
            return Failed(f"the archive of {name} did not arrive whole: its digest is another one; {there}")
        return _put(site, called, name, data)
    except OSError as slow:
        return Retry(5.0, f"the log of {pod} could not be read yet: {slow}")
    except ApiError as error:  # its kubelet does not hand it out: a treatment does not wait for that
        return Failed(f"the log of {pod} cannot be read: {error.said[:200]}; {there}")
    finally:
        _AT_ONCE.release()


def _log(site: Site, pod: str, size: int) -> bytes:
    """Asked twice: a kubelet may stumble, and a log is not worth minutes of a sick node."""
    path = f"{names.pod(site.settings.namespace, pod)}/log"
    try:
        return parcel.fetched(site.api, path, size)
    except ApiError:
        time.sleep(AGAIN_S)
        return parcel.fetched(site.api, path, size)


def _put(site: Site, called: str, name: str, data: bytes) -> Outcome:
    assert site.evidence is not None
    try:
        kept = site.evidence.put(called, data)
    except EvidenceError as full:
        return Failed(f"what was collected on {name} is not kept: {full}")
    return Done(f"{kept.size} bytes about {name} are kept as {kept.name}", archive=kept)


def _gang(site: Site, action: Action) -> Outcome:
    """Of a job that has stalled: its nodes side by side, as many as are worth the time. What they made leaves them as
    all evidence does, one after the other: one of them is the suspect, and may be replaced."""
    asked = action.nodes[:MOST_NODES]
    if not asked:
        return Failed(f"{action.args.get('job', 'the job')} is on no node")
    where, running, until = [], 0, time.monotonic() + GANG_S
    most = site.archive_bytes // GANG_SHARE if site.evidence is not None else 0
    for name in asked:
        node = site.api.find(names.node(name), NodeObject)
        if node is None or unseen(site, name, node, patience_s=0.0):
            continue
        stands = node_jobs.run(site, action.key, node, errand(action.key, most))
        running += isinstance(stands, Running)
        if isinstance(stands, Answer) and stands.did:
            kept = _of_gang(site, action.key, name, stands, until)
            where += [f"{name}: {kept}"] if kept else []
            running += not kept
    if running:
        return Started(3.0, f"{len(where)} of {len(asked)} nodes have collected")
    return Done(f"{len(where)} of {len(asked)} nodes: {', '.join(where)}"[:MOST_CHARS])


def _of_gang(site: Site, key: str, name: str, said: Answer, until: float) -> str:
    """Where that of one node is, by its name or in words; "" while it has yet to be fetched."""
    called = name_of(f"{key}/{name}")
    if called not in _FETCHED and time.monotonic() < until:
        came = _brought(site, key, name, said, called) if said.sha256 else Done(said.did)
        if isinstance(came, Done | Failed):
            _FETCHED[called] = came.why if isinstance(came, Failed) else called if came.archive else said.did
        while len(_FETCHED) > MOST_FETCHED:
            _FETCHED.popitem(last=False)
    return _FETCHED.get(called, "")


# --- from afar --------------------------------------------------------------------------------------------------------


def _from_afar(site: Site, node: NodeObject, why: str) -> str:
    """In words, short enough for a case: conditions, the newest events, who was there."""
    said = [f"no archive ({why}); the API server knows:", _conditions(node)]
    said += _events(site, node)
    pods = site.api.list(names.PODS, PodObject, fieldSelector=f"spec.nodeName={node.metadata.name}")
    said.append(f"{len(pods)} pods, of them {sum(pod.status.phase == 'Running' for pod in pods)} running")
    return " ".join(part for part in said if part)[:MOST_CHARS]


def _conditions(node: NodeObject) -> str:
    told = [_condition(one) for one in node.status.conditions or () if _is_bad(one)]
    return "; ".join(told) + "." if told else "all conditions are good."


def _is_bad(one: Condition) -> bool:
    return one.status != ("True" if one.type == "Ready" else "False")


def _condition(one: Condition) -> str:
    return f"{one.type}={one.status} since {one.last_transition_time} ({one.reason}: {one.message[:120]})"


def _events(site: Site, node: NodeObject) -> list[str]:
    """Kubelets and controllers name a node by uid or by name; the newest last."""
    chosen = f"involvedObject.kind=Node,involvedObject.name={node.metadata.name}"
    found = site.api.list(names.EVENTS_ALL, EventObject, fieldSelector=chosen)
    found.sort(key=lambda one: one.last_timestamp or one.metadata.creation_timestamp)
    return [f"event {one.reason} x{max(1, one.count)}: {one.message[:100]};" for one in found[-MOST_EVENTS:]]
