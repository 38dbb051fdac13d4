"""VERIFY: the checks, now, on one node of a case or on every node of a job side by side. Findings answer the key.

`platform.perform` calls `verify`. On a single node the whole light suite runs besides what the case asks for (plan,
section 4), and a deep check only where our mark says that the node is ours. What could not be looked at is UNKNOWN:
no node, a kubelet that is dead, a pod that never started, a Job without an answer. Never a pass.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import JobObject, NodeObject, PodObject
from sickbay.model import Action, Done, Failed, Finding, Outcome, Started, Status
from sickbay.platforms.kubernetes import held_back, node_jobs
from sickbay.platforms.kubernetes.answer import Answer, Blind, blind_findings, unpack
from sickbay.platforms.kubernetes.node_jobs import Errand, Running
from sickbay.platforms.kubernetes.site import Site, awaited

LIGHT = "light"  # the word that `sickbay node check` turns into agent.light_checks
PATIENCE_S = 60.0  # a kubelet that has been silent for longer is not waited for
GANG_LIMIT_S = 60.0
GANG_START_S = 60
AT_ONCE = 16  # requests
BUDGET_S = 5.0  # of one ask: a door answers within ten
MOST_RUNNING = 512  # Jobs of one gang at the same time

# Seconds a check may take, where it is more than moments. A level-4 diagnostic burns in for two hours and a half.
LIMITS_S = {
    "dcgm-l2": 1_000.0, "dcgm-l4": 9_100.0, "nccl-allreduce": 1_900.0, "efa-loopback": 1_800.0, "gpu-matmul": 900.0,
    "gpu-speed": 900.0, LIGHT: 400.0,
}  # fmt: skip
QUICK_S = 90.0


def verify(site: Site, action: Action) -> Outcome:
    checks = tuple(dict.fromkeys(name for name in action.args.get("checks", "nvidia-smi").split(",") if name))
    if not action.place.node:
        return _gang(site, action, checks)
    asked = (*checks, *(() if LIGHT in checks else (LIGHT,)))
    return _single(site, action, asked)


def case_of(action: Action) -> str:
    return action.args.get("case") or action.key.rpartition("/")[0]


# --- one node ---------------------------------------------------------------------------------------------------------


def _single(site: Site, action: Action, checks: tuple[str, ...]) -> Outcome:
    node = site.api.find(names.node(action.place.node), NodeObject)
    if node is None:
        return awaited(action.place.node)
    why = unseen(site, action.place.node, node, patience_s=PATIENCE_S)
    if isinstance(why, str):
        return _told(site, action, action.place.node, checks, Blind(why), node)
    if isinstance(why, Waiting):
        return Started(10.0, why.why)
    case = case_of(action)
    reserve = case if node.metadata.annotation(site.keys.case) == case else ""
    stands = _run(site, action.key, node, errand(action.key, checks, reserve=reserve))
    if isinstance(stands, Blind) and stands.kept_out:
        return Failed(f"{node.metadata.name} cannot be examined: {stands.why}", lacks=True)
    if isinstance(stands, Running):
        after_s = stands.again_s(15.0 if deep(checks) else 3.0)
        return Started(after_s, f"checks on {node.metadata.name}: {stands.detail}", held=stands.held)
    return _told(site, action, node.metadata.name, checks, stands, node)


def _run(site: Site, key: str, node: NodeObject, job: Errand) -> Answer | Running | Blind:
    """A webhook that does not answer keeps a Job out as one that says no: for hours, while nobody looks at it."""
    try:
        return node_jobs.run(site, key, node, job)
    except ApiError as error:
        if held_back.SILENT_WEBHOOK not in error.said:
            raise
        return Blind(held_back.refused(site, error.said), kept_out=True)


def errand(
    key: str, checks: Sequence[str], *, reserve: str = "", suite: str = "", limit_s: float = 0.0, start_s: int = 0
) -> Errand:
    """The Job that runs these checks. `reserve`: in whose name deep ones may run."""
    limit = limit_s or sum(LIMITS_S.get(name, QUICK_S) for name in checks)
    argv = ["check", "--checks", ",".join(checks), "--answers", key, "--limit", f"{limit:.0f}"]
    if reserve:
        argv += ["--reserve", reserve]
    if suite:
        argv += ["--suite", suite]
    return Errand("check", tuple(argv), limit, start_s=start_s or node_jobs.START_S)


def deep(checks: Iterable[str]) -> bool:
    return any(LIMITS_S.get(name, 0.0) > LIMITS_S[LIGHT] for name in checks)


@dataclass(frozen=True, slots=True)
class Waiting:
    why: str


def unseen(site: Site, name: str, node: NodeObject | None, *, patience_s: float) -> str | Waiting | None:
    """Why nobody can look at this node: for good (words), for now (Waiting), or None when somebody can."""
    if node is None:
        return f"there is no node {name}"
    ready = next((one for one in node.status.conditions or () if one.type == "Ready"), None)
    if ready is not None and ready.status == "True":
        return None
    since = site.server_now() - stamp(ready.last_transition_time if ready else "")
    said = f"{name} is not ready" + (f" ({ready.reason})" if ready and ready.reason else "")
    if since < patience_s:
        return Waiting(f"{said}; it may come back")
    return f"{said}, and has not been for {since / 60:.0f} min" if since < 1e8 else said


def stamp(text: str) -> float:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def findings_of(
    site: Site, key: str, name: str, checks: Sequence[str], stands: Answer | Blind, boot: str = ""
) -> list[Finding]:
    """What came of it: the answer's findings, and an UNKNOWN for each check that it does not speak of."""
    now = site.clock.now()
    if isinstance(stands, Blind):
        return blind_findings(name, checks, stands.why, key=key, at=now, boot=boot)
    found = unpack(stands, name)
    spoken = {one.check for one in found}
    why = f"{stands.cut} findings had no room in its answer" if stands.cut else "its answer does not speak of it"
    silent = [check for check in checks if check != LIGHT and check not in spoken]
    return found + blind_findings(name, silent, why, key=key, at=now, boot=stands.boot, code="tool.failed")


def _told(
    site: Site, action: Action, name: str, checks: Sequence[str], stands: Answer | Blind, node: NodeObject
) -> Outcome:
    boot = node.status.node_info.boot_id if node.status.node_info is not None else ""
    if isinstance(stands, Answer) and boot and stands.boot and stands.boot != boot:
        stands = Blind(f"it has booted since it was examined: {boot}, not {stands.boot}")
    asked = [check for check in checks if check != LIGHT] or ["nvidia-smi"]
    return summed(findings_of(site, action.key, name, asked, stands, boot))


def summed(found: Sequence[Finding]) -> Done:
    bad = [one for one in found if one.status is not Status.OK]
    worst = f": {bad[0].reason}" if bad else ""
    return Done(f"{len(found)} findings, {len(bad)} not OK{worst}"[:400], tuple(found))


# --- a whole gang -----------------------------------------------------------------------------------------------------


def gang_label(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _gang(site: Site, action: Action, checks: tuple[str, ...]) -> Outcome:
    """Two lists an ask, whatever the number of nodes; Jobs are started as far as the time for one ask reaches."""
    if not action.nodes:
        return Failed("there is no node to examine")
    chosen = {site.keys.action: gang_label(action.key)}
    job = errand(action.key, checks, limit_s=GANG_LIMIT_S, start_s=GANG_START_S)
    job = Errand(job.kind, job.argv, job.limit_s, labels=chosen, start_s=job.start_s)
    stands = _standings(site, action.key, f"{site.keys.action}={chosen[site.keys.action]}")
    missing = [name for name in action.nodes if name not in stands]
    running = sum(isinstance(one, Running) for one in stands.values())
    begun = _begin(site, action.key, missing[: max(0, MOST_RUNNING - running)], job)
    stands |= begun
    left = sum(name not in stands or isinstance(stands[name], Running) for name in action.nodes)
    if left:
        held = next((f"; {one.detail}" for one in stands.values() if isinstance(one, Running) and one.held), "")
        return Started(
            2.0, f"{len(action.nodes) - left} of {len(action.nodes)} nodes have answered{held}", held=bool(held)
        )
    found: list[Finding] = []
    for name in action.nodes:
        said = stands[name]
        assert not isinstance(said, Running)
        found += findings_of(site, action.key, name, checks, said)
    return summed(found)


def _standings(site: Site, key: str, selector: str) -> dict[str, Answer | Running | Blind]:
    """Jobs are read before their pods: a Job that has ended shows a pod that has, and the answer in it."""
    namespace = site.settings.namespace
    jobs = site.api.list(names.jobs(namespace), JobObject, labelSelector=selector)
    pods: dict[str, list[PodObject]] = {}
    for pod in site.api.list(names.pods(namespace), PodObject, labelSelector=selector):
        pods.setdefault(pod.spec.node_name, []).append(pod)
    stands: dict[str, Answer | Running | Blind] = {}
    held: list[tuple[str, JobObject]] = []
    for job in jobs:
        where = str(job.spec.get("template", {}).get("spec", {}).get("nodeName", ""))
        stands[where] = node_jobs.judged(key, job, pods.get(where, ()), site.server_now())
        if isinstance(stands[where], Running) and where not in pods:
            held.append((where, job))
    return stands | _held_back(site, held)


def _held_back(site: Site, held: Sequence[tuple[str, JobObject]]) -> dict[str, Answer | Running | Blind]:
    """What keeps the Jobs of a gang from starting. They are made alike, so who holds back one is named for all."""
    why = held_back.why(site, held[0][1]) if held else ""
    return {where: node_jobs.given_up(site, job, Running(why, held=bool(why)), GANG_START_S) for where, job in held}


def _begin(site: Site, key: str, missing: Sequence[str], job: Errand) -> dict[str, Answer | Running | Blind]:
    until = time.monotonic() + BUDGET_S
    begun: dict[str, Answer | Running | Blind] = {}

    def one(name: str) -> None:
        if time.monotonic() >= until:
            return  # the next ask goes on from here
        node = site.api.find(names.node(name), NodeObject)
        why = unseen(site, name, node, patience_s=0.0)
        begun[name] = Blind(str(why)) if node is None or why else node_jobs.start(site, key, node, job)

    if missing:
        with ThreadPoolExecutor(min(AT_ONCE, len(missing))) as pool:
            list(pool.map(one, missing))
    return begun
