"""What else a cluster can have: other projects' custom resource definitions and their real controllers with webhooks.

Called by Cluster.install_*. Everything comes out of tools/testbed's cache; nothing of it is in the repository. Webhooks
are registered by address instead of by Service, since nothing routes to a Service on loopback.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sickbay.errors import ApiError
from testbed.binaries import Missing, built
from testbed.pki import Pki
from testbed.processes import Processes, free_port
from testbed.waiting import until

if TYPE_CHECKING:
    from testbed.cluster import Cluster

UP_S = 60.0
MANAGED = {"sim.test/kueue": "manages"}  # label of namespaces in which Kueue manages jobs without a queue's name
GPU_TYPE = {
    "name": "p5.48xlarge", "architecture": "amd64", "operatingSystems": ["linux"],
    "offerings": [{"capacityType": "on-demand", "zone": "us-west-2a", "price": 98.0}],
    "resources": {"cpu": "192", "memory": "2Ti", "pods": "110", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"},
}  # fmt: skip
ONLY_JOBSETS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that its webhook refuses: when it does, the webhook is in force."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Controller:
    config: Mapping[str, Any]  # empty where it takes flags or the environment instead
    needs: tuple[str, ...]  # other controllers
    extra: tuple[str, ...]  # manifests for after it is up
    wrong: Wrong | None  # None: it has no webhooks
    crds: tuple[str, ...] = ()  # besides those under its own name
    flags: tuple[str, ...] = ()


def _named(name: str = "wrong") -> dict[str, str]:
    return {"name": name, "namespace": "default"}


CONTROLLERS = {
    "jobset": Controller(
        {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 500, "burst": 500},
        },
        (),
        (),
        Wrong(
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": _named(),
                "spec": {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["there-is-none"]}},
            },
        ),
    ),
    "trainer": Controller(
        {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "certManagement": {"enable": False},
            "clientConnection": {"qps": 500, "burst": 500},
        },
        ("jobset",),
        ("trainer-runtimes",),
        Wrong(
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": _named(),
                "spec": {"runtimeRef": {"name": "there-is-none"}},
            },
        ),
    ),
    "training-operator": Controller(
        {},
        (),
        (),
        Wrong(
            "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs",
            {
                "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": _named(),
                "spec": {"pytorchReplicaSpecs": {"Boss": {"template": {"spec": {"containers": []}}}}},
            },
        ),
    ),
    "kueue": Controller(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta1",
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 500, "burst": 500},
            "integrations": {"frameworks": ["batch/job"]},
            "manageJobsWithoutQueueName": True,
            "managedJobsNamespaceSelector": {"matchLabels": MANAGED},
        },
        (),
        (),
        Wrong(
            "/apis/kueue.x-k8s.io/v1beta1/clusterqueues",
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "wrong"},
                "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                    {"name": "wrong", "resources": [{"name": "cpu", "nominalQuota": "-1"}]}]}]},
            },
        ),
        flags=("--feature-gates=VisibilityOnDemand=false",),
    ),
    "karpenter": Controller({}, (), (), None, ("karpenter-kwok",)),
}  # fmt: skip


def crds(cluster: Cluster, name: str) -> None:
    """Returns when they are served. Validation is the API server's own: kubectl's would fetch all schemas first."""
    how = ("--server-side", "--force-conflicts", "--validate=false", "-o", "name")
    said = cluster.kubectl("apply", *how, "-f", str(built(f"manifests:{name}")))
    for kind in (line.rpartition("/")[2] for line in said.split()):
        _wait_served(cluster, kind)


def _wait_served(cluster: Cluster, kind: str) -> None:
    until(lambda: _served(cluster, kind), f"{kind} is served", UP_S)


def _served(cluster: Cluster, kind: str) -> bool:
    said = json.loads(cluster.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}"))
    conditions = said.get("status", {}).get("conditions") or ()
    if not any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
        return False
    spec = said["spec"]
    version = next(one["name"] for one in spec["versions"] if one["served"])
    try:
        cluster.request("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", params={"limit": "1"})
    except ApiError:
        return False
    return True


def controller(cluster: Cluster, processes: Processes, name: str) -> None:
    """Start it, wait until it is ready and its webhooks are in force. Once for a cluster; again does nothing."""
    if processes.alive(name):
        return
    what = CONTROLLERS[name]
    if name == "kueue":
        _may_mount()
    for needed in what.needs:
        controller(cluster, processes, needed)
    for one in (name, *what.crds):
        crds(cluster, one)
    pki, webhooks, health = Pki(cluster.folder / "pki"), free_port(), free_port()
    home = _home(cluster.folder / name, pki)
    pki.pair(name, f"/O=system:masters/CN={name}")
    server = str(json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    env = {"KUBECONFIG": str(pki.kubeconfig(name, server, home / "kubeconfig")), "TMPDIR": str(home)}
    if name == "karpenter":
        env |= _karpenter(home, health)
    argv = [str(built(name)), *_args(home, what, webhooks, health)]
    processes.start(name, _with_certificates(home, argv) if name == "kueue" else argv, env)
    until(lambda: _healthy(processes, name, health), f"{name} is ready", UP_S)
    if (wrong := what.wrong) is not None:
        cluster.kubectl("apply", "-f", "-", stdin=_webhooks(name, webhooks, pki))
        until(lambda: _refused(cluster, wrong), f"the webhooks of {name} are in force", UP_S)
    for more in what.extra:
        cluster.kubectl("apply", "--server-side", "-f", str(built(f"manifests:{more}")))


def _karpenter(home: Path, health: int) -> dict[str, str]:
    """It takes its settings from the environment, and its machines from a file: one kind is enough."""
    (home / "instance-types.json").write_text(json.dumps([GPU_TYPE]))
    return {
        "SYSTEM_NAMESPACE": "default", "INSTANCE_TYPES_FILE_PATH": str(home / "instance-types.json"),
        "METRICS_PORT": str(free_port()), "HEALTH_PROBE_PORT": str(health), "DISABLE_LEADER_ELECTION": "true",
        "BATCH_IDLE_DURATION": "500ms", "BATCH_MAX_DURATION": "2s",
    }  # fmt: skip


def _may_mount() -> None:
    """For Kueue, see _with_certificates."""
    try:
        subprocess.run(["unshare", "--mount", "--map-root-user", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"Kueue needs a mount namespace of its own, and unshare says: {error}") from error


def _with_certificates(home: Path, argv: list[str]) -> list[str]:
    """Kueue reads certificates for its metrics from a fixed path of the machine's, even where it serves none: it gets
    that path in a mount namespace of its own."""
    etc = home / "etc"
    (etc / "kueue" / "metrics").mkdir(parents=True, exist_ok=True)
    shutil.copytree(home / "k8s-webhook-server" / "serving-certs", etc / "kueue/metrics/certs", dirs_exist_ok=True)
    mounted = 'mount -t overlay overlay -o "lowerdir=$0:/etc" /etc && exec "$@"'
    return ["unshare", "--mount", "--map-root-user", "sh", "-c", mounted, str(etc), *argv]


def _home(folder: Path, pki: Pki) -> Path:
    """Its certificates are where controller-runtime looks for them by itself: below the folder for temporary files."""
    certificates = folder / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True, exist_ok=True)
    for kind in ("crt", "key"):
        shutil.copy(pki.path(f"apiserver.{kind}"), certificates / f"tls.{kind}")
    return folder


def _args(home: Path, what: Controller, webhooks: int, health: int) -> list[str]:
    certificates = home / "k8s-webhook-server" / "serving-certs"
    if what.wrong is None:
        return []
    if not what.config:
        return [f"--certificates={certificates}", f"--port={webhooks}", f"--health=127.0.0.1:{health}"]
    whole = {
        "kind": "Configuration", "metrics": {"bindAddress": "0"}, "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "webhook": {"host": "127.0.0.1", "port": webhooks}, **what.config,
    }  # fmt: skip
    if "kueue" in whole["apiVersion"]:
        whole["webhook"]["certDir"] = str(certificates)
    (home / "config.json").write_text(json.dumps(whole))
    return [f"--config={home / 'config.json'}", *what.flags]


def _healthy(processes: Processes, name: str, port: int) -> bool:
    if not processes.alive(name):
        raise RuntimeError(f"{name} ended: {processes.said(name)}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _webhooks(name: str, port: int, pki: Pki) -> str:
    """Upstream's registrations, pointed at loopback, under a name of their own."""
    import yaml

    (path,) = built(f"manifests:{name}-webhooks").iterdir()
    whole = [one for one in yaml.safe_load_all(path.read_text("utf-8")) if one]
    for registration in whole:
        registration["metadata"]["name"] = f"testbed-{name}"
        for hook in registration["webhooks"]:
            to = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{to}", "caBundle": pki.data("ca.crt")}
            if "pods" in hook["rules"][0]["resources"]:  # as upstream's own patch does: nobody else's pods wait for it
                hook["objectSelector"] = ONLY_JOBSETS
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": whole})


def _refused(cluster: Cluster, wrong: Wrong) -> bool:
    try:
        cluster.request("POST", wrong.path, wrong.body, params={"dryRun": "All"})
    except ApiError as error:
        return "admission webhook" in error.said
    return False


# --- a cluster of another process: the process that owns it is asked --------------------------------------------------


def ask(cluster: Cluster, name: str) -> None:
    for needed in (*CONTROLLERS[name].needs, name):
        built(needed)  # Missing is raised here, where it is heard
    (cluster.folder / f"{name}.asked").touch()
    done, failed = cluster.folder / f"{name}.installed", cluster.folder / f"{name}.failed"
    until(lambda: done.exists() or failed.exists(), f"{name} is installed", 3 * UP_S)
    if failed.exists():
        raise RuntimeError(f"{name} was not installed: {failed.read_text()[-3000:]}")


def asked(cluster: Cluster) -> None:
    for wish in cluster.folder.glob("*.asked"):
        wish.unlink()
        if wish.with_suffix(".installed").exists():
            continue
        try:
            cluster.install_controller(wish.stem)
            wish.with_suffix(".installed").touch()
        except Exception:  # told to the one who asked; the cluster lives on for the others
            wish.with_suffix(".failed").write_text(traceback.format_exc())
