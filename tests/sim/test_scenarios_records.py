"""Records that are lost, deleted or restored, and what a person's uncordon leaves behind, on the simulator."""

from __future__ import annotations

from sickbay.model import Phase
from tests.sim.ward import Ward

SICK = "node-0005"


def test_a_gpu_lost_again_on_a_new_boot_is_taken_up_although_a_person_had_opened_the_node() -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_phase(SICK, Phase.HOLDING)
    ward.world.people.uncordon(SICK)
    assert ward.until_ended(SICK).phase is Phase.DISMISSED
    node = ward.world.nodes[SICK]
    ward.world.treatments.cure(node, "reboot")
    ward.world.treatments.boot(node)
    ward.passes(600.0)
    assert ward.case(SICK) is None
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: ward.case(SICK) is not None, within=120.0).until_ended(SICK)
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()
