"""The API server's own record of who did what: the policy it is written by, and reading it.

Called by Cluster. Tests count with it what was really written, whatever our own counters say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SYSTEM = ("kube-scheduler", "kube-controller-manager", "apiserver")


def policy(bodies: bool) -> Mapping[str, object]:
    """Who did what, without bodies; not the fake kubelets, leases, or what the system reads."""
    nodes = [{"group": "", "resources": ["nodes", "nodes/status"]}]
    reads = ["get", "list", "watch"]
    writes = ["create", "update", "patch", "delete", "deletecollection"]
    rules: list[Mapping[str, object]] = [
        {"level": "None", "users": ["kwok"]},
        {"level": "None", "verbs": reads, "users": [f"system:{name}" for name in SYSTEM]},
        {"level": "None", "verbs": reads, "userGroups": ["system:serviceaccounts:kube-system"]},
    ]
    if bodies:
        rules.append({"level": "Request", "resources": nodes, "verbs": writes})
    rules.append({"level": "Metadata"})
    return {
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules,
    }  # fmt: skip


def lines(log: Path, since: int, **wanted: str) -> list[dict[str, Any]]:
    """audit.k8s.io/v1 events after that place in the file; a line is written as its request ends.
    `wanted`: verb, user, resource, subresource, name, namespace."""
    with log.open("rb") as file:
        file.seek(since)
        found = [json.loads(line) for line in file if line.endswith(b"\n")]
    return [line for line in found if all(_fact(line, key) == value for key, value in wanted.items())]


def _fact(line: Mapping[str, Any], key: str) -> str:
    if key == "user":
        return str(line.get("user", {}).get("username", ""))
    if key == "verb":
        return str(line.get("verb", ""))
    return str((line.get("objectRef") or {}).get(key, ""))
