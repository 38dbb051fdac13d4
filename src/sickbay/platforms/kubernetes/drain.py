"""DRAIN: empty a node that we hold, gently, and say at each ask what is waited for.

Called by platform.perform until it answers Done. Each call reads the node and its pods afresh, asks those to leave that
may be asked, and returns within seconds. It must never touch a node that is not closed in the name of its case, shorten
a pod's grace period, or call work gone that it cannot see: on a node that does not answer, only a machine that is
provably down (`is_down`, by the provider) makes it so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec

from sickbay.kube import names
from sickbay.kube.objects import NodeObject, NodeStatus, PodObject
from sickbay.model import Action, Done, Failed, Outcome, Retry, Started
from sickbay.platforms.kubernetes import marks, out_of_service
from sickbay.platforms.kubernetes.evictions import (
    Answer,
    Asked,
    ask_all,
    is_leaving,
    is_stuck,
    look_again_s,
    name_of,
    pods_on,
    protection,
)
from sickbay.platforms.kubernetes.site import Site, awaited
from sickbay.platforms.kubernetes.tenants import job_of
from sickbay.platforms.kubernetes.views import answers, instance_of, is_machine

SLICE_S = 8.0  # of the ten that a door has
ASK_AGAIN_S = 30.0
SOON_S, GANG_S = 1.0, 2.0
REMOVED_S = 5.0  # the controllers look at an out-of-service node every few seconds
FORCE_S = 60.0  # settings.force: only when the drain has no more time than this left (args["left_s"])
NAMED = 3  # pods by name in one sentence

IsDown = Callable[[Site, NodeObject], bool]
GiveWay = Callable[[Site, str, Sequence[PodObject]], Sequence[str]]  # which of these pods' gangs are stopped whole


class Attached(NodeStatus):
    volumes_attached: list[dict[str, str]] | None = None


class DrainedNode(NodeObject):
    """A node and the volumes that still hang on it."""

    status: Attached = msgspec.field(default_factory=Attached)


def nobody_knows(_site: Site, _node: NodeObject) -> bool:
    """Without a provider to ask, no machine is provably down."""
    return False


def stand_still(_site: Site, _case: str, _pods: Sequence[PodObject]) -> Sequence[str]:
    """Without anybody who can stop gangs, each pod leaves by itself."""
    return ()


def drain(site: Site, action: Action, is_down: IsDown = nobody_knows, give_way: GiveWay = stand_still) -> Outcome:
    began, name = time.monotonic(), action.place.node
    node = site.api.find(names.node(name), DrainedNode)
    if node is None:
        return awaited(name)
    if refusal := _refusal(site, action, node):
        return refusal
    pods = pods_on(site, name, whole=action.args.get("scope") == "all")
    evict = action.args.get("evict", "1") == "1"
    if not answers(node):
        if evict and pods:  # the ranks on other nodes only wait for those here
            give_way(site, marks.case_of(action), pods)
        return _drain_silent(site, node, pods, evict=evict, is_down=is_down)
    out_of_service.lift(site, node)
    if not pods:
        return Done(f"{name} is empty")
    if not evict:
        return Started(ASK_AGAIN_S, f"waiting for {_listed(pods)} to end by itself: evictions are not allowed here")
    return _empty(site, action, pods, give_way, began + SLICE_S)


def _refusal(site: Site, action: Action, node: NodeObject) -> Outcome | None:
    name, case = node.metadata.name, marks.case_of(action)
    if (wanted := action.before.instance) and not is_machine(node, wanted):
        return Failed(f"{name} is another machine now: {instance_of(node)}, not {wanted}")
    if marks.mark_of(node, site.keys) != case or not node.spec.unschedulable:
        return Retry(ASK_AGAIN_S, f"{name} is not closed in the name of {case}")
    return None


# --- a node that answers ----------------------------------------------------------------------------------------------


def _empty(site: Site, action: Action, pods: Sequence[PodObject], give_way: GiveWay, until: float) -> Outcome:
    leaving = [pod for pod in pods if is_leaving(pod)]
    staying = [pod for pod in pods if not is_leaving(pod)]
    ending = [pod for pod in leaving if not is_stuck(site, pod)]
    if not ending and not staying:
        return Done(f"empty but for {_listed(leaving)}, whose processes do not end (D state): only a boot removes them")
    force = _must_go(site, action)
    gangs = {} if force else _stopped(site, marks.case_of(action), staying, give_way)
    alone = [pod for pod in staying if name_of(pod) not in gangs]
    kept = {name_of(pod): why for pod in alone if (why := protection(site, pod))}
    asked = ask_all(site, [p for p in alone if name_of(p) not in kept], max(0.5, until - time.monotonic()), force=force)
    if refused := [one for one in asked if one.answer is Answer.FORBIDDEN]:
        return Failed(f"{name_of(refused[0].pod)} {refused[0].why}", lacks=True)
    return _under_way(site, ending, asked, gangs | kept)


def _stopped(site: Site, case: str, pods: Sequence[PodObject], give_way: GiveWay) -> dict[str, str]:
    """Pods that end because their whole gang is stopped: evicting one of them would look like a failure to the job's
    own controller, and spend its budget. Pods without a controller are ended by nobody, so those are evicted too."""
    gangs: dict[str, list[PodObject]] = {}
    for pod in pods:
        gangs.setdefault(job_of(pod), []).append(pod)
    given = {job: ids for job, ranks in gangs.items() if (ids := give_way(site, case, ranks))}
    return {
        name_of(pod): f"ends with its gang {given[job][0]}, which is being stopped"
        for job in given
        for pod in gangs[job]
        if any(owner.controller for owner in pod.metadata.owner_references or ())
    }


def _must_go(site: Site, action: Action) -> bool:
    """May a pod be deleted although a budget protects it? Only if a person said so beforehand, and at the very end."""
    try:
        left_s = float(action.args.get("left_s", "inf"))
    except ValueError:
        return False
    return site.settings.force and math.isfinite(left_s) and left_s <= FORCE_S


def _under_way(site: Site, leaving: list[PodObject], asked: list[Asked], kept: dict[str, str]) -> Outcome:
    blocked = [one for one in asked if one.answer is Answer.BLOCKED]
    ending = len(leaving) + len(asked) - len(blocked)
    waits = [look_again_s(site, pod) for pod in leaving] + [one.after_s for one in blocked]
    waits += [SOON_S] if len(asked) > len(blocked) else []
    waits += [GANG_S for why in kept.values() if why.startswith("ends with")]
    said = [f"{_pods(ending)} {'is' if ending == 1 else 'are'} ending"] if ending else []
    said += _reasons({name_of(one.pod): one.why for one in blocked} | kept)
    return Started(min(waits, default=ASK_AGAIN_S), "; ".join(said))


def _reasons(why: dict[str, str]) -> list[str]:
    """Pods that wait for the same thing are told together."""
    same: dict[str, list[str]] = {}
    for pod, reason in why.items():
        same.setdefault(reason, []).append(pod)
    return [f"{_some(pods)} {reason}" for reason, pods in list(same.items())[:NAMED]]


def _listed(pods: Sequence[PodObject]) -> str:
    return _some([name_of(pod) for pod in pods])


def _some(names_: Sequence[str]) -> str:
    more = f" and {len(names_) - NAMED} more" if len(names_) > NAMED else ""
    return ", ".join(names_[:NAMED]) + more


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


# --- a node that does not ---------------------------------------------------------------------------------------------


def _drain_silent(site: Site, node: DrainedNode, pods: Sequence[PodObject], *, evict: bool, is_down: IsDown) -> Outcome:
    """Kubernetes itself removes the work of a machine that is said to be out of service, and takes its volumes off."""
    name = node.metadata.name
    if not (evict and site.settings.out_of_service and is_down(site, node)):
        return Started(ASK_AGAIN_S, f"{name} does not answer; its work ({_pods(len(pods))}) cannot be confirmed gone")
    if pods or node.status.volumes_attached:
        out_of_service.put(site, node)
        ask_all(site, [pod for pod in pods if not is_leaving(pod)], SLICE_S / 2, force=True)  # no budget revives them
        what = f"{_pods(len(pods))} and {len(node.status.volumes_attached or ())} volumes"
        return Started(REMOVED_S, f"{name} has no power: {what} are being taken off it")
    out_of_service.lift(site, node)  # it has done its work: a machine that boots with it would be kept out of use
    return Done(f"{name} has no power, and nothing is left on it")
