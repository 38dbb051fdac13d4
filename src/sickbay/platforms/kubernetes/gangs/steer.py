"""What a new attempt's pods are told: their attempt, the step to begin from, and which nodes are not for them.

Called by restart, recreate and bare. Works on a pod template in place and adds only what is ours: our annotations, and
terms about metadata.name that nobody else writes. Pure, but for `unlocked`.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.conflicts import settle
from sickbay.model import Action
from sickbay.platforms.kubernetes.gangs import kinds, words
from sickbay.platforms.kubernetes.gangs.read import Found
from sickbay.platforms.kubernetes.site import Site

MOST_SHUNNED = 32  # nodes in one affinity: a gang under more suspicion than that has another problem
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def suspects(found: Found, action: Action) -> list[str]:
    """Nodes it ran on that the brain does not want it to use again. None by name where nodes come on demand: Karpenter
    makes no node for a pod whose affinity speaks of metadata.name or kubernetes.io/hostname, so there the mark on a
    sick node (cordon and taint) alone keeps it off, and goes with its case."""
    if action.args.get("on_demand") == "1":
        return []
    stop = words.read_stop(found.gang.object.metadata.annotation(words.STOPPED))
    wanted = set(action.nodes)
    return sorted(node for node in dict.fromkeys(stop.nodes if stop else ()) if node and node not in wanted)


def annotate(whole: dict[str, Any], notes: dict[str, str | None]) -> None:
    found = dict(whole["metadata"].get("annotations") or {})
    for key, value in notes.items():
        found.pop(key, None)
        if value is not None:
            found[key] = value
    whole["metadata"]["annotations"] = found


def put(spec: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            put(spec.setdefault(key, {}), value)
        else:
            spec[key] = value


def unlocked(site: Site, found: Found) -> dict[str, Any]:
    """The object to be changed. A batch Job's template may be changed while it is suspended and has no start time; the
    API server keeps that of its first start, so it is taken off first, as Kueue and JobSet do."""
    if found.gang.kind.word == "job" and found.gang.object.status.start_time:
        return unlock_job(site, found.path)
    return copy.deepcopy(found.whole)


def unlock_job(site: Site, path: str) -> dict[str, Any]:
    return site.api.patch(f"{path}/status", {"status": {"startTime": None}}, dict[str, Any])


def carry(template: dict[str, Any], notes: dict[str, str | None]) -> None:
    """The trainer reads them by the downward API: metadata.annotations['sickbay.dev/from-step']."""
    found = template.setdefault("metadata", {}).setdefault("annotations", {})
    for key in (words.ATTEMPT, words.FROM_STEP):
        value = notes.get(key)
        if value is not None:
            found[key] = value


def keep_off(template: dict[str, Any], nodes: list[str]) -> None:
    """Not on these nodes: replaces what an earlier attempt of ours said, and leaves the user's own terms as they are.

    Terms are alternatives and what is in one term counts together, so ours goes into each.
    """
    spec = template.setdefault("spec", {})
    affinity = spec.get("affinity") or {}
    selector = (affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    terms = [kept for term in selector.get("nodeSelectorTerms") or () if (kept := _without_ours(term))]
    if nodes:
        ours = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes[:MOST_SHUNNED]]
        terms = [{**term, "matchFields": [*term.get("matchFields", ()), *ours]} for term in terms or [{}]]
    _write(spec, terms)


def _without_ours(term: dict[str, Any]) -> dict[str, Any]:
    kept = [f for f in term.get("matchFields") or () if (f.get("key"), f.get("operator")) != ("metadata.name", "NotIn")]
    rest = {key: value for key, value in term.items() if key != "matchFields"}
    return {**rest, "matchFields": kept} if kept else rest


def _write(spec: dict[str, Any], terms: list[dict[str, Any]]) -> None:
    if terms:
        spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[REQUIRED] = {"nodeSelectorTerms": terms}
        return
    affinity = spec.get("affinity") or {}
    (affinity.get("nodeAffinity") or {}).pop(REQUIRED, None)
    if "nodeAffinity" in affinity and not affinity["nodeAffinity"]:
        del affinity["nodeAffinity"]
    if "affinity" in spec and not affinity:
        del spec["affinity"]


def keep_children_off(site: Site, found: Found, nodes: list[str]) -> list[str]:
    """A JobSet's own template cannot be steered, the Jobs it has made can while they are still suspended. Returns why
    not, a line each: a restart does not wait for it, the cordon of a sick node holds without."""
    meta = found.gang.object.metadata
    folder, label = names.jobs(meta.namespace), f"{kinds.JOBSET_NAME}={meta.name}"
    children = site.api.list(folder, dict[str, Any], labelSelector=label)
    waiting = [child["metadata"]["name"] for child in children if child["spec"].get("suspend")]
    if not waiting:
        return ["it has no suspended Job that could be told"]
    loose: list[str] = []
    for name in waiting:
        try:
            settle(partial(_keep_child_off, site, f"{folder}/{name}", nodes))  # its own controller writes it as well
        except ApiError as error:
            loose.append(f"Job {name} ({error.said})")
    return loose


def _keep_child_off(site: Site, path: str, nodes: list[str]) -> None:
    whole = unlock_job(site, path)
    keep_off(whole["spec"]["template"], nodes)
    site.api.replace(path, whole, dict[str, Any])
