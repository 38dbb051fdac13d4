"""Our custom resources in a cluster, and stores on them: for the store tests, and whoever needs a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sickbay.kube import names
from sickbay.kube.objects import Anything
from sickbay.model import Command, Pause
from sickbay.ports import Stored, V
from sickbay.stores import records
from sickbay.stores.kubernetes import KubernetesStore
from sickbay.stores.kubernetes_objects import KINDS
from testbed.cluster import Cluster
from testbed.waiting import until

CRDS = Path(__file__).parents[2] / "deploy" / "kubernetes" / "crds"
_INSTALLED: set[Path] = set()


def install_crds(cluster: Cluster) -> None:
    """Once for each process and cluster; server-side, so that workers who do it at the same moment agree."""
    if cluster.kubeconfig not in _INSTALLED:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", str(CRDS))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))
        until(lambda: cluster.kubectl("get", "sickbay", check=False).count("rror") == 0, "every kind can be listed")
        _INSTALLED.add(cluster.kubeconfig)


class PatientStore(KubernetesStore):
    """A second process hears of the first one's writes a moment later. It waits for that moment, as its watch would."""

    def token(self) -> int:
        super().token()
        until(self._is_caught_up, "the watch has heard everything")
        return super().token()

    def list(self, kind: type[V]) -> list[Stored[V]]:
        if kind in (Command, Pause) and not self._closed:
            self.token()
        return super().list(kind)

    def _is_caught_up(self) -> bool:
        return all(self._known(kind) == self._there(kind) for kind in KINDS)

    def _known(self, kind: type[Any]) -> dict[str, int]:
        return {name: seen.version for (of, name), seen in dict(self._cache._seen).items() if of is kind}

    def _there(self, kind: type[Any]) -> dict[str, int]:
        params = {"labelSelector": "sickbay.dev/ended!=true"} if kind in records.KEPT else {}
        found = self._api.list(names.custom(self.namespace, KINDS[kind].plural), Anything, **params)
        return {one.metadata.name: one.metadata.version for one in found}
