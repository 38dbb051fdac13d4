"""Commands and Pauses, written by hand, that say one thing to the admission policy and another to us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from sickbay import wire
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Command, Ledger, NodeRecord, Part, Pause
from sickbay.ports import Value
from sickbay.stores.kubernetes import KubernetesStore
from sickbay.stores.kubernetes_objects import KINDS, unpacked
from testbed.cluster import Cluster
from tests.kubernetes.shelf import install_crds
from tests.stores.builders import a_case, a_command

BOSS = "the-boss"


@pytest.fixture
def store(cluster: Cluster, api: Api, namespace: str) -> KubernetesStore:
    install_crds(cluster)
    return KubernetesStore(api, namespace)


def by_hand(api: Api, namespace: str, value: Value, name: str, **record: object) -> None:
    """As kubectl would, with more in `record` than we ever write there."""
    kind = KINDS[type(value)]
    tree = {**msgspec.json.decode(wire.encode(value)), **record}
    body = {"apiVersion": "sickbay.dev/v1alpha1", "kind": kind.name, "metadata": {"name": name}, "record": tree}
    api.create(names.custom(namespace, kind.plural), body, Anything)


def line(value: Value) -> str:
    return wire.encode(value).decode()


def test_who_approves_is_who_the_policy_saw_also_with_a_line_in_another_name(
    store: KubernetesStore, api: Api, namespace: str
) -> None:
    """`by: mallory` passed the policy, and the line in `record.json` approved a REPLACE as the boss."""
    asked = replace(a_command("c1"), by="mallory")
    forged = replace(asked, by=BOSS, args={"verb": "REPLACE"})
    by_hand(api, namespace, asked, "c1", json=line(forged))
    assert [one.value for one in store.list(Command)] == [asked]
    assert unpacked(Command, wire.encode(asked)) == wire.encode(asked)


def test_a_pause_has_the_scope_that_the_server_checked(store: KubernetesStore, api: Api, namespace: str) -> None:
    asked = Pause("node:n1", "mallory", "mine", since=0.0)
    by_hand(api, namespace, asked, "p1", json=line(replace(asked, by=BOSS, scope="whatever")))
    assert [one.value for one in store.list(Pause)] == [asked]


@pytest.mark.parametrize("kind", [Command, Pause, NodeRecord, Ledger, Part])
def test_only_cases_and_recoveries_are_ever_read_from_one_line(kind: type[Value]) -> None:
    tree: Mapping[str, object] = {"schema": 2, "json": "{}"}
    raw = msgspec.json.encode(tree)
    assert unpacked(kind, raw) == raw


def test_a_pause_that_is_filed_under_anothers_scope_does_not_answer_for_it(
    store: KubernetesStore, api: Api, namespace: str
) -> None:
    """What people write is known by what it says; `key` is a field beside it that nobody holds to anything."""
    by_hand(api, namespace, Pause("node:n1", "mallory", "mine", since=0.0), "p1")
    api.patch(names.custom(namespace, "pauses", "p1"), {"key": "fleet"}, Anything)
    assert store.get(Pause, "fleet") is None
    assert store.get(Pause, "node:n1") is not None


def test_a_command_that_was_carried_out_is_not_asked_again_whatever_its_object_is_called(
    store: KubernetesStore, api: Api, namespace: str
) -> None:
    """It was deleted by the name of its id, which nobody had, and came back once its case was written again."""
    by_hand(api, namespace, a_command("c1"), "my-approval")
    version = store.create(a_case(), epoch=1)
    version = store.commit(replace(a_case(), step=2), version, 1, consumes=["c1"])
    store.commit(replace(a_case(), step=3), version, 1)
    assert store.list(Command) == []
    assert api.list(names.custom(namespace, "commands"), Anything) == []
