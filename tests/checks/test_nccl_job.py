"""The all-reduce test as an indexed Job: one pod a node, nothing interpolated, gone when index 0 is done."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from sickbay.checks.nccl_job import SCRIPT, job_manifest, service_manifest


def manifest(**more: Any) -> dict[str, Any]:
    return job_manifest("nccl-7", "registry.example/nccl@sha256:0", ["a", "b"], 8, **more)


def pod(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = manifest(**more)["spec"]["template"]["spec"]
    return found


def test_there_is_one_pod_on_each_of_the_named_nodes() -> None:
    spec = manifest()["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    terms = pod()["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["values"] == ["a", "b"]
    (apart,) = pod()["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"


def test_the_end_of_index_0_is_the_end_of_the_job_and_there_is_no_second_try() -> None:
    spec = manifest(timeout_s=900.0)["spec"]
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 900)


def test_it_takes_all_gpus_and_adapters_and_runs_on_cordoned_nodes() -> None:
    (container,) = pod(efas=32)["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
    keys = {row["key"] for row in pod()["tolerations"]}
    assert {"node.kubernetes.io/unschedulable", "gpu-healthcheck.aws-samples.io/unhealthy"} <= keys


def test_names_reach_the_script_as_environment_only() -> None:
    hostile = job_manifest("x; rm -rf /", "image", ["$(reboot)"], 8)
    (container,) = hostile["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/bin/bash", "-c", SCRIPT]
    assert {"name": "JOB_NAME", "value": "x; rm -rf /"} in container["env"]


def test_pods_find_each_other_before_they_are_ready() -> None:
    service = service_manifest("nccl-7")
    assert service["spec"]["selector"] == {"sickbay-nccl": "nccl-7"}
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert pod()["subdomain"] == service["metadata"]["name"]


def test_it_is_plain_data_and_without_efa_asks_for_none() -> None:
    text = json.dumps(manifest())
    assert "vpc.amazonaws.com" not in text
    assert "FI_PROVIDER" not in text


def test_the_script_is_a_script() -> None:
    assert subprocess.run(["bash", "-n", "-c", SCRIPT], check=False).returncode == 0
