"""A new node at its gate, a real controller and a real control plane: what passes goes to work, what fails does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sickbay.kube.names import keys
from sickbay.model import Phase
from testbed.cluster import Cluster
from tests.kubernetes.line.ground import ENDS, Line, a_line

KEYS = keys()


@pytest.fixture
def line(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Line]:
    with a_line(cluster, namespace, tmp_path, count=2) as ready:
        yield ready


def is_gated(line: Line) -> bool:
    return any(taint.key == KEYS.newcomer for taint in line.node().spec.taints or ())


def test_a_newcomer_is_examined_behind_its_gate_and_released_when_it_passes(line: Line) -> None:
    line.control("CORDON", gate=True)
    line.until(lambda: is_gated(line), "its gate is closed")
    case = line.until_phase(*ENDS)
    assert case.phase is Phase.RESOLVED, case.journal[-1]
    assert case.newcomer
    line.until(lambda: not is_gated(line), "its gate is open")
    node = line.node()
    assert not node.spec.unschedulable
    assert not node.metadata.annotation(KEYS.case)
    assert node.metadata.annotation(KEYS.newcomer) == node.metadata.uid  # and is not closed a second time


def test_a_newcomer_that_fails_its_checks_stays_behind_its_gate(line: Line) -> None:
    line.strike("row_remap_failed_64", cure="replace")
    line.control("CORDON", gate=True)
    line.until(lambda: is_gated(line), "its gate is closed")
    case = line.until_phase(*ENDS, Phase.ESCALATED)
    assert case.phase is Phase.ESCALATED, case.journal[-1]
    assert is_gated(line)
    assert line.node().spec.unschedulable


def test_where_it_may_only_observe_no_gate_is_closed_that_nobody_could_open(line: Line) -> None:
    line.control("OBSERVE", gate=True)
    line.until_led()
    line.until(lambda: "are not kept from work" in line.log(), "it says so")
    assert not is_gated(line)
    assert line.log().count("are not kept from work") == 1
