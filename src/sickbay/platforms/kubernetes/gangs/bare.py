"""Bare gangs: pods that belong together by a label (sickbay.dev/gang) and to no controller.

Called by stop and restart. Nobody makes such pods again, so their manifests are kept before they are deleted: packed,
in one ConfigMap of our own namespace, which is the gang's object from then on (attempt, who stopped it). It is written
first and the pods are deleted after, each only if it is still the one that was kept; a crash is finished by the next
ask. It goes some time after the gang has ended (`forget`). A gang too large to be kept is not stopped.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import Anything, PodObject
from sickbay.model import Action, Done, Failed, JobPhase, Outcome
from sickbay.platforms.kubernetes.gangs import kinds, ranks, steer, words
from sickbay.platforms.kubernetes.gangs.index import WHOSE, bare_name
from sickbay.platforms.kubernetes.gangs.read import Found, find_whole, look, read
from sickbay.platforms.kubernetes.site import Site

MOST_BYTES = 700_000  # of packed manifests: an object may have 1.5 MB, base64 takes a third more
MOST_UNPACKED = 256 << 20
PODS = "pods"  # key in the ConfigMap
DROPPED = ("nodeName", "serviceAccount", "priority")  # set by the cluster when the pod was made


def stop(site: Site, found: Found, record: words.Stop) -> Outcome | None:
    """Keep the manifests and say who stops it; None when that is written. The pods are deleted by `remove`."""
    gang, meta = found.gang, found.gang.object.metadata
    label = f"{words.GANG}={meta.name}"
    whole = site.api.list(names.pods(meta.namespace), dict[str, Any], labelSelector=label)
    wanted = {pod.metadata.name for pod in gang.pods}
    packed = pack([_manifest(pod) for pod in whole if pod["metadata"]["name"] in wanted])
    if len(packed) > MOST_BYTES:
        return Failed(f"{gang.id} has {len(wanted)} bare pods, too large to keep for a restart: use a Job or a JobSet")
    notes: dict[str, str | None] = {
        words.ATTEMPT: str(record.attempt), words.STOPPED: words.stop_text(record), words.STOPPED_BY: record.key,
        WHOSE: meta.namespace,
    }  # fmt: skip
    _write(site, found, notes, packed)
    return None


def _manifest(pod: dict[str, Any]) -> dict[str, Any]:
    meta = pod["metadata"]
    spec = {key: value for key, value in pod["spec"].items() if key not in DROPPED}
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
    _without_account(spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}


def _without_account(spec: dict[str, Any]) -> None:
    """The token's volume that the API server added is added again by it."""
    added = {v["name"] for v in spec.get("volumes") or () if v["name"].startswith("kube-api-access-")}
    spec["volumes"] = [v for v in spec.get("volumes") or () if v["name"] not in added]
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        mounts = container.get("volumeMounts") or ()
        container["volumeMounts"] = [m for m in mounts if m["name"] not in added]


def pack(manifests: list[dict[str, Any]]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(manifests).encode())).decode()


def unpack(text: str) -> list[dict[str, Any]]:
    inflate = zlib.decompressobj()
    found = json.loads(inflate.decompress(base64.b64decode(text), MOST_UNPACKED))
    return [one for one in found if isinstance(one, dict)]


def _write(site: Site, found: Found, notes: dict[str, str | None], packed: str = "") -> None:
    meta, path = found.gang.object.metadata, _path(site, found)
    folder, _, name = path.rpartition("/")
    if found.whole:
        body: dict[str, Any] = {"metadata": {"annotations": notes, "resourceVersion": found.version}}
        site.api.patch(path, {**body, **({"binaryData": {PODS: packed}} if packed else {})}, Anything)
        return
    _clear(site, path)
    said = {key: value for key, value in notes.items() if value is not None}
    head = {"name": name, "labels": {words.GANG: meta.name, words.RECOVER: found.gang.recover}, "annotations": said}
    site.api.create(
        folder, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "binaryData": {PODS: packed}}, Anything
    )


def _clear(site: Site, path: str) -> None:
    """What an earlier gang of this name left is not this one's (index.is_of_another): its record begins anew."""
    if old := find_whole(site, path):
        meta = old["metadata"]
        site.api.delete(path, {"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}})


def remove(site: Site, found: Found) -> None:
    """Delete the pods of the attempt that was stopped, each if it is still the same."""
    attempt = words.number(found.gang.object.metadata.annotation(words.ATTEMPT), 1)
    for pod in found.gang.pods:
        if pod.metadata.deletion_timestamp or ranks.attempt_of(pod) > attempt:
            continue
        body = {"preconditions": {"uid": pod.metadata.uid}}
        try:
            site.api.delete(names.pod(pod.metadata.namespace, pod.metadata.name), body)
        except ApiError as error:
            if not error.conflict:  # another pod has its name now: not ours to delete
                raise


def forget(site: Site, job: str) -> None:
    """Once a gang has ended, by a direct look, nobody needs what was kept of it; a later one of its name least of all.
    A gang that we have stopped has not ended."""
    found = read(site, job)
    if found is not None and found.whole and look(site, found)[0] in ENDED:
        _clear(site, _path(site, found))


ENDED = frozenset({JobPhase.GONE, JobPhase.SUCCEEDED})


def in_the_way(found: Found) -> list[PodObject]:
    """Pods that are over and not removed yet: no other can be made under their names."""
    return [pod for pod in found.gang.pods if found.gang.kind is kinds.BARE and not ranks.lives(pod)]


# --- again ------------------------------------------------------------------------------------------------------------


def restart(site: Site, found: Found, action: Action, notes: dict[str, str | None]) -> Outcome:
    if not found.whole.get("binaryData", {}).get(PODS):
        return Failed(f"{found.gang.id} was not stopped by us: nobody has kept its pods' manifests")
    if left := sorted(pod.metadata.name for pod in found.gang.pods):
        first = f"{left[0]} (one of {len(left)})" if left[1:] else left[0]
        return Failed(f"refused: {first} of {found.gang.id} is not removed yet, and nothing can take its name")
    shunned = steer.suspects(found, action)
    _write(site, found, {**notes, SHUNNED: ",".join(shunned[: steer.MOST_SHUNNED]) or None})
    again = Found(found.gang, _ask(site, found))
    make(site, again)
    kept = f"; kept off {', '.join(shunned[:3])} by {kinds.BARE.keeps_off}" if shunned else ""
    return Done(
        f"{found.gang.id} attempt {notes[words.ATTEMPT]} is made again from step {notes[words.FROM_STEP]}{kept}"
    )


SHUNNED = "sickbay.dev/kept-off"


def _ask(site: Site, found: Found) -> dict[str, Any]:
    return find_whole(site, _path(site, found)) or {}


def _path(site: Site, found: Found) -> str:
    meta = found.gang.object.metadata
    return kinds.BARE_PATH.format(site.settings.namespace, bare_name(meta.namespace, meta.name))


def missing(found: Found) -> list[dict[str, Any]]:
    """Manifests of the written attempt whose pod is not there."""
    notes = found.whole.get("metadata", {}).get("annotations") or {}
    attempt = words.number(notes.get(words.ATTEMPT, ""), 1)
    there = {pod.metadata.name for pod in found.gang.pods if ranks.attempt_of(pod) == attempt}
    packed = found.whole.get("binaryData", {}).get(PODS, "")
    return [one for one in (unpack(packed) if packed else ()) if one["metadata"]["name"] not in there]


def make(site: Site, found: Found) -> None:
    notes = found.whole["metadata"].get("annotations") or {}
    shunned = [node for node in notes.get(SHUNNED, "").split(",") if node]
    for manifest in missing(found):
        steer.carry(manifest, notes)
        steer.keep_off(manifest, shunned)
        try:
            site.api.create(names.pods(manifest["metadata"]["namespace"]), manifest, Anything)
        except ApiError as error:
            if not error.conflict:
                raise
