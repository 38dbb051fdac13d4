"""Who is back from an absence of many with another boot, and what it takes until it gets managed work."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.core import proved
from sickbay.model import NodeRecord, Severity, Status
from tests.builders import BOOT, a_finding, a_node, a_pass

AGAIN = NodeRecord("n1", unproved=BOOT)
AWAY = {"n1": "before", "n2": "before", "n3": BOOT}


def known(**went: str) -> str:
    return proved.noted("", went or AWAY, again=True)


def test_who_is_back_with_another_boot_than_it_went_away_with_is_found_by_what_is_on_record() -> None:
    nodes = [a_node("n1"), a_node("n2", ready=False), a_node("n3"), a_node("n4"), a_node("n5", boot_id="")]
    assert proved.rebooted(known(), nodes) == {"n1"}


def test_ten_characters_of_each_node_are_kept_and_of_so_many_nodes_at_most() -> None:
    assert len(known()) == 30
    many = {f"n{i}": "a" for i in range(proved.MOST + 100)}
    assert len(known(**many)) <= 10 * proved.MOST


def test_the_leader_who_sees_a_node_go_again_knows_its_boot_and_one_who_finds_it_away_does_not() -> None:
    nodes = [a_node("n1")]
    assert proved.rebooted(proved.noted(known(), {"n1": BOOT}, again=True), nodes) == set()
    assert proved.rebooted(proved.noted(known(), {"n1": BOOT}, again=False), nodes) == {"n1"}


@pytest.mark.parametrize(
    ("said", "proves"),
    [
        ((), False),
        ((a_pass(),), True),
        ((a_pass(status=Status.DEGRADED, severity=Severity.MONITOR),), True),
        ((a_pass(boot="before"),), False),
        ((a_pass(source="webhook"),), False),
        ((a_pass(answers="n1.1/3"),), False),
        ((a_pass("kernel-log"),), False),
        ((a_pass(status=Status.UNKNOWN),), False),
        ((a_pass(boot="before"), a_finding("smi.gpu-lost", check="nvidia-smi")), False),
    ],
)
def test_only_what_its_own_agent_says_after_a_whole_cycle_of_that_boot_proves_it(said: Any, proves: bool) -> None:
    assert proved.is_proved(AGAIN, a_node(findings=said)) is proves


def test_of_a_node_that_did_not_come_back_so_and_of_a_later_boot_nothing_is_asked() -> None:
    assert proved.is_proved(None, a_node())
    assert proved.is_proved(NodeRecord("n1"), a_node())
    assert proved.is_proved(AGAIN, a_node(boot_id="a later one"))
