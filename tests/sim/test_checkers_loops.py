"""Loops of verbs, parts that kill jobs, and causes that explain too much are seen. The world is driven by hand."""

from __future__ import annotations

import pytest

from sickbay.model import Action, Case, Phase, Place, Verb
from tests.builders import a_case, a_diagnosis
from tests.sim.test_checkers_outages import NODE, complaints, treats, unwatched
from tests.sim.ward import Ward, names


def test_a_node_is_treated_in_circles() -> None:
    ward = unwatched()
    for n in range(1, 9):
        treats(ward, n)
        ward.passes(7200.0)
    assert any("was treated 7 times for 0 faults" in said for said in complaints(ward, "DisruptionsBounded"))


@pytest.mark.parametrize(("managed", "complained"), [(True, True), (False, False)])
def test_one_part_kills_a_fourth_job_that_we_placed(managed: bool, complained: bool) -> None:
    """How a job ended that another scheduler looks after nobody of us examines (seed 298)."""
    ward = unwatched()
    job = ward.submit("llama", managed=managed)
    ward.world.strike("gpu_lost_79", NODE, 0, cure="replace")
    for n in range(2, 6):
        ward.world.gangs.stop(job, "owner")
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
        ward.passes(70.0)
        ward.judge.look()
    assert any("has killed 4 jobs" in said for said in complaints(ward, "LemonsKillFewJobs")) == complained


@pytest.mark.parametrize(
    ("phase", "complained"), [(Phase.ESCALATED, False), (Phase.WAITING, True)], ids=["asked", "not asked"]
)
def test_a_part_that_a_person_wants_tried_again_may_kill_a_fourth_job(phase: Phase, complained: bool) -> None:
    ward = unwatched()
    job = ward.submit("llama")
    part = ward.world.nodes[NODE].gpus[0].serial
    ward.run.store.create(a_case(phase, node=NODE, diagnoses=(a_diagnosis(part=part),)))
    ward.world.strike("gpu_lost_79", NODE, 0, cure="replace")
    for n in range(2, 6):
        ward.world.gangs.stop(job, "owner")
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
        ward.passes(70.0)
        ward.judge.look()
        if n == 4:
            ward.world.note("order", NODE, act="retry", by="alice", case=f"{NODE}.1")
    assert bool(complaints(ward, "LemonsKillFewJobs")) == complained


def asks(ward: Ward, verb: Verb, n: int, **args: str) -> None:
    ward.run.platform.perform(Action(f"{NODE}.1/{n}", verb, Place(NODE), args))
    ward.judge.look()


@pytest.mark.parametrize(("befell", "complained"), [(0, True), (1, False)])
def test_a_node_is_closed_and_opened_in_circles(befell: int, complained: bool) -> None:
    ward = unwatched()
    for _ in range(befell):
        ward.world.outsiders.accuse("webhook", NODE, "xid.79", 1)
    for n in range(5):
        asks(ward, Verb.CORDON, n)
        asks(ward, Verb.RELEASE, n, cancel="1")
    said = complaints(ward, "DisruptionsBounded")
    assert any("was closed 5 times, and 0 things had befallen it" in words for words in said) is complained
    assert any("was opened 5 times" in words for words in said) is complained


@pytest.mark.parametrize(("verb", "words"), [(Verb.VERIFY, "was examined 5 times"), (Verb.COLLECT, "collected from 5")])
def test_a_node_is_examined_in_circles(verb: Verb, words: str) -> None:
    ward = unwatched()
    asks(ward, Verb.CORDON, 1)
    for n in range(2, 8):
        asks(ward, verb, n, checks="nvidia-smi")
        ward.passes(300.0)
        asks(ward, verb, n, checks="nvidia-smi")
    assert words in " ".join(complaints(ward, "DisruptionsBounded"))


def test_a_node_is_drained_in_circles() -> None:
    ward = unwatched()
    asks(ward, Verb.CORDON, 1)
    for n in range(2, 8):
        asks(ward, Verb.DRAIN, n, case=f"{NODE}.1")
    assert "was drained 5 times" in " ".join(complaints(ward, "DisruptionsBounded"))


def kills(ward: Ward, kind: str, times: int = 4, agent: str = "") -> None:
    job = ward.submit("llama")
    ward.world.nodes[NODE].agent_fault = agent
    ward.world.strike(kind, NODE, 0, cure="replace")
    for n in range(2, 2 + times):
        ward.world.gangs.stop(job, "owner")
        ward.world.nodes[NODE].stuck = []
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
        ward.passes(70.0)
        ward.judge.look()


@pytest.mark.parametrize("kind", ["gpu_lost_silent", "gsp_119", "driver_hung"])
@pytest.mark.parametrize(("times", "agent", "complained"), [(4, "", True), (2, "", False), (4, "blind", False)])
def test_a_part_that_hangs_a_fourth_job_has_killed_it(kind: str, times: int, agent: str, complained: bool) -> None:
    ward = unwatched()
    kills(ward, kind, times, agent)
    assert any("has killed 4 jobs" in said for said in complaints(ward, "LemonsKillFewJobs")) is complained


@pytest.mark.parametrize(("ill", "complained"), [(True, True), (False, False)])
def test_a_host_that_is_taken_down_for_its_part_under_a_fourth_job_has_killed_it(ill: bool, complained: bool) -> None:
    ward = unwatched()
    job = ward.submit("llama")
    if ill:
        ward.ails(NODE, "row_remap_pending_63")
    for n in range(2, 7):
        ward.world.gangs.stop(job, "owner")
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
        treats(ward, n)
        ward.passes(1800.0)
        ward.judge.look()
    assert any("has killed 4 jobs" in said for said in complaints(ward, "LemonsKillFewJobs")) is complained


# -- who explains too much


def explained(ward: Ward, factor: str) -> None:
    """The brain says that something shared explains this node too."""
    seen = a_diagnosis("gpu-lost", place=Place(NODE))
    ward.run.store.create(a_case(Phase.ESCALATED, node=factor, factor=factor, diagnoses=(seen,)))


@pytest.mark.parametrize(("ill", "complained"), [(names(1, 3), False), (names(3, 1), True), (names(2, 2), True)])
def test_a_case_about_many_forgets_who_is_ill_for_itself(ill: tuple[str, ...], complained: bool) -> None:
    ward = unwatched()
    for name in ill:
        ward.world.strike("gpu_lost_silent", name, 1)
    explained(ward, "driver=" + ward.world.nodes[NODE].driver)
    said = complaints(ward, "EndsOrRests", at_the_end=True)
    assert any(f"{NODE} is in service with gpu_lost_silent" in words for words in said) is complained


def test_others_with_another_sickness_are_no_company() -> None:
    ward = unwatched()
    for name in ("node-0001", "node-0002"):
        ward.world.strike("degrading", name, 1)
    ward.world.strike("gpu_lost_silent", NODE, 1)
    explained(ward, "driver=" + ward.world.nodes[NODE].driver)
    assert f"{NODE} is in service" in " ".join(complaints(ward, "EndsOrRests", at_the_end=True))


def test_a_roll_out_that_truly_harms_excuses_whom_it_harmed() -> None:
    ward = unwatched()
    ward.world.rollouts.begin("driver", "599.0", every_s=None, bad_share=1.0)
    ward.world.treatments.boot(ward.world.nodes[NODE])
    ward.judge.look()
    explained(ward, "driver=599.0")
    assert complaints(ward, "EndsOrRests", at_the_end=True) == []


@pytest.mark.parametrize(("cut_off", "shared"), [(names(0, 4), True), (names(0, 1), False)])
def test_a_rack_that_was_cut_off_truly_shares_its_absence(cut_off: tuple[str, ...], shared: bool) -> None:
    """Where the settings call nobody many, the brain finds the rack as what their absence has in common (seed 316)."""
    ward = unwatched()
    node = ward.world.nodes["node-0000"]
    ward.world.network.cut(cut_off, "both", 600.0)
    ward.judge.look()
    explained(ward, f"rack={node.rack}")
    cases = [stored.value for stored in ward.run.store.list(Case)]
    assert ward.judge.commons.explain(node, cases, ward.run.settings.controller) is shared
