"""The Job that reboots a machine which no provider can reboot: bare metal, or kubernetes.machines = "node-job".

reboot.py calls `send` after guard and note, `standing` while it waits, and `take_back` when it waits in vain or a
cancelled case asks for it. The Job carries the old boot id and does nothing in another boot (treatments/reboot).
Whether the machine has booted is seen on the node, never taken from the Job: a Job that ended without an answer was
most likely killed by the reboot it had ordered.
"""

from __future__ import annotations

from sickbay.model import Action
from sickbay.platforms.kubernetes import node_jobs, treatment
from sickbay.platforms.kubernetes.answer import Answer, Blind
from sickbay.platforms.kubernetes.node_jobs import Errand, Running, Taken
from sickbay.platforms.kubernetes.site import Site

KIND = "reboot"
LIMIT_S = 180.0
TTL_S = 86_400


def send(site: Site, action: Action, boot_id: str) -> str:
    """Make the Job; one with this key that is there already is left as it is. "", or why it was not let in."""
    node = treatment.read(site, action.place.node)
    if node is None:
        return ""
    argv = ("reboot", "--answers", action.key, "--boot", boot_id)
    stands = node_jobs.start(site, action.key, node, Errand(KIND, argv, LIMIT_S, ttl_s=TTL_S))
    return stands.why if isinstance(stands, Blind) else ""


def standing(site: Site, action: Action) -> Answer | Running | Blind | None:
    """Where the Job stands; None when there is none."""
    job = node_jobs.find(site, KIND, action.place.node, action.key)
    return node_jobs.standing(site, action.key, job) if job is not None else None


def take_back(site: Site, action: Action) -> Taken:
    return node_jobs.take_back(site, node_jobs.name_of(KIND, action.place.node, action.key))
