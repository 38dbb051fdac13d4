"""The all-reduce test between nodes on Kubernetes: an indexed Job, one pod a node, as plain manifests. Pure.

The Kubernetes platform creates them. Index 0 starts the test over ssh between the pods (the image brings sshd and keys)
and its end is the Job's. Names and numbers go in as environment, never into the script's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sickbay.checks.nccl_allreduce import ACROSS, IN_IMAGE, LIMIT_S

TARGET = "gpu-healthcheck.aws-samples.io"  # the originals' prefix: their taints must not keep the test away
WAIT_S = 120

# Waits until every peer's name resolves, because a headless service publishes a pod only when it runs.
SCRIPT = """set -eu
[ "$JOB_COMPLETION_INDEX" = 0 ] || exec /usr/sbin/sshd -De
hosts=""
i=0
while [ "$i" -lt "$PEERS" ]; do
  peer="$JOB_NAME-$i.$JOB_NAME"
  tries=0
  until getent hosts "$peer" >/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt "$WAIT_S" ] || { echo "peer $peer did not come up" >&2; exit 3; }
    sleep 1
  done
  hosts="$hosts,$peer:$GPUS"
  i=$((i + 1))
done
/usr/sbin/sshd || true
exec mpirun --allow-run-as-root -np "$((PEERS * GPUS))" --host "${hosts#,}" --bind-to none \\
  --mca plm_rsh_args "-o StrictHostKeyChecking=no" -x LD_LIBRARY_PATH -x PATH $FORWARD \\
  "$NCCL_TESTS" -b 8 -e 1G -f 2 -g 1
"""


def job_manifest(
    name: str,
    image: str,
    nodes: Sequence[str],
    gpus: int,
    *,
    efas: int = 0,
    namespace: str = "sickbay",
    timeout_s: float = LIMIT_S,
    labels: Mapping[str, str] | None = None,
    place: str = IN_IMAGE,
) -> dict[str, Any]:
    """The Job: exactly one pod on each of `nodes`, cordoned or not, no second try, gone an hour after its end."""
    marks = {"app.kubernetes.io/name": "sickbay-nccl", "sickbay-nccl": name, **(labels or {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": marks},
        "spec": {
            "completionMode": "Indexed",
            "completions": len(nodes),
            "parallelism": len(nodes),
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(timeout_s),
            "ttlSecondsAfterFinished": 3600,
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "template": {
                "metadata": {"labels": marks},
                "spec": _pod(name, image, nodes, gpus, efas, place),
            },
        },
    }


def service_manifest(name: str, *, namespace: str = "sickbay") -> dict[str, Any]:
    """The headless service that gives the Job's pods their names; it also names pods that are not ready yet."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": {"sickbay-nccl": name}},
        "spec": {"clusterIP": "None", "selector": {"sickbay-nccl": name}, "publishNotReadyAddresses": True},
    }


def _pod(name: str, image: str, nodes: Sequence[str], gpus: int, efas: int, place: str) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "subdomain": name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "affinity": _one_on_each(name, nodes),
        "tolerations": _tolerations(),
        "containers": [_container(name, image, len(nodes), gpus, efas, place)],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }


def _one_on_each(name: str, nodes: Sequence[str]) -> dict[str, Any]:
    host = "kubernetes.io/hostname"
    wanted = {"matchExpressions": [{"key": host, "operator": "In", "values": list(nodes)}]}
    apart = {"labelSelector": {"matchLabels": {"sickbay-nccl": name}}, "topologyKey": host}
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
    }


def _tolerations() -> list[dict[str, str]]:
    keys = ("nvidia.com/gpu", "node.kubernetes.io/unschedulable", f"{TARGET}/unhealthy", f"{TARGET}/maintenance")
    return [{"key": key, "operator": "Exists"} for key in keys]


def _container(name: str, image: str, peers: int, gpus: int, efas: int, place: str) -> dict[str, Any]:
    parts = {"nvidia.com/gpu": str(gpus)} | ({"vpc.amazonaws.com/efa": str(efas)} if efas else {})
    variables = {
        "JOB_NAME": name,
        "PEERS": str(peers),
        "GPUS": str(gpus),
        "WAIT_S": str(WAIT_S),
        "NCCL_TESTS": place,
        "FORWARD": " ".join(f"-x {variable}" for variable in (ACROSS if efas else ACROSS[:1])),
    }
    return {
        "name": "nccl",
        "image": image,
        "command": ["/bin/bash", "-c", SCRIPT],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "resources": {"limits": dict(parts), "requests": dict(parts)},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
