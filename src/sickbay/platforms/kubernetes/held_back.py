"""Why a Job of ours has not started, named as what it is: a queue, PodSecurity, a quota, a webhook, a policy.

node_jobs.py asks, with the Job and its pods as they stand. Our Jobs need no scheduler, so one without a pod is held
back by somebody who can be named: whoever suspended it, or whoever refuses its pod, which only the job controller's
events tell. The words reach case, ward list and log, so they begin with what a person has to change. Reads only.
"""

from __future__ import annotations

from sickbay.kube import names
from sickbay.kube.objects import EventObject, JobObject
from sickbay.platforms.kubernetes.site import Site

KUEUE = "kueue.x-k8s.io/"
CREATED_WORKLOAD = "CreatedWorkload"  # Kueue's event on a Job that it took in
FAILED_CREATE = "FailedCreate"  # the job controller's: the API server refuses the pod
MOST_CHARS = 240
SILENT_WEBHOOK = "failed calling webhook"

# In an API server's refusal: who says it, and what is to be done.
REFUSALS = (
    ("violates PodSecurity", "PodSecurity refuses its {what}: label namespace {namespace} "
     "pod-security.kubernetes.io/enforce=privileged"),
    ("exceeded quota", "a ResourceQuota of namespace {namespace} refuses its {what}: raise it"),
    ("failed quota", "a ResourceQuota of namespace {namespace} refuses its {what}: it asks for what a quota counts"),
    ("admission webhook", "an admission webhook refuses its {what}: exempt namespace {namespace} there"),
    (SILENT_WEBHOOK, "an admission webhook does not answer, so its {what} is refused: mend it, or exempt "
     "namespace {namespace} there"),
    ("ValidatingAdmissionPolicy", "an admission policy refuses its {what}: exempt namespace {namespace} there"),
    ("is forbidden", "the API server forbids its {what}"),
)  # fmt: skip


def refused(site: Site, said: str, what: str = "Job") -> str:
    """An API server's refusal of a Job or pod of ours, with its own words last."""
    namespace = site.settings.namespace
    for sign, words in REFUSALS:
        if sign in said:
            return f"{words.format(what=what, namespace=namespace)} ({said[:MOST_CHARS]})"
    return f"its {what} was refused: {said[:MOST_CHARS]}"


def why(site: Site, job: JobObject) -> str:
    """Of a Job that has no pod; "" when nobody is known to hold it back (it may have been made just now)."""
    events = _events(site, job)
    if job.spec.get("suspend"):
        return _suspended(site, job, events)
    failed = [one for one in events if one.reason == FAILED_CREATE]
    return refused(site, failed[-1].message.removeprefix("Error creating: "), "pod") if failed else ""


def _suspended(site: Site, job: JobObject, events: list[EventObject]) -> str:
    name, namespace = job.metadata.name, site.settings.namespace
    by_kueue = any(key.startswith(KUEUE) for key in job.metadata.labels or {})
    if by_kueue or any(one.reason == CREATED_WORKLOAD for one in events):
        return (
            f"Kueue has suspended its Job {name}: keep Kueue off namespace {namespace} "
            "(managedJobsNamespaceSelector, see docs/kubernetes.md)"
        )
    return f"somebody has suspended its Job {name}: in namespace {namespace} nobody but Sickbay may hold Jobs back"


def _events(site: Site, job: JobObject) -> list[EventObject]:
    """Of this very Job, the newest last."""
    chosen = f"involvedObject.kind=Job,involvedObject.uid={job.metadata.uid}"
    found = site.api.list(names.events(site.settings.namespace), EventObject, fieldSelector=chosen)
    return sorted(found, key=lambda one: one.last_timestamp or one.metadata.creation_timestamp)
