"""`sickbay quarantine NODE`: checks 4 and 6 on one node that is out of service, and what they say, annotated.

Called by cli/quarantine. What was found is annotated (quarantine_result.py); a case is opened of it only where
kubernetes.quarantine_act says so. A pass recommends "return": the original said "investigate" to a node that had passed
(originals 002.12 #15). It must never run on a node with work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sickbay.errors import UserError
from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject
from sickbay.model import Finding
from sickbay.platforms.kubernetes import node_jobs, treatment
from sickbay.platforms.kubernetes.answer import Blind
from sickbay.platforms.kubernetes.node_jobs import Running
from sickbay.platforms.kubernetes.quarantine_result import Verdict, annotation, verdict
from sickbay.platforms.kubernetes.sight import pods_on
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.tenants import is_work
from sickbay.platforms.kubernetes.verify import Waiting, errand, findings_of, unseen

CHECKS = ("dcgm-l4", "efa-loopback")  # 4 and 6
MODE = "quarantine"
EVERY_S = 5.0


# --- the examination --------------------------------------------------------------------------------------------------


def quarantine(
    site: Site, name: str, by: str, *, checks: Sequence[str] = CHECKS, say: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Verdict:  # fmt: skip
    """Examine one node; hours. UserError with the commands to run first when the node is not ready for it."""
    node = _fit(site, name)
    at = site.clock.now()
    key = f"quarantine/{name}/{at:.0f}"
    reserve = node.metadata.annotation(site.keys.case) or f"quarantine by {by}"
    path = names.node(name)
    site.api.patch(path, {"metadata": {"labels": {site.keys.mode: MODE}}}, Anything)
    marks: dict[str, object] = {"labels": {site.keys.mode: None}}
    try:
        job = errand(key, checks, reserve=reserve, suite=MODE)
        said = verdict(waited(site, key, node, job, checks, say, sleep), checks)
        act = site.settings.quarantine_act and said.status == "fail"
        text = annotation(name, MODE, said, key, site.clock.now(), act=act)
        marks["annotations"] = {site.keys.quarantine_result: text}
        return said
    except BaseException:
        node_jobs.stop(site, "check", name, key)
        raise
    finally:
        site.api.patch(path, {"metadata": marks}, Anything)


def waited(
    site: Site, key: str, node: NodeObject, job: node_jobs.Errand, checks: Sequence[str], say: Callable[[str], None],
    sleep: Callable[[float], None],
) -> list[Finding]:  # fmt: skip
    """The Job's findings. A node that is lost meanwhile is UNKNOWN."""
    name, told = node.metadata.name, ""
    while isinstance(stands := node_jobs.run(site, key, node, job), Running):
        if stands.detail != told:
            say(f"{name}: {stands.detail}")
            told = stands.detail
        sleep(EVERY_S)
        fresh = site.api.find(names.node(name), NodeObject)
        why = unseen(site, name, fresh, patience_s=300.0)
        if isinstance(why, str):
            stands = Blind(why)
            break
    boot = node.status.node_info.boot_id if node.status.node_info is not None else ""
    assert not isinstance(stands, Running)
    return findings_of(site, key, name, checks, stands, boot)


def _fit(site: Site, name: str) -> NodeObject:
    node = site.api.find(names.node(name), NodeObject)
    why = unseen(site, name, node, patience_s=0.0)
    if node is None or why:
        raise UserError(f"{why.why if isinstance(why, Waiting) else why}: nothing can be examined there.")
    first = (
        f"Run these first:\n  kubectl cordon {name}\n  kubectl drain {name} --ignore-daemonsets --delete-emptydir-data"
    )
    if not node.spec.unschedulable and not node.metadata.annotation(site.keys.case):
        raise UserError(f"{name} still takes work, and checks 4 and 6 need it for hours. {first}")
    work = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods_on(site, name) if is_work(site, pod)]
    if work:
        more = f" and {len(work) - 3} more" if len(work) > 3 else ""
        raise UserError(f"{name} has work on it: {', '.join(work[:3])}{more}. {first}")
    if busy := treatment.under_way(site, node):
        raise UserError(f"{busy}. Wait for it: `sickbay cases` shows how it stands.")
    if node.metadata.label(site.keys.mode) == MODE:
        raise UserError(
            f"{name} is in quarantine already. If nobody is at it: kubectl label node {name} {site.keys.mode}-"
        )
    return node
