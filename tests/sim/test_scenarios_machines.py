"""Providers that hand back what was sent away, platforms that forget, people who reboot: in the middle of a case.

Marked scenarios show what the brain does not bear yet; whoever mends it takes the mark off.
"""

from __future__ import annotations

from functools import partial

import pytest

from sickbay.model import Command, Phase
from sickbay.settings import Limit
from tests.sim.ward import Ward, a_policy, names

HOUR, DAY = 3600.0, 86_400.0
SICK = "node-0005"


@pytest.mark.parametrize("habit", ["same-parts", "same-instance", "sick"])
def test_a_machine_that_comes_back_with_the_same_part_is_not_replaced_for_ever(habit: str) -> None:
    ward = Ward()
    ward.world.provider.habits = {habit: 1.0}
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    ward.passes(3 * DAY)
    assert 1 <= ward.treatments(SICK).count("REPLACE") <= 2
    case = ward.case(SICK)
    if habit == "same-parts":
        assert case is not None
        assert case.phase is Phase.ESCALATED
        assert "another REPLACE would bring no better part" in case.journal[-1].why
        assert f"sickbay case approve {case.id} --verb REPLACE" in case.journal[-1].why
        assert any(n.level == "urgent" and "no better part" in n.body for n in ward.run.mailbox.notices)


def _is_another(ward: Ward, before: str) -> bool:
    case = ward.case(SICK)
    return case is not None and case.id != before


def test_a_part_that_comes_back_with_the_next_machine_does_not_climb_the_whole_ladder_again() -> None:
    """Also where a person approves each REPLACE, as the policy that ships wants it (seed 720250)."""
    ward = Ward(policy=a_policy(approval=("REPLACE",)))
    ward.world.provider.habits = {"same-parts": 1.0}
    ward.world.strike("degrading", SICK, 2, cure="replace")
    for _ in range(3):
        ward.until(lambda: (case := ward.case(SICK)) is not None and case.refusal.startswith("REPLACE"), within=DAY)
        case = ward.case(SICK)
        assert case is not None
        ward.run.store.create(Command(case.id, "approve", case.id, "alice", "go", ward.world.now, {"verb": "REPLACE"}))
        ward.until(partial(_is_another, ward, case.id), within=DAY)
    assert ward.treatments(SICK) == ["RESET_GPU", "REBOOT", "POWER_CYCLE", *["REPLACE"] * 3]


def test_a_mark_that_came_back_after_its_case_had_ended_is_found_and_taken_off() -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: ward.case(SICK) is not None).until_ended(SICK)
    assert ward.world.services.forget(120.0) == [SICK]
    ward.passes(6 * HOUR)
    assert ward.world.nodes[SICK].serving()


def test_a_mark_that_the_platform_forgot_is_not_taken_for_a_persons_uncordon() -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_phase(SICK, Phase.COLLECTING)
    assert ward.world.services.forget(3600.0) == [SICK]
    ward.passes(6 * HOUR)
    said = " ".join(entry.why for case in ward.ended(SICK) for entry in case.journal)
    assert "person" not in said
    assert ward.is_well(SICK)
    ward.ends_well()


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.COLLECTING, Phase.REPAIRING, Phase.VERIFYING])
def test_an_administrators_reboot_at_any_moment_of_a_case_costs_nothing_but_time(phase: Phase) -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_phase(SICK, phase)
    assert ward.world.people.reboot(SICK)
    ward.passes(8 * HOUR)
    assert ward.is_well(SICK)
    assert ward.treatments(SICK).count("REBOOT") <= 2
    assert "REPLACE" not in ward.treatments(SICK)
    ward.ends_well()


def test_a_machine_that_comes_back_by_itself_in_the_middle_of_a_case_returns() -> None:
    ward = Ward()
    ward.world.strike("host_crash", SICK, cure="reboot")
    ward.until(lambda: ward.case(SICK) is not None)
    assert ward.world.people.revive(SICK)
    ward.passes(8 * HOUR)
    assert ward.is_well(SICK)
    ward.ends_well()


def test_a_successor_that_never_comes_leaves_its_case_with_a_person() -> None:
    ward = Ward()
    ward.submit(nodes=names(0, 4))
    ward.world.provider.next = ["never"]
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    ward.passes(2 * DAY)
    assert ward.world.nodes[SICK].gone
    case = ward.case(SICK)
    assert case is not None
    assert case.phase is Phase.ESCALATED
    assert "no other has come" in case.journal[-1].why
    assert [n for n in ward.run.mailbox.notices if n.level == "urgent" and "no other has come" in n.body]
    ward.says("abort", case)
    ward.until(lambda: ward.case(SICK) is None)
    ward.ends_well()


def test_a_retry_on_a_machine_that_is_gone_frees_no_place() -> None:
    """It ended the case, and the place of the machine that had no successor was given to the next (seed 50000811)."""
    ward = Ward()
    ward.world.provider.next = ["never"]
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    ward.passes(2 * DAY)
    for word in ("retry", "examine"):
        ward.says(word, ward.case(SICK))
        ward.passes(HOUR)
        case = ward.case(SICK)
        assert case is not None
        assert case.phase is Phase.ESCALATED
        assert f"there is nothing to {word}: {SICK} was to be replaced" in case.journal[-1].why
    ward.says("abort", ward.case(SICK))
    ward.until(lambda: ward.case(SICK) is None)
    ward.ends_well()


def test_a_provider_without_stock_does_not_empty_the_fleet() -> None:
    ward = Ward(policy=a_policy(max_out=Limit(count=2), at_once=Limit(count=1)))
    ward.world.provider.habits = {"never": 1.0}
    for name in names(0, 6):
        ward.world.strike("row_remap_failed_64", name, 2, cure="replace")
        ward.passes(4 * HOUR)
    ward.passes(1 * DAY)
    assert len([n for n in ward.world.nodes.values() if n.gone]) == 2
    ward.is_sound()


def test_a_machine_that_its_provider_only_started_again_is_examined_before_it_works() -> None:
    ward = Ward()
    ward.world.provider.habits = {"same-instance": 1.0}
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="power_cycle")
    ward.until(lambda: ward.facts("treat-end", SICK))
    ward.passes(6 * HOUR)
    case = ward.case(SICK)
    assert case is not None
    assert case.phase is Phase.ESCALATED  # its row says that only an operator clears it
    assert Phase.VERIFYING in [entry.phase for entry in case.journal]
    assert ward.world.nodes[SICK].mark == case.id
    ward.ends_well()
