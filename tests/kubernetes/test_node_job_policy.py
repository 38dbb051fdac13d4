"""deploy/kubernetes/node-job-policy.yaml on a real API server: our node Jobs pass, nothing else may touch the host."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject
from sickbay.platforms.kubernetes import node_jobs
from sickbay.platforms.kubernetes.node_jobs import Errand
from sickbay.platforms.kubernetes.site import Site
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.ward import a_site

POLICY = Path(__file__).parents[2] / "deploy/kubernetes/node-job-policy.yaml"
Body = dict[str, Any]


@pytest.fixture(scope="module")
def fenced(cluster: Cluster) -> Iterator[Site]:
    """The policy as it is, for a namespace of these tests."""
    name, api = f"fenced-{secrets.token_hex(4)}", cluster.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": name}}, Anything)
    text = POLICY.read_text().replace("ame: sickbay-node-jobs", f"ame: {name}")
    text = text.replace("namespace: sickbay\n", f"namespace: {name}\n").replace("name: sickbay}", f"name: {name}}}")
    cluster.kubectl("apply", "-f", "-", stdin=text)
    site = a_site(api, name)
    until(lambda: api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default", Anything), "its account")
    until(lambda: said(site, a_pod(hostPID=True)), "the policy is at work", 30.0, 0.3)
    yield site
    cluster.kubectl("delete", "-f", "-", "--wait=false", stdin=text)
    api.delete(f"/api/v1/namespaces/{name}")


def a_job(site: Site, change: Callable[[Body], None] = lambda pod: None) -> Body:
    """One of ours, changed."""
    node = NodeObject()
    node.metadata.name = "some-node"
    made = node_jobs.body(site, "k", node, Errand("check", ("check", "--checks", "light", "--answers", "k"), 60.0))
    made = deepcopy(made)
    change(made["spec"]["template"]["spec"])
    return made


def a_pod(**spec: Any) -> Body:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def said(site: Site, body: Body) -> str:
    """What the API server says against it; "" when it would take it. Nothing is made."""
    where = names.jobs if body.get("kind") == "Job" else names.pods
    try:
        site.api.create(where(site.settings.namespace), body, Anything, dryRun="All")
    except ApiError as error:
        return error.said
    return ""


def test_our_own_job_passes(fenced: Site) -> None:
    assert said(fenced, a_job(fenced)) == ""


def test_an_ordinary_pod_passes(fenced: Site) -> None:
    assert said(fenced, a_pod()) == ""


@pytest.mark.parametrize(
    "spec",
    [
        {"hostPID": True},
        {"hostNetwork": True},
        {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
        {"containers": [{"name": "c", "image": "x", "securityContext": {"privileged": True}}]},
        {"hostPID": True, "serviceAccountName": "sickbay-agent"},
    ],
)
def test_nothing_else_may_touch_the_host(fenced: Site, spec: Body) -> None:
    accounts = f"/api/v1/namespaces/{fenced.settings.namespace}/serviceaccounts"
    if fenced.api.find(f"{accounts}/sickbay-agent", Anything) is None:
        fenced.api.create(accounts, {"metadata": {"name": "sickbay-agent"}}, Anything)
    assert "may touch the host" in said(fenced, a_pod(**spec))


def _with(name: str, value: object) -> Callable[[Body], None]:
    return lambda pod: pod.__setitem__(name, value)


def _container(**more: object) -> Callable[[Body], None]:
    return lambda pod: pod["containers"][0].update(more)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_container(image="evil/agent:latest"), "of the image that this policy names"),
        (_container(command=["sh", "-c", "id"]), "runs `sickbay node"),
        (_container(args=["; id"]), "runs `sickbay node"),
        (_with("automountServiceAccountToken", True), "mounts no token"),
        (_with("nodeName", ""), "pinned to one node"),
        (_with("initContainers", [{"name": "i", "image": "sickbay/agent:latest"}]), "one container"),
    ],
)
def test_a_node_job_that_was_tampered_with_is_refused(fenced: Site, change: Callable[[Body], None], why: str) -> None:
    assert why in said(fenced, a_job(fenced, change))


def test_only_the_controller_and_the_sweeper_make_node_jobs(fenced: Site, cluster: Cluster) -> None:
    """A stolen right to make Jobs in our namespace is no way to every node."""
    namespace = fenced.settings.namespace
    cluster.kubectl("-n", namespace, "create", "role", "jobs", "--verb=create", "--resource=jobs.batch")
    for account in ("sickbay-controller", "somebody"):
        binding = f"--serviceaccount={namespace}:{account}"
        cluster.kubectl("-n", namespace, "create", "rolebinding", account, "--role=jobs", binding)
    text = json.dumps(a_job(fenced))

    def as_account(name: str) -> str:
        user = f"--as=system:serviceaccount:{namespace}:{name}"
        return cluster.kubectl("-n", namespace, "create", "-f", "-", "--dry-run=server", user, stdin=text, check=False)

    assert "made by Sickbay's controller and sweeper only" in as_account("somebody")
    assert "created" in as_account("sickbay-controller")


def test_a_pod_of_its_own_with_our_account_is_refused(fenced: Site) -> None:
    pod = a_job(fenced)["spec"]["template"]
    labels = pod["metadata"]["labels"]
    body = {"metadata": {"name": "p", "labels": labels}, "spec": pod["spec"]}
    assert "belongs to a Job" in said(fenced, body)
