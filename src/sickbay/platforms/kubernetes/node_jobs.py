"""One Job, pinned to one node, that runs `sickbay node …` there: how everything that must happen on a node happens.

verify, collect, reset, node_reboot, sweep and quarantine call it. Idempotent by the action's key, which names the Job;
it needs no scheduler, tolerates every taint, has no token, and its answer is the pod's termination message, so nothing
but the API server is needed. One write a Job; the TTL controller cleans up. A Job that gave no answer, or was not let
in, is "could not look" and must never be taken for a pass, nor for a fault. One that somebody holds back (a queue, a
quota) is taken back after a while: what has waited must not begin when nobody expects it any more.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import segment
from sickbay.kube.objects import ContainerState, JobObject, Meta, NodeObject, PodObject
from sickbay.platforms.kubernetes import held_back
from sickbay.platforms.kubernetes.answer import Answer, Blind, decode
from sickbay.platforms.kubernetes.site import Site

MANAGED_BY = "app.kubernetes.io/managed-by"
OURS = "sickbay"
KIND = "app.kubernetes.io/component"  # label: what the Job does
CONTAINER = "node"
STATE_DIR = "/var/lib/sickbay"  # the agent's, on the host: reservation, GPU map, evidence
HOST_ROOT = "/host"
CONFIG = "sickbay-config"  # ConfigMap with sickbay.toml, as the agent's; may be missing
TTL_S = 3_600
SOON_S = 2.0
START_S = 180  # image pull and start, before the work's own time begins
STUCK_S = 120.0  # an image that cannot be pulled for so long will not come
NEVER_STARTS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
     "CreateContainerError"}
)  # fmt: skip
POD_OF = "batch.kubernetes.io/job-name"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True, slots=True)
class Errand:
    """What to do on a node. `argv` goes after `sickbay node`; `limit_s` is for the work itself."""

    kind: str  # check | collect | reset | reboot | signal
    argv: tuple[str, ...]
    limit_s: float
    ttl_s: int = TTL_S
    start_s: int = START_S
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """Under way; `detail` says how far. `held`: it has no pod, because somebody keeps it from starting. `begun`: it is
    at work."""

    detail: str
    held: bool = False
    begun: bool = False

    def again_s(self, at_work_s: float) -> float:
        """Who holds a Job back is known within seconds: until it has begun, it is looked at that often."""
        return at_work_s if self.begun else min(SOON_S, at_work_s)


def name_of(kind: str, node: str, key: str) -> str:
    """A DNS-1123 name that is the same for the same key, and tells a person which node."""
    digest = hashlib.sha256(f"{key}\n{node}".encode()).hexdigest()[:10]
    plain = re.sub(r"[^a-z0-9]+", "-", node.lower()).strip("-")[:34].strip("-")
    return f"sickbay-{kind}-{plain}-{digest}"


def path_of(site: Site, name: str) -> str:
    return f"{names.jobs(site.settings.namespace)}/{segment(name)}"


# --- asking -----------------------------------------------------------------------------------------------------------


def find(site: Site, kind: str, node: str, key: str) -> JobObject | None:
    return site.api.find(path_of(site, name_of(kind, node, key)), JobObject)


def run(site: Site, key: str, node: NodeObject, errand: Errand) -> Answer | Running | Blind:
    """Start it if it is not there, and say where it stands. Ask again until it is no longer Running."""
    job = find(site, errand.kind, node.metadata.name, key)
    if job is None:
        return start(site, key, node, errand)
    stands = standing(site, key, job)
    return given_up(site, job, stands, errand.start_s) if isinstance(stands, Running) else stands


def start(site: Site, key: str, node: NodeObject, errand: Errand) -> Answer | Running | Blind:
    try:
        site.api.create(names.jobs(site.settings.namespace), body(site, key, node, errand), JobObject)
    except ApiError as error:
        if error.refused and not error.passing:  # a quota, a policy, a webhook: nothing was looked at, nothing was done
            return Blind(held_back.refused(site, error.said), kept_out=True)
        if not error.conflict:
            raise
        job = find(site, errand.kind, node.metadata.name, key)  # another leader was faster: its Job is ours
        return standing(site, key, job) if job is not None else Running("its Job is being removed")
    return Running(f"{errand.kind} was sent to {node.metadata.name}")


def standing(site: Site, key: str, job: JobObject) -> Answer | Running | Blind:
    """Where this Job stands, from its pod and its own conditions. One of our name that was made for another question,
    or by somebody else, answers nothing."""
    if (made_for := job.metadata.annotation(site.keys.action)) != key:
        return Blind(
            f"the Job {job.metadata.name} is not ours: it was made for {made_for[:120] or 'nobody knows what'}"
        )
    pods = pods_of(site, job.metadata.name)
    stands = judged(key, job, pods, site.server_now())
    if isinstance(stands, Running) and not pods and (why := held_back.why(site, job)):
        return Running(why, held=True)
    return stands


def pods_of(site: Site, job: str) -> list[PodObject]:
    return site.api.list(names.pods(site.settings.namespace), PodObject, labelSelector=f"{POD_OF}={job}")


def given_up(site: Site, job: JobObject, stands: Running, patience_s: float) -> Running | Blind:
    """One that has been held back for so long is taken back, and nobody could look: why, in words."""
    if not stands.held or age_of(job.metadata, site.server_now()) < patience_s:
        return stands
    return Blind(stands.detail) if take_back(site, job.metadata.name) is Taken.BACK else stands


def judged(key: str, job: JobObject, pods: Sequence[PodObject], now: float) -> Answer | Running | Blind:
    """The same from what has been read already. An answer counts however its pod ended."""
    for pod in pods:
        if said := decode(message_of(pod), key):
            return said
    if failed := _condition(job, "Failed"):
        return Blind(_why_failed(failed.reason, failed.message, pods))
    if _condition(job, "Complete"):
        return Blind("its Job ended without an answer that can be read")
    if why := _cannot_start(pods, now):
        return Blind(why)
    started = any(pod.status.phase == "Running" for pod in pods)
    return Running("at work", begun=True) if started else Running("waiting for its pod to start")


def pod_of(site: Site, kind: str, node: str, key: str) -> str:
    """The pod whose answer to this key was read; "" when it is not there any more."""
    chosen = f"{POD_OF}={name_of(kind, node, key)}"
    pods = site.api.list(names.pods(site.settings.namespace), PodObject, labelSelector=chosen)
    return next((pod.metadata.name for pod in pods if decode(message_of(pod), key)), "")


def message_of(pod: PodObject) -> str:
    """What the container left as its termination message; "" as long as it has not ended."""
    for status in pod.status.container_statuses or ():
        if status.name == CONTAINER and status.state is not None and status.state.terminated is not None:
            return status.state.terminated.message
    return ""


def has_ended(job: JobObject) -> bool:
    return any(_condition(job, kind) for kind in ("Complete", "Failed"))


def _condition(job: JobObject, kind: str) -> Any:
    return next((one for one in job.status.conditions or () if one.type == kind and one.status == "True"), None)


def _why_failed(reason: str, message: str, pods: Sequence[PodObject]) -> str:
    if reason == "DeadlineExceeded":
        return "it did not end in time and was stopped"
    ended = [state.terminated for pod in pods for state in _states(pod) if state.terminated is not None]
    codes = [f"exit code {one.exit_code}" + (f", {one.reason}" if one.reason else "") for one in ended]
    said = codes[0] if codes else (pods[0].status.reason if pods else "") or reason or "no reason given"
    return f"its Job failed without an answer ({said}{f': {message[:160]}' if message else ''})"


def _states(pod: PodObject) -> list[ContainerState]:
    return [status.state for status in pod.status.container_statuses or () if status.state is not None]


def _cannot_start(pods: Sequence[PodObject], now: float) -> str:
    for pod in pods:
        for waiting in (state.waiting for state in _states(pod)):
            if waiting is not None and waiting.reason in NEVER_STARTS and age_of(pod.metadata, now) > STUCK_S:
                return f"its pod cannot start: {waiting.reason}: {waiting.message[:160]}"
    return ""


def age_of(made: Meta, now: float) -> float:
    try:
        return now - datetime.fromisoformat(made.creation_timestamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def stop(site: Site, kind: str, node: str, key: str) -> None:
    """End a Job and its pod, whatever it is at. No error when it is not there."""
    site.api.delete(path_of(site, name_of(kind, node, key)), {"propagationPolicy": "Background"})


# --- taking back ------------------------------------------------------------------------------------------------------


class Taken(Enum):
    BACK = "it is not there, and nothing of it runs"
    GOING = "it is being removed, or moved while we looked: ask again"
    BEGUN = "it has begun: too late"


def take_back(site: Site, name: str) -> Taken:
    """Delete a Job that has not begun: this very one as it was read, so that one which starts meanwhile is seen. Its
    pods go with it, and only when none is left it is surely back."""
    job, pods = site.api.find(path_of(site, name), JobObject), pods_of(site, name)
    if any(has_begun(pod) for pod in pods) or (job is not None and has_ended(job)):
        return Taken.BEGUN
    if job is None:
        return Taken.GOING if pods else Taken.BACK
    seen = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
    try:
        site.api.delete(path_of(site, name), {"preconditions": seen, "propagationPolicy": "Background"})
    except ApiError as error:
        if not error.conflict:
            raise
        return Taken.GOING
    left = pods_of(site, name)
    if any(has_begun(pod) for pod in left):
        return Taken.BEGUN
    return Taken.GOING if left else Taken.BACK


def has_begun(pod: PodObject) -> bool:
    ended = any(state.terminated for state in _states(pod))
    return ended or pod.status.phase in ("Running", "Succeeded", "Failed")


# --- the Job ----------------------------------------------------------------------------------------------------------


def body(site: Site, key: str, node: NodeObject, errand: Errand) -> dict[str, Any]:
    name = node.metadata.name
    labels = {MANAGED_BY: OURS, KIND: errand.kind, site.keys.target_node: label_value(name), **errand.labels}
    marks = {site.keys.action: key}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name_of(errand.kind, name, key), "labels": labels, "annotations": marks},
        "spec": {
            "backoffLimit": 0,  # a second try is the controller's decision
            "activeDeadlineSeconds": int(errand.limit_s) + errand.start_s,
            "ttlSecondsAfterFinished": errand.ttl_s,
            "template": {
                "metadata": {"labels": labels, "annotations": marks},
                "spec": _pod(site, node, errand),
            },
        },
    }


def label_value(name: str) -> str:
    """A node's name as a label: names of up to 253 characters are allowed, label values of 63."""
    return name if len(name) <= 63 else f"{name[:52].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _pod(site: Site, node: NodeObject, errand: Errand) -> dict[str, Any]:
    return {
        "nodeName": node.metadata.name,  # no scheduler: a cordoned or tainted node is just where it must go
        "restartPolicy": "Never",
        "hostPID": True,
        "hostNetwork": True,  # as the agent: DCGM listens on the host's localhost, metadata is one hop away
        "serviceAccountName": site.settings.job_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 60,
        "volumes": [
            {"name": "host", "hostPath": {"path": "/"}},
            {"name": "state", "hostPath": {"path": STATE_DIR, "type": "DirectoryOrCreate"}},
            {"name": "config", "configMap": {"name": CONFIG, "optional": True}},
        ],
        "containers": [_container(site, node, errand)],
    }


def _container(site: Site, node: NodeObject, errand: Errand) -> dict[str, Any]:
    given = {
        "NODE_NAME": node.metadata.name,
        "SICKBAY_AGENT__HOST_ROOT": HOST_ROOT,
        "SICKBAY_AGENT__STATE_DIR": STATE_DIR,
        "SICKBAY_AGENT__INSTANCE_TYPE": node.metadata.label(INSTANCE_TYPE),
    }
    return {
        "name": CONTAINER,
        "image": site.settings.image,
        "command": ["sickbay", "node", *errand.argv],
        "env": [{"name": name, "value": value} for name, value in given.items() if value],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"name": "host", "mountPath": HOST_ROOT, "mountPropagation": "HostToContainer"},
            {"name": "state", "mountPath": STATE_DIR},
            {"name": "config", "mountPath": "/etc/sickbay", "readOnly": True},
        ],
    }
