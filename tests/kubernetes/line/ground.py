"""The whole line on a real control plane: simulated machines behind kwok nodes, real controller processes, one fault.

Truth is asked of the machines (how often did it boot?) and of the API server's audit log, never of the controller.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject, Shape
from sickbay.model import Case, Phase
from sickbay.sim.world import World
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster
from testbed.kubelet import SimKubelet
from testbed.waiting import until
from tests.kubernetes.shelf import install_crds

WITHIN_S = 180.0  # the machine may be shared with seven others
FREE = "{count = 100, percent = 100}"
SICK = 1  # the second node
ENDS = (Phase.RESOLVED, Phase.DISMISSED, Phase.DEFERRED)


class Anyone(Shape):
    metadata: Any = msgspec.field(default_factory=dict)


@dataclass
class Line:
    """Nodes of our own in a cluster, their machines, and as many controllers as a test starts."""

    cluster: Cluster
    api: Api
    namespace: str
    nodes: list[str]
    kubelet: SimKubelet
    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def sick(self) -> str:
        return self.nodes[SICK]

    # -- controllers

    def control(
        self, max_verb: str = "REBOOT", *, skew_s: float = 0.0, at: Sequence[str] = (), **kubernetes: Any
    ) -> subprocess.Popen[bytes]:
        """`at`: where it ends or stands still, see testbed/hurried.py."""
        number = len(self.running)
        given = {
            "kubeconfig": str(self.cluster.kubeconfig), "namespace": self.namespace, "machines": "node-job",
            "gpu_selector": f"sim.test/line={self.namespace}", "lease_s": 3.0, **kubernetes,
        }  # fmt: skip
        rows = "\n".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
        config = self.folder / f"controller-{number}.toml"
        config.write_text(
            f'cluster = "line"\nplatform = "kubernetes"\nstore = "kubernetes"\ndata_dir = "{self.folder}"\n'
            f'[policy]\nmax_verb = "{max_verb}"\nsettle_s = 0.2\nmax_out = {FREE}\nmax_out_fleet = {FREE}\n'
            f"[controller]\nperiod_s = 0.5\nidle_period_s = 2.0\nnotice_s = 0.1\n[kubernetes]\n{rows}\n"
        )
        with (self.folder / f"controller-{number}.log").open("wb") as log:
            argv = [sys.executable, "-m", "testbed.hurried", str(config), str(skew_s), *at]
            self.running.append(subprocess.Popen(argv, stdout=log, stderr=log, cwd=Path(__file__).parents[3]))
        return self.running[-1]

    def until_still(self, process: subprocess.Popen[bytes]) -> None:
        """It has stopped itself."""
        stat = Path(f"/proc/{process.pid}/stat")
        self.until(lambda: stat.read_text().rpartition(") ")[2][0] == "T", "it stands still")

    def until_dead(self, process: subprocess.Popen[bytes]) -> None:
        self.until(lambda: process.poll() is not None, "it has killed itself")

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("controller-*.log")))

    def until_led(self, times: int = 1) -> None:
        self.until(lambda: self.log().count("leading epoch=") >= times, "a controller leads")

    # -- what happens

    def strike(self, fault: str = "gpu_lost_79", cure: str = "reboot") -> None:
        with self.kubelet.lock:
            self.kubelet.world.strike(fault, self.kubelet.nodes[self.sick], 3, cure=cure)

    def boots(self) -> int:
        return self.kubelet.sim(self.sick).boots

    def node(self, name: str = "") -> NodeObject:
        return self.api.get(names.node(name or self.sick), NodeObject)

    def sent(self, kind: str, since: int) -> list[dict[str, Any]]:
        """Our Jobs of this kind that the API server let in for the sick node, by its audit log."""
        stem = f"sickbay-{kind}-"
        made = self.cluster.audit(since, verb="create", resource="jobs", namespace=self.namespace)
        return [one for one in made if one["objectRef"].get("name", "").startswith(stem) and _let_in(one)]

    # -- what is on record

    def cases(self) -> list[Case]:
        """All of them, the ended ones too, oldest first."""
        store = KubernetesStore(self.api, self.namespace)
        try:
            found = [stored.value for stored in store.list(Case)] + list(store.history(Case))
        finally:
            store.close()
        return sorted((case for case in found if case.node == self.sick), key=lambda case: case.opened_at)

    def case(self) -> Case | None:
        found = self.cases()
        return found[-1] if found else None

    def until_phase(self, *phases: Phase) -> Case:
        found: Case = self.until(
            lambda: case if (case := self.case()) and case.phase in phases else None, f"it is {' or '.join(phases)}"
        )
        return found

    def until(self, check: Any, what: str) -> Any:
        try:
            return until(check, what, WITHIN_S, 0.1)
        except AssertionError as never:
            told = "\n".join(f"{e.event} {e.phase}: {e.why}" for case in self.cases() for e in case.journal)
            raise AssertionError(f"{never}\n{told}\n{self.log()[-3000:]}") from None

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait(10)


def _let_in(entry: dict[str, Any]) -> bool:
    return int(entry.get("responseStatus", {}).get("code", 0)) == 201


@contextmanager
def a_line(cluster: Cluster, namespace: str, folder: Path, count: int = 3, **more: Any) -> Iterator[Line]:
    """`namespace` must be there; its service account for Jobs is made, and our resources installed."""
    install_crds(cluster)
    api = cluster.api()
    account = {"metadata": {"name": "sickbay-node-job"}}
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account, Anything)
    nodes = cluster.add_nodes(count, labels={"sim.test/line": namespace}, **more)
    world = World(
        seed=7,
        nodes=count,
        silent_failure=0.0,
        reboot_hangs=0.0,
        part_returns=0.0,
        start=time.time() - 7200,
        cycle_s=5.0,
    )
    world.run_for(3_600.0)
    (folder / "machines").mkdir()
    with SimKubelet(cluster.api(name="sim-kubelet"), world, nodes, folder / "machines", logs=True) as kubelet:
        line = Line(cluster, api, namespace, nodes, kubelet, folder)
        try:
            yield line
        finally:
            line.close()
    cluster.remove_nodes(nodes)
