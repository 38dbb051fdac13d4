"""Where the checkers of jobs and numbers forgive, and where not: each both ways. The world is driven by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sickbay.model import Action, Case, JobPhase, NodeRecord, Notice, Phase, Place, RecoveryPhase, Verb
from sickbay.settings import JobPolicy
from sickbay.sim.backup import written_by_a_newer
from sickbay.sim.jobs import SimJob
from sickbay.stores.memory import MemoryStore
from tests.builders import a_case, a_recovery
from tests.sim.ward import Ward, names

NODE, GANG, HOUR = "node-0005", names(0, 4), 3600.0


def unwatched(**how: Any) -> Ward:
    """A world without a brain; every checker counts."""
    ward = Ward(brains=0, **how)
    ward.judge.silent = frozenset()
    return ward


def complaints(ward: Ward, by: str, *, at_the_end: bool = False) -> list[str]:
    ward.judge.look()
    if at_the_end:
        ward.judge.conclude()
    return [said for said, who in zip(ward.judge.violations, ward.judge.by, strict=True) if who == by]


def again(ward: Ward, job: SimJob, n: int) -> None:
    if job.live:
        ward.world.gangs.stop(job, "owner")
    ward.judge.look()
    ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, GANG)


# -- attempts that are not barren


@pytest.mark.parametrize(("lasts_s", "complained"), [(120.0, False), (400.0, True)])
def test_an_attempt_without_a_step_is_not_barren_and_one_that_made_steps_is(lasts_s: float, complained: bool) -> None:
    ward = unwatched(jobs=JobPolicy(barren_limit=2))
    job = ward.submit("llama", GANG)
    for n in range(2, 5):
        ward.passes(lasts_s)
        again(ward, job, n)
    assert bool(complaints(ward, "HealthyJobsRun")) == complained


@pytest.mark.parametrize(("lasts_s", "complained"), [(1000.0, False), (400.0, True)])
def test_an_attempt_that_saved_is_not_barren_though_the_next_one_begins_before_it(
    lasts_s: float, complained: bool
) -> None:
    """A node of it may have corrupted memory, and what it wrote is not used (seed 50001226)."""
    ward = unwatched(jobs=JobPolicy(barren_limit=1))
    job = ward.submit("llama", GANG)
    ward.passes(lasts_s)
    again(ward, job, 2)
    assert bool(complaints(ward, "HealthyJobsRun")) == complained


def test_an_attempt_without_a_step_that_died_of_a_sickness_which_shows_is_barren() -> None:
    ward = unwatched(jobs=JobPolicy(barren_limit=2))
    job = ward.submit("llama", GANG)
    for n in range(2, 5):
        ward.passes(120.0)
        ward.world.strike("gpu_lost_79", GANG[0], n, cure="reboot")
        ward.judge.look()
        ward.passes(60.0)
        again(ward, job, n)
    assert "was restarted 2 times without a new checkpoint" in complaints(ward, "HealthyJobsRun")[0]


@pytest.mark.parametrize("mended", [True, False])
def test_an_attempt_without_a_step_whose_sick_node_is_mended_before_the_next_one_is_not_barren(mended: bool) -> None:
    """Seed 50000521: it was drained, reset and proved well, and the job got it again."""
    ward = unwatched(jobs=JobPolicy(barren_limit=2))
    job = ward.submit("llama", GANG)
    for n in range(2, 5):
        ward.passes(30.0)
        ward.world.strike("gpu_lost_79", GANG[0], n, cure="reboot")
        ward.judge.look()
        ward.passes(30.0)
        if mended:
            for gpu in ward.world.nodes[GANG[0]].gpus:
                gpu.ailments.clear()
        again(ward, job, n)
        ward.judge.look()
    assert bool(complaints(ward, "HealthyJobsRun")) is not mended


@pytest.mark.parametrize(
    ("cut", "what", "for_s", "complained"),
    [(3, "power", HOUR, False), (2, "power", HOUR, True), (3, "control", 60.0, True), (3, "data", HOUR, True)],
)
def test_an_attempt_whose_machine_crashed_while_many_were_cut_off_is_not_barren(
    cut: int, what: str, for_s: float, complained: bool
) -> None:
    """Seed 50001778. Who is cut off from the other ranks alone is not away."""
    ward = unwatched(jobs=JobPolicy(barren_limit=1))
    job = ward.submit("llama", GANG)
    ward.passes(300.0)  # nothing is saved yet
    ward.world.network.cut(names(5, cut), what, for_s=for_s)
    ward.passes(90.0)
    ward.world.strike("host_crash", GANG[0], cure="reboot")
    ward.passes(60.0)
    assert job.phase is JobPhase.FAILED
    ward.world.nodes[GANG[0]].ailments.clear()
    again(ward, job, 2)
    assert bool(complaints(ward, "HealthyJobsRun")) == complained


@pytest.mark.parametrize(("off", "complained"), [(3, False), (2, True)])
def test_an_attempt_whose_node_lost_its_power_with_many_others_is_not_barren(off: int, complained: bool) -> None:
    """One after the other, as breakers trip: the power of the first is back and it has not booted yet."""
    ward = unwatched(jobs=JobPolicy(barren_limit=1))
    job = ward.submit("llama", GANG)
    ward.passes(400.0)  # nothing is saved yet
    ward.world.network.cut_one_by_one([*names(8, off - 1), GANG[0]], "power", 60.0, 100.0)
    ward.passes(60.0 * off)
    assert job.phase is JobPhase.FAILED
    again(ward, job, 2)
    assert bool(complaints(ward, "HealthyJobsRun")) == complained


@pytest.mark.parametrize(("off", "complained"), [(3, False), (2, True)])
def test_the_first_node_that_lost_its_power_with_many_others_may_have_booted_before_the_next_attempt(
    off: int, complained: bool
) -> None:
    """While it was away the others lost theirs (seed 68)."""
    ward = unwatched(jobs=JobPolicy(barren_limit=1))
    job = ward.submit("llama", GANG)
    ward.passes(400.0)
    ward.world.network.cut_one_by_one([GANG[0], *names(8, off - 1)], "power", 60.0, 100.0)
    ward.until(lambda: ward.facts("boot", GANG[0]), 3600.0)
    assert job.phase is JobPhase.FAILED
    again(ward, job, 2)
    assert bool(complaints(ward, "HealthyJobsRun")) == complained


@pytest.mark.parametrize(("factor", "harmed", "complained"), [("rack", 3, False), ("rack", 1, True), ("job", 3, True)])
def test_an_attempt_on_a_node_that_shows_what_others_show_too_is_not_barren_while_a_case_says_so(
    factor: str, harmed: int, complained: bool
) -> None:
    """A bad driver had hung it (seed 1723). What only this job's nodes show may be its own doing."""
    ward = unwatched(jobs=JobPolicy(barren_limit=1))
    job = ward.submit("llama", GANG)
    ward.passes(400.0)  # nothing is saved yet
    node = ward.world.nodes[GANG[0]]
    for name in [n.name for n in ward.world.nodes.values() if n.rack == node.rack][:harmed]:
        ward.world.strike("gpu_lost_79", name, cure="reboot")
    of = f"rack={node.rack}" if factor == "rack" else "job=llama"
    ward.run.store.create(replace(a_case(Phase.ESCALATED, node=of), id=f"{of}.1", factor=of))
    ward.judge.look()
    if job.live:
        ward.world.gangs.stop(job, "owner")
    ward.judge.look()
    ward.world.gangs.restart("llama#2.3", job, 2, 0, names(6, 4))
    assert bool(complaints(ward, "HealthyJobsRun")) == complained


# -- a clock that leaps


@pytest.mark.parametrize(("leaps", "ago_s", "complained"), [(9, 0.0, False), (8, 0.0, True), (9, 900.0, True)])
def test_leaps_of_the_clock_that_add_up_to_a_stall_excuse_a_stop(leaps: int, ago_s: float, complained: bool) -> None:
    """Each may count for one planned sleep and one period, 70 s; `stall_s` is ten minutes. Older ones say nothing."""
    ward = unwatched(jobs=JobPolicy(stall_s=600.0))
    job = ward.submit("llama", GANG)
    ward.passes(1200.0)
    ward.clock.leaps += [ward.world.now - ago_s] * leaps
    ward.world.gangs.stop(job, "llama#1.3")
    assert bool(complaints(ward, "HealthyJobsRun")) == complained


# -- a number that comes again


@pytest.mark.parametrize(
    ("phase", "marked", "complained"),
    [
        (Phase.SUSPECTED, False, False), (Phase.WAITING, False, False),
        (Phase.WAITING, True, True), (Phase.DRAINING, True, True),
    ],
)  # fmt: skip
def test_a_number_comes_again_after_a_person_deleted_the_record(phase: Phase, marked: bool, complained: bool) -> None:
    store = MemoryStore()
    ward = unwatched(store=store)
    case = a_case(phase, node=NODE)
    store.create(case)
    ward.judge.look()
    if marked:
        ward.run.platform.perform(Action(f"{case.id}/2", Verb.CORDON, Place(NODE)))
    ward.world.note("person", NODE, act="delete-record", case=case.id)
    store.lose(Case, case.id)
    ward.judge.look()
    store.create(replace(case, opened_at=case.opened_at + 600.0))
    ward.world.note("tick")
    assert bool(complaints(ward, "NumberedOnce")) == complained


@pytest.mark.parametrize("marked", [True, False])
def test_a_number_comes_again_whose_unreadable_record_a_person_deleted_before_anything_was_done(marked: bool) -> None:
    store = MemoryStore()
    ward = unwatched(store=store)
    case = a_case(Phase.WAITING, node=NODE)
    store.create(case)
    ward.judge.look()
    if marked:
        ward.run.platform.perform(Action(f"{case.id}/2", Verb.CORDON, Place(NODE)))
    written_by_a_newer(store, Case, case.id)
    ward.judge.look()
    ward.world.note("person", NODE, act="delete-record", case=case.id)
    store.lose(Case, case.id)
    store.create(replace(case, opened_at=case.opened_at + 600.0))
    ward.world.note("tick")
    assert bool(complaints(ward, "NumberedOnce")) == marked


def test_a_number_that_comes_again_without_a_person_is_never_forgiven() -> None:
    store = MemoryStore()
    ward = unwatched(store=store)
    case = a_case(Phase.WAITING, node=NODE)
    store.create(case)
    ward.judge.look()
    store.lose(Case, case.id)
    store.create(replace(case, opened_at=case.opened_at + 600.0))
    ward.world.note("tick")
    assert "was used for two cases" in complaints(ward, "NumberedOnce")[0]


@pytest.mark.parametrize(("schema", "wiped", "complained"), [(1, False, True), (2, False, False), (1, True, False)])
def test_a_number_comes_again_where_its_record_was_put_back_unreadable(
    schema: int, wiped: bool, complained: bool
) -> None:
    """Who leads on knows the number, and cannot write it: the record is left as it is (seed 694). Or a person deleted
    that before, and the archive that knew it was put back (426)."""
    store = MemoryStore()
    ward = unwatched(store=store)
    case = a_case(Phase.WAITING, node=NODE)
    store.create(case)
    ward.judge.look()
    ward.world.note("cordon", NODE, case=case.id, others="-", sick=True, gate=False)
    store.lose(Case, case.id)
    store.create(NodeRecord(NODE, schema=schema))
    ward.run.brains.append(cast(Any, SimpleNamespace(led_since=ward.world.now - 600.0)))  # who leads on
    if wiped:
        ward.world.note("person", NODE, act="delete-node-record")
    ward.world.note("etcd-restored", age=600)
    ward.judge.look()
    store.create(replace(case, opened_at=case.opened_at + 600.0))
    ward.world.note("tick")
    assert bool(complaints(ward, "NumberedOnce")) == complained


@pytest.mark.parametrize(("deleted", "complained"), [(False, True), (True, False)])
def test_a_hold_ends_with_the_case_that_somebody_deleted(deleted: bool, complained: bool) -> None:
    """While nobody led: the next case of the node has the same number, and nobody has held that one (seed 812)."""
    ward = unwatched()
    ward.world.note("order", NODE, act="hold", by="alice", case=f"{NODE}.1")
    if deleted:
        ward.world.note("person", NODE, act="delete-record", case=f"{NODE}.1")
    ward.passes(600.0)
    ward.world.note("drain", NODE, case=f"{NODE}.1", job="-")
    assert bool(complaints(ward, "HoldObeyed")) == complained


# -- given up


def gives_up(ward: Ward) -> None:
    recovery = a_recovery(RecoveryPhase.STOPPING)
    version = ward.run.store.create(recovery)
    ward.judge.look()
    ward.run.store.archive(replace(recovery, phase=RecoveryPhase.FAILED), version, 1)
    ward.world.note("tick")


@pytest.mark.parametrize(("tried_s", "complained"), [(11 * HOUR, True), (13 * HOUR, False)])
def test_a_job_that_something_shared_keeps_from_beginning_may_be_given_up_after_half_a_day(
    tried_s: float, complained: bool
) -> None:
    ward = unwatched()
    job = ward.submit("llama", GANG)
    ward.world.shared.subnet_manager_dies()
    again(ward, job, 2)
    again(ward, job, 3)
    ward.passes(tried_s)
    again(ward, job, 4)
    gives_up(ward)
    assert bool(complaints(ward, "NoJobGivenUp")) == complained


@pytest.mark.parametrize(("led_for_s", "complained"), [(1.0, False), (3600.0, True)])
def test_what_nobody_saw_of_a_shared_end_counts_as_an_attempt(led_for_s: float, complained: bool) -> None:
    """Who led then died before anything was written, and its nodes were back when the next one looked (seed 1849)."""
    ward = unwatched(jobs=JobPolicy(barren_limit=2))
    job = ward.submit("llama", GANG)
    ward.world.network.cut(GANG[:3], "control", 900.0)
    ward.until(lambda: not job.live).passes(1200.0)
    ward.run.brains = [cast(Any, SimpleNamespace(led_since=ward.world.now - led_for_s))]
    again(ward, job, 2)
    ward.world.gangs.stop(job, "owner")
    ward.judge.look()
    gives_up(ward)
    assert bool(complaints(ward, "NoJobGivenUp")) is complained


@pytest.mark.parametrize("before", [True, False])
def test_what_a_node_prints_after_its_job_was_given_up_explains_nothing(before: bool) -> None:
    """Two failures that nothing explained are enough. A quarter of an hour later a node of the second printed what had
    befallen it since, and nothing but a job without a record had moved until then (seed 1806)."""
    ward = unwatched(jobs=JobPolicy(barren_limit=5))
    job = ward.submit("llama", GANG)
    version = ward.run.store.create(a_recovery(RecoveryPhase.STOPPING))
    ward.passes(400.0)  # it makes steps, and saves nothing yet
    again(ward, job, 2)
    ward.passes(400.0)
    ward.world.gangs.stop(job, "owner")
    ward.judge.look()
    printed = {GANG[0]: {"xid.79": ward.world.now}}
    if before:
        ward.world.agents.printed.update(printed)
    ward.run.store.archive(a_recovery(RecoveryPhase.FAILED), version, 1)
    ward.judge.look()
    ward.world.agents.printed.update(printed)
    ward.world.note("tick")
    assert bool(complaints(ward, "NoJobGivenUp")) is before


@pytest.mark.parametrize(("restarting_s", "complained"), [(300.0, False), (400.0, True)])
def test_a_job_may_be_given_up_whose_settings_leave_no_time_for_a_first_step(
    restarting_s: float, complained: bool
) -> None:
    """It takes five minutes to start, and ten seconds for a step."""
    ward = unwatched(jobs=JobPolicy(restarting_s=restarting_s))
    job = ward.submit("llama", GANG)
    ward.world.shared.subnet_manager_dies()
    again(ward, job, 2)
    ward.passes(300.0)
    ward.world.gangs.stop(job, "llama#2.4")
    gives_up(ward)
    assert bool(complaints(ward, "NoJobGivenUp")) == complained


@pytest.mark.parametrize(
    ("restarting_s", "told", "ago_s", "complained"),
    [(300.0, True, 600.0, False), (900.0, True, 600.0, True), (300.0, False, 600.0, True), (300.0, True, 7200.0, True)],
)
def test_a_job_waits_for_its_next_try_though_there_is_room(
    restarting_s: float, told: bool, ago_s: float, complained: bool
) -> None:
    """Rightly only if no attempt can begin by the settings, it was tried lately, and its owner knows (seed 3017)."""
    ward = unwatched(jobs=JobPolicy(restarting_s=restarting_s))
    ward.world.gangs.stop(ward.submit("llama", GANG), "llama#1.3")
    ward.run.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY))
    if told:
        ward.run.mailbox.send(Notice("k", "warning", "llama does not begin", "", "", 0.0))
    ward.passes(ago_s)
    assert bool(complaints(ward, "JobsMove", at_the_end=True)) == complained


# -- where the judge was too mild: each of these passed


def test_a_job_that_goes_on_after_a_moment_without_its_network_is_hurt_no_more() -> None:
    ward = unwatched()
    job = ward.submit("llama", GANG)
    ward.passes(1200.0)
    ward.world.network.cut(names(0, 8), "data", 20.0)
    ward.passes(1200.0)
    ward.world.gangs.stop(job, "llama#1.3")
    assert "while it made progress" in complaints(ward, "HealthyJobsRun")[0]


@pytest.mark.parametrize("complained", [True, False], ids=["earlier", "still"])
def test_only_jobs_that_fail_to_begin_at_the_same_time_have_something_in_common(complained: bool) -> None:
    ward = unwatched(nodes=12)
    job = ward.submit("llama", GANG)
    others = [ward.submit(f"other-{i}", names(4 + 2 * i, 2)) for i in range(2)]
    ward.world.shared.subnet_manager_dies()
    for other in others:
        ward.world.gangs.stop(other, "owner")
        ward.world.gangs.restart(f"{other.id}#2.3", other, 2, 0, other.nodes)
        ward.judge.look()
    ward.passes(3 * HOUR)
    for n in range(2, 45):
        again(ward, job, n)
        ward.passes(600.0)
        for other in others if not complained else ():
            ward.world.gangs.stop(other, "owner")
            ward.judge.look()
            ward.world.gangs.restart(f"{other.id}#{n + 1}.3", other, n + 1, 0, other.nodes)
    assert any(" in a row" in words for words in complaints(ward, "HealthyJobsRun")) is complained


@pytest.mark.parametrize(("alone", "complained"), [(30, False), (50, True)])
def test_the_row_of_a_job_that_does_not_begin_alone_starts_when_the_others_have_gone(
    alone: int, complained: bool
) -> None:
    """It had been tried sixteen times beside two others before that (seed 1859)."""
    ward = unwatched(nodes=12)
    job = ward.submit("llama", GANG)
    others = [ward.submit(f"other-{i}", names(4 + 2 * i, 2)) for i in range(2)]
    ward.world.shared.subnet_manager_dies()
    for n in range(2, 20 + alone):
        again(ward, job, n)
        for other in others if n < 20 else ():
            ward.world.gangs.stop(other, "owner")
            ward.judge.look()
            ward.world.gangs.restart(f"{other.id}#{n}.3", other, n, 0, other.nodes)
        ward.passes(1200.0)
    assert any(" in a row" in words for words in complaints(ward, "HealthyJobsRun")) is complained


@pytest.mark.parametrize(("sick", "complained"), [(False, True), (True, False)])
def test_a_treatment_ends_a_job_that_makes_steps_on_a_node_that_does_not_answer(sick: bool, complained: bool) -> None:
    ward = unwatched()
    ward.submit("llama", GANG)
    ward.passes(1200.0)
    ward.world.network.cut(GANG[:1], "control", HOUR)
    ward.passes(120.0)
    if sick:
        ward.world.strike("row_remap_pending_63", GANG[0], 1)
    ward.world.treatments.begin(f"{GANG[0]}.1/7", Verb.REBOOT, ward.world.nodes[GANG[0]])
    said = complaints(ward, "HealthyJobsRun")
    assert any(f"llama made steps on {GANG[0]}, which had nothing wrong" in words for words in said) is complained


def test_a_job_waits_for_ranks_that_are_nowhere() -> None:
    """What its record says holds it back counts for nothing where the world has no such rank."""
    ward = unwatched()
    ward.world.gangs.stop(ward.submit("llama", GANG), "owner", JobPhase.FAILED)
    why = "ranks of an earlier attempt live on node-0007"
    ward.run.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY, refusal=why))
    assert "llama waits for capacity though" in complaints(ward, "JobsMove", at_the_end=True)[0]


@pytest.mark.parametrize(("told", "complained"), [(True, False), (False, True)])
def test_a_job_waits_for_ranks_of_an_attempt_before_its_last_one_where_nobody_answers(
    told: bool, complained: bool
) -> None:
    """It had long left the node, and its door held it back all the same (seed 50000882)."""
    ward = unwatched()
    job = ward.submit("llama", GANG)
    left = ward.world.nodes["node-0007"]
    left.stuck, left.ready, left.mark = ["llama"], False, "node-0007.1"
    ward.world.gangs.stop(job, "owner", JobPhase.FAILED)
    ward.run.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY))
    if told:
        ward.run.mailbox.send(Notice("k", "warning", "llama", "sickbay job restart llama", "", 0.0))
    assert bool(complaints(ward, "JobsMove", at_the_end=True)) is complained
