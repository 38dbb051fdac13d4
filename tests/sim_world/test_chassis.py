"""The host checks and the quarantine computations on a simulated host: the real checks, reading what it shows."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.catalog import load
from sickbay.checks.run import run
from sickbay.checks.signs import Ask
from sickbay.identity.machine import instance_type, profile_of
from sickbay.identity.versions import versions
from sickbay.model import Finding, Severity, Status
from sickbay.sim.faults import Ailment, Kind
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

NAMES = (
    "stuck-processes", "local-disks", "disk-space", "shared-storage", "host-memory", "clock", "instance-events",
    "gpu-matmul", "gpu-speed",
)  # fmt: skip


def checked(name: str, gpu: int = -1, **signs: Any) -> list[Finding]:
    """Four cycles; the node falls ill after the first."""
    world = World(seed=1, nodes=1)
    node = next(iter(world.nodes.values()))
    host = SimHost(world, node)
    kind = Kind("sick", "sick", "node", {"reboot": 1.0}, "none", "test", signs=signs)
    ask = Ask(profile=profile_of(instance_type(host)[0], load()), uptime_s=9e4)
    found = run(host, [name], load(), at=world.now, ask=ask, expected_gpus=8)
    if signs:
        (node.gpus[gpu] if gpu >= 0 else node).ailments.append(Ailment(1, kind, "reboot", 0.0, 1.0))
    for _ in range(3):
        world.run_for(300.0)
        found = run(host, [name], load(), at=world.now, ask=ask, expected_gpus=8)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_simulated_node_passes(name: str) -> None:
    assert {finding.status for finding in checked(name)} == {Status.OK}


@pytest.mark.parametrize(
    ("name", "gpu", "signs", "code", "severity"),
    [
        ("stuck-processes", -1, {"hung": True}, "host.stuck-in-driver", Severity.REBOOT),
        ("local-disks", -1, {"nvme_missing": 2}, "disk.missing", Severity.REBOOT),
        ("local-disks", -1, {"read_only": True}, "disk.read-only", Severity.REBOOT),
        ("shared-storage", -1, {"storage_hung": True}, "storage.hung", Severity.MONITOR),
        ("host-memory", -1, {"memory_ue": 1}, "host.memory-uncorrected", Severity.REBOOT),
        ("clock", -1, {"clock_offset": 2.5}, "clock.skew", Severity.MONITOR),
        ("instance-events", -1, {"retiring": True}, "ec2.retirement-scheduled", Severity.REPLACE),
        ("gpu-matmul", 5, {"wrong": True}, "compute.mismatch", Severity.RESET),
        ("gpu-speed", 3, {"slow": 0.6}, "compute.slow", Severity.RESET),
    ],
)
def test_each_trouble_is_seen_as_itself(
    name: str, gpu: int, signs: dict[str, Any], code: str, severity: Severity
) -> None:
    found = [f for f in checked(name, gpu, **signs) if f.code]
    assert (found[0].code, found[0].severity) == (code, severity)
    assert gpu < 0 or found[0].traits["index"] == str(gpu)


def test_a_simulated_node_knows_who_it_is() -> None:
    world = World(seed=1, nodes=1)
    host = SimHost(world, next(iter(world.nodes.values())))
    assert instance_type(host) == ("p5.48xlarge", "EC2 metadata")
    assert versions(host)["driver"] == host.node.driver


def test_a_node_that_is_down_shows_nothing() -> None:
    world = World(seed=1, nodes=1)
    node = next(iter(world.nodes.values()))
    node.up = False
    found = run(SimHost(world, node), list(NAMES), load(), at=0.0)
    assert {f.status for f in found if f.check != "instance-events"} == {Status.UNKNOWN}
