"""Events on jobs: what their owners see under `kubectl describe`, also those who have not opted in.

Called by stop (`give_way`, before a drain evicts) and restart. Best effort: an Event that cannot be written holds up
nothing, and it is never the only place where something is said.
"""

from __future__ import annotations

from sickbay.errors import ApiError
from sickbay.kube import events
from sickbay.kube.objects import Anything
from sickbay.platforms.kubernetes.gangs import advice, kinds, words
from sickbay.platforms.kubernetes.gangs.read import Found
from sickbay.platforms.kubernetes.site import Site

COMPONENT = "sickbay"
BLAMED, GIVING_WAY, RESTARTED, ADVICE = "NodeIsSick", "GivingWay", "Restarted", "RecoveryAdvice"
MOST_ADVICE = 4


def blame(site: Site, job: str, node: str, case: str) -> None:
    """A job that we do not restart loses pods to a sick node: whose fault that is, and how to have it looked after."""
    known = kinds.parse(job)
    if known is None or known[0] is kinds.BARE:
        return
    kind, namespace, name = known
    said = (
        f"node {node} is sick and is being emptied (case {case}; kubectl get nodecases -o wide says why): this is not "
        "the job's fault"
    )
    if site.helps_jobs:
        said += f". Label it {words.RECOVER}=managed to have it stopped whole and restarted from its checkpoint"
    try:
        found = site.api.find(kind.path(namespace, name), Anything)
        if found is not None:
            about = _about(kind, namespace, name, found.metadata.uid)
            events.event(site.api, namespace, about, events.WARNING, BLAMED, said, COMPONENT)
    except ApiError:
        return


def tell(site: Site, found: Found, reason: str, said: str) -> None:
    gang = found.gang
    if gang.kind is kinds.BARE:
        return
    meta = gang.object.metadata
    about = _about(gang.kind, meta.namespace, meta.name, meta.uid)
    try:
        events.event(site.api, meta.namespace, about, events.NORMAL, reason, said, COMPONENT)
    except ApiError:
        return


def advise(site: Site, found: Found) -> None:
    """Where this job's own spec makes its owner pay for our nodes; said when it has just happened."""
    for sentence in advice.advice(found.whole)[:MOST_ADVICE]:
        tell(site, found, ADVICE, sentence)


def _about(kind: kinds.Kind, namespace: str, name: str, uid: str) -> dict[str, str]:
    return {"apiVersion": kind.group, "kind": kind.kind, "namespace": namespace, "name": name, "uid": uid}
