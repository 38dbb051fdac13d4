"""The network checks on a simulated host: the real checks, reading what the simulated tools print."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.catalog import load
from sickbay.checks.run import run
from sickbay.checks.signs import Ask
from sickbay.model import Finding, Severity, Status
from sickbay.sim.faults import Ailment, Kind
from sickbay.sim.host import SimHost
from sickbay.sim.world import World
from tests.checks.network import P5

NAMES = ("efa-enumeration", "efa-loopback", "efa-counters", "nccl-allreduce", "infiniband", "peermem")
PEERS = {"busbw_gbs": (452.0, 451.0, 453.0, 452.5, 451.5)}


def checked(name: str, **signs: Any) -> list[Finding]:
    world = World(seed=1, nodes=1)
    node = next(iter(world.nodes.values()))
    if signs:
        kind = Kind("sick", "sick", "node", {"reboot": 1.0}, "none", "test", signs=signs)
        node.ailments.append(Ailment(1, kind, "reboot", 0.0, 1.0))
    ask = Ask(profile=P5, options={"efa-settle-s": "0"}, uptime_s=9e4, peers=PEERS)
    found = list[Finding]()
    for _ in range(2):
        world.run_for(300.0)
        found = run(SimHost(world, node), [name], load(), at=world.now, ask=ask)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_simulated_node_passes(name: str) -> None:
    assert {finding.status for finding in checked(name)} == {Status.OK}


@pytest.mark.parametrize(
    ("name", "signs", "code", "severity"),
    [
        ("efa-enumeration", {"efa_missing": 2}, "nic.missing", Severity.REBOOT),
        ("efa-loopback", {"efa_loopback": 1}, "efa.loopback", Severity.REBOOT),
        ("efa-counters", {"efa_drops": 40}, "efa.counter-rise", Severity.MONITOR),
        ("nccl-allreduce", {"nccl_busbw": 200.0}, "nccl.slow", Severity.RESET),
        ("nccl-allreduce", {"nccl_wrong": 5}, "nccl.wrong", Severity.RESET),
    ],
)
def test_a_sick_simulated_node_is_found_out(name: str, signs: dict[str, Any], code: str, severity: Severity) -> None:
    finding = checked(name, **signs)[0]
    assert (finding.code, finding.severity) == (code, severity)
