"""The testbed is real: a scheduler places, controllers act, the audit log tells. What it promises to other tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sickbay.errors import Unreachable
from sickbay.kube import names
from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, JobObject, NodeObject, PodObject
from testbed.cluster import Cluster, NotOurs
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes


def test_nodes_are_ready_have_gpus_and_a_boot_id(api: Api, nodes: Nodes) -> None:
    (name,) = nodes(1, boot_id="boot-1")
    node = api.get(names.node(name), NodeObject)
    assert (node.status.allocatable or {})["nvidia.com/gpu"] == "8"
    assert node.status.node_info is not None
    assert node.status.node_info.boot_id == "boot-1"


def test_a_rebooted_node_comes_back_under_another_boot_id(cluster: Cluster, api: Api, nodes: Nodes) -> None:
    (name,) = nodes(1, boot_id="boot-1")
    cluster.reboot(name, "boot-2")
    node = until(lambda: ready(api, name), f"{name} is Ready again")
    assert node.status.node_info is not None
    assert node.status.node_info.boot_id == "boot-2"


def test_a_dead_kubelet_makes_a_node_unreachable_until_it_lives_again(cluster: Cluster, api: Api, nodes: Nodes) -> None:
    (name,) = nodes()
    cluster.kill_kubelet(name)
    assert not ready(api, name)
    cluster.revive_kubelet(name)
    assert ready(api, name)


def test_a_job_is_placed_on_a_gpu_node_by_the_real_scheduler_and_ends_with_its_pod(
    api: Api, nodes: Nodes, namespace: str
) -> None:
    (name,) = nodes(1, labels={"sim.test/for": namespace})
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    api.create(jobs, job("one", namespace), Anything)
    pod = until(lambda: running(api, namespace), "its pod runs")
    assert pod.spec.node_name == name
    exits(api, pod, 0)
    until(lambda: api.get(f"{jobs}/one", JobObject).status.succeeded == 1, "the Job succeeded")


def test_a_pod_that_is_deleted_passes_through_failed_before_it_goes(api: Api, nodes: Nodes, namespace: str) -> None:
    """Else a Job with a podFailurePolicy would never replace it."""
    nodes(1, labels={"sim.test/for": namespace})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = job("one", namespace)["spec"]["template"]["spec"]
    api.create(pods, {"metadata": {"name": "one"}, "spec": spec}, Anything)
    pod = until(lambda: running(api, namespace), "the pod runs")
    api.delete(pod_path(pod))
    until(lambda: api.find(pod_path(pod), Anything) is None, "the pod is gone")
    said = api.request("GET", pods, params={"watch": "1", "timeoutSeconds": "1", "resourceVersion": version(pod)})
    phases = [json.loads(line)["object"]["status"]["phase"] for line in said.splitlines()]
    assert phases[-2:] == ["Failed", "Failed"], "once as it failed, once as it went"


def test_the_audit_log_says_who_wrote_what(cluster: Cluster, api: Api, nodes: Nodes) -> None:
    (name,) = nodes()
    mark = cluster.audit_mark()
    api.patch(names.node(name), {"spec": {"unschedulable": True}}, Anything)
    (line,) = until(lambda: cluster.audit(mark, verb="patch", resource="nodes", name=name, user="admin"), "a line")
    assert line["responseStatus"]["code"] == 200


def test_a_frozen_way_to_the_server_is_silent_and_a_cut_one_breaks(cluster: Cluster) -> None:
    with cluster.proxy() as proxy:
        api = Api(from_kubeconfig(proxy.kubeconfig), timeout_s=0.5)
        assert api.request("GET", "/readyz") == b"ok"
        proxy.freeze()
        with pytest.raises(Unreachable):
            api.request("GET", "/readyz")
        proxy.thaw()
        proxy.cut()
        assert api.request("GET", "/readyz") == b"ok"
        api.close()


def test_the_parts_of_a_shared_cluster_cannot_be_stopped(cluster: Cluster) -> None:
    with pytest.raises(NotOurs, match="own_cluster"):
        cluster.stop_apiserver()


def test_kubectl_speaks_to_it_and_says_what_is_wrong(cluster: Cluster, nodes: Nodes) -> None:
    (name,) = nodes()
    assert name in cluster.kubectl("get", "nodes", "-o", "name")
    with pytest.raises(RuntimeError, match="not found"):
        cluster.kubectl("get", "node", f"{name}-not")


def test_a_stranger_s_kubeconfig_is_used_and_ours_is_recognised(cluster: Cluster) -> None:
    again = Cluster.adopt(cluster.kubeconfig)
    assert again.audit_mark() > 0


def job(name: str, namespace: str) -> dict[str, Any]:
    sizes = {"limits": {"nvidia.com/gpu": "8"}}
    container = {"name": "train", "image": "example.com/train", "resources": sizes}
    template = {"nodeSelector": {"sim.test/for": namespace}, "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": name}, "spec": {"template": {"spec": template}}}


def running(api: Api, namespace: str, but: str = "") -> PodObject | None:
    pods = api.list(f"/api/v1/namespaces/{namespace}/pods", PodObject)
    return next((pod for pod in pods if pod.status.phase == "Running" and pod.metadata.uid != but), None)


def exits(api: Api, pod: PodObject, code: int) -> None:
    api.patch(pod_path(pod), {"metadata": {"annotations": {"sim.test/exit": str(code)}}}, Anything)


def version(pod: PodObject) -> str:
    return pod.metadata.resource_version


def pod_path(pod: PodObject) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


def ready(api: Api, name: str) -> NodeObject | None:
    node = api.get(names.node(name), NodeObject)
    said = {one.type: one.status for one in node.status.conditions or ()}
    return node if said.get("Ready") == "True" else None
