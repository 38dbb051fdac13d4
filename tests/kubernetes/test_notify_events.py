"""Notices as Kubernetes Events: the contract of every notifier on a real API server, and what kubectl shows."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from sickbay.errors import Unreachable
from sickbay.kube.api import Api
from sickbay.kube.objects import Shape
from sickbay.model import Done, Notice, Retry
from sickbay.notifiers.events import EventNotifier
from sickbay.ports import Notifier
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster
from tests.kubernetes.shelf import install_crds
from tests.stores.builders import a_case

from .conftest import Nodes


class Told(Shape):
    message: str = ""
    type: str = ""
    reason: str = ""


@dataclass
class Gone:
    """An API that does not answer while it is broken."""

    api: Api
    broken: bool = False

    def __getattr__(self, name: str) -> Callable[..., object]:
        if self.broken:
            raise Unreachable("POST events", "connection refused")
        found: Callable[..., object] = getattr(self.api, name)
        return found


def notice(case: str, *, key: str = "", level: str = "urgent", body: str = "GPU 3 is gone.") -> Notice:
    return Notice(key or f"{case}/3", level, "It needs a person", body, case)


def told(api: Api, name: str) -> list[Told]:
    return api.list("/api/v1/events", Told, fieldSelector=f"involvedObject.name={name}")


def test_a_notice_is_seen_by_who_describes_the_node(cluster: Cluster, api: Api, nodes: Nodes) -> None:
    (node,) = nodes()
    assert isinstance(EventNotifier(api, "sickbay").send(notice(f"{node}.1")), Done)
    shown = cluster.kubectl("describe", "node", node)
    assert "SickbayNeedsAPerson" in shown
    (event,) = [e for e in told(api, node) if e.reason == "SickbayNeedsAPerson"]
    assert event.type == "Warning"
    assert event.message == f"It needs a person: GPU 3 is gone. [urgent, case {node}.1, notice {node}.1/3]"


def test_the_same_notice_again_is_counted_and_not_written_twice(api: Api) -> None:
    name = f"n-{secrets.token_hex(4)}"
    sender: Notifier = EventNotifier(api, "sickbay")
    assert [type(sender.send(notice(f"{name}.1"))) for _ in range(2)] == [Done, Done]
    assert len(told(api, name)) == 1


def test_a_notice_about_no_node_is_told_about_our_namespace(api: Api, namespace: str) -> None:
    EventNotifier(api, namespace).send(notice("", key="full/fleet/1", level="warning"))
    assert [e.reason for e in told(api, namespace) if e.reason.startswith("Sickbay")] == ["SickbayWarning"]


def test_an_api_server_that_is_away_is_tried_again(api: Api) -> None:
    name = f"n-{secrets.token_hex(4)}"
    gone = Gone(api, broken=True)
    sender = EventNotifier(gone, "sickbay")  # type: ignore[arg-type]
    assert isinstance(sender.send(notice(f"{name}.1")), Retry)
    gone.broken = False
    assert isinstance(sender.send(notice(f"{name}.1")), Done)


@pytest.mark.parametrize("body", ["x" * 100_000, "\x00\x1b[31m\u2028\ud800", "错" * 3_000, ""])
def test_a_hostile_notice_is_written_in_bounds(api: Api, body: str) -> None:
    name = f"n-{secrets.token_hex(4)}"
    case = f"{name}.1"
    assert isinstance(EventNotifier(api, "sickbay").send(notice(case, body=body, level="odd level")), Done)
    (event,) = told(api, name)
    assert len(event.message.encode()) <= 1_024
    assert event.message.endswith(f"case {case}, notice {case}/3]")
    assert event.type == "Normal"


def test_a_notice_is_seen_by_who_describes_the_case(cluster: Cluster, api: Api, namespace: str) -> None:
    install_crds(cluster)
    store = KubernetesStore(api, namespace)
    store.create(a_case("gpu-7.3"))
    store.close()
    assert isinstance(EventNotifier(api, namespace).send(notice("gpu-7.3")), Done)
    assert "It needs a person" in cluster.kubectl("describe", "nodecase", "gpu-7.3", "-n", namespace)
