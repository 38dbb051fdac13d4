"""The chart installed into a shared cluster: in a namespace and under names of a test's own, on nodes of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
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
from tools.manifests import render

Object = dict[str, Any]
HOME = "sickbay.test/home"  # label of nodes that an installation may use


class _Status(Shape):
    token: str = ""


class _Answer(Shape):
    status: _Status


def objects(*options: str, namespace: str = "sickbay") -> list[Object]:
    """The chart's objects."""
    return [one for one in yaml.safe_load_all(render(*options, namespace=namespace)) if one]


def one_of(found: list[Object], kind: str, name: str) -> Object:
    (it,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return it


@dataclass
class Installed:
    cluster: Cluster
    namespace: str
    folder: Path
    rendered: str
    apis: list[Api] = field(default_factory=list)

    def account(self, component: str) -> str:
        return f"{self.namespace}-{component}"

    def user(self, component: str) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.account(component)}"

    def kubeconfig(self, component: str) -> Path:
        """This cluster, as that component and nobody else."""
        path = self.folder / f"{component}.kubeconfig"
        with self.cluster._one_api() as api:
            folder = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
            body = {"spec": {"expirationSeconds": 3600}}
            token = api.create(f"{folder}/{self.account(component)}/token", body, _Answer).status.token
        admin = yaml.safe_load(self.cluster.kubeconfig.read_text("utf-8"))
        context = [{"name": "x", "context": {"cluster": admin["clusters"][0]["name"], "user": "u"}}]
        users = [{"name": "u", "user": {"token": token}}]
        config = {"clusters": admin["clusters"], "users": users, "contexts": context, "current-context": "x"}
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path

    def api(self, component: str) -> Api:
        self.apis.append(Api(from_kubeconfig(self.kubeconfig(component)), name=f"sickbay-{component}"))
        return self.apis[-1]

    def refused(self, since: int, component: str) -> list[str]:
        """What the API server has refused it, by its own audit log: by RBAC, or by one of our policies (a 422)."""
        lines = self.cluster.audit(since, user=self.user(component))
        no = [line for line in lines if _refusal(line.get("responseStatus", {}))]
        return sorted({f"{line['verb']} {line['requestURI'].partition('?')[0]}" for line in no})


def _refusal(answer: Object) -> bool:
    return answer.get("code") in (401, 403) or "ValidatingAdmissionPolicy" in answer.get("message", "")


@contextmanager
def installed(cluster: Cluster, namespace: str, folder: Path, *options: str) -> Iterator[Installed]:
    own = ("--set", f"name={namespace}", "--set", "settings.cluster=line")
    home = [f"{part}.nodeSelector.{HOME.replace('.', chr(92) + '.')}={namespace}" for part in ("agent", "controller")]
    pins = [word for one in home for word in ("--set-string", one)]
    rendered = render("--include-crds", *own, *pins, *options, namespace=namespace)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-", stdin=rendered)
    there = Installed(cluster, namespace, folder, rendered)
    try:
        _wait_fenced(there)
        yield there
    finally:
        for api in there.apis:
            api.close()
        kept = [one for one in yaml.safe_load_all(rendered) if one and one["kind"] != "CustomResourceDefinition"]
        everything = yaml.safe_dump_all(kept)
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=everything)


def _wait_fenced(there: Installed) -> None:
    """A policy is known to the API server a moment after it is made; here is something that only it forbids."""
    body = {"metadata": {"name": "probe"}, "spec": {"hostPID": True, "containers": [{"name": "c", "image": "x"}]}}

    def closed() -> bool:
        try:
            with there.cluster._one_api() as api:
                api.create(f"/api/v1/namespaces/{there.namespace}/pods", body, Anything, dryRun="All")
        except ApiError as error:
            return "may touch the host" in error.said
        return False

    until(closed, "the admission policies are known", 30.0, 0.2)
