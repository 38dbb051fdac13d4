"""A store that is put back to an earlier state: what ended stays ended, what was sent is not sent again."""

from __future__ import annotations

import pytest

from sickbay.model import Case, Phase, Recovery, RecoveryPhase
from sickbay.sim import backup
from sickbay.sim.backup import Backup
from sickbay.stores.memory import MemoryStore
from tests.sim.ward import Ward, a_policy, names

SICK = "node-0005"


def taken(ward: Ward) -> Backup:
    assert isinstance(ward.run.store, MemoryStore)
    return backup.take(ward.world, ward.run.store)


def put_back(ward: Ward, kept: Backup) -> None:
    assert isinstance(ward.run.store, MemoryStore)
    backup.restore(ward.world, ward.run.store, kept)


CURES = {"gpu_lost_79": "reboot", "row_remap_pending_63": "reset", "nvlink_74": "reset"}
VERBS = {"reboot": "REBOOT", "reset": "RESET_GPU"}


@pytest.mark.parametrize("survives", [True, False])
@pytest.mark.parametrize("kind", sorted(CURES))
@pytest.mark.parametrize("phase", [Phase.HOLDING, Phase.DRAINING, Phase.COLLECTING, Phase.REPAIRING, Phase.VERIFYING])
def test_a_node_whose_case_had_ended_is_not_treated_again(phase: Phase, kind: str, survives: bool) -> None:
    ward = Ward(store=MemoryStore())
    ward.world.strike(kind, SICK, 0, cure=CURES[kind])
    ward.until(lambda: (case := ward.case(SICK)) is not None and case.phase is phase, step=0.05)
    yesterday = taken(ward)
    ward.until_ended(SICK)
    assert ward.treatments(SICK) == [VERBS[CURES[kind]]]
    ward.passes(3600.0)
    put_back(ward, yesterday)
    if not survives:
        ward.crash()
    ward.passes(4 * 3600.0)
    assert ward.treatments(SICK) == [VERBS[CURES[kind]]]
    assert ward.case(SICK) is None
    node = ward.world.nodes[SICK]
    assert not node.mark
    assert not node.closed
    ward.ends_well()


def test_a_treatment_that_was_sent_is_heard_to_its_end_although_its_case_is_gone_from_the_store() -> None:
    ward = Ward(store=MemoryStore())
    ward.passes(600.0)
    yesterday = taken(ward)
    ward.passes(3600.0)
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: ward.treatments(SICK) == ["REBOOT"])
    put_back(ward, yesterday)
    ward.until_ended(SICK)
    assert ward.treatments(SICK) == ["REBOOT"]
    assert [case.id for case in ward.ended(SICK)] == [f"{SICK}.1"]
    assert not any("deleted the record" in notice.body for notice in ward.run.mailbox.notices)
    ward.ends_well()


def test_a_number_is_not_used_again_while_its_leader_lives() -> None:
    ward = Ward(store=MemoryStore())
    ward.passes(600.0)
    yesterday = taken(ward)
    ward.passes(3600.0)
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_ended(SICK)
    put_back(ward, yesterday)
    ward.passes(120.0).crash()
    ward.passes(3600.0)
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: ward.case(SICK) is not None)
    case = ward.case(SICK)
    assert case is not None
    assert case.id == f"{SICK}.2"
    ward.ends_well(4 * 3600.0)


def test_the_number_of_an_absence_is_not_used_again_although_its_record_was_put_back_and_deleted() -> None:
    """Its case carries no record of its own: that was not written over what was put back (seed 159)."""
    ward = Ward(32, store=(store := MemoryStore()))
    ward.passes(600.0)
    yesterday = taken(ward)
    ward.passes(60.0)
    ward.world.network.cut(names(0, 6), "both", for_s=4 * 3600.0)
    ward.passes(600.0)
    put_back(ward, yesterday)
    ward.passes(120.0).crash()
    store.lose(Case, "absence.1")
    ward.passes(3600.0)
    ward.world.network.cut(names(8, 6), "both", for_s=3600.0)
    ward.passes(600.0)
    case = ward.case("absence")
    assert case is not None
    assert case.id == "absence.2"


@pytest.mark.parametrize("order", ["hold", "abort"])
def test_who_leads_on_obeys_a_person_whose_word_the_backup_never_had(order: str) -> None:
    ward = Ward(store=MemoryStore(), policy=a_policy(approval=("REBOOT",)))
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: (case := ward.case(SICK)) is not None and case.phase is Phase.QUEUED)
    yesterday, case = taken(ward), ward.case(SICK)
    ward.passes(3600.0)
    ward.says(order, case)
    ward.passes(120.0)
    put_back(ward, yesterday)
    ward.passes(60.0)
    ward.says("approve", case)
    ward.passes(2 * 3600.0)
    assert ward.treatments(SICK) == []


@pytest.mark.parametrize("survives", [True, False])
def test_a_node_has_one_open_case_although_an_ended_one_is_open_again(survives: bool) -> None:
    ward = Ward(store=MemoryStore())
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_phase(SICK, Phase.DRAINING)
    yesterday = taken(ward)
    ward.until_ended(SICK)
    ward.passes(3600.0)
    ward.world.strike("nvlink_74", SICK, 1, cure="reset")
    ward.until_phase(SICK, Phase.DRAINING)
    put_back(ward, yesterday)
    if not survives:
        ward.crash()
    ward.passes(60.0)
    assert len([c for c in ward.run.store.list(Case) if c.value.node == SICK]) <= 1
    ward.ends_well(6 * 3600.0)
    assert ward.world.truly_healthy(SICK)


@pytest.mark.parametrize("survives", [True, False])
def test_a_job_that_was_restarted_is_not_restarted_again(survives: bool) -> None:
    ward = Ward(store=MemoryStore())
    ward.submit()
    ward.passes(1800.0)
    yesterday = taken(ward)
    ward.passes(1800.0)
    ward.world.strike("gpu_lost_79", ward.world.jobs["llama"].nodes[0], 0, cure="reboot")
    ward.until(lambda: ward.world.jobs["llama"].attempt == 2 and ward.world.jobs["llama"].live)
    ward.passes(1800.0)
    put_back(ward, yesterday)
    if not survives:
        ward.crash()
    ward.passes(4 * 3600.0)
    assert ward.world.jobs["llama"].attempt == 2
    ward.ends_well()


def test_a_job_that_was_given_up_stays_so() -> None:
    ward = Ward(store=MemoryStore())
    ward.submit(bug_at_step=200)
    ward.passes(600.0)
    yesterday = taken(ward)
    ward.until(lambda: ward.recovery("llama") is None, within=86_400.0, step=60.0)
    attempt = ward.world.jobs["llama"].attempt
    put_back(ward, yesterday)
    ward.passes(4 * 3600.0)
    assert ward.world.jobs["llama"].attempt == attempt
    ended = next(r for r in ward.run.store.history(Recovery) if r.job == "llama")
    assert ended.phase is RecoveryPhase.FAILED
    ward.ends_well()


@pytest.mark.parametrize("kind", sorted(CURES))
def test_nothing_is_sent_beside_a_treatment_under_way_that_nobody_knows_of_any_more(kind: str) -> None:
    """When it is over it may be sent once more: what was done before a case was opened says nothing in it (287)."""
    ward = Ward(store=MemoryStore())
    ward.passes(600.0)
    yesterday = taken(ward)
    ward.passes(3600.0)
    ward.world.strike(kind, SICK, 0, cure=CURES[kind])
    ward.until(lambda: ward.treatments(SICK) == [VERBS[CURES[kind]]], step=0.05)
    put_back(ward, yesterday)
    ward.crash()
    ward.passes(4 * 3600.0)
    acts = [fact.kind for fact in ward.world.log if fact.kind in ("treat-start", "treat-end")]
    assert acts in (["treat-start", "treat-end"], ["treat-start", "treat-end"] * 2)
    assert ward.is_well(SICK)
    assert ward.case(SICK) is None
