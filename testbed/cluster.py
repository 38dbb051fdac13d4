"""One real control plane on loopback: etcd, API server, scheduler, controllers, and kwok in the place of kubelets.

    with Cluster.start() as cluster:
        names = cluster.add_nodes(3)
        cluster.kubectl("get", "nodes")

`start` owns the processes and may stop, kill or pause them; `attach` uses a cluster that another process started (tests
share one); `adopt` uses one of the user's. Whatever happens to us, what we started dies with us. Not for production.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sickbay.errors import ApiError, Unreachable
from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api
from testbed import audit, fleet, install, plane
from testbed.binaries import component
from testbed.pki import Pki
from testbed.plane import Options, Ports
from testbed.processes import Processes, free_port
from testbed.proxy import Proxy
from testbed.waiting import until

READY_S = 90.0  # two cores may be shared with seven others
FACTS = "cluster.json"  # last to be written: who finds it may use the cluster


class NotOurs(Exception):
    """This cluster is shared or the user's: its processes are not to be touched, or there is no audit log."""


class Cluster:
    def __init__(
        self, folder: Path, kubeconfig: Path, ports: Ports | None, options: Options, processes: Processes | None
    ) -> None:
        self.folder, self.kubeconfig, self.options = folder, kubeconfig, options
        self._ports, self._processes = ports, processes
        self._apis: list[Api] = []

    # -- beginning and end

    @classmethod
    def start(cls, folder: Path | None = None, options: Options | None = None, **more: Any) -> Cluster:
        """`more`: fields of Options. Takes a few seconds; the first time ever, as long as tools/testbed builds."""
        folder = folder or Path(tempfile.mkdtemp(prefix="sickbay-testbed-"))
        options, ports = plane.possible(options or Options(**more)), Ports.choose()
        (folder / "log").mkdir(parents=True, exist_ok=True)
        pki = Pki(folder / "pki")
        pki.make()
        server = f"https://127.0.0.1:{ports.apiserver}"
        for user in ("admin", "kwok", "scheduler", "controllers"):
            pki.kubeconfig(user, server, folder / f"{user}.kubeconfig")
        (folder / "audit-policy.json").write_text(json.dumps(audit.policy(options.bodies)))
        cluster = cls(folder, folder / "admin.kubeconfig", ports, options, Processes(folder / "log"))
        try:
            cluster._run()
        except BaseException:
            cluster.stop()
            raise
        (folder / f"{FACTS}.part").write_text(ports.to_json())
        (folder / f"{FACTS}.part").rename(folder / FACTS)
        return cluster

    @classmethod
    def attach(cls, folder: Path) -> Cluster:
        """One that another process of ours started in `folder`."""
        ports = Ports.from_json((folder / FACTS).read_text())
        return cls(folder, folder / "admin.kubeconfig", ports, Options(), None)

    @classmethod
    def adopt(cls, kubeconfig: Path, folder: Path | None = None) -> Cluster:
        """One of the user's. Only kwok is started, for the nodes that tests make; it minds no other."""
        if (kubeconfig.parent / FACTS).exists():
            return cls.attach(kubeconfig.parent)
        folder = folder or Path(tempfile.mkdtemp(prefix="sickbay-testbed-"))
        (folder / "log").mkdir(parents=True, exist_ok=True)
        cluster = cls(folder, kubeconfig, None, Options(), Processes(folder / "log"))
        cluster._start_kwok(free_port(), kubeconfig)
        return cluster

    def stop(self) -> None:
        """Everything that `start` started, and the folder."""
        while self._apis:
            self._apis.pop().close()
        if self._processes is not None:
            self._processes.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        ports, processes = self._own()
        processes.start("etcd", plane.etcd(self.folder, ports))
        self.start_apiserver()
        if self.options.scheduler:
            self.start_scheduler()
        if self.options.controllers:
            self.start_controllers()
        if self.options.kwok:
            self._start_kwok(ports.kwok, self.folder / "kwok.kubeconfig")
        if self.options.controllers:  # a pod can be made only when its namespace has a service account
            until(lambda: self._has_account(), "the controllers run", READY_S)

    # -- its parts, for tests that break them

    def start_apiserver(self) -> None:
        """Also after stop_apiserver: on the same port and the same etcd. Returns when it is ready."""
        ports, processes = self._own()
        processes.start("apiserver", plane.apiserver(self.folder, ports, Pki(self.folder / "pki"), self.options))
        until(self._ready, "the API server is ready", READY_S)

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """`kill`: -9. Connections end; a new one is refused."""
        self._own()[1].stop("apiserver", kill=kill)

    def pause_apiserver(self) -> None:
        """SIGSTOP: connections stay open and nothing is said on them any more; new ones are taken, and say nothing."""
        self._own()[1].pause("apiserver")

    def resume_apiserver(self) -> None:
        self._own()[1].resume("apiserver")

    def stop_part(self, name: str, *, kill: bool = False) -> None:
        """etcd, scheduler, controllers or kwok."""
        self._own()[1].stop(name, kill=kill)

    def start_scheduler(self) -> None:
        ports, processes = self._own()
        processes.start("scheduler", plane.scheduler(ports, self.folder / "scheduler.kubeconfig", self.options))

    def start_controllers(self) -> None:
        ports, processes = self._own()
        kubeconfig = self.folder / "controllers.kubeconfig"
        argv = plane.controllers(ports, kubeconfig, Pki(self.folder / "pki"), self.options)
        processes.start("controllers", argv)

    def start_kwok(self) -> None:
        self._start_kwok(self._own()[0].kwok, self.folder / "kwok.kubeconfig")

    def back_up(self, folder: Path) -> None:
        """What etcd holds now, for `put_back`. Whoever watches loses the API server for some seconds."""
        with self._without_store():
            shutil.copytree(self.folder / "etcd", folder)

    def put_back(self, folder: Path) -> None:
        """As an operator does with yesterday's backup: every version since then is forgotten, and will come again."""
        with self._without_store():
            shutil.rmtree(self.folder / "etcd")
            shutil.copytree(folder, self.folder / "etcd")

    @contextmanager
    def _without_store(self) -> Iterator[None]:
        ports, processes = self._own()
        beside = [name for name in ("scheduler", "controllers") if name in self.pids()]
        for name in (*beside, "apiserver", "etcd"):
            processes.stop(name)
        yield
        processes.start("etcd", plane.etcd(self.folder, ports))
        self.start_apiserver()
        for name in beside:
            self.start_scheduler() if name == "scheduler" else self.start_controllers()

    def pids(self) -> dict[str, int]:
        return self._own()[1].pids()

    @property
    def group(self) -> int:
        """For what runs beside the cluster, a controller or an agent: in this process group it dies with us."""
        return self._own()[1].group

    def _start_kwok(self, port: int, kubeconfig: Path) -> None:
        assert self._processes is not None
        home = {"HOME": str(self.folder), "KWOK_WORKDIR": str(self.folder / "kwok")}
        self._processes.start("kwok", plane.kwok(port, kubeconfig, self.options), home)

    def _own(self) -> tuple[Ports, Processes]:
        if self._ports is None or self._processes is None:
            raise NotOurs("other tests use this cluster: take the fixture own_cluster to stop or pause its parts")
        return self._ports, self._processes

    def _ready(self) -> bool:
        _, processes = self._own()
        for name in ("etcd", "apiserver"):
            if not processes.alive(name):
                raise RuntimeError(f"{name} ended: {processes.said(name)}")
        try:
            with self._one_api(timeout_s=2.0) as api:
                return api.request("GET", "/readyz") == b"ok"
        except (ApiError, Unreachable):
            return False

    def _has_account(self) -> bool:
        with self._one_api() as api:
            try:
                return bool(api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default"))
            except ApiError:
                return False

    # -- speaking to it

    def api(self, **more: Any) -> Api:
        """A client of its own; closed when the cluster is stopped. `more`: as Api takes."""
        self._apis.append(Api(from_kubeconfig(self.kubeconfig), **more))
        return self._apis[-1]

    def request(self, *args: Any, **more: Any) -> bytes:
        """One request, as Api.request."""
        with self._one_api() as api:
            return api.request(*args, **more)

    @contextmanager
    def _one_api(self, **more: Any) -> Iterator[Api]:
        api = Api(from_kubeconfig(self.kubeconfig), **more)
        try:
            yield api
        finally:
            api.close()

    def kubectl(self, *args: str, stdin: str | None = None, kubeconfig: Path | None = None, check: bool = True) -> str:
        """What it printed; RuntimeError with what it complained about."""
        home = [f"--kubeconfig={kubeconfig or self.kubeconfig}", f"--cache-dir={self.folder / 'kubectl'}"]
        done = subprocess.run(
            [*component("kubectl"), *home, *args], input=stdin, capture_output=True, text=True, timeout=120, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(args)}: {done.stderr.strip()[-1500:]}")
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    @contextmanager
    def proxy(self) -> Iterator[Proxy]:
        """A way to the API server that can be frozen and cut; its `kubeconfig` leads through it."""
        access = from_kubeconfig(self.kubeconfig)
        with Proxy(access.host, access.port) as proxy:
            config = self.kubeconfig.read_text("utf-8").replace(f":{access.port}", f":{proxy.port}")
            proxy.kubeconfig = self.folder / f"proxy-{proxy.port}.kubeconfig"
            proxy.kubeconfig.touch(mode=0o600)
            proxy.kubeconfig.write_text(config)
            yield proxy

    def audit_mark(self) -> int:
        """Where the audit log ends now: give it to `audit`."""
        return self._audit_log().stat().st_size

    def audit(self, since: int = 0, **wanted: str) -> list[dict[str, Any]]:
        """What was asked of the API server, in its own words; see audit.py for `wanted`."""
        return audit.lines(self._audit_log(), since, **wanted)

    def _audit_log(self) -> Path:
        path = self.folder / "audit.log"
        if not path.exists():
            raise NotOurs("this cluster was given by the user: its audit log is not known here")
        return path

    # -- what is in it

    def add_nodes(
        self, count: int = 1, *, prefix: str = "", wait: bool = True, within_s: float = 60.0, **more: Any
    ) -> list[str]:
        """GPU nodes under fresh names, Ready. `more`: as fleet.gpu_node takes (gpus, labels, boot_id, pad, …)."""
        stem = f"{prefix or 'gpu'}-{secrets.token_hex(3)}"
        bodies = [fleet.gpu_node(f"{stem}-{number}", **more) for number in range(count)]
        with self._one_api() as api:
            return fleet.add(api, bodies, wait=wait, within_s=within_s)

    def remove_nodes(self, names: Sequence[str]) -> None:
        """With the pods on them."""
        with self._one_api() as api:
            fleet.remove(api, names)

    def reboot(self, node: str, boot_id: str = "") -> str:
        """NotReady, then Ready under the new boot id, which is returned."""
        with self._one_api() as api:
            return fleet.reboot(api, node, boot_id)

    def kill_kubelet(self, node: str) -> None:
        """Ready=Unknown and the unreachable taint, now; its pods stay as they are."""
        with self._one_api() as api:
            fleet.kill_kubelet(api, node)

    def revive_kubelet(self, node: str) -> None:
        with self._one_api() as api:
            fleet.revive_kubelet(api, node)

    def install_crds(self, name: str) -> None:
        """Custom resource definitions of testbed/manifests: jobset, kueue, karpenter, cluster-api, trainer, …"""
        with self._alone(f"crds-{name}"):
            install.crds(self, name)

    def install_jobset(self) -> None:
        """JobSet's real controller and webhooks. Once for a cluster; again does nothing."""
        self.install_controller("jobset")

    def install_training_operator(self) -> None:
        """PyTorchJob's."""
        self.install_controller("training-operator")

    def install_trainer(self) -> None:
        """TrainJob's, with the runtime torch-distributed; brings JobSet's."""
        self.install_controller("trainer")

    def install_kueue(self) -> None:
        """Kueue's; it manages every Job in namespaces that carry install.MANAGED, with or without a queue's name, and
        those with one everywhere: for a cluster of one's own."""
        self.install_controller("kueue")

    def install_karpenter(self) -> None:
        """Karpenter with the provider that makes nodes for kwok: all of one kind, install.GPU_TYPE. It makes them for
        anybody's pods that wait: for a cluster of one's own."""
        self.install_controller("karpenter")

    def install_controller(self, name: str) -> None:
        if self._ports is None:
            raise NotOurs(f"this cluster was given by the user: {name} is not installed into it")
        if self._processes is None:
            install.ask(self, name)
        else:
            install.controller(self, self._processes, name)

    def install_asked(self) -> None:
        """Start what those who attached to this cluster asked for."""
        install.asked(self)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Against the other processes that use this cluster."""
        with (self.folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
