"""`sickbay quarantine NODE`: checks 4 and 6 on one node that is out of service, and what they say, annotated.

Called by cli/quarantine. What was found is annotated (quarantine_result.py); a case is opened of it only where
kubernetes.quarantine_act says so. A pass recommends "return": the original said "investigate" to a node that had passed
(originals 002.12 #15). Hours of burn-in are not lost to a server that was away for a moment: it is asked again, and
whoever starts anew takes up the Job that is there. It must never run on a node with work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sickbay.errors import ApiError, UserError
from sickbay.kube import names
from sickbay.kube.objects import Anything, JobObject, NodeObject
from sickbay.model import Finding
from sickbay.platforms.kubernetes import node_jobs, treatment
from sickbay.platforms.kubernetes.answer import Answer, Blind
from sickbay.platforms.kubernetes.node_jobs import Running
from sickbay.platforms.kubernetes.quarantine_result import Verdict, annotation, verdict
from sickbay.platforms.kubernetes.sight import pods_on
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.tenants import is_work
from sickbay.platforms.kubernetes.verify import Waiting, errand, findings_of, unseen

CHECKS = ("dcgm-l4", "efa-loopback")  # 4 and 6
MODE = "quarantine"
EVERY_S = 5.0
TELL_S = 3_600.0  # a verdict that took hours is offered for so long to a server that does not take it
LEAVE_S = 30.0  # whoever interrupts it does not wait for long

T = TypeVar("T")
Say = Callable[[str], None]
Sleep = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Sitting:
    """One examination of one node, and how its waiting is done and told."""

    site: Site
    node: NodeObject
    key: str
    checks: tuple[str, ...]
    job: node_jobs.Errand
    say: Say
    sleep: Sleep

    @property
    def name(self) -> str:
        return self.node.metadata.name


# --- the examination --------------------------------------------------------------------------------------------------


def quarantine(
    site: Site, name: str, by: str, *, checks: Sequence[str] = CHECKS, say: Say = lambda _: None,
    sleep: Sleep = time.sleep,
) -> Verdict:  # fmt: skip
    """Examine one node; hours. UserError with the commands to run first when the node is not ready for it."""
    node, there = _fit(site, name)
    key, asked = f"quarantine/{name}/{site.clock.now():.0f}", tuple(checks)
    if there is not None:
        key, asked = _asked(site, there)
        say(f"{name}: taking up the examination that is there: {', '.join(asked)}")
    reserve = node.metadata.annotation(site.keys.case) or f"quarantine by {by}"
    return _seen_through(Sitting(site, node, key, asked, errand(key, asked, reserve=reserve, suite=MODE), say, sleep))


def _seen_through(sitting: Sitting) -> Verdict:
    """Label on, what was found annotated, label off: in every ending, as far as the server lets us."""
    site, name, key = sitting.site, sitting.name, sitting.key
    marks: dict[str, object] = {"labels": {site.keys.mode: None}}
    patience_s = LEAVE_S
    try:
        site.api.patch(names.node(name), {"metadata": {"labels": {site.keys.mode: MODE}}}, Anything)
        said = verdict(waited(sitting), sitting.checks)
        act = site.settings.quarantine_act and said.status == "fail"
        text = annotation(name, MODE, said, key, site.clock.now(), act=act)
        marks["annotations"], patience_s = {site.keys.quarantine_result: text}, TELL_S
        return said
    except BaseException:
        _insist(sitting, partial(node_jobs.stop, site, "check", name, key), LEAVE_S, "its Job could not be ended")
        raise
    finally:
        told = partial(site.api.patch, names.node(name), {"metadata": marks}, Anything)
        _insist(sitting, told, patience_s, f"not written; kubectl label node {name} {site.keys.mode}-")


def waited(sitting: Sitting) -> list[Finding]:
    """The Job's findings. A node that is lost meanwhile is UNKNOWN; a server that is away is asked again."""
    site, name, told, begun = sitting.site, sitting.name, "", False
    end = site.clock.now() + sitting.job.limit_s + sitting.job.start_s + sitting.job.ttl_s  # then its answer is gone
    while True:
        try:
            stands = _stands(sitting, begun=begun)
            begun = True
        except ApiError as error:
            if error.refused or error.not_found or site.clock.now() >= end:
                raise
            stands = Running(f"the API server does not answer: {error.said}")
        if not isinstance(stands, Running):
            break
        if stands.detail != told:
            sitting.say(f"{name}: {stands.detail}")
            told = stands.detail
        sitting.sleep(EVERY_S)
    boot = sitting.node.status.node_info.boot_id if sitting.node.status.node_info is not None else ""
    return findings_of(site, sitting.key, name, sitting.checks, stands, boot)


def _stands(sitting: Sitting, *, begun: bool) -> Answer | Running | Blind:
    """Started once: a Job that somebody has taken away meanwhile is not made again."""
    site, node = sitting.site, sitting.node
    job = node_jobs.find(site, sitting.job.kind, sitting.name, sitting.key)
    if job is None and begun:
        return Blind("its Job was taken away before it had answered")
    if job is None:
        return node_jobs.start(site, sitting.key, node, sitting.job)
    stands = node_jobs.standing(site, sitting.key, job)
    if isinstance(stands, Running):
        why = unseen(site, sitting.name, site.api.find(names.node(sitting.name), NodeObject), patience_s=300.0)
        return Blind(why) if isinstance(why, str) else stands
    return stands


def _insist(sitting: Sitting, ask: Callable[[], object], for_s: float, undone: str) -> None:
    """Best effort, again and again for so long; what could not be done is said, and hides nothing that was raised."""
    end, pause = sitting.site.clock.now() + for_s, 1.0
    while True:
        try:
            ask()
            return
        except ApiError as error:
            if error.refused or error.not_found or sitting.site.clock.now() >= end:
                sitting.say(f"{sitting.name}: {undone}: {error}")
                return
        sitting.sleep(pause)
        pause = min(60.0, 2 * pause)


# --- a Job that is there already --------------------------------------------------------------------------------------


def _left_behind(site: Site, name: str) -> JobObject | None:
    """The newest quarantine Job of this node, at work or ended."""
    chosen = f"{node_jobs.KIND}=check,{site.keys.target_node}={node_jobs.label_value(name)}"
    jobs = site.api.list(names.jobs(site.settings.namespace), JobObject, labelSelector=chosen)
    living = (job for job in jobs if not job.metadata.deletion_timestamp)
    ours = [job for job in living if job.metadata.annotation(site.keys.action).startswith(f"quarantine/{name}/")]
    return max(ours, key=lambda job: job.metadata.creation_timestamp, default=None)


def _asked(site: Site, job: JobObject) -> tuple[str, tuple[str, ...]]:
    """Its key, and the checks that it was asked for."""
    containers = job.spec.get("template", {}).get("spec", {}).get("containers") or [{}]
    argv = [str(word) for word in containers[0].get("command", ())]
    checks = argv[argv.index("--checks") + 1] if "--checks" in argv[:-1] else ",".join(CHECKS)
    return job.metadata.annotation(site.keys.action), tuple(checks.split(","))


def _fit(site: Site, name: str) -> tuple[NodeObject, JobObject | None]:
    """The node, and the examination of it that somebody began and did not see the end of."""
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
    there, is_open = _left_behind(site, name), node.metadata.label(site.keys.mode) == MODE
    if is_open and there is None:
        raise UserError(
            f"{name} is in quarantine already. If nobody is at it: kubectl label node {name} {site.keys.mode}-"
        )
    return node, there if there is not None and (is_open or not node_jobs.has_ended(there)) else None
