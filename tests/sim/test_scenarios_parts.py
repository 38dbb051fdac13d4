"""GPUs that go by another's name, or by none: what is done to machines that only share a number with a sick one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.model import Command, Finding, Part, Phase, Status
from sickbay.sim.hardware import SimGpu, SimNode
from sickbay.stores.memory import MemoryStore
from tests.sim.ward import Ward, a_policy, names

SICK, WELL = "node-0005", "node-0007"
HOUR, DAY = 3600.0, 86_400.0


def a_ward() -> Ward:
    """With a job on healthy nodes, one of which shares something with the node that falls ill."""
    ward = Ward(store=MemoryStore())
    ward.submit(nodes=names(6, 4))
    return ward


def falls_ill(ward: Ward) -> None:
    """It is replaced, as it must be; then somebody else leads, who sees every node anew."""
    ward.passes(1800.0)
    ward.world.strike("row_remap_failed_64", SICK, 0, cure="replace")
    ward.passes(5 * HOUR)
    ward.crash()
    ward.passes(DAY)


def lies(ward: Ward, victim: str) -> None:
    """The agent of SICK gives whatever it finds the serial of a GPU in another node."""
    agents, honest = ward.world.agents, ward.world.agents.named

    def named(node: SimNode, finding: Finding) -> Finding:
        said = honest(node, finding)
        about = node.name == SICK and said.status is not Status.OK
        return replace(said, part=victim) if about else said

    agents.named = named  # type: ignore[method-assign]


def numbered(ward: Ward, serial: str, *nodes: str) -> None:
    for name in nodes:
        node = ward.world.nodes[name]
        for gpu in node.gpus:
            gpu.serial = serial
        ward.world.truth_changed(node)


def condemned(ward: Ward) -> list[str]:
    return [stored.value.serial for stored in ward.run.store.list(Part) if stored.value.condemned]


def test_a_node_that_names_the_gpu_of_another_has_nobody_replaced_but_itself() -> None:
    ward = a_ward()
    lies(ward, ward.world.nodes[WELL].gpus[2].serial)
    falls_ill(ward)
    assert {f.node for f in ward.facts("treat-start")} == {SICK}
    assert condemned(ward) == []
    ward.is_sound()


@pytest.mark.parametrize("serial", ["0", "[N/A]", "1650000000001"])
def test_where_all_gpus_print_one_number_a_sick_one_condemns_no_other(serial: str) -> None:
    ward = a_ward()
    numbered(ward, serial, *ward.world.nodes)
    uuid = ward.world.nodes[SICK].gpus[0].uuid
    falls_ill(ward)
    assert {f.node for f in ward.facts("treat-start")} == {SICK}
    assert condemned(ward) == [uuid]
    ward.is_sound()


def test_a_machine_whose_gpu_a_person_pardons_returns_and_is_accused_no_more() -> None:
    """There was no exit: a case that was let go was opened again, and no examination could pass."""
    ward = Ward(store=MemoryStore(), policy=a_policy(approval=("REPLACE",)))
    part = replaced(ward, SICK)
    part.ailments = []  # the vendor has mended it, and it comes with another machine
    ward.world.shelf.owed.append(part.serial)
    replaced(ward, WELL)
    ward.until(lambda: "A condemned GPU is back" in told(ward), 2 * HOUR)
    assert f"sickbay node acknowledge {WELL}" in told(ward)
    ward.world.note("order", WELL, act="acknowledge", by="alice", case=WELL)
    said(ward, "acknowledge", WELL)
    ward.passes(HOUR)
    ward.world.people.reboot(WELL)
    ward.crash()
    ward.passes(DAY)
    assert ward.case(WELL) is None
    assert ward.is_well(WELL)
    assert part.serial not in condemned(ward)
    stored = ward.run.store.get(Part, part.serial)
    assert stored is not None
    assert stored.value.pardoned.startswith("alice: it was mended (it was condemned for ")
    ward.is_sound()


def replaced(ward: Ward, name: str) -> SimGpu:
    """A GPU of it falls ill for good, and a person approves the REPLACE."""
    part = ward.world.nodes[name].gpus[0]
    ward.world.strike("row_remap_failed_64", name, 0, cure="replace")
    case = ward.until_phase(name, Phase.QUEUED)
    ward.world.note("person", name, act="approve", by="alice", case=case.id, verb="REPLACE")
    said(ward, "approve", case.id)
    ward.until(lambda: ward.ended(name))
    return part


def told(ward: Ward) -> str:
    return "\n".join(notice.title + notice.body for notice in ward.run.mailbox.notices)


def said(ward: Ward, verb: str, target: str) -> None:
    ward.run.store.create(Command(f"{verb}/{target}", verb, target, "alice", "it was mended", ward.world.now))
    ward.passes(60.0)
