"""deploy/kubernetes/node-job-policy.yaml on a real API server: our node Jobs pass, nothing else may touch the host."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject
from sickbay.platforms.kubernetes import node_jobs
from sickbay.platforms.kubernetes.node_jobs import Errand
from sickbay.platforms.kubernetes.site import Site
from sickbay.settings import KubernetesSettings
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.deploying import objects, one_of
from tests.kubernetes.ward import a_site

POLICY = Path(__file__).parents[2] / "deploy/kubernetes/node-job-policy.yaml"
OURS = KubernetesSettings().image
Body = dict[str, Any]


@pytest.fixture(scope="module")
def fenced(cluster: Cluster) -> Iterator[Site]:
    with policed(cluster) as site:
        yield site


@contextmanager
def policed(cluster: Cluster) -> Iterator[Site]:
    """The policy as it is, for a namespace of these tests."""
    name, api = f"fenced-{secrets.token_hex(4)}", cluster.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": name}}, Anything)
    cluster.kubectl("apply", "-f", "-", stdin=policy(name))
    site = a_site(api, name)
    until(lambda: api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default", Anything), "its account")
    until(lambda: said(site, a_pod(hostPID=True)), "the policy is at work", 30.0, 0.3)
    yield site
    cluster.kubectl("delete", "-f", "-", "--wait=false", stdin=policy(name))
    api.delete(f"/api/v1/namespaces/{name}")


def policy(name: str) -> str:
    text = POLICY.read_text().replace("ame: sickbay-node-jobs", f"ame: {name}")
    return text.replace("namespace: sickbay\n", f"namespace: {name}\n").replace("name: sickbay}", f"name: {name}}}")


def a_job(site: Site, change: Callable[[Body], None] = lambda pod: None, key: str = "k") -> Body:
    """One of ours, changed."""
    node = NodeObject()
    node.metadata.name = "some-node"
    made = node_jobs.body(site, key, node, Errand("check", ("check", "--checks", "light", "--answers", key), 60.0))
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


def test_it_stands_on_the_node_where_the_agent_stands(fenced: Site) -> None:
    """In the host's processes and on its network: DCGM and the metadata service answer the host only."""
    agent = one_of(objects(), "DaemonSet", "sickbay-agent")["spec"]["template"]["spec"]
    job = a_job(fenced)["spec"]["template"]["spec"]
    assert [(pod["hostPID"], pod["hostNetwork"]) for pod in (agent, job)] == [(True, True)] * 2


def test_an_ordinary_pod_passes(fenced: Site) -> None:
    assert said(fenced, a_pod()) == ""


@pytest.mark.parametrize(
    "spec",
    [
        {"hostPID": True},
        {"hostNetwork": True},
        {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
        {"containers": [{"name": "c", "image": "x", "securityContext": {"privileged": True}}]},
        {"containers": [{"name": "c", "image": "x", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
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


def _more(those: str, **one: object) -> Callable[[Body], None]:
    """One more of them in the container."""
    return lambda pod: pod["containers"][0][those].append(one)


def _in(those: str, which: int, **more: object) -> Callable[[Body], None]:
    return lambda pod: pod["containers"][0][those][which].update(more)


def _volume(which: int, **volume: object) -> Callable[[Body], None]:
    return lambda pod: pod["volumes"].__setitem__(which, volume)


def _also_volume(**volume: object) -> Callable[[Body], None]:
    return lambda pod: pod["volumes"].append(volume)


HOOK = {"postStart": {"exec": {"command": ["sh", "-c", "id"]}}}
PROBE = {"exec": {"command": ["sh", "-c", "id"]}}
FIELD = {"fieldRef": {"fieldPath": "spec.nodeName"}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_container(image="evil/agent:latest"), "of the image that this policy names"),
        (_container(command=["sh", "-c", "id"]), "runs `sickbay node"),
        (_container(args=["; id"]), "runs `sickbay node"),
        (_with("automountServiceAccountToken", True), "mounts no token"),
        (_with("nodeName", ""), "pinned to one node"),
        (_with("initContainers", [{"name": "i", "image": OURS}]), "one container"),
        (_container(command=["sickbay", "node", "check", "--log", "/host/etc/cron.d/x"]), "writes no other file"),
        (_container(command=["sickbay", "node", "check", "--log=/host/etc/passwd"]), "writes no other file"),
        (_container(command=["sickbay", "node", "shell"]), "runs `sickbay node"),
        (_container(lifecycle=HOOK), "no hooks, probes"),
        (_container(livenessProbe=PROBE), "no hooks, probes"),
        (_container(readinessProbe=PROBE), "no hooks, probes"),
        (_container(startupProbe=PROBE), "no hooks, probes"),
        (_container(workingDir="/host/tmp"), "no hooks, probes"),
        (_container(envFrom=[{"configMapRef": {"name": "mine"}}]), "no hooks, probes"),
        (_container(terminationMessagePath="/usr/bin/python3"), "no hooks, probes"),
        (_more("env", name="PATH", value="/host/tmp"), "environment is"),
        (_more("env", name="LD_PRELOAD", value="/host/tmp/x.so"), "environment is"),
        (_more("env", name="PYTHONPATH", value="/host/tmp"), "environment is"),
        (_more("env", name="SICKBAY_AGENT__INSTANCE_TYPE", valueFrom=FIELD), "environment is"),
        (_in("env", 0, value="another-node"), "environment is"),
        (_in("env", 1, value="/host/tmp"), "environment is"),
        (_in("env", 2, value="/host/tmp"), "environment is"),
        (_also_volume(name="mine", emptyDir={}), "volumes are"),
        (_volume(0, name="host", hostPath={"path": "/tmp"}), "volumes are"),
        (_volume(1, name="state", hostPath={"path": "/tmp"}), "volumes are"),
        (_volume(2, name="config", configMap={"name": "mine"}), "volumes are"),
        (_volume(2, name="config", secret={"secretName": "mine"}), "volumes are"),
        (_in("volumeMounts", 0, mountPath="/usr/bin"), "mounts its volumes whole"),
        (_in("volumeMounts", 2, subPath="x"), "mounts its volumes whole"),
        (_more("volumeMounts", name="host", mountPath="/usr/local/bin"), "mounts its volumes whole"),
    ],
)
def test_a_node_job_that_was_tampered_with_is_refused(fenced: Site, change: Callable[[Body], None], why: str) -> None:
    assert why in said(fenced, a_job(fenced, change))


@dataclass(frozen=True)
class Asking:
    """Asks as an account of this namespace, or of Kubernetes' own; nothing is made."""

    cluster: Cluster
    namespace: str

    def said_to(self, account: str, body: Body, home: str = "") -> str:
        user = f"--as=system:serviceaccount:{home or self.namespace}:{account}"
        how = ("-n", self.namespace, "create", "-f", "-", "--dry-run=server", user)
        return self.cluster.kubectl(*how, stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", **body}), check=False)

    def said_to_kubernetes(self, account: str, body: Body) -> str:
        return self.said_to(account, body, "kube-system")


@pytest.fixture(scope="module")
def accounts(fenced: Site, cluster: Cluster) -> Asking:
    """Whose tokens may be stolen: accounts that may make Jobs and pods in our namespace."""
    namespace = fenced.settings.namespace
    cluster.kubectl("-n", namespace, "create", "role", "work", "--verb=create", "--resource=jobs.batch,pods")
    for account in ("sickbay-controller", "sickbay-sweeper", "sickbay-agent", "somebody"):
        binding = f"--serviceaccount={namespace}:{account}"
        cluster.kubectl("-n", namespace, "create", "serviceaccount", account, check=False)  # another test may have
        cluster.kubectl("-n", namespace, "create", "rolebinding", account, "--role=work", binding)
    return Asking(cluster, namespace)


def test_only_the_controller_and_the_sweeper_make_node_jobs(fenced: Site, accounts: Asking) -> None:
    """A stolen right to make Jobs in our namespace is no way to every node."""
    assert "made by Sickbay's controller and sweeper only" in accounts.said_to("somebody", a_job(fenced))
    for ours in ("sickbay-controller", "sickbay-sweeper"):
        assert "created" in accounts.said_to(ours, a_job(fenced, key="sweep/s/some-node"))


def test_a_job_of_the_sweeper_is_never_taken_for_one_of_the_controllers(fenced: Site, accounts: Asking) -> None:
    """A reboot is known by the name of its Job: an examination of that name would be a reboot that did nothing."""
    posing = a_job(fenced, key="sweep/s/some-node")
    posing["metadata"]["name"] = node_jobs.name_of("reboot", "some-node", "some-node.1/7")
    for job in (posing, a_job(fenced, key="some-node.1/7")):
        assert "none can be taken for one of the controller's" in accounts.said_to("sickbay-sweeper", job)


@pytest.mark.parametrize("verb", ["collect", "reset", "reboot", "signal"])
def test_the_sweeper_examines_and_does_not_treat(fenced: Site, accounts: Asking, verb: str) -> None:
    job = a_job(fenced, _container(command=["sickbay", "node", verb, "--answers", "k"]))
    assert "does not treat them" in accounts.said_to("sickbay-sweeper", job)
    assert "created" in accounts.said_to("sickbay-controller", job)


@pytest.mark.parametrize("thief", ["sickbay-controller", "sickbay-sweeper"])
@pytest.mark.parametrize("account", ["sickbay-controller", "sickbay-sweeper", "sickbay-agent", "default"])
def test_neither_makes_a_job_that_runs_as_somebody_else(
    fenced: Site, accounts: Asking, thief: str, account: str
) -> None:
    """Or the one that may examine would have the token of the one that may treat."""
    spec = {"serviceAccountName": account, "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}
    assert "make node Jobs only" in accounts.said_to(thief, job)
    assert "created" in accounts.said_to("somebody", job)


def an_owned(kind: str, name: str, **pod: Any) -> Body:
    owner = {"apiVersion": "apps/v1" if kind == "DaemonSet" else "batch/v1", "kind": kind, "name": name, "uid": "u"}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


def test_an_agents_pod_is_let_through_from_the_daemon_sets_controller_alone(fenced: Site, accounts: Asking) -> None:
    """Who owns a pod, its maker writes as he likes."""
    agent = an_owned("DaemonSet", "sickbay-agent", **a_pod(hostPID=True, serviceAccountName="sickbay-agent"))
    assert "may touch the host" in accounts.said_to("somebody", agent)
    assert "may touch the host" not in accounts.said_to_kubernetes("daemon-set-controller", agent)


def test_a_node_jobs_pod_is_made_by_the_job_controller_alone(fenced: Site, accounts: Asking) -> None:
    pod = a_job(fenced)["spec"]["template"]
    made = an_owned("Job", "j", metadata={"name": "p", **pod["metadata"]}, spec=pod["spec"])
    assert "Job controller makes it" in accounts.said_to("somebody", made)
    assert "created" in accounts.said_to_kubernetes("job-controller", made)


def test_what_a_webhook_adds_to_a_pod_of_a_judged_job_does_not_blind_us(fenced: Site, accounts: Asking) -> None:
    """Proxies and tracers put their words into every pod of some clusters; the Job was held to the letter."""
    pod = a_job(fenced, _more("env", name="HTTPS_PROXY", value="http://proxy:3128"))["spec"]["template"]
    made = an_owned("Job", "j", metadata={"name": "p", **pod["metadata"]}, spec=pod["spec"])
    assert "created" in accounts.said_to_kubernetes("job-controller", made)


def test_a_pod_of_its_own_with_our_account_is_refused(fenced: Site) -> None:
    pod = a_job(fenced)["spec"]["template"]
    labels = pod["metadata"]["labels"]
    body = {"metadata": {"name": "p", "labels": labels}, "spec": pod["spec"]}
    assert "belongs to a Job" in said(fenced, body)


def test_a_job_of_an_older_image_can_still_be_removed(cluster: Cluster) -> None:
    """The garbage collector writes to it first; were that refused, it would stay for ever, with its namespace."""
    with policed(cluster) as site:
        job = a_job(site)
        job["spec"]["suspend"] = True  # no kubelet here would end its pod
        folder = names.jobs(site.settings.namespace)
        site.api.create(folder, job, Anything)
        _upgrade(cluster, site)
        site.api.delete(f"{folder}/{job['metadata']['name']}", {"propagationPolicy": "Foreground"})
        until(lambda: site.api.find(f"{folder}/{job['metadata']['name']}", Anything) is None, "it is gone", 30.0, 0.2)


def _upgrade(cluster: Cluster, site: Site) -> None:
    text = policy(site.settings.namespace).replace(OURS, "sickbay/agent:next")
    cluster.kubectl("apply", "-f", "-", stdin=text)
    until(lambda: "of the image" in said(site, a_job(site)), "the new image is known", 30.0, 0.2)
