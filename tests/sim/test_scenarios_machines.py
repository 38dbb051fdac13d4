"""Providers that hand back what was sent away, platforms that forget, people who reboot: in the middle of a case.

Marked scenarios show what the brain does not bear yet; whoever mends it takes the mark off.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sickbay.model import Change, Command, NodeDeleted, Phase, Verb
from sickbay.settings import Limit
from sickbay.stores.memory import MemoryStore
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
    """Also where a person approves each REPLACE, as the policy that ships wants it (seed 720250). Before the third one
    they are told that it brings no better part: they gave their word fourteen times (seed 32)."""
    ward = Ward(policy=a_policy(approval=("REPLACE",)))
    ward.world.provider.habits = {"same-parts": 1.0}
    ward.world.strike("degrading", SICK, 2, cure="replace")
    for _ in range(2):
        ward.until(lambda: (case := ward.case(SICK)) is not None and case.refusal.startswith("REPLACE"), within=DAY)
        case = ward.case(SICK)
        assert case is not None
        ward.run.store.create(Command(case.id, "approve", case.id, "alice", "go", ward.world.now, {"verb": "REPLACE"}))
        ward.until(partial(_is_another, ward, case.id), within=DAY)
    ward.until_phase(SICK, Phase.ESCALATED)
    assert ward.treatments(SICK) == ["RESET_GPU", "REBOOT", "POWER_CYCLE", "REPLACE", "REPLACE"]
    assert any("would bring no better part" in notice.body for notice in ward.run.mailbox.notices)


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


# -- successors with names of their own (Karpenter, Auto Scaling groups)


def a_pool_of_sick_stock(**how: Any) -> Ward:
    ward = Ward(16, policy=a_policy(approval=(), max_out=Limit(), max_out_fleet=Limit(), at_once=Limit()), **how)
    ward.world.provider.renames = True
    ward.world.provider.habits = {"ill": 1.0}
    return ward


def sent_away(ward: Ward) -> list[str]:
    return [fact.node for fact in ward.facts("treat-start") if fact.detail["verb"] == "REPLACE"]


def test_sick_stock_under_new_names_is_sent_back_twice_in_a_row_and_then_a_person_decides() -> None:
    """59 machines were ended in a day and nobody was told: each came under a name that nothing was known of."""
    ward = a_pool_of_sick_stock()
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    ward.passes(DAY)
    assert sent_away(ward) == [SICK, f"{SICK}-1", f"{SICK}-2"]
    case = ward.case(f"{SICK}-3")
    assert case is not None
    assert case.phase is Phase.ESCALATED
    assert "3 machines in a row came sick to pool default" in case.journal[-1].why
    (told,) = [n for n in ward.run.mailbox.notices if n.level == "urgent"]
    assert f"sickbay case approve {case.id} --verb REPLACE" in told.body
    ward.is_sound()


def test_a_row_of_sick_machines_outlives_the_leader() -> None:
    ward = a_pool_of_sick_stock(store=MemoryStore())
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    ward.until(lambda: len(sent_away(ward)) == 3)
    ward.crash()
    ward.passes(DAY)
    assert sent_away(ward) == [SICK, f"{SICK}-1", f"{SICK}-2"]


def test_many_that_come_sick_at_once_are_one_urgent_notice() -> None:
    ward = a_pool_of_sick_stock(rack_size=1)
    for name in names(3, 5):
        ward.world.strike("row_remap_failed_64", name, 2, cure="replace")
        ward.passes(1200.0)  # else it is a common cause
    ward.passes(DAY)
    rest = [n for n in ward.world.nodes if (c := ward.case(n)) is not None and c.phase is Phase.ESCALATED]
    assert len([name for name in sent_away(ward) if ward.world.nodes[name].place]) == 2
    assert len(rest) >= 3
    told = [n for n in ward.run.mailbox.notices if n.level != "info"]
    assert [n.level for n in told].count("urgent") == 1
    assert all(any(n in f"{t.title}\n{t.body}" for t in told) for n in rest)
    ward.is_sound()


def test_what_a_person_approves_is_replaced_all_the_same_and_a_good_one_ends_the_row() -> None:
    ward = a_pool_of_sick_stock()
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    case = ward.until_phase(f"{SICK}-3", Phase.ESCALATED, DAY)
    ward.world.provider.habits = {}
    ward.run.store.create(Command("c1", "approve", case.id, "alice", "go", ward.world.now, {"verb": "REPLACE"}))
    ward.world.note("person", "", act="approve", case=case.id, verb="REPLACE")
    ward.passes(60.0)
    ward.says("retry", case)
    ward.until(lambda: ward.facts("release", f"{SICK}-4"), within=DAY)
    ward.world.provider.habits = {"ill": 1.0}
    ward.world.strike("row_remap_failed_64", "node-0009", 2, cure="replace")
    ward.passes(DAY)
    assert sent_away(ward)[-3:] == ["node-0009", "node-0009-1", "node-0009-2"]
    ward.is_sound()


@pytest.mark.parametrize("with_a_new_leader", [False, True])
def test_a_job_whose_every_node_has_a_successor_of_another_name_goes_on_in_its_own_pool(
    with_a_new_leader: bool,
) -> None:
    """Its pool was that of its nodes; none of them was there any more, so it waited for nodes of another (seed 111)."""
    ward = Ward(7, policy=a_policy(approval=()), pools={"default": 6, "own": 1}, store=MemoryStore())
    ward.world.provider.renames = True
    job = ward.submit("llama", ("node-0006",), pool="own")
    ward.passes(600.0)
    ward.world.strike("row_remap_failed_64", "node-0006", 2, cure="replace")
    ward.until(lambda: ward.facts("joined", "node-0006-1"), within=DAY)
    if with_a_new_leader:
        ward.crash()
    ward.until(lambda: job.live and job.nodes == ("node-0006-1",), within=DAY)
    ward.ends_well()


def test_who_is_asked_after_a_machine_whose_successor_has_a_name_of_its_own_says_that_it_is_gone() -> None:
    """A job waited for ever for ranks on it, under a leader who had never seen it (seed 40100)."""
    ward = Ward(7, policy=a_policy(approval=()), store=MemoryStore())
    ward.world.provider.renames = True
    told = list[Change]()
    ward.run.platform.watch(told.append)
    old = ward.world.nodes["node-0006"].instance
    ward.world.people.terminate("node-0006", successor_after_s=60.0)
    ward.passes(600.0)
    assert "node-0006-1" in ward.world.nodes
    told.clear()
    for machine in (old, "i-one-before-it"):
        ward.run.platform.ask_after("node-0006", machine)
    assert [(c.name, c.gone) for c in told if isinstance(c, NodeDeleted)] == [("node-0006", True)] * 2


def test_a_machine_that_somebody_ends_while_it_is_replaced_has_one_successor() -> None:
    """Its place was taken twice, and the world fell over (seed 40091)."""
    ward = Ward(7, brains=0, policy=a_policy(approval=()))
    ward.world.provider.renames, node = True, ward.world.nodes["node-0006"]
    ward.world.treatments.begin("node-0006.1/7", Verb.REPLACE, node)
    ward.world.people.terminate("node-0006", successor_after_s=1.0)
    node.treating = "node-0006.1/7"
    ward.passes(7200.0)
    assert sorted(name for name in ward.world.nodes if name.startswith("node-0006")) == ["node-0006-1"]
