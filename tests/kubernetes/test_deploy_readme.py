"""The commands of docs/kubernetes.md, which are those of the original README, run as they are written there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.names import keys
from sickbay.kube.objects import Anything, NodeObject
from testbed.binaries import built, component
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.deploying import Installed, installed
from tests.kubernetes.ec2 import IMAGE, TYPE, patient
from tests.kubernetes.ward import machines
from tests.moto import KEYS as AWS_KEYS
from tests.moto import REGION, Front
from tools.manifests import ROOT

KEYS = keys()
DOC = ROOT / "docs/kubernetes.md"


def commands(heading: str, block: int = 0) -> str:
    """The fenced block under a heading of the page."""
    section = DOC.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [found.group(1) for found in re.finditer(r"```bash\n(.*?)```", section, re.DOTALL)][block]


@dataclass
class Shell:
    """bash with this cluster's kubectl, and an `aws` that speaks to moto."""

    cluster: Cluster
    folder: Path
    front: Front | None = None

    def run(self, script: str, node: str, **changed: str) -> str:
        for old, new in changed.items():
            script = script.replace(old, new)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("<NODE>", node)], capture_output=True, text=True,
            timeout=120, check=False, cwd=ROOT, env={**os.environ, "PATH": f"{self._tools()}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _tools(self) -> Path:
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        kubectl = " ".join([*component("kubectl"), f"--kubeconfig={self.cluster.kubeconfig}"])
        self._tool(tools / "kubectl", f'exec {kubectl} --cache-dir={self.folder}/cache "$@"')
        self._tool(tools / "helm", f'exec {built("helm")} --kubeconfig={self.cluster.kubeconfig} "$@"')
        if self.front is not None:
            keys = " ".join(f"{name}={value}" for name, value in AWS_KEYS.items())
            call = f"boto3.client('ec2', endpoint_url='{self.front.url}').terminate_instances(InstanceIds=sys.argv[4:])"
            wanted = '[ "$1 $2 $3" = "ec2 terminate-instances --instance-ids" ]'
            self._tool(tools / "aws", f'{wanted}\n{keys} exec {sys.executable} -c "import boto3, sys; {call}" "$@"')
        return tools

    @staticmethod
    def _tool(path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\nset -e\n{script}\n")
        path.chmod(0o755)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    return Shell(cluster, tmp_path)


def the_node(api: Api, name: str) -> NodeObject:
    return api.get(names.node(name), NodeObject)


def test_view_status_by_labels(shell: Shell, api: Api, nodes: Nodes, tmp_path: Path) -> None:
    sick, well = nodes(2)
    with machines(api, [sick, well], tmp_path, agents=True) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("gpu_lost_79", kubelet.nodes[sick], 3)
        until(lambda: the_node(api, sick).metadata.label(KEYS.status) == "fail", "the agent says so")
        until(lambda: the_node(api, well).metadata.label(KEYS.status) == "pass", "the other one is well")
        said = shell.run(commands("View GPU health status"), sick)
    rows = {line.split()[0]: line.split() for line in said.splitlines() if line.startswith((sick, well))}
    assert rows[well][-2:] == ["pass", "PASS"]
    table, _, failed = said.partition("\nNAME ")
    assert re.search(rf"^{sick} .* fail +REBOOT$", table, re.MULTILINE)
    assert sick in failed
    assert not re.search(rf"^{well} ", failed, re.MULTILINE)
    results = json.loads(said[said.index("\n{") :])
    assert {"timestamp", "hostname", "instance_type", "status", "severity", "checks"} <= set(results)
    assert (results["status"], results["severity"]) == ("fail", "REBOOT")


@pytest.fixture
def there(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Installed]:
    with installed(cluster, namespace, tmp_path) as ready:
        yield ready


def test_quarantine(
    shell: Shell, there: Installed, api: Api, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Job is made by kubectl; what its pod would run is run here, with its own rights and nobody else's."""
    monkeypatch.setattr("sickbay.checks.efa_loopback.SETTLE_S", 0.0)  # simulated servers listen at once
    (name,) = nodes()
    own = {"-n sickbay": f"-n {there.namespace}", "deploy/kubernetes/jobs/quarantine.yaml": str(_template(there))}
    mark = there.cluster.audit_mark()
    said = shell.run(commands("Quarantine a suspect node"), name, **own)
    assert f"gpu-quarantine-{name}" in said
    job = api.get(f"{names.jobs(there.namespace)}/gpu-quarantine-{name}", dict)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == there.account("sweeper")
    with machines(api, [name], tmp_path):
        done = _as_the_job(there, container["command"])
    assert done.returncode == 0, done.stderr
    told = json.loads(shell.run(commands("Quarantine a suspect node", 2), name))
    assert {key: told[key] for key in ("node", "suite", "status", "recommendation")} == {
        "node": name, "suite": "quarantine", "status": "pass", "recommendation": "return",
    }  # fmt: skip
    assert there.refused(mark, "sweeper") == []


def test_quarantine_of_an_installation_by_helm(shell: Shell, api: Api, namespace: str) -> None:
    """Its images and names are those that were given when it was installed."""
    given = f"--set name={namespace} --set controller.image=r.example.com/controller:1 --set agent.enabled=false"
    shell.run(f"helm install sickbay deploy/helm/sickbay -n {namespace} --skip-crds {given}", "")
    try:
        script = commands("Quarantine a suspect node", 1)
        shell.run(script, "gpu-1", **{"-n sickbay": f"-n {namespace}"})
        job = api.get(f"{names.jobs(namespace)}/gpu-quarantine-gpu-1", dict)
    finally:
        shell.run(f"helm uninstall sickbay -n {namespace}", "")
    pod = job["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["containers"][0]["image"]) == (
        f"{namespace}-sweeper", "r.example.com/controller:1",
    )  # fmt: skip


def _template(there: Installed) -> Path:
    """The file of the repository, for the names of this installation."""
    text = (ROOT / "deploy/kubernetes/jobs/quarantine.yaml").read_text()
    text = text.replace("namespace: sickbay", f"namespace: {there.namespace}")
    path = there.folder / "quarantine.yaml"
    path.write_text(text.replace("sickbay-sweeper", there.account("sweeper")))
    return path


def _as_the_job(there: Installed, command: list[str]) -> subprocess.CompletedProcess[str]:
    config = there.folder / "sickbay.toml"
    config.write_text(
        f'[kubernetes]\nkubeconfig = "{there.kubeconfig("sweeper")}"\nnamespace = "{there.namespace}"\n'
        f'job_account = "{there.account("node-job")}"\n'
    )
    assert command[0] == "sickbay"
    argv = [sys.executable, "-m", "sickbay", *command[1:]]
    env = {**os.environ, "SICKBAY_CONFIG": str(config)}
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=env, cwd=ROOT)


def test_return_to_service(shell: Shell, api: Api, nodes: Nodes) -> None:
    (name,) = nodes(taints=[{"key": KEYS.unhealthy, "value": "true", "effect": "NoSchedule"}])
    labels = {KEYS.status: "fail", KEYS.severity: "RESET"}
    api.patch(names.node(name), {"metadata": {"labels": labels}, "spec": {"unschedulable": True}}, Anything)
    shell.run(commands("Return a node to service"), name)
    node = the_node(api, name)
    assert not node.spec.unschedulable
    assert KEYS.unhealthy not in [taint.key for taint in node.spec.taints or ()]
    assert node.metadata.label(KEYS.status) == "pass"


def test_replace(cluster: Cluster, api: Api, nodes: Nodes, tmp_path: Path, amazon: Front) -> None:
    ec2 = patient(amazon.url).ec2
    made = ec2.run_instances(ImageId=IMAGE, InstanceType=TYPE, MinCount=1, MaxCount=1)
    instance = made["Instances"][0]["InstanceId"]
    (name,) = nodes(provider_id=f"aws:///{REGION}a/{instance}")
    Shell(cluster, tmp_path, amazon).run(commands("Replace a node"), name)
    assert api.find(names.node(name), Anything) is None
    shown = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]
    assert shown["State"]["Name"] in ("shutting-down", "terminated")
