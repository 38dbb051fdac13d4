"""Every checker complains when what it guards against truly happens. The world is driven by hand; no brain runs.

A checker that cannot complain proves nothing, however many seeds it watches.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sickbay.model import (
    Absence,
    Action,
    Case,
    Checkpoint,
    Entry,
    JobPhase,
    NodeRecord,
    Phase,
    Place,
    RecoveryPhase,
    Verb,
)
from sickbay.settings import JobPolicy, Limit
from sickbay.sim.checkers import ALL
from sickbay.sim.checkers.nodes import LeftAsFound
from sickbay.sim.jobs import SimJob
from tests.builders import a_case, a_recovery
from tests.sim.ward import Ward, a_policy, names

NODE = "node-0005"
CASE = f"{NODE}.1"
GANG = names(0, 4)


def unwatched(**how: Any) -> Ward:
    """A world without a brain."""
    return Ward(brains=0, **how)


def asks(ward: Ward, verb: Verb, node: str = NODE, n: int = 2, **args: str) -> None:
    ward.run.platform.perform(Action(f"{node}.1/{n}", verb, Place(node), args))


def treats(ward: Ward, verb: Verb = Verb.REBOOT, key: str = f"{CASE}/7") -> None:
    ward.world.treatments.begin(key, verb, ward.world.nodes[NODE])


def keeps(ward: Ward, phase: Phase = Phase.DRAINING, **changed: Any) -> Case:
    """A case in the store, as a controller would keep it."""
    case = a_case(phase, node=NODE, **{"timeline": (("COLLECTING", 0.0),), **changed})
    ward.run.store.create(case)
    ward.judge.look()
    return case


def archives(ward: Ward, case: Case) -> None:
    stored = ward.run.store.get(Case, case.id)
    assert stored is not None
    ward.run.store.archive(case, stored.version, 1)


def changes(ward: Ward, case: Case) -> None:
    stored = ward.run.store.get(Case, case.id)
    assert stored is not None
    ward.run.store.commit(case, stored.version, 1)
    ward.judge.look()


def complaints(ward: Ward, *, at_the_end: bool = False) -> str:
    ward.judge.look()
    if at_the_end:
        ward.judge.conclude()
    return " | ".join(ward.judge.violations)


def running(ward: Ward) -> SimJob:
    job = ward.submit("llama", GANG)
    ward.passes(1200.0)
    return job


# -- nodes


def test_a_node_in_service_is_treated() -> None:
    ward = unwatched()
    treats(ward)
    assert "its mark is none" in complaints(ward)


def test_a_node_is_treated_by_another_case_than_the_one_that_closed_it() -> None:
    ward = unwatched()
    asks(ward, Verb.CORDON)
    treats(ward, key=f"{NODE}.2/7")
    assert f"but its mark is {CASE}" in complaints(ward)


def test_a_node_is_treated_while_work_lives_on_it() -> None:
    ward = unwatched()
    ward.submit("llama", (NODE,))
    asks(ward, Verb.CORDON)
    treats(ward)
    assert "while llama lives on it" in complaints(ward)


def test_one_action_is_carried_out_twice() -> None:
    ward = unwatched()
    keeps(ward)
    asks(ward, Verb.CORDON)
    treats(ward)
    ward.passes(3600.0)
    ward.world.treatments.delivered.clear()
    treats(ward)
    assert f"{CASE}/7 was carried out 2 times" in complaints(ward)


@pytest.mark.parametrize(
    ("limit", "scope"), [("max_out", "pool"), ("max_out_fleet", "fleet"), ("max_out_rack", "rack")]
)
def test_more_nodes_are_taken_than_the_limit_allows(limit: str, scope: str) -> None:
    ward = unwatched(policy=a_policy(**{limit: Limit(count=2, at_least=1)}))
    for name in names(0, 2):
        asks(ward, Verb.CORDON, name)
    assert complaints(ward) == ""
    asks(ward, Verb.CORDON, "node-0002")
    assert f"3 nodes of the {scope} taken out" in complaints(ward)


def test_a_node_that_was_down_or_closed_already_is_not_counted_as_taken() -> None:
    ward = unwatched(policy=a_policy(max_out=Limit(count=1, at_least=1)))
    ward.world.people.cordon("node-0001")
    for name in names(0, 2):
        asks(ward, Verb.CORDON, name)
    assert complaints(ward) == ""


def test_a_sick_node_is_returned() -> None:
    ward = unwatched()
    asks(ward, Verb.CORDON)
    ward.ails(NODE, "row_remap_pending_63")
    asks(ward, Verb.RELEASE)
    assert f"returned by {CASE} though it has row_remap_pending_63" in complaints(ward)


def test_an_examination_runs_beside_a_job() -> None:
    ward = unwatched()
    ward.submit("llama", (NODE,))
    asks(ward, Verb.CORDON)
    asks(ward, Verb.VERIFY, checks="dcgm-l2")
    assert "while llama runs on it" in complaints(ward)


def test_an_examination_runs_on_a_node_that_is_open() -> None:
    ward = unwatched()
    asks(ward, Verb.VERIFY, checks="dcgm-l2")
    assert "but its mark is none" in complaints(ward)


@pytest.mark.parametrize(("later_s", "complained"), [(60.0, False), (600.0, True)])
def test_an_examination_begins_before_anybody_could_see_that_its_node_was_made_again(
    later_s: float, complained: bool
) -> None:
    ward = unwatched()
    ward.world.note("rejoined", NODE, instance="i-1")
    ward.world.run_for(later_s)
    asks(ward, Verb.VERIFY, checks="dcgm-l2")
    assert ("but its mark is none" in complaints(ward)) == complained


@pytest.mark.parametrize("end", [Phase.DISMISSED, Phase.DEFERRED, Phase.RESOLVED])
def test_a_case_ends_and_leaves_its_mark(end: Phase) -> None:
    ward = unwatched()
    case = keeps(ward)
    asks(ward, Verb.CORDON)
    archives(ward, replace(case, phase=end))
    assert f"{CASE} ended {end} and left its mark" in complaints(ward)


def test_one_ailment_gets_the_same_treatment_again_and_again() -> None:
    ward = unwatched()
    ward.world.strike("gpu_lost_79", NODE, 0, cure="replace")
    for n in range(4):
        treats(ward, key=f"{NODE}.{n}/7")
        ward.passes(3600.0)
    assert "got REBOOT 4 times for one gpu_lost_79" in complaints(ward)


def test_a_node_is_treated_before_its_evidence_was_collected() -> None:
    ward = unwatched()
    keeps(ward, Phase.REPAIRING, timeline=(("DRAINING", 0.0),))
    asks(ward, Verb.CORDON)
    treats(ward)
    assert "before its evidence was collected" in complaints(ward)


@pytest.mark.parametrize(("later_s", "complained"), [(60.0, True), (3600.0, False)])
def test_a_case_that_went_through_its_collection_without_collecting(later_s: float, complained: bool) -> None:
    """What its record says of it proves nothing; only that its time for it is over."""
    ward = unwatched()
    case = keeps(ward, Phase.COLLECTING)
    asks(ward, Verb.CORDON)
    ward.passes(later_s)
    changes(ward, replace(case, phase=Phase.REPAIRING, step=case.step + 1))
    treats(ward)
    assert ("before its evidence was collected" in complaints(ward)) is complained


def test_evidence_that_was_truly_collected_is_enough() -> None:
    ward = unwatched()
    keeps(ward, Phase.COLLECTING)
    asks(ward, Verb.CORDON)
    asks(ward, Verb.COLLECT, n=5)
    ward.passes(120.0)
    asks(ward, Verb.COLLECT, n=5)
    treats(ward)
    assert "before its evidence was collected" not in complaints(ward)


# -- people


def orders(ward: Ward, act: str) -> None:
    ward.world.note("order", NODE, act=act, by="alice", case=CASE)


@pytest.mark.parametrize(("act", "said"), [("abort", "which a person has cancelled"), ("hold", "had node-0005.1 held")])
@pytest.mark.parametrize(
    ("later_s", "then", "complained"), [(3600.0, "", True), (3600.0, "retry", False), (60.0, "", False)]
)
def test_what_a_person_said_is_not_heard(act: str, said: str, later_s: float, then: str, complained: bool) -> None:
    """Whatever the record of the case says of it."""
    ward = unwatched()
    keeps(ward, Phase.QUEUED)
    asks(ward, Verb.CORDON)
    orders(ward, act)
    if then:
        orders(ward, then)
    ward.passes(later_s)
    treats(ward)
    assert (said in complaints(ward)) is complained


def test_a_node_is_taken_again_after_a_person_let_it_go() -> None:
    ward = unwatched()
    keeps(ward, cordon_version=3)
    asks(ward, Verb.CORDON)
    ward.world.people.uncordon(NODE)
    asks(ward, Verb.CORDON)
    assert "took node-0005 again after a person uncordoned it" in complaints(ward)


def test_a_node_is_treated_after_a_person_let_it_go() -> None:
    ward = unwatched()
    keeps(ward, cordon_version=3)
    asks(ward, Verb.CORDON)
    ward.world.people.uncordon(NODE)
    treats(ward)
    assert "after a person uncordoned it" in complaints(ward)


@pytest.mark.parametrize(
    ("led_for", "age", "complains"), [(3600.0, 600, True), (-30.0, 600, False), (None, 600, False), (-30.0, 60, True)]
)
def test_a_node_is_taken_again_after_a_restore_that_does_not_know_who_let_it_go(
    led_for: float | None, age: int, complains: bool
) -> None:
    """Whoever has led all the while knows of it, and so does a backup that is younger; nobody else does."""
    ward = unwatched()
    keeps(ward, cordon_version=3)
    asks(ward, Verb.CORDON)
    ward.world.people.uncordon(NODE)
    ward.passes(300.0)
    ward.judge.look()
    ward.world.note("etcd-restored", "", age=age)
    since = None if led_for is None else ward.world.now - led_for
    ward.run.brains = [SimpleNamespace(first_led=0.0, led_since=since, controller=None)]  # type: ignore[list-item]
    asks(ward, Verb.CORDON)
    treats(ward)
    said = complaints(ward)
    assert ("took node-0005 again after a person uncordoned it" in said) is complains
    assert ("treated node-0005 after a person uncordoned it" in said) is complains


@pytest.mark.parametrize("frozen", ["held", "paused"])
def test_a_case_that_is_held_does_something(frozen: str) -> None:
    ward = unwatched()
    keeps(ward, Phase.DRAINING, **{frozen: True})
    asks(ward, Verb.CORDON)
    assert f"although {CASE} was held" in complaints(ward)


def test_a_phase_times_out_early() -> None:
    ward = unwatched()
    case = keeps(ward, Phase.DRAINING)
    ward.passes(60.0)
    late = Entry(case.step + 1, "TIMED_OUT", 0.0, "sickbay", "", "ESCALATED")
    changes(ward, replace(case, phase=Phase.ESCALATED, step=case.step + 1, journal=(*case.journal, late)))
    assert f"{CASE} timed out in DRAINING after 60 of 1800 seconds" in complaints(ward)


@pytest.mark.parametrize(("last_s", "complained"), [(3_600.0, False), (60.0, True)])
def test_of_a_cancel_each_step_has_its_own_time(last_s: float, complained: bool) -> None:
    """A treatment that had begun is seen to its end, then our mark is taken off."""
    ward = unwatched()
    case = keeps(ward, Phase.CANCELLING)
    ward.passes(3_500.0)
    released = replace(case, step=case.step + 1)
    changes(ward, released)
    ward.judge.look()
    ward.passes(last_s)
    late = Entry(released.step + 1, "TIMED_OUT", 0.0, "sickbay", "", "ESCALATED")
    changes(ward, replace(released, phase=Phase.ESCALATED, step=late.step, journal=(*case.journal, late)))
    assert (f"{CASE} timed out in CANCELLING after 60 of 3600 seconds" in complaints(ward)) is complained
    assert ("timed out" in complaints(ward)) is complained


def test_a_case_number_is_used_again() -> None:
    ward = unwatched()
    case = keeps(ward)
    changes(ward, replace(case, opened_at=case.opened_at + 60.0))
    assert f"{CASE} was used for two cases" in complaints(ward)


@pytest.mark.parametrize(("led_for", "complains"), [(3600.0, True), (-30.0, False)])
def test_a_case_number_that_a_restored_store_never_had_is_used_again(led_for: float, complains: bool) -> None:
    """Whoever has led all the while knows of it; nobody else does."""
    ward = unwatched()
    case = keeps(ward)
    ward.judge.look()
    ward.world.note("etcd-restored", "", age=600)
    led = SimpleNamespace(first_led=0.0, led_since=ward.world.now - led_for, controller=None)
    ward.run.brains = [led]  # type: ignore[list-item]
    changes(ward, replace(case, opened_at=case.opened_at + 60.0))
    assert (f"{CASE} was used for two cases" in complaints(ward)) is complains


@pytest.mark.parametrize(
    ("led_for", "deleted", "written_again", "complains"),
    [
        (-30.0, ("delete-record", "delete-node-record"), False, False),
        (-30.0, ("delete-record", "delete-node-record"), True, True),
        (3600.0, ("delete-record", "delete-node-record"), False, True),
        (-30.0, ("delete-node-record",), False, True),
        (-30.0, ("delete-record",), False, True),
    ],
    ids=["both", "written again", "still leads", "the archive knows", "its node's record knows"],
)
def test_a_case_number_of_which_people_deleted_every_record_is_used_again(
    led_for: float, deleted: tuple[str, ...], written_again: bool, complains: bool
) -> None:
    """Whoever has led all the while knows of it, and so do the archive and a record that he wrote again."""
    ward = unwatched()
    case = keeps(ward)
    asks(ward, Verb.CORDON)
    ward.judge.look()
    for act in deleted:
        ward.world.note("person", NODE, act=act, **({"case": CASE} if act == "delete-record" else {}))
    led = SimpleNamespace(first_led=0.0, led_since=ward.world.now - 3600.0, controller=None)
    ward.run.brains = [led]  # type: ignore[list-item]
    if written_again:
        ward.run.store.create(NodeRecord(NODE, last_n=1))
    ward.judge.look(anyway=True)
    led.led_since = ward.world.now - led_for
    changes(ward, replace(case, opened_at=case.opened_at + 60.0))
    assert (f"{CASE} was used for two cases" in complaints(ward)) is complains


@pytest.mark.parametrize("unread", [True, False])
def test_a_case_number_is_used_again_that_was_deleted_while_its_nodes_record_was_unreadable(unread: bool) -> None:
    """It could be noted nowhere; an open case carries the record of its node (seed 737)."""
    ward = unwatched()
    case = keeps(ward)
    asks(ward, Verb.CORDON)
    ward.run.store.create(NodeRecord(NODE, schema=2 if unread else 1))
    ward.judge.look()
    ward.world.note("person", NODE, act="delete-record", case=CASE)
    ward.judge.look(anyway=True)
    led = SimpleNamespace(first_led=0.0, led_since=ward.world.now + 30.0, controller=None)
    ward.run.brains = [led]  # type: ignore[list-item]
    changes(ward, replace(case, opened_at=case.opened_at + 60.0))
    assert (f"{CASE} was used for two cases" in complaints(ward)) is not unread


@pytest.mark.parametrize("closed_again", [True, False])
def test_a_mark_that_a_restore_put_back_was_not_left_by_its_case(closed_again: bool) -> None:
    ward = unwatched()
    case = keeps(ward)
    ward.world.note("mark-put-back", NODE, mark=CASE)
    if closed_again:
        asks(ward, Verb.CORDON)
    ward.world.nodes[NODE].mark = CASE
    archives(ward, replace(case, phase=Phase.DISMISSED))
    assert (f"{CASE} ended DISMISSED and left its mark" in complaints(ward)) is closed_again


@pytest.mark.parametrize("is_another", [True, False])
def test_a_mark_is_that_of_the_open_case_where_a_restored_store_has_used_a_number_again(is_another: bool) -> None:
    """Seed 50001824."""
    ward = unwatched()
    case = keeps(ward)
    asks(ward, Verb.CORDON)
    ward.judge.look()
    before = replace(case, phase=Phase.RESOLVED, opened_at=case.opened_at - 600.0 * is_another)
    ward.judge.ended = (before,)
    next(each for each in ward.judge.checkers if isinstance(each, LeftAsFound)).moment()
    assert (f"{CASE} ended RESOLVED and left its mark" in str(ward.judge.violations)) is not is_another


def test_a_node_has_two_open_cases() -> None:
    ward = unwatched()
    keeps(ward)
    keeps(ward, id=f"{NODE}.2")
    assert f"{NODE} has 2 open cases" in complaints(ward)


def test_a_node_opens_cases_that_go_away_without_end() -> None:
    ward = unwatched()
    for n in range(13):
        case = keeps(ward, Phase.WAITING, id=f"{NODE}.{n}")
        archives(ward, replace(case, phase=Phase.DISMISSED))
    assert "13 cases that went away by themselves" in complaints(ward, at_the_end=True)


# -- jobs


def test_a_job_is_placed_on_a_node_that_carries_our_mark() -> None:
    ward = unwatched()
    job = running(ward)
    ward.world.gangs.stop(job, "owner")
    asks(ward, Verb.CORDON, "node-0001")
    ward.world.gangs.restart("llama#1.3", job, 2, 0, GANG)
    assert "llama placed on node-0001, which carries the mark node-0001.1" in complaints(ward)


def test_a_job_is_placed_on_a_node_with_an_open_case_even_if_the_clock_of_the_brain_was_set_forward() -> None:
    ward = unwatched()
    job = running(ward)
    ward.world.gangs.stop(job, "owner")
    keeps(ward, Phase.WAITING)  # its journal is years ahead of the world
    ward.passes(60.0)
    ward.world.gangs.restart("llama#1.3", job, 2, 0, (*GANG[:3], NODE))
    assert f"llama placed on {NODE}, which has the open case {CASE}" in complaints(ward)


def test_a_case_that_has_given_its_node_back_is_no_open_one_though_its_end_is_not_yet_on_record() -> None:
    ward = unwatched()
    job = running(ward)
    ward.world.gangs.stop(job, "owner")
    asks(ward, Verb.CORDON, NODE)
    keeps(ward, Phase.RETURNING)
    ward.passes(60.0)
    asks(ward, Verb.RELEASE, NODE)
    ward.world.gangs.restart("llama#1.3", job, 2, 0, (*GANG[:3], NODE))
    assert "placed on" not in complaints(ward)


def test_a_second_attempt_is_placed_beside_a_live_one() -> None:
    ward = unwatched()
    job = running(ward)
    ward.world.gangs.restart("llama#1.3", job, 2, 0, names(4, 4))
    assert "attempt 2 placed while attempt 1 lives" in complaints(ward)


def test_a_job_that_makes_progress_is_stopped() -> None:
    ward = unwatched()
    ward.world.gangs.stop(running(ward), "llama#1.3")
    assert "while it made progress" in complaints(ward)


def test_a_job_is_restarted_too_often_without_a_new_checkpoint() -> None:
    ward = unwatched(jobs=JobPolicy(barren_limit=2))
    job = ward.submit("llama", GANG)
    for n in range(2, 5):
        ward.passes(400.0)
        ward.world.gangs.stop(job, "owner")
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, GANG)
    assert "was restarted 2 times without a new checkpoint" in complaints(ward)


def test_a_job_that_does_not_begin_is_restarted_too_often() -> None:
    ward = unwatched(jobs=JobPolicy(barren_limit=2))
    job = ward.submit("llama", GANG)
    ward.world.shared.subnet_manager_dies()
    for n in range(2, 11):
        ward.world.gangs.stop(job, "owner")
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, GANG)
        ward.passes(120.0)
    assert "which does not begin, was restarted 9 times within an hour" in complaints(ward)


def test_a_job_that_waits_for_storage_makes_no_progress_and_may_be_stopped_until_it_goes_on() -> None:
    ward = unwatched()
    job = running(ward)
    ward.world.shared.storage_hangs(for_s=600.0)
    ward.passes(500.0)
    ward.world.gangs.stop(job, "llama#1.3")
    assert complaints(ward) == ""


def test_a_job_that_has_gone_on_since_storage_was_back_may_not() -> None:
    ward = unwatched()
    job = running(ward)
    ward.world.shared.storage_hangs(for_s=600.0)
    ward.passes(900.0)
    ward.world.gangs.stop(job, "llama#1.3")
    assert "while it made progress" in complaints(ward)


def test_a_job_goes_on_from_a_corrupted_checkpoint() -> None:
    ward = unwatched()
    job = running(ward)
    ward.world.strike("ecc_uncontained_95", GANG[0], 0, cure="reset")
    ward.passes(60.0)
    job.checkpoints.append(Checkpoint(500, ward.world.now, 1))
    ward.world.gangs.restart("llama#1.3", job, 2, 500, GANG)
    assert "llama went on from a corrupted checkpoint" in complaints(ward)


# -- after the calm


def test_a_case_neither_ends_nor_rests() -> None:
    ward = unwatched()
    keeps(ward, Phase.DRAINING)
    ward.passes(600.0)
    assert complaints(ward, at_the_end=True) == ""
    ward.passes(3600.0)
    assert f"{CASE} is still DRAINING after the calm" in complaints(ward, at_the_end=True)


@pytest.mark.parametrize(("absence", "why", "stays"), [(True, "away", True), (True, "", False), (False, "away", False)])
def test_a_case_stays_while_its_node_is_away_with_others_and_it_says_so(absence: bool, why: str, stays: bool) -> None:
    ward = unwatched()
    ward.world.network.cut((NODE, "node-0006", "node-0007"), "control", 9e6)
    ward.passes(3600.0)
    if absence:
        ward.run.store.create(a_case(Phase.ESCALATED, node="absence", absence=Absence(("fleet",), "", 0.0, 3, 3)))
    keeps(ward, Phase.WAITING, paused=True, refusal=why)
    ward.passes(25 * 3600.0)
    said = f"{CASE} is still WAITING after the calm" in complaints(ward, at_the_end=True)
    assert said is not stays


def test_an_escalated_node_is_open_and_nobody_was_told() -> None:
    ward = unwatched()
    keeps(ward, Phase.ESCALATED)
    assert f"{CASE} is escalated, {NODE} is open, and nobody was told" in complaints(ward, at_the_end=True)


def test_a_sick_node_is_in_service_and_nobody_has_a_case_for_it() -> None:
    ward = unwatched()
    ward.ails(NODE, "gpu_lost_silent")
    assert f"{NODE} is in service with gpu_lost_silent" in complaints(ward, at_the_end=True)


def test_a_sickness_is_left_alone_for_an_hour_at_least_after_a_deferral() -> None:
    ward = unwatched(policy=a_policy(quiet_s=0.0))
    ward.ails(NODE, "gpu_lost_silent")
    archives(ward, replace(keeps(ward), phase=Phase.DEFERRED))
    ward.judge.look()
    ward.passes(3000.0)
    assert complaints(ward, at_the_end=True) == ""
    ward.passes(1800.0)
    assert "nobody has a case for it" in complaints(ward, at_the_end=True)


def test_a_sickness_is_left_alone_for_its_quiet_time_and_not_longer() -> None:
    ward = unwatched(policy=a_policy(quiet_s=3600.0))
    ward.ails(NODE, "gpu_lost_silent")
    said = Entry(3, "CANCELLED", 0.0, "alice", "let it be", "DISMISSED")
    archives(ward, replace(keeps(ward), phase=Phase.DISMISSED, cancelled=True, journal=(said,)))
    ward.judge.look()
    ward.passes(1800.0)
    assert complaints(ward, at_the_end=True) == ""
    ward.passes(7200.0)
    assert "nobody has a case for it" in complaints(ward, at_the_end=True)


def test_a_sickness_is_not_left_alone_for_a_word_of_our_own() -> None:
    ward = unwatched(policy=a_policy(quiet_s=3600.0))
    ward.ails(NODE, "gpu_lost_silent")
    said = Entry(3, "CANCELLED", 0.0, "sickbay", "a common cause explains it", "DISMISSED")
    archives(ward, replace(keeps(ward), phase=Phase.DISMISSED, cancelled=True, journal=(said,)))
    ward.judge.look()
    assert "nobody has a case for it" in complaints(ward, at_the_end=True)


@pytest.mark.parametrize(("ran_s", "complains"), [(600.0, True), (60.0, False)])
def test_a_job_dies_and_nobody_looks_after_it(ran_s: float, complains: bool) -> None:
    """One that ends before anybody has seen it run is its owner's (seed 50000422)."""
    ward = unwatched()
    job = ward.submit("llama", GANG)
    ward.passes(ran_s)
    ward.world.gangs.stop(job, "owner", JobPhase.FAILED)
    assert ("llama died and nobody looks after it" in complaints(ward, at_the_end=True)) is complains


def test_a_job_waits_though_there_is_room() -> None:
    ward = unwatched()
    ward.world.gangs.stop(running(ward), "owner", JobPhase.FAILED)
    ward.run.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY))
    assert "llama waits for capacity though" in complaints(ward, at_the_end=True)


def test_a_job_shuns_a_node_that_is_good_though_nothing_else_is_left() -> None:
    ward = unwatched(nodes=4)
    ward.world.gangs.stop(running(ward), "owner", JobPhase.FAILED)
    ward.run.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY, suspects=(GANG[0],)))
    assert "llama waits for capacity though" in complaints(ward, at_the_end=True)


def test_a_recovery_is_stuck() -> None:
    ward = unwatched()
    ward.world.gangs.stop(running(ward), "owner", JobPhase.FAILED)
    ward.run.store.create(a_recovery(RecoveryPhase.STOPPING))
    assert "its recovery is stuck in STOPPING" in complaints(ward, at_the_end=True)


HERE = (
    "TreatedSafely", "PlacedSafely", "WithinLimits", "ReturnedWell", "LeftAsFound", "PersonObeyed", "HealthyJobsRun",
    "Trustworthy", "ExaminedAlone", "HoldObeyed", "Climbs", "TimedFairly", "NumberedOnce", "EvidenceFirst", "ToldOnce",
    "EndsOrRests", "JobsMove", "FewSickSuccessors",
)  # fmt: skip


def test_every_checker_has_been_made_to_complain() -> None:
    """One more checker needs one more test, here or in the files beside this one, which name those they are about."""
    beside = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_checkers_*.py"))
    assert [c.__name__ for c in ALL if c.__name__ not in HERE and f'"{c.__name__}"' not in beside] == []


def test_every_checker_has_a_floor_of_its_own() -> None:
    assert [c.__name__ for c in ALL if vars(c).get("floor", 0.0) < 1.0] == []


def came_sick(ward: Ward, node: str, n: int) -> None:
    """The machine there is sent away before anybody has opened it."""
    ward.world.treatments.begin(f"{node}.1/{n}", Verb.REPLACE, ward.world.nodes[node])
    ward.passes(3600.0)
    ward.judge.look()


def renaming() -> Ward:
    ward = unwatched()
    ward.world.provider.renames = True
    return ward


def test_a_third_machine_in_a_row_that_is_sent_away_unopened_is_complained_of() -> None:
    ward = renaming()
    for name in (NODE, f"{NODE}-1", f"{NODE}-2"):
        came_sick(ward, name, 7)
    assert not [v for v in ward.judge.violations if "in a row" in v]
    came_sick(ward, f"{NODE}-3", 7)
    assert [v for v in ward.judge.violations if f"{NODE}-3 is the 3. machine in a row that came sick" in v]


def test_one_that_was_opened_for_work_ends_a_row_of_sick_machines() -> None:
    ward = renaming()
    for name in (NODE, f"{NODE}-1"):
        came_sick(ward, name, 7)
    asks(ward, Verb.CORDON, f"{NODE}-2")
    asks(ward, Verb.RELEASE, f"{NODE}-2")
    for name in (f"{NODE}-2", f"{NODE}-3", f"{NODE}-4"):
        came_sick(ward, name, 7)
    assert not [v for v in ward.judge.violations if "in a row" in v]


def test_a_row_of_sick_machines_that_a_person_goes_on_with_is_theirs() -> None:
    ward = renaming()
    for name in (NODE, f"{NODE}-1", f"{NODE}-2"):
        came_sick(ward, name, 7)
    ward.world.note("person", "", act="approve", case=f"{NODE}-3.1", verb="REPLACE")
    came_sick(ward, f"{NODE}-3", 7)
    assert not [v for v in ward.judge.violations if "in a row" in v]


def test_treatments_and_faults_are_counted_by_place_also_where_successors_have_names_of_their_own() -> None:
    """A part that came back under another name had its fault counted under the old one (seed 436)."""
    ward = renaming()
    ward.world.strike("row_remap_failed_64", NODE, 2, cure="replace")
    came_sick(ward, NODE, 7)
    for n in range(8):
        ward.world.treatments.begin(f"{NODE}-1.1/{n}", Verb.RESET_GPU, ward.world.nodes[f"{NODE}-1"])
        ward.passes(600.0)
    assert not [v for v in ward.judge.violations if "was treated" in v]
    for n in range(8, 20):
        ward.world.treatments.begin(f"{NODE}-1.1/{n}", Verb.RESET_GPU, ward.world.nodes[f"{NODE}-1"])
        ward.passes(600.0)
    ward.judge.look()
    assert [v for v in ward.judge.violations if "was treated" in v]
