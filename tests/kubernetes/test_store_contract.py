"""The contract of every store, on custom resources in a real API server: two handles, as two processes would have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.ports import Store
from sickbay.stores import records
from sickbay.stores.kubernetes_objects import KINDS, Object, name_of
from testbed.cluster import Cluster
from tests.stores.conftest import NEWER, Pair, Spoiler
from tests.stores.contract.test_archive import *  # noqa: F403
from tests.stores.contract.test_fencing import *  # noqa: F403
from tests.stores.contract.test_records import *  # noqa: F403
from tests.stores.contract.test_unread import *  # noqa: F403

from .shelf import PatientStore, install_crds


@pytest.fixture
def pair(cluster: Cluster, api: Api, namespace: str) -> Iterator[Pair]:
    install_crds(cluster)
    stores = PatientStore(api, namespace), PatientStore(api, namespace)
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def store(pair: Pair) -> Store:
    return pair[0]


class _InTheCluster:
    """As somebody with kubectl, or a newer controller."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def spoil(self, value: Any, *, archived: bool = False) -> None:
        self._patch(value, NEWER)

    def mend(self, value: Any) -> None:
        self._patch(value, value.schema)

    def raw(self, value: Any) -> object:
        found = self._api.get(self._path(value), Object)
        return found.metadata.version, bytes(found.record)

    def _patch(self, value: Any, schema: int) -> None:
        self._api.patch(self._path(value), {"record": {"schema": schema}}, Anything)

    def _path(self, value: Any) -> str:
        return names.custom(self._namespace, KINDS[type(value)].plural, name_of(records.key_of(value)))


@pytest.fixture
def spoiler(api: Api, namespace: str) -> Spoiler:
    return _InTheCluster(api, namespace)
