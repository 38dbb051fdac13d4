"""The examples that users copy: valid by strict validation, and what they promise is what we advise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sickbay.kube.objects import Anything
from sickbay.platforms.kubernetes.gangs import kinds
from sickbay.platforms.kubernetes.gangs.advice import advice
from testbed.cluster import Cluster
from tests.kubernetes.gangs.ground import Ground

EXAMPLES = Path(__file__).parents[3] / "examples" / "kubernetes"
DEFINED_BY = {"jobset.yaml": "jobset", "pytorchjob.yaml": "training-operator", "trainjob.yaml": "trainer"}


def read(name: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((EXAMPLES / name).read_text("utf-8")) if one]


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_an_example_is_valid_opts_in_and_leaves_nothing_to_advise(name: str, ground: Ground, cluster: Cluster) -> None:
    if definitions := DEFINED_BY.get(name):
        cluster.install_crds(definitions)
    for body in read(name):
        kind = kinds.BY_KIND.get(body["kind"])
        path = kind.path(ground.namespace) if kind else f"/api/v1/namespaces/{ground.namespace}/pods"
        ground.api.create(path, body, Anything, fieldValidation="Strict", dryRun="All")
        assert body["metadata"]["labels"]["sickbay.dev/recover"] == "managed"
        budget = [said for said in advice(body) if "counts" in said or "not noticed" in said]
        assert budget == []
