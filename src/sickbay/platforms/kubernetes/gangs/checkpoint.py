"""CHECKPOINT_JOB: ask the jobs on a node that is still alive to save before it is emptied.

platform.perform calls `checkpoint_job` until a complete checkpoint newer than the request is known, or the case's time
is up. How a job is asked is its owner's choice (annotation sickbay.dev/checkpoint on the job) or the setting's:
`annotation` (we write sickbay.dev/checkpoint-requested on the job, its trainer watches for it), `hook:<port><path>` (we
POST to every rank's pod), `signal` (SIGUSR1 by a Job on the ranks' nodes), `none`. It acts once per key: the request is
written on the job first, and says which step was the newest then.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject, PodObject
from sickbay.model import Action, Done, Failed, JobPhase, Outcome, Started
from sickbay.platforms.kubernetes import node_jobs
from sickbay.platforms.kubernetes.answer import Answer, Blind
from sickbay.platforms.kubernetes.gangs import address, kinds, progress, ranks, show, words
from sickbay.platforms.kubernetes.gangs.read import Found, look, read
from sickbay.platforms.kubernetes.gangs.show import Memory
from sickbay.platforms.kubernetes.node_jobs import Errand
from sickbay.platforms.kubernetes.site import Site

ASK_AGAIN_S = 5.0
SIGNAL_S = 30.0
JOIN_S = 600.0  # a request that nobody has answered for so long is made anew
AT_ONCE = 16
MOST_NODES = 64  # signalled for one job: torchrun and its like pass a signal on to no other node


class Request(msgspec.Struct, omit_defaults=True):
    """What sickbay.dev/checkpoint-requested says: whose wish it is, and the newest checkpoint at that moment."""

    key: str
    newest: int = -1
    at: float = 0.0
    others: tuple[str, ...] = ()  # cases on other nodes of the gang that wait for the same save


@dataclass(frozen=True, slots=True)
class Asked:
    job: str
    outcome: Outcome


def checkpoint_job(site: Site, action: Action) -> Outcome:
    """All jobs that the action names; those that run on its node when it names none."""
    named = [job for job in (action.args.get("jobs") or action.args.get("job") or "").split(",") if job]
    asked = [Asked(job, _ask(site, action, job)) for job in named or _on(site, action.place.node)]
    if not asked:
        return Done("no job runs there")
    waits = [one for one in asked if isinstance(one.outcome, Started)]
    failed = [one for one in asked if isinstance(one.outcome, Failed)]
    said = "; ".join(_words(one.outcome) for one in (waits or failed or asked)[:3])
    if waits:
        return Started(ASK_AGAIN_S, said)
    return Failed(said) if len(failed) == len(asked) else Done(said)


def _words(outcome: Outcome) -> str:
    return outcome.why if isinstance(outcome, Failed) else getattr(outcome, "detail", "")


def _on(site: Site, node: str) -> list[str]:
    pods = site.api.list(names.PODS, PodObject, fieldSelector=f"spec.nodeName={node}") if node else []
    return list(dict.fromkeys(job for pod in pods if ranks.lives(pod) and (job := ranks.job_of(pod))))


def _ask(site: Site, action: Action, job: str) -> Outcome:
    found = read(site, job)
    if found is None:
        return Done(f"{job} is not there")
    gang = found.gang
    if look(site, found)[0] is not JobPhase.RUNNING:
        return Done(f"{gang.id} does not run")
    how = progress.how(gang, words.HOW_TO_SAVE) or site.settings.checkpoint
    if how == "none" or gang.recover != words.MANAGED:
        return Failed(f"{gang.id} cannot be asked to save: {_why_not(gang.recover)}")
    newest = _newest(site, found)
    wish = _wish(site, found, action.key, newest)
    if newest > wish.newest:
        return Done(f"{gang.id} has saved step {newest}")
    return _send(site, found, how, wish)


def _wish(site: Site, found: Found, key: str, newest: int) -> Request:
    """The request that stands for this key, written once. One that another case has made and that is not answered yet
    is joined: two that wrote their own in turns would each see a request that nothing has been saved since."""
    wish, now = read_request(progress.how(found.gang, words.REQUESTED)), site.clock.now()
    if wish is not None and key in (wish.key, *wish.others):
        return wish
    if wish is not None and newest <= wish.newest and now - wish.at < JOIN_S:
        wish = msgspec.structs.replace(wish, others=(*wish.others, key))
    else:
        wish = Request(key, newest, now)
    _write(site, found, wish)
    return wish


def _why_not(recover: str) -> str:
    if recover != words.MANAGED:
        return f"it is not labelled {words.RECOVER}=managed"
    return f"its owner says {words.HOW_TO_SAVE}=none"


def read_request(text: str) -> Request | None:
    try:
        return msgspec.json.decode(text, type=Request) if text else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _newest(site: Site, found: Found) -> int:
    said = [c.step for c in show.checkpoints_of(found.gang, Memory(), site.clock.now())]
    return max([*said, *progress.read(site, found.gang).saved], default=-1)


def _write(site: Site, found: Found, wish: Request) -> None:
    """On the job, and on each pod of a bare gang, which has no object of its own: one write that others cannot lose."""
    patch = {"metadata": {"annotations": {words.REQUESTED: msgspec.json.encode(wish).decode()}}}
    if found.gang.kind is not kinds.BARE:
        site.api.patch(found.path, patch, Anything)
        return
    for pod in found.gang.pods:
        site.api.patch(names.pod(pod.metadata.namespace, pod.metadata.name), patch, Anything)


def _send(site: Site, found: Found, how: str, wish: Request) -> Outcome:
    """The annotation alone is a request too. A hook and a signal are repeated harmlessly: saving twice is saving."""
    gang = found.gang
    if how.startswith("hook:"):
        pods = [pod for pod in show.current(gang).values() if ranks.runs(pod)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            heard = list(pool.map(lambda pod: _hook(pod, how[5:]), pods[:256]))
        if not any(heard):
            return Started(ASK_AGAIN_S, f"{gang.id}: no rank has answered at {how[5:]} yet")
    elif how == "signal" and (blind := _signal(site, found, wish)):
        return Failed(f"{gang.id} could not be signalled: {blind}")
    return Started(ASK_AGAIN_S, f"{gang.id} was asked to save, newest so far is step {max(wish.newest, 0)}")


def _hook(pod: PodObject, where: str) -> bool:
    try:
        address.fetch(pod, where, "POST")
    except address.NoAnswer:
        return False
    return True


def _signal(site: Site, found: Found, wish: Request) -> str:
    """USR1 to the first process of every rank's containers. "" when it was sent or is on its way; else why not."""
    where: dict[str, list[str]] = {}
    for pod in show.current(found.gang).values():
        if ranks.runs(pod):
            where.setdefault(pod.spec.node_name, []).append(pod.metadata.uid)
    for name in sorted(where)[:MOST_NODES]:
        node = site.api.find(names.node(name), NodeObject)
        argv = (
            "signal",
            "--answers",
            wish.key,
            "--signal",
            "USR1",
            *(x for uid in where[name] for x in ("--pod", uid)),
        )
        if node is None:
            continue
        stands = node_jobs.run(site, wish.key, node, Errand("signal", argv, SIGNAL_S))
        if isinstance(stands, Blind):
            return stands.why
        if isinstance(stands, Answer) and stands.error:
            return stands.error
    return ""
