"""A job that its own controller has ended as failed cannot be resumed: it is made anew, same name, spec, next attempt.

Called by restart. The manifest is kept in a ConfigMap of our namespace before the old object is deleted, so that a
crash in between loses no job, and neither does a create that is refused; the old one is deleted only if it is the one
that was kept. An owner who wants the failed
object left as it is says sickbay.dev/recreate=never.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sickbay.errors import ApiError
from sickbay.kube.objects import Anything
from sickbay.model import Action, Done, Failed, Outcome, Retry
from sickbay.platforms.kubernetes.gangs import kinds, steer, words
from sickbay.platforms.kubernetes.gangs.read import Found
from sickbay.platforms.kubernetes.site import Site

SOON_S, LATER_S = 2.0, 15.0
MANIFEST = "manifest"
MOST_BYTES = 900_000
ADDED = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")


def anew(site: Site, found: Found, action: Action, notes: dict[str, str | None]) -> Outcome:
    gang, meta = found.gang, found.gang.object.metadata
    if meta.annotation(words.RECREATE) == "never":
        return Failed(f"{gang.id} was ended by its own controller ({why_ended(found)}); {words.RECREATE}=never forbids "
                      "to make it anew")  # fmt: skip
    fresh = manifest(found, notes, steer.suspects(found, action))
    text = json.dumps(fresh)
    if len(text) > MOST_BYTES:
        return Failed(f"the manifest of {gang.id} is too large to be kept while it is made anew")
    _keep(site, gang.id, action.key, text)
    body = {"preconditions": {"uid": meta.uid}, "propagationPolicy": "Background"}
    site.api.delete(found.path, body)
    return resume(site, gang.id, action) or Failed(f"{gang.id} is gone and its manifest with it")


def resume(site: Site, job: str, action: Action) -> Outcome | None:
    """Make what was kept for this action; None when nothing was. The old object is deleted already, so this is the
    second half of a call that has been made: every ask goes on with it, and no refusal (a quota, a webhook that is
    down) ends it. Creating by name is once by nature."""
    path, known = _path(site, job), kinds.parse(job)
    kept = site.api.find(path, dict[str, Any])
    if kept is None or known is None or (kept["metadata"].get("annotations") or {}).get(site.keys.action) != action.key:
        return None
    kind, namespace, _ = known
    fresh = json.loads(kept["data"][MANIFEST])
    try:
        site.api.create(kind.path(namespace), fresh, Anything)
    except ApiError as error:
        if error.conflict:
            return Retry(SOON_S, f"the failed {job} is still being deleted")
        return Retry(LATER_S, f"{job} is to be made anew from {path}, and the API server says: {error.said}")
    site.api.delete(path)
    attempt = fresh["metadata"]["annotations"][words.ATTEMPT]
    return Done(f"{job} had been ended by its own controller and is made anew: attempt {attempt}")


def why_ended(found: Found) -> str:
    said = [c for c in found.gang.object.status.conditions or () if c.type == "Failed" and c.status == "True"]
    return (said[0].reason or said[0].message[:100]) if said else "failed"


def manifest(found: Found, notes: dict[str, str | None], shunned: list[str]) -> dict[str, Any]:
    """As its owner made it, without what the cluster added, with our notes."""
    old = json.loads(json.dumps(found.whole))
    meta = {key: old["metadata"][key] for key in ("name", "namespace", "labels", "annotations", "ownerReferences")
            if key in old["metadata"]}  # fmt: skip
    fresh = {"apiVersion": found.gang.kind.group, "kind": found.gang.kind.kind, "metadata": meta, "spec": old["spec"]}
    steer.annotate(fresh, {**notes, words.BASE: None})
    _strip_labels(meta)
    if found.gang.kind.word == "job" and not fresh["spec"].pop("manualSelector", False):
        fresh["spec"].pop("selector", None)
        _strip_labels(fresh["spec"]["template"].get("metadata") or {})
    for template in found.gang.kind.templates(fresh, found.gang.object.spec):
        steer.carry(template, notes)
        if found.gang.kind.word != "trainjob":  # it has no template of its own
            steer.keep_off(template, shunned)
    steer.put(fresh["spec"], found.gang.kind.suspension(False))  # we may have suspended it before it was ended
    return fresh


def _strip_labels(meta: dict[str, Any]) -> None:
    for key in ADDED:
        (meta.get("labels") or {}).pop(key, None)


def _keep(site: Site, job: str, key: str, text: str) -> None:
    path = _path(site, job)
    head = {"name": path.rpartition("/")[2], "annotations": {site.keys.action: key}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": {MANIFEST: text}}
    site.api.delete(path)
    site.api.create(path.rpartition("/")[0], body, Anything)


def _path(site: Site, job: str) -> str:
    digest = hashlib.sha256(job.encode()).hexdigest()[:20]
    return kinds.BARE_PATH.format(site.settings.namespace, f"anew-{digest}")
