from __future__ import annotations

from collections.abc import Callable

import pytest

from sickbay.kube.api import Api
from testbed.binaries import Missing
from testbed.cluster import Cluster
from tests.kubernetes.conftest import Nodes, not_tested
from tests.kubernetes.gangs.ground import Ground


@pytest.fixture
def ground(api: Api, namespace: str, nodes: Nodes) -> Ground:
    return Ground(api, namespace, nodes)


@pytest.fixture
def with_controller(cluster: Cluster) -> Callable[[str], None]:
    """Somebody's real controller and webhooks, once for the cluster; said, not hidden, where it cannot be built."""

    def install(name: str) -> None:
        try:
            cluster.install_controller(name)
        except Missing as why:
            not_tested(str(why))

    return install
