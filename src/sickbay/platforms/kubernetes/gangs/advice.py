"""What a job's own spec would do to it when hardware fails: where its owner pays for our nodes, and how not to.

Read by `sickbay` users as Events on the job and in docs/jobs-kubernetes.md; we never change a spec to make it so. Pure:
an object as the API server has it goes in, sentences come out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sickbay.platforms.kubernetes.gangs import words

Advise = Callable[[dict[str, Any]], list[str]]

DISRUPTED = "DisruptionTarget"
IGNORED = "RestartJobSetAndIgnoreMaxRestarts"
FROM_STEP = f"metadata.annotations['{words.FROM_STEP}']"


def advice(whole: dict[str, Any]) -> list[str]:
    """What its owner should know before a node under it fails; empty when there is nothing to say."""
    spec = whole.get("spec") or {}
    advise = _BY_KIND.get(str(whole.get("kind", "")))
    said = advise(spec) if advise else []
    notes = (whole.get("metadata") or {}).get("annotations") or {}
    if words.PROGRESS not in notes:
        said.append(f"without the annotation {words.PROGRESS} a job that hangs is not noticed, only one that dies")
    return said


def _job(spec: dict[str, Any]) -> list[str]:
    said = []
    if not _ignores_disruption(spec):
        said.append(
            "a pod that is evicted from a sick node counts against backoffLimit "
            f"({spec.get('backoffLimit', 6)}): add a podFailurePolicy rule that ignores {DISRUPTED}"
        )
    if spec.get("podReplacementPolicy", "TerminatingOrFailed") == "Failed" or spec.get("podFailurePolicy"):
        said.append(
            "pods are replaced only when their old one has ended: on a node that lost its power that takes until it is "
            "taken out of service (kubernetes.out_of_service) or replaced"
        )
    if spec.get("completionMode") != "Indexed":
        said.append("without completionMode Indexed its pods have no ranks, and a dead one cannot be named")
    if (spec.get("template", {}).get("spec") or {}).get("restartPolicy") == "OnFailure":
        said.append("restartPolicy OnFailure restarts a rank in place, on the same sick GPU: use Never")
    return said


def _ignores_disruption(spec: dict[str, Any]) -> bool:
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    return any(
        rule.get("action") == "Ignore" and any(c.get("type") == DISRUPTED for c in rule.get("onPodConditions") or ())
        for rule in rules
    )


def _jobset(spec: dict[str, Any]) -> list[str]:
    policy = spec.get("failurePolicy") or {}
    jobs = [job.get("template", {}).get("spec") or {} for job in spec.get("replicatedJobs") or ()]
    said = []
    if not any(rule.get("action") == IGNORED for rule in policy.get("rules") or ()):
        said.append(
            "a failure of the infrastructure counts against failurePolicy.maxRestarts "
            f"({policy.get('maxRestarts', 0)}): add a rule with the action {IGNORED} for the reason PodFailurePolicy"
        )
    if not all(_fails_on_disruption(job) for job in jobs):
        said.append(
            f"its Jobs do not tell an eviction from other failures: a podFailurePolicy rule FailJob on {DISRUPTED} does"
        )
    return said


def _fails_on_disruption(spec: dict[str, Any]) -> bool:
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    return any(any(c.get("type") == DISRUPTED for c in rule.get("onPodConditions") or ()) for rule in rules)


def _pytorch(spec: dict[str, Any]) -> list[str]:
    limit = (spec.get("runPolicy") or {}).get("backoffLimit")
    said = []
    if limit is not None:
        said.append(
            f"runPolicy.backoffLimit ({limit}) counts infrastructure failures too; this kind cannot ignore them"
        )
    replicas = (spec.get("pytorchReplicaSpecs") or {}).items()
    if any(replica.get("restartPolicy") == "OnFailure" for _, replica in replicas):
        said.append("restartPolicy OnFailure restarts a rank in place, on the same sick GPU: use ExitCode or Never")
    return said


def _train(spec: dict[str, Any]) -> list[str]:
    return ["what an infrastructure failure costs is set in the JobSet of its runtime, not in the TrainJob"]


_BY_KIND: dict[str, Advise] = {"Job": _job, "JobSet": _jobset, "PyTorchJob": _pytorch, "TrainJob": _train}
