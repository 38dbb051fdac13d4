"""Kubernetes Events as `kubectl describe` shows them: once, counted, bounded."""

from __future__ import annotations

import secrets

import pytest

from sickbay.kube import events, names
from sickbay.kube.api import Api
from sickbay.kube.objects import EventObject
from testbed.cluster import Cluster
from tests.agent.builders import Moments

WARNING = events.WARNING


@pytest.fixture
def name(api: Api) -> str:
    """Events may be about what is not there: no node is needed, and they are gone after an hour."""
    return f"gpu-{secrets.token_hex(4)}"


def about(api: Api, name: str, namespace: str = "default") -> list[EventObject]:
    return api.list(names.events(namespace), EventObject, fieldSelector=f"involvedObject.name={name}")


def test_the_same_words_again_are_counted_and_others_stand_beside_them(api: Api, name: str) -> None:
    for message in ("Xid 79", "Xid 79", "Xid 48", "Xid 79"):
        assert events.event(api, "", events.about_node(name), WARNING, "GPUsAreDown", message, "sickbay-agent")
    assert sorted((one.message, one.count) for one in about(api, name)) == [("Xid 48", 1), ("Xid 79", 3)]


def test_an_event_about_a_pod_stands_in_its_namespace(api: Api, name: str, namespace: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": "u-1"}
    events.event(api, namespace, pod, WARNING, "Blamed", "gpu-17 lost a GPU", "sickbay-controller")
    (found,) = about(api, name, namespace)
    assert (found.reason, found.type) == ("Blamed", "Warning")


def test_kubectl_describe_shows_it_under_the_node(cluster: Cluster, api: Api) -> None:
    (node,) = cluster.add_nodes(1, wait=False)
    try:
        events.event(api, "", events.about_node(node), WARNING, "GPUsAreDown", "GPU 3 is lost", "sickbay-agent")
        assert "GPU 3 is lost" in cluster.kubectl("describe", "node", node)
    finally:
        cluster.remove_nodes([node])


def test_a_storm_of_one_kind_is_cut_off_and_other_kinds_are_not(api: Api, name: str) -> None:
    """NVSentinel 9.2 #1120: 800,000 entries of which 29 were distinct."""
    clock = Moments()
    rate = events.Rate(clock)

    def say(reason: str, message: str) -> bool:
        return events.event(api, "", events.about_node(name), WARNING, reason, message, "sickbay-agent", rate=rate)

    assert sum(say("GPUsAreDown", f"Xid {number}") for number in range(40)) == events.BURST
    assert say("GPUsAreUp", "well again")
    clock.pass_(events.EVERY_S)
    assert say("GPUsAreDown", "Xid 41")
    assert not say("GPUsAreDown", "Xid 42")


def test_what_is_remembered_of_rates_is_bounded() -> None:
    rate = events.Rate()
    for number in range(3 * events.MOST_KNOWN):
        rate.allows(str(number))
    assert len(rate._spent) == events.MOST_KNOWN


@pytest.mark.parametrize("message", ["x" * 5_000, "ö" * 5_000, "", "\x00\x1b[31m\n"])
def test_any_message_is_taken(api: Api, name: str, message: str) -> None:
    assert events.event(api, "", events.about_node(name), WARNING, "GPUsAreDown", message, "sickbay-agent")
    (found,) = about(api, name)
    assert len(found.message.encode()) <= 1_024


def test_an_object_with_the_longest_name_has_its_event(api: Api) -> None:
    name = ("a" * 62 + ".") * 4
    events.event(
        api, "", events.about_node(name[:253].rstrip(".")), WARNING, "R", secrets.token_hex(4), "sickbay-agent"
    )
