"""Asking pods to leave: who may be asked, how, and what the API server answers. Called by drain, and by guard for who.

Always the eviction API, so that disruption budgets hold, and never with a grace period of ours: the pod's own is part
of its contract with whoever wrote it. Many are asked side by side, within a time limit. What is learnt here is said in
words; nothing is remembered, since the pods themselves say how far they are.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import Anything, PodObject
from sickbay.platforms.kubernetes import rights, sight
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.tenants import ENDED, STUCK_S, asks_for_gpus, is_daemon, is_ours

AT_ONCE = 4  # per node; the controller drains many nodes side by side
BUDGET_S = 5.0  # until a blocked pod is asked again, unless the server says
REFUSED_S = 30.0
MOST_WAIT_S = 60.0
GRACE_S = 30.0
BUDGET = re.compile(r"disruption budget (\S+) (.*)", re.IGNORECASE)
TERMINATING = "because it is being terminated"  # its namespace goes, and takes the pod along
TWO_BUDGETS = "more than one PodDisruptionBudget"


class Answer(StrEnum):
    LEAVING = "leaving"
    BLOCKED = "blocked"  # may be asked again
    FORBIDDEN = "forbidden"  # we have not the right: asked again only after somebody may have given it back


@dataclass(frozen=True, slots=True)
class Asked:
    pod: PodObject
    answer: Answer
    why: str = ""
    after_s: float = 0.0


# --- who --------------------------------------------------------------------------------------------------------------


def pods_on(site: Site, node: str, *, whole: bool = False) -> list[PodObject]:
    """Those that a drain is about; what has ended, daemons, mirror pods and our own Jobs are not. `whole`: also those
    that ask for no GPU, because the machine goes down."""
    whole = whole or site.settings.drain == "all"
    return [pod for pod in sight.pods_on(site, node) if is_drained(site, pod, whole)]


def is_drained(site: Site, pod: PodObject, whole: bool) -> bool:
    if pod.status.phase in ENDED or is_daemon(pod) or is_ours(site, pod):
        return False
    return whole or asks_for_gpus(pod, site.settings.gpu_resource)


def protection(site: Site, pod: PodObject) -> str:
    """The setting that forbids to evict this pod, in words; "" when none does."""
    if not site.settings.evict_bare and not any(owner.controller for owner in pod.metadata.owner_references or ()):
        return "has no controller to bring it back, and kubernetes.evict_bare is off"
    if not site.settings.evict_empty_dir and any(v.empty_dir is not None for v in pod.spec.volumes or ()):
        return "would lose its emptyDir, and kubernetes.evict_empty_dir is off"
    return ""


def is_leaving(pod: PodObject) -> bool:
    return bool(pod.metadata.deletion_timestamp)


def overdue_s(site: Site, pod: PodObject) -> float:
    """Seconds since its grace period ended (negative: it still has so long), by the API server's own clock."""
    try:
        end = datetime.fromisoformat(pod.metadata.deletion_timestamp).timestamp()
    except ValueError:
        return float("-inf")
    return site.server_now() - end


def is_stuck(site: Site, pod: PodObject) -> bool:
    """Long past its grace period although its kubelet answers: a process that no signal ends."""
    return is_leaving(pod) and overdue_s(site, pod) > STUCK_S


def look_again_s(site: Site, pod: PodObject) -> float:
    """Soon after it was asked to go, ever more seldom the longer it takes."""
    grace = pod.metadata.deletion_grace_period_seconds
    gone_for = overdue_s(site, pod) + (GRACE_S if grace is None else grace)
    return min(15.0, max(1.0, gone_for / 4.0))


def name_of(pod: PodObject) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


# --- asking -----------------------------------------------------------------------------------------------------------


def ask_all(site: Site, pods: Sequence[PodObject], within_s: float, *, force: bool = False) -> list[Asked]:
    """Ask each to leave. Those that there was no time for, or whose answer is still out, are asked again next time."""
    if not pods:
        return []
    ask: Callable[[Site, PodObject], Asked] = insist if force else evict
    until = time.monotonic() + within_s
    crew = ThreadPoolExecutor(min(AT_ONCE, len(pods)), thread_name_prefix="evict")
    try:
        futures = {crew.submit(_in_time, ask, site, pod, until): pod for pod in pods}
        done, _ = wait(futures, timeout=within_s)
        return [future.result() if future in done else _unanswered(pod) for future, pod in futures.items()]
    finally:
        crew.shutdown(wait=False, cancel_futures=True)


def _in_time(ask: Callable[[Site, PodObject], Asked], site: Site, pod: PodObject, until: float) -> Asked:
    return ask(site, pod) if time.monotonic() < until else _unanswered(pod)


def _unanswered(pod: PodObject) -> Asked:
    return Asked(pod, Answer.BLOCKED, "has not been asked yet: the API server is slow", 1.0)


def evict(site: Site, pod: PodObject) -> Asked:
    """By the eviction API. The uid keeps a successor of the same name out of it."""
    meta = pod.metadata
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": {"preconditions": {"uid": meta.uid}},
    }
    try:
        site.api.create(f"{names.pod(meta.namespace, meta.name)}/eviction", body, Anything)
    except ApiError as error:
        return _refused(pod, error)
    return Asked(pod, Answer.LEAVING)


def insist(site: Site, pod: PodObject) -> Asked:
    """As evict; where a budget still says no, delete it all the same. It keeps its own grace period even then."""
    asked = evict(site, pod)
    if asked.answer is not Answer.BLOCKED:
        return asked
    meta = pod.metadata
    try:
        site.api.delete(names.pod(meta.namespace, meta.name), {"preconditions": {"uid": meta.uid}})
    except ApiError as error:
        return _refused(pod, error)
    return Asked(pod, Answer.LEAVING)


def _refused(pod: PodObject, error: ApiError) -> Asked:
    if error.not_found or error.conflict or TERMINATING in error.said:  # gone, another one of that name, or going
        return Asked(pod, Answer.LEAVING)
    if error.status == 429:
        return Asked(pod, Answer.BLOCKED, _budget(pod, error), min(MOST_WAIT_S, error.retry_after or BUDGET_S))
    if rights.is_missing(error):
        return Asked(pod, Answer.FORBIDDEN, f"cannot be evicted by us: {rights.words(error)}")
    if TWO_BUDGETS in error.said:
        why = "is covered by two disruption budgets, and then the eviction API refuses: one of them has to go"
        return Asked(pod, Answer.BLOCKED, why, REFUSED_S)
    after_s = REFUSED_S if error.refused else BUDGET_S
    return Asked(pod, Answer.BLOCKED, f"is not let go: {error.said}", after_s)


def _budget(pod: PodObject, error: ApiError) -> str:
    """ "waits for pdb train/llama (needs 4 healthy pods and has 4 currently)"."""
    for cause in error.causes:
        if found := BUDGET.search(cause):
            return f"waits for pdb {pod.metadata.namespace}/{found[1]} ({found[2].rstrip('.')})"
    return f"waits: {error.said}"
