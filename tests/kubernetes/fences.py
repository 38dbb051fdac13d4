"""The agent's rights as deploy/kubernetes gives them, under names of a test's own, and tokens as a pod on a node has.

Policies are known to the API server a moment after they are made: `wait_closed`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sickbay.errors import ApiError
from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, Shape
from testbed.cluster import Cluster
from testbed.waiting import until

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
MANAGED = ("agent-rbac.yaml", "agent-policy.yaml")
STANDALONE = (*MANAGED, "standalone/agent-rbac.yaml")


class _TokenStatus(Shape):
    token: str = ""


class _TokenAnswer(Shape):
    status: _TokenStatus


@dataclass(frozen=True)
class Fence:
    """The manifests as applied: service account `agent` in `namespace`."""

    cluster: Cluster
    namespace: str
    documents: Sequence[str]
    apis: list[Api] = field(default_factory=list)

    @property
    def account(self) -> str:
        return f"{self.namespace}-agent"

    def apply(self) -> None:
        self.cluster.kubectl("apply", "-f", "-", stdin="---\n".join(self.documents))

    def remove(self) -> None:
        for api in self.apis:
            api.close()
        everything = "---\n".join(self.documents)
        self.cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=everything)

    def pod_on(self, api: Api, node: str) -> Anything:
        """An agent's pod, bound to its node."""
        body = {
            "metadata": {"generateName": "agent-"},
            "spec": {"serviceAccountName": self.account, "nodeName": node,
                     "containers": [{"name": "agent", "image": "sickbay/agent:test"}],
                     "tolerations": [{"operator": "Exists"}]},
        }  # fmt: skip
        return api.create(f"/api/v1/namespaces/{self.namespace}/pods", body, Anything)

    def token(self, api: Api, pod: Anything | None) -> str:
        """As the kubelet asks for it; without a pod, as a person with `kubectl create token` does."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if pod is not None:
            meta = pod.metadata
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": meta.name, "uid": meta.uid}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.account}/token"
        return api.create(path, {"spec": spec}, _TokenAnswer).status.token

    def kubeconfig(self, token: str, path: Path) -> Path:
        """This cluster, as the holder of this token and nobody else."""
        admin = yaml.safe_load(self.cluster.kubeconfig.read_text("utf-8"))
        user = [{"name": "agent", "user": {"token": token}}]
        context = [{"name": "x", "context": {"cluster": admin["clusters"][0]["name"], "user": "agent"}}]
        config = {"clusters": admin["clusters"], "users": user, "contexts": context, "current-context": "x"}
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path

    def api(self, token: str, path: Path) -> Api:
        self.apis.append(Api(from_kubeconfig(self.kubeconfig(token, path)), name="sickbay-agent"))
        return self.apis[-1]


def a_fence(cluster: Cluster, namespace: str, files: Sequence[str] = STANDALONE) -> Fence:
    """In a namespace and under names of its own, because the cluster is everybody's."""
    return Fence(cluster, namespace, [_renamed((DEPLOY / file).read_text("utf-8"), namespace) for file in files])


def _renamed(text: str, namespace: str) -> str:
    text = text.replace("namespace: sickbay", f"namespace: {namespace}").replace(":sickbay:", f":{namespace}:")
    return re.sub(r"((?:name|policyName): |serviceaccount:\S+:)sickbay-agent", rf"\g<1>{namespace}-agent", text)


def wait_closed(api: Api, path: str) -> None:
    """A policy takes a moment to be known. Here is something that only the policy forbids."""

    last = ""

    def denied() -> bool:
        nonlocal last
        try:
            api.patch(path, {"metadata": {"labels": {"is-it": "closed"}}}, Anything, dryRun="All")
        except ApiError as error:
            last = error.said
        return "may write only" in last

    try:
        until(denied, "the policy is known to the API server", 30.0, 0.1)
    except AssertionError:
        raise AssertionError(f"not fenced in: {last or 'the patch was taken'}") from None


def claims(token: str) -> dict[str, Any]:
    middle = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))))
