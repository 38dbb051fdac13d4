"""A real control plane for every test in this folder; nothing here is a mock. What it can do: testbed/cluster.py.

`cluster` is ONE for the whole run, shared by all workers: use fresh names, clean up, do not count on being alone, pin
pods to nodes of your own (nodeName, or a nodeSelector on a label that you gave them): any other node is another test's.
To stop, kill or pause a part of it, take `own_cluster`. SICKBAY_TEST_KUBECONFIG or KUBEBUILDER_ASSETS are used instead
of our own build when they are set.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NoReturn, Protocol

import pytest

from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from testbed.binaries import Missing, built
from testbed.cluster import Cluster, NotOurs
from testbed.shared import shared_cluster

GIVEN = os.environ.get("SICKBAY_TEST_KUBECONFIG", "")
HOW = "install Go 1.26 and openssl (the first build takes ten minutes), or set SICKBAY_TEST_KUBECONFIG"


class Nodes(Protocol):
    def __call__(self, count: int = 1, /, **more: object) -> list[str]: ...


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster.adopt(Path(GIVEN).expanduser()) if GIVEN else _shared(tmp_path_factory)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Api:
    return cluster.api()


@pytest.fixture
def namespace(cluster: Cluster, api: Api) -> Iterator[str]:
    """A fresh one; everything in it goes with it."""
    name = f"t-{secrets.token_hex(4)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}}, Anything)
    yield name
    now = {"gracePeriodSeconds": 0}
    api.delete(f"/apis/batch/v1/namespaces/{name}/jobs", {"propagationPolicy": "Background"})
    api.delete(f"/api/v1/namespaces/{name}/pods", now)
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Nodes]:
    """nodes(3, gpus=8, labels={…}, boot_id=…): Ready GPU nodes under names of their own, gone after the test."""
    made: list[str] = []

    def more_nodes(count: int = 1, /, **more: object) -> list[str]:
        made.extend(fresh := cluster.add_nodes(count, **more))  # type: ignore[arg-type]
        return fresh

    yield more_nodes
    cluster.remove_nodes(made)


@pytest.fixture
def own_cluster() -> Iterator[Callable[..., Cluster]]:
    """own_cluster(kwok=False, …): one that may be broken. Takes seconds: share it within a test, not between tests."""
    started: list[Cluster] = []

    def start(**options: object) -> Cluster:
        started.append(Cluster.start(**options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="session")
def program() -> Callable[[str], Path]:
    """program("promtool"), program("helm"): where it is; see tools/testbed."""
    return built


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """@pytest.mark.soak: told again elsewhere in less time, or too long for `make test`; `make soak` runs it."""
    if os.environ.get("SICKBAY_SOAK"):
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="runs in make soak"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from _said_when_missing())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _said_when_missing())


def _said_when_missing() -> Generator[None, object, object]:
    """A program that cannot be built here, or something that the user's own cluster does not give."""
    try:
        return (yield)
    except Missing as why:
        not_tested(str(why))
    except NotOurs as why:
        if not GIVEN:
            raise  # a test has taken the shared cluster for its own
        not_tested(str(why))


def not_tested(why: str) -> NoReturn:
    """On CI a missing testbed is a failure; elsewhere it is said once, at the end of the run (tests/conftest.py)."""
    said = f"NOT TESTED on a real Kubernetes control plane: {why} -- {HOW}"
    if os.environ.get("CI") == "true":
        pytest.fail(said)
    pytest.skip(said)


def _shared(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        return shared_cluster(base.parent / "testbed", os.getppid())
    return shared_cluster(base / "testbed", os.getpid())
