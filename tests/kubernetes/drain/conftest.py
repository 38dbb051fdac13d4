"""What every test of DRAIN begins with: a node that we hold, and a namespace of ours with none of the test's pods."""

from __future__ import annotations

import pytest

from sickbay.kube.api import Api
from sickbay.model import Done, Verb
from sickbay.platforms.kubernetes.cordon import cordon
from sickbay.platforms.kubernetes.site import Site
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import a_site, act


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    """Our own namespace is one of its own: no pod of the test is in it."""
    return a_site(api, namespace=f"{namespace}-ours")


@pytest.fixture
def node(nodes: Nodes, site: Site) -> str:
    """A ready node that is closed in the name of its case."""
    (made,) = nodes(1)
    assert isinstance(cordon(site, act(Verb.CORDON, made)), Done)
    return made
