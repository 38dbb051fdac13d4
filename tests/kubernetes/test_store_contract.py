"""The contract of every store, on custom resources in a real API server: two handles, as two processes would have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sickbay.kube.api import Api
from sickbay.ports import Store
from testbed.cluster import Cluster
from tests.stores.conftest import Pair
from tests.stores.contract.test_archive import *  # noqa: F403
from tests.stores.contract.test_fencing import *  # noqa: F403
from tests.stores.contract.test_records import *  # noqa: F403

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
