"""RESET_GPU: one GPU of a drained node (or all) is reset by a Job on it; see treatments/reset for what the Job does.

`platform.perform` calls `reset_gpu`. Sent once: the node remembers the key (treatment.py) before the Job is made, and
the Job's name is the key again. The GPU operator's own clients are its pods: they are told to leave by the operator's
node labels, as its MIG manager does, and told to come back in every ending. Nothing is ever killed.
"""

from __future__ import annotations

from sickbay.kube.objects import NodeObject
from sickbay.model import Action, Done, Failed, Lost, Outcome, Started, Unguarded
from sickbay.platforms.kubernetes import node_jobs, treatment
from sickbay.platforms.kubernetes.answer import Answer, Blind
from sickbay.platforms.kubernetes.node_jobs import Errand, Running, Taken
from sickbay.platforms.kubernetes.operands import pause, resume
from sickbay.platforms.kubernetes.reboot import guard
from sickbay.platforms.kubernetes.site import Site

KIND = "reset"
LIMIT_S = 720.0
TTL_S = 86_400
OVER = "done"


def reset_gpu(site: Site, action: Action) -> Outcome:
    node = treatment.read(site, action.place.node)
    known = treatment.treatment_on(site, node) if node is not None else None
    if node is not None and known is not None and known.key == action.key:
        said = _look(site, action, node, known)
        if not (isinstance(said, Lost) and action.call):
            return said
    elif not action.call:
        resume(site, node)
        return treatment.forgotten(action, node)
    begun = treatment.begin(site, action, guard)
    if not isinstance(begun, tuple):
        return begun
    node, made = begun
    return _send(site, action, node, made)


def _send(site: Site, action: Action, node: NodeObject, made: treatment.Treatment) -> Outcome:
    pause(site, node)
    stands = node_jobs.start(site, action.key, node, errand(action))
    if not isinstance(stands, Blind):
        return _first_look(site, action, node, made)
    resume(site, treatment.read(site, node.metadata.name))
    why = f"RESET_GPU of {node.metadata.name}: {stands.why}"
    treatment.move(site, node.metadata.name, made, treatment.NEVER, why)
    return Lost(why)  # asked for again later: somebody can make room or let it in


def _first_look(site: Site, action: Action, node: NodeObject, made: treatment.Treatment) -> Outcome:
    """A queue has suspended the Job by now, and is named at once."""
    job = node_jobs.find(site, KIND, node.metadata.name, action.key)
    stands = node_jobs.standing(site, action.key, job) if job is not None else None
    if isinstance(stands, Running):
        return _under_way(site, action, node, made, stands)
    return Started(node_jobs.SOON_S, f"RESET_GPU was sent to {node.metadata.name}")


def errand(action: Action) -> Errand:
    device = action.args.get("device") or action.place.device
    argv = ["reset", "--answers", action.key, "--boot", action.before.boot_id]
    if device:
        argv += ["--device", device]
    if action.before.gpus:
        argv += ["--expected", str(len(action.before.gpus))]
    return Errand(KIND, tuple(argv), LIMIT_S, ttl_s=TTL_S)


def _look(site: Site, action: Action, node: NodeObject, known: treatment.Treatment) -> Outcome:
    """How the one that was sent stands. Its end is written on the node, so that the Job may be forgotten."""
    if ended := _ended(known):
        resume(site, node)
        return ended
    job = node_jobs.find(site, KIND, node.metadata.name, action.key)
    if job is None:
        return _never_made(site, action, node, known)
    stands = node_jobs.standing(site, action.key, job)
    if isinstance(stands, Running):
        return _under_way(site, action, node, known, stands)
    resume(site, node)
    return _told(site, node, known, stands)


def _under_way(site: Site, action: Action, node: NodeObject, known: treatment.Treatment, stands: Running) -> Outcome:
    """Taken back when a cancelled case asks for it, or when it was held back for as long as a start may take: then
    nothing was tried, so nothing harsher is next."""
    said = f"RESET_GPU on {node.metadata.name}: {stands.detail}"
    withdraw = action.args.get("withdraw") == "1"
    late = stands.held and site.clock.now() - known.at >= node_jobs.START_S
    name = node_jobs.name_of(KIND, node.metadata.name, action.key)
    if not (withdraw or late) or (taken := node_jobs.take_back(site, name)) is Taken.BEGUN:
        return Started(stands.again_s(10.0), said, held=stands.held)
    if taken is Taken.GOING:
        return Started(1.0, f"RESET_GPU on {node.metadata.name} is being taken back")
    resume(site, node)
    why = _taken_back(node) if withdraw else said
    treatment.move(site, node.metadata.name, known, treatment.NEVER, why)
    return Lost(why) if withdraw else Unguarded(why)


def _taken_back(node: NodeObject) -> str:
    return f"the reset Job on {node.metadata.name} had not started and is deleted"


def _ended(known: treatment.Treatment) -> Outcome | None:
    return Done(known.detail) if known.state == OVER else treatment.ended(known)


def _told(site: Site, node: NodeObject, known: treatment.Treatment, stands: Answer | Blind) -> Outcome:
    if isinstance(stands, Answer) and stands.did:
        outcome: Done | Failed = Done(stands.did)
        treatment.move(site, node.metadata.name, known, OVER, stands.did)
    else:
        why = stands.why if isinstance(stands, Blind) else stands.error
        outcome = Failed(f"RESET_GPU on {node.metadata.name}: {why}")
        treatment.move(site, node.metadata.name, known, treatment.FAILED, outcome.why)
    return outcome


def _never_made(site: Site, action: Action, node: NodeObject, known: treatment.Treatment) -> Outcome:
    """We died between the note on the node and the Job: nothing was reset, and it may be sent once more."""
    if not action.call:
        resume(site, node)
        gone = action.args.get("withdraw") == "1"  # it was going when we asked last
        why = _taken_back(node) if gone else f"{action.key} never arrived: its Job was not made"
        treatment.move(site, node.metadata.name, known, treatment.NEVER, why)
        return Lost(why)
    return _send(site, action, node, known)
