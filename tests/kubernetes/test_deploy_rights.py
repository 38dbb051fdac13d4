"""The rights that the chart gives, on a real API server: enough for the whole line, and nothing beside it.

Who is refused something is told by the API server's audit log, not by us.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Done, JobPhase, Phase
from testbed.cluster import Cluster
from testbed.processes import free_port
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.deploying import HOME, Installed, installed, one_of
from tests.kubernetes.gangs.ground import Ground
from tests.kubernetes.gangs.test_bare_gang import a_gang
from tests.kubernetes.line.ground import ENDS, a_line
from tests.kubernetes.ward import machines
from tools.manifests import ROOT

PREFIX = "gpu-healthcheck.aws-samples.io"
Body = dict[str, Any]


@pytest.fixture(scope="module")
def there(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """One installation for this file; nodes are each test's own."""
    namespace, api = f"d-{secrets.token_hex(4)}", cluster.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}}, Anything)
    with installed(cluster, namespace, tmp_path_factory.mktemp("deploy")) as ready:
        yield ready
    api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture(scope="module")
def controller(there: Installed) -> Api:
    return there.api("controller")


@pytest.fixture(scope="module")
def sweeper(there: Installed) -> Api:
    return there.api("sweeper")


# --- enough -----------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_the_controllers_rights_are_enough_from_the_fault_to_the_return(there: Installed, tmp_path: Path) -> None:
    """Everything the controller asks on the way, it is granted: the audit log has no refusal."""
    mark = there.cluster.audit_mark()
    with a_line(there.cluster, there.namespace, tmp_path) as line:
        work = _a_gpu_pod(line.api, there.namespace, line.sick)
        account, kubeconfig = there.account("node-job"), str(there.kubeconfig("controller"))
        line.control("REBOOT", kubeconfig=kubeconfig, job_account=account)
        line.until_led()
        line.strike()
        case = line.until_phase(*ENDS, Phase.ESCALATED)
        assert case.phase is Phase.RESOLVED, case.journal[-1]
        assert line.api.find(names.pod(there.namespace, work), Anything) is None
    assert there.refused(mark, "controller") == []


def _a_gpu_pod(api: Api, namespace: str, node: str) -> str:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}
    api.create(names.pods(namespace), {"metadata": {"name": "trainer-0"}, "spec": spec}, Anything)
    return "trainer-0"


def test_the_controller_starts_from_the_charts_own_settings_and_answers_its_probes(
    there: Installed, nodes: Nodes, tmp_path: Path
) -> None:
    nodes(labels={HOME: there.namespace})
    config = tmp_path / "sickbay.toml"
    objects = [one for one in yaml.safe_load_all(there.rendered) if one]
    config.write_text(one_of(objects, "ConfigMap", "sickbay-config")["data"]["sickbay.toml"])
    metrics, probes, mark = free_port(), free_port(), there.cluster.audit_mark()
    here = {
        "SICKBAY_CONFIG": str(config), "SICKBAY_DATA_DIR": str(tmp_path),
        "SICKBAY_CONTROLLER__LISTEN": f"127.0.0.1:{metrics}", "SICKBAY_CONTROLLER__PROBE_LISTEN": f"127.0.0.1:{probes}",
        "SICKBAY_KUBERNETES__KUBECONFIG": str(there.kubeconfig("controller")),
        "SICKBAY_KUBERNETES__GPU_SELECTOR": f"{HOME}={there.namespace}",
    }  # fmt: skip
    deployment = one_of(objects, "Deployment", there.account("controller"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    argv = [sys.executable, "-m", *container["command"]]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, env={**os.environ, **here}, stdout=log, stderr=log, cwd=ROOT)
    try:
        for probe in ("readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            until(partial(_answers, probes, path), f"{path} is good: {tmp_path / 'log'}", 60.0, 0.2)
    finally:
        process.terminate()
        assert process.wait(30) == 0
    assert there.refused(mark, "controller") == []


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def ground(there: Installed, api: Api, namespace: str, nodes: Nodes, controller: Api) -> Ground:
    """Jobs in a namespace of their owner; what is done to them is done by the controller."""
    made = Ground(api, namespace, nodes)
    own = replace(made.site.settings, namespace=there.namespace)
    made.site = replace(made.site, api=controller, settings=own)
    return made


def test_they_are_enough_to_stop_and_restart_a_job_in_its_owners_namespace(there: Installed, ground: Ground) -> None:
    mark = there.cluster.audit_mark()
    here = ground.nodes(3)
    job = ground.running(ground.job())
    ground.mark(job.nodes[0])
    assert isinstance(ground.do(ground.stop(job)), Done)
    good = [node for node in here if node != job.nodes[0]]
    assert isinstance(ground.do(ground.restart(ground.phase(job.id, JobPhase.STOPPED), *good)), Done)
    assert ground.running(job.id).attempt == 2
    assert there.refused(mark, "controller") == []


def test_they_are_enough_to_make_a_job_anew_that_its_controller_has_ended(there: Installed, ground: Ground) -> None:
    mark = there.cluster.audit_mark()
    here = ground.nodes(2)
    job = ground.running(ground.job(backoffLimit=0))
    ground.die(ground.pod_on(job.nodes[0]))
    down = ground.phase(job.id, JobPhase.FAILED)
    ground.until_condition(job.id, "Failed")
    assert isinstance(ground.do(ground.stop(down)), Done)
    assert isinstance(ground.do(ground.restart(down, *here)), Done)
    assert ground.running(job.id).attempt == 2
    assert there.refused(mark, "controller") == []


def test_they_are_enough_to_make_a_bare_gang_again(there: Installed, ground: Ground, namespace: str) -> None:
    ground.site = replace(ground.site, settings=replace(ground.site.settings, namespace=there.namespace))
    mark = there.cluster.audit_mark()
    here = ground.nodes(2)
    job = ground.running(a_gang(ground))
    assert isinstance(ground.do(ground.stop(job)), Done)
    ground.until_pods(0)
    assert isinstance(ground.do(ground.restart(job, *here)), Done)
    ground.until_pods(2)
    assert there.refused(mark, "controller") == []


def test_the_sweepers_rights_are_enough_for_a_sweep(there: Installed, api: Api, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    config = tmp_path / "sickbay.toml"
    config.write_text(
        f'[kubernetes]\nkubeconfig = "{there.kubeconfig("sweeper")}"\nnamespace = "{there.namespace}"\n'
        f'job_account = "{there.account("node-job")}"\n'
    )
    mark = there.cluster.audit_mark()
    with machines(api, [name], tmp_path):
        argv = [sys.executable, "-m", "sickbay", "sweep", name, "--config", str(config)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert (done.returncode, "1 pass" in done.stderr) == (0, True), done.stderr
    assert there.refused(mark, "sweeper") == []


# --- and nothing beside it --------------------------------------------------------------------------------------------


def said(api: Api, name: str, body: Any, how: str = "merge") -> str:
    """What the API server says against this patch of a node; "" when it would take it. Nothing is changed."""
    try:
        api.patch(names.node(name), body, Anything, how=how, dryRun="All")
    except ApiError as error:
        return error.said
    return ""


MAY: dict[str, Body] = {
    "cordon": {"spec": {"unschedulable": True}},
    "its own keys": {"metadata": {"annotations": {f"{PREFIX}/case": "n.1", f"{PREFIX}/treatment": "{}"}}},
    "autoscalers held off": {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}},
    "an operand sent away": {"metadata": {"labels": {"nvidia.com/gpu.deploy.device-plugin": "paused-for-gpu-reset"}}},
}
MAY_NOT: dict[str, tuple[Body, str]] = {
    "relabel": ({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}, ", not node-role.kubernetes.io/x"),
    "take a label off": ({"metadata": {"labels": {"nvidia.com/gpu.present": None}}}, "not nvidia.com/gpu.present"),
    "invent an operand": ({"metadata": {"labels": {"nvidia.com/gpu.deploy.x": "true"}}}, "not nvidia.com/gpu.deploy.x"),
    "annotate": ({"metadata": {"annotations": {"cloud.example.com/id": "x"}}}, "may write only the annotations"),
    "end work": (
        {"spec": {"taints": [{"key": f"{PREFIX}/case", "value": "1", "effect": "NoExecute"}]}},
        "they never end work",
    ),
    "end work by another's name": (
        {"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}},
        "may not put",
    ),
    "taint for others": (
        {"spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}},
        "may put and lift only the taint",
    ),
    "another machine": ({"spec": {"podCIDR": "10.9.0.0/24"}}, "beyond the cordon"),
    "owners": (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}},
        "owners or finalizers",
    ),
    "finalizers": ({"metadata": {"finalizers": ["example.com/x"]}}, "owners or finalizers"),
}  # fmt: skip


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[str]:
    labels = {"nvidia.com/gpu.deploy.device-plugin": "true"}
    (name,) = cluster.add_nodes(1, labels=labels)
    yield name
    cluster.remove_nodes([name])


@pytest.mark.parametrize("what", MAY)
def test_the_controller_may(controller: Api, node: str, what: str) -> None:
    assert said(controller, node, MAY[what]) == ""


@pytest.mark.parametrize("what", MAY_NOT)
def test_a_stolen_token_of_the_controller_may_not(controller: Api, node: str, what: str) -> None:
    body, words = MAY_NOT[what]
    assert words in said(controller, node, body)


def test_the_sweepers_own_taint_ends_no_work(sweeper: Api, node: str) -> None:
    taint = {"key": f"{PREFIX}/maintenance", "value": "sweep", "effect": "NoExecute"}
    assert "they never end work" in said(sweeper, node, {"spec": {"taints": [taint]}})


@pytest.mark.parametrize("what", sorted(MAY_NOT.keys() - {"end work"}))
def test_a_stolen_token_of_the_sweeper_may_not(sweeper: Api, node: str, what: str) -> None:
    body, words = MAY_NOT[what]
    assert words in said(sweeper, node, body)


def test_the_sweeper_may_not_cordon(sweeper: Api, node: str) -> None:
    assert "the sweeper may not cordon or uncordon" in said(sweeper, node, MAY["cordon"])
    own = {"labels": {f"{PREFIX}/mode": "quarantine"}, "annotations": {f"{PREFIX}/sweep": "{}"}}
    assert said(sweeper, node, {"metadata": own}) == ""


def test_taints_of_others_stay(controller: Api, api: Api, nodes: Nodes) -> None:
    (name,) = nodes(taints=[{"key": "example.com/broken", "effect": "NoSchedule"}])
    assert "may put and lift only the taint" in said(controller, name, {"spec": {"taints": None}})


def test_nobody_of_ours_deletes_a_node_or_writes_its_status(controller: Api, sweeper: Api, node: str) -> None:
    for api in (controller, sweeper):
        with pytest.raises(ApiError, match="cannot delete resource"):
            api.request("DELETE", names.node(node), params={"dryRun": "All"})
        with pytest.raises(ApiError, match='cannot patch resource "nodes/status"'):
            api.patch(f"{names.node(node)}/status", {"status": {"phase": "x"}}, Anything, dryRun="All")


def test_even_with_the_right_to_it_the_fence_forbids_to_delete_a_node(
    there: Installed, controller: Api, node: str
) -> None:
    """RBAC adds up: a careless binding of another team must not open what the policy closes."""
    name = f"{there.namespace}-careless"
    binding = ("create", "clusterrolebinding", name, "--clusterrole=cluster-admin")
    there.cluster.kubectl(*binding, f"--serviceaccount={there.namespace}:{there.account('controller')}")
    try:
        with pytest.raises(ApiError, match="neither makes nor deletes node objects"):
            _deleted(controller, node)
    finally:
        there.cluster.kubectl("delete", "clusterrolebinding", name)


def _deleted(api: Api, node: str) -> None:
    """RBAC learns of a new binding in a moment; until then it is RBAC that refuses."""

    def fenced() -> str:
        try:
            api.request("DELETE", names.node(node), params={"dryRun": "All"})
        except ApiError as error:
            if "cannot delete resource" not in error.said:
                raise
        return ""

    until(fenced, "the binding is known", 10.0, 0.1)


def test_only_pods_of_bare_gangs_are_made_or_deleted(controller: Api, api: Api, namespace: str) -> None:
    container = {"name": "c", "image": "x"}
    body: Body = {"metadata": {"name": "p"}, "spec": {"nodeName": "nowhere", "containers": [container]}}
    with pytest.raises(ApiError, match="makes only pods of bare gangs"):
        controller.create(names.pods(namespace), body, Anything, dryRun="All")
    api.create(names.pods(namespace), body, Anything)
    with pytest.raises(ApiError, match="deletes only pods of bare gangs"):
        controller.delete(names.pod(namespace, "p"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": namespace}}
    controller.create(f"{names.pod(namespace, 'p')}/eviction", eviction, Anything)


def test_it_reads_no_secret_and_executes_nothing(controller: Api, sweeper: Api, there: Installed) -> None:
    mark = there.cluster.audit_mark()
    for api in (controller, sweeper):
        for path in ("/api/v1/secrets", f"/api/v1/namespaces/{there.namespace}/secrets"):
            with pytest.raises(ApiError, match='cannot list resource "secrets"'):
                api.list(path, Anything)
        with pytest.raises(ApiError, match="pods/exec"):
            api.request("POST", f"{names.pod(there.namespace, 'x')}/exec")
    assert "list /api/v1/secrets" in there.refused(mark, "controller")  # so a refusal would have been seen above
