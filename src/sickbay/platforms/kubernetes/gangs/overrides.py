"""How the pods of a TrainJob are told of their attempt: it has no template of its own, only changes to its runtime's.

Called by kinds.py and restart.py; pure. Kubeflow Trainer until 2.1 takes `podTemplateOverrides`, from 2.2 on
`runtimePatches`, under the same name of the API; the API server drops without a word what its version does not know.
So both are written, and the answer shows whether one of them is left.
"""

from __future__ import annotations

from typing import Any

from sickbay.platforms.kubernetes.gangs import words

MANAGER = "sickbay.dev/controller"  # whose entry among the runtime patches it is


def templates(whole: dict[str, Any], job: str) -> list[dict[str, Any]]:
    """Ours in both forms, made if they are not there, to be changed in place. `job`: the replicated job that trains;
    a patch for one that the runtime does not have would add it."""
    return [_override(whole["spec"], [{"name": job}]), _patch(whole["spec"], job)]


def carry(whole: dict[str, Any], attempt: str | None) -> bool:
    """Does the object, as the API server has stored it, bring this attempt to its pods?"""
    spec = whole["spec"]
    ours = [patch for patch in spec.get("runtimePatches") or () if patch.get("manager") == MANAGER]
    kept = [*_within(ours), *(spec.get("podTemplateOverrides") or ())]
    said = [((one.get("metadata") or {}).get("annotations") or {}).get(words.ATTEMPT) for one in kept]
    return attempt is not None and attempt in said


def _within(patches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    jobs = [job for patch in patches for job in _at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")]
    return [found for job in jobs if (found := _at(job, "template", "spec", "template"))]


def _at(inner: dict[str, Any], *path: str) -> Any:
    for key in path:
        inner = inner.get(key) or {}
    return inner


def _override(spec: dict[str, Any], target: list[dict[str, str]]) -> dict[str, Any]:
    overrides: list[dict[str, Any]] = spec.setdefault("podTemplateOverrides", [])
    for override in overrides:
        if override.get("targetJobs") == target and set(override) <= {"targetJobs", "metadata"}:
            return override
    overrides.append({"targetJobs": target, "metadata": {}})
    return overrides[-1]


def _patch(spec: dict[str, Any], job: str) -> dict[str, Any]:
    patches: list[dict[str, Any]] = spec.setdefault("runtimePatches", [])
    template: dict[str, Any] = {"metadata": {}}
    jobs = [{"name": job, "template": {"spec": {"template": template}}}]
    ours = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    patches[:] = [*(patch for patch in patches if patch.get("manager") != MANAGER), ours]
    return template
