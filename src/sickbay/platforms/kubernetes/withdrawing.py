"""A cancelled case takes back what it had sent to its node and has not begun: checks, collections, anything in a Job.

platform.py puts `with_jobs` around RELEASE, after which nobody expects them any more: a check that a queue had held
back would else burn in GPUs that have work again. What has begun is left to its end. Treatments are taken back by
their own doors, which remember them on the node.
"""

from __future__ import annotations

from collections.abc import Callable

from sickbay.kube import names
from sickbay.kube.objects import JobObject
from sickbay.model import Action, Outcome, Retry
from sickbay.platforms.kubernetes import marks, node_jobs
from sickbay.platforms.kubernetes.node_jobs import Taken
from sickbay.platforms.kubernetes.site import Site

Door = Callable[[Site, Action], Outcome]
SOON_S = 1.0


def with_jobs(door: Door) -> Door:
    def take_back_then(site: Site, action: Action) -> Outcome:
        if action.args.get("cancel") == "1" and (going := _take_back(site, action)):
            return Retry(SOON_S, f"being taken back before {action.place.node} is let go: {', '.join(going)}")
        return door(site, action)

    return take_back_then


def _take_back(site: Site, action: Action) -> list[str]:
    """Those that are not surely gone yet."""
    waiting = [job.metadata.name for job in _jobs_of(site, action) if not node_jobs.has_ended(job)]
    return [name for name in waiting if node_jobs.take_back(site, name) is Taken.GOING]


def _jobs_of(site: Site, action: Action) -> list[JobObject]:
    """What this case has sent to this node."""
    node, case = node_jobs.label_value(action.place.node), marks.case_of(action)
    chosen = f"{node_jobs.MANAGED_BY}={node_jobs.OURS},{site.keys.target_node}={node}"
    found = site.api.list(names.jobs(site.settings.namespace), JobObject, labelSelector=chosen)
    return [job for job in found if job.metadata.annotation(site.keys.action).rpartition("/")[0] == case]
