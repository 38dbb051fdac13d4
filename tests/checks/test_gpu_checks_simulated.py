"""The GPU checks on a simulated host: it prints what real ones print, so the real checks see its faults as they are."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.checks.run import run
from sickbay.checks.signs import Ask
from sickbay.model import Finding, Status
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

NAMES = ["nvidia-smi", "topology", "nvlink-errors", "gpu-slowdown", "gpu-processes", "pcie"]


def world() -> World:
    return World(11, 2, silent_failure=0.0, reboot_hangs=0.0)


def findings(made: World, suite: str = "") -> list[Finding]:
    host = SimHost(made, made.nodes["node-0000"])
    ask = Ask(profile=load().profiles["simulated-8"], suite=suite)
    return run(host, NAMES, load(), at=made.now, ask=ask)


@pytest.mark.parametrize("suite", ["", "prolog"])
def test_a_healthy_host_is_healthy_to_all_of_them(suite: str) -> None:
    assert [(f.check, f.status) for f in findings(world(), suite)] == [(name, Status.OK) for name in NAMES]


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("nvlink_74", {"smi.nvlink-inactive"}),
        ("nvlink_down_after_boot", {"smi.nvlink-inactive", "smi.fabric-not-ready"}),
    ],
)
def test_links_that_are_down_are_found_on_their_gpu(kind: str, codes: set[str]) -> None:
    made = world()
    made.strike(kind, "node-0000", 3, then_chance=0.0)
    made.run_for(700)
    found = [f for f in findings(made) if f.check == "topology"]
    gpu = made.nodes["node-0000"].gpus[3]
    assert {f.code for f in found} == codes
    assert {(f.place.device, f.part) for f in found} == {(gpu.pci, gpu.serial)}


def test_a_running_job_is_a_leftover_only_before_another_one() -> None:
    made = world()
    made.nodes["node-0000"].job = "train"
    assert {f.code for f in findings(made)} == {""}
    assert {f.code for f in findings(made, "prolog") if f.check == "gpu-processes"} == {"smi.leftover-process"}


def test_a_lost_gpu_is_missing_from_the_topology_too() -> None:
    made = world()
    made.strike("gpu_lost_silent", "node-0000", 0)
    assert {f.code for f in findings(made) if f.check == "topology"} == {"smi.gpu-missing"}
