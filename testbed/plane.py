"""The flags of a real control plane on loopback: what each component is started with, and why.

Called by Cluster. Facts, not behaviour: which process runs when is cluster.py's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from testbed.binaries import Missing, built, component, given
from testbed.pki import Pki
from testbed.processes import free_port

STAGES = Path(__file__).with_name("kwok-stages.yaml")
KUBELET = "sim.test/kubelet"  # label: =alive while kwok minds the node


@dataclass(frozen=True, slots=True)
class Options:
    scheduler: bool = True
    controllers: bool = True
    kwok: bool = True
    fairness: bool = False  # priority and fairness, and limits on requests in flight: on, to see 429
    grace_s: int = 60  # until a silent kubelet is Unknown; kill_kubelet does not wait for it
    lease_s: int = 40  # of kwok's nodes; 200 (and grace_s 240) for thousands of nodes on two cores
    qps: int = 500  # of scheduler and controllers
    bodies: bool = False  # the audit log holds what was written to nodes too
    apiserver_args: tuple[str, ...] = ()
    controllers_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    peer: int
    apiserver: int
    scheduler: int
    controllers: int
    kwok: int

    @classmethod
    def choose(cls) -> Ports:
        chosen: set[int] = set()
        while len(chosen) < 6:
            chosen.add(free_port())
        return cls(*chosen)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Ports:
        return cls(**json.loads(text))


def possible(options: Options) -> Options:
    """KUBEBUILDER_ASSETS has neither scheduler nor controllers: ours are taken, and where ours cannot be, none."""
    if given("etcd") is None or given("kube-apiserver") is None:
        return options
    scheduler, controllers = _there("kube-scheduler"), _there("kube-controller-manager")
    return replace(options, scheduler=options.scheduler and scheduler, controllers=options.controllers and controllers)


def _there(name: str) -> bool:
    try:
        return bool(component(name))
    except Missing:
        return False


def etcd(folder: Path, ports: Ports) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.peer}"
    args = [f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={client}", f"--listen-peer-urls={peer}"]
    if given("etcd") is not None:  # ours takes four flags only
        args += [f"--advertise-client-urls={client}", "--unsafe-no-fsync", "--log-level=warn"]
    return component("etcd") + args


def apiserver(folder: Path, ports: Ports, pki: Pki, options: Options) -> list[str]:
    limits = "400" if options.fairness else "0"
    mutating = "200" if options.fairness else "0"
    return [
        *component("kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={ports.apiserver}",
        "--endpoint-reconciler-type=none",  # it refuses to publish a loopback address as an endpoint
        f"--tls-cert-file={pki.path('apiserver.crt')}", f"--tls-private-key-file={pki.path('apiserver.key')}",
        f"--client-ca-file={pki.path('ca.crt')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki.path('sa.key')}", f"--service-account-signing-key-file={pki.path('sa.key')}",
        "--service-cluster-ip-range=10.0.0.0/16", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
        f"--enable-priority-and-fairness={str(options.fairness).lower()}",
        f"--max-requests-inflight={limits}", f"--max-mutating-requests-inflight={mutating}",
        f"--audit-policy-file={folder / 'audit-policy.json'}", f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-maxsize=4000",
        *options.apiserver_args,
    ]  # fmt: skip


def scheduler(ports: Ports, kubeconfig: Path, options: Options) -> list[str]:
    return [
        *component("kube-scheduler"),
        *_client(kubeconfig, ports.scheduler, options),
    ]


def controllers(ports: Ports, kubeconfig: Path, pki: Pki, options: Options) -> list[str]:
    return [
        *component("kube-controller-manager"),
        *_client(kubeconfig, ports.controllers, options),
        "--use-service-account-credentials=true",  # without it the not-ready taint is never taken away
        f"--service-account-private-key-file={pki.path('sa.key')}", f"--root-ca-file={pki.path('ca.crt')}",
        f"--cluster-signing-cert-file={pki.path('ca.crt')}", f"--cluster-signing-key-file={pki.path('ca.key')}",
        "--allocate-node-cidrs=false", "--node-monitor-period=1s",
        f"--node-monitor-grace-period={options.grace_s}s",
        *options.controllers_args,
    ]  # fmt: skip


def kwok(port: int, kubeconfig: Path, options: Options) -> list[str]:
    return [
        str(built("kwok")), f"--kubeconfig={kubeconfig}", f"--config={STAGES}",
        f"--manage-nodes-with-label-selector={KUBELET}=alive", f"--server-address=127.0.0.1:{port}",
        f"--node-lease-duration-seconds={options.lease_s}",
    ]  # fmt: skip


def _client(kubeconfig: Path, port: int, options: Options) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}",
        "--leader-elect=false", f"--kube-api-qps={options.qps}", f"--kube-api-burst={options.qps}",
    ]  # fmt: skip
