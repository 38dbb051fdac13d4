"""The checkers of shared outages, exits and loops complain when they must. The world is driven by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.model import Action, Place, RecoveryPhase, Verb
from sickbay.settings import ControllerSettings, JobPolicy
from tests.builders import a_recovery
from tests.sim.ward import Ward, a_policy, names

NODE = "node-0003"


def unwatched(nodes: int = 20, barren_limit: int = 3) -> Ward:
    ward = Ward(nodes, brains=0, policy=a_policy(), jobs=JobPolicy(capacity_s=3600.0, barren_limit=barren_limit))
    ward.judge.silent = frozenset()
    return ward


def treats(ward: Ward, n: int = 1, node: str = NODE, verb: Verb = Verb.REBOOT) -> None:
    ward.run.platform.perform(Action(f"{node}.{n}/2", Verb.CORDON, Place(node)))
    ward.world.treatments.begin(f"{node}.{n}/7", verb, ward.world.nodes[node])


def complaints(ward: Ward, by: str, *, at_the_end: bool = False) -> list[str]:
    ward.judge.look()
    if at_the_end:
        ward.judge.conclude()
    return [said for said, who in zip(ward.judge.violations, ward.judge.by, strict=True) if who == by]


# -- many that are away together


@pytest.mark.parametrize("later_s", [600.0, 10_000.0])
def test_a_healthy_node_that_vanished_with_many_is_treated_while_it_is_away_or_after_its_return(later_s: float) -> None:
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.passes(later_s)
    treats(ward)
    assert f"REBOOT of {NODE}, which had nothing wrong" in complaints(ward, "HealthyLeftAlone")[-1]


@pytest.mark.parametrize(
    ("limits", "cut", "complained"),
    [
        (ControllerSettings(), 3, True),
        (ControllerSettings(absent_nodes=1_000_000), 8, False),
        (ControllerSettings(absent_nodes=2), 2, True),
        (ControllerSettings(absent_share=1.0), 8, True),  # all of a rack
        (ControllerSettings(absent_share=1.0, absent_factor_share=1.0), 5, False),
    ],
)
def test_who_is_away_with_many_is_told_by_the_settings_in_force(
    limits: ControllerSettings, cut: int, complained: bool
) -> None:
    ward = unwatched()
    ward.run.settings = replace(ward.run.settings, controller=limits)
    ward.world.network.cut(names(4 - cut if cut < 4 else 0, cut), "control", 7200.0)
    ward.passes(600.0)
    treats(ward)
    assert bool(complaints(ward, "HealthyLeftAlone")) == complained


def test_a_node_that_vanished_alone_or_has_something_of_its_own_may_be_treated() -> None:
    ward = unwatched()
    ward.world.network.cut([NODE], "control", 7200.0)
    ward.passes(600.0)
    treats(ward)
    ward.world.network.cut(names(8, 8), "control", 7200.0)
    ward.world.strike("gpu_lost_79", "node-0009", 1)
    ward.passes(600.0)
    treats(ward, node="node-0009")
    assert complaints(ward, "HealthyLeftAlone") == []


def test_a_node_that_was_ill_before_all_lost_their_power_may_be_treated_for_that_after_it_is_back() -> None:
    ward = unwatched()
    ward.world.strike("ecc_contained_94", NODE, 1)
    ward.world.network.cut(names(0, 8), "power", 600.0)
    ward.judge.look()
    ward.passes(3600.0)
    treats(ward, verb=Verb.RESET_GPU)
    assert complaints(ward, "HealthyLeftAlone") == []


@pytest.mark.parametrize(("together_s", "complained"), [(14.0, False), (1200.0, True)])
def test_who_was_one_of_many_for_a_moment_only_is_away_alone(together_s: float, complained: bool) -> None:
    """The end of a capacity block took the others, by intent, seconds after they were cut off (seed 1872)."""
    ward = unwatched()
    ward.world.network.cut([NODE, *names(8, 3)], "control", 90_000.0)
    ward.judge.look()
    ward.passes(together_s)
    for name in names(8, 3):
        ward.world.people.terminate(name, successor_after_s=10_000.0)
    ward.judge.look()
    ward.passes(1200.0)
    treats(ward)
    assert bool(complaints(ward, "HealthyLeftAlone")) is complained


def test_many_are_those_who_are_away_now_also_if_they_went_one_by_one() -> None:
    ward = unwatched()
    for i in range(3):
        ward.world.network.cut(names(i + 1, 1), "control", 7200.0)
        ward.passes(1200.0)
    treats(ward)
    assert f"REBOOT of {NODE}, which had nothing wrong" in complaints(ward, "HealthyLeftAlone")[-1]


@pytest.mark.parametrize("why", ["taken away", "exchanged", "held", "down", "treated", "well"])
def test_who_is_taken_away_held_by_somebody_or_down_before_is_nobodys_company(why: str) -> None:
    ward = unwatched()
    if why == "down":
        ward.world.strike("host_crash", names(1, 1)[0], cure="power_cycle")
        ward.passes(600.0)
    if why == "held":
        ward.world.people.cordon(names(1, 1)[0])
    if why == "treated":
        ward.world.strike("degrading", names(1, 1)[0], 0, cure="power_cycle")
    for i in range(3):
        ward.world.network.cut(names(i + 1, 1), "control", 7200.0, stays=why == "exchanged")
        ward.passes(600.0)
        if why == "treated" and not i:  # for something of its own, which has begun before it was cut off
            treats(ward, node=names(1, 1)[0], verb=Verb.POWER_CYCLE)
            ward.judge.look()
        if why == "taken away" and not i:
            ward.world.people.terminate(names(1, 1)[0])
        if why == "exchanged" and not i:  # its successor is cut off as well, and shown to nobody
            ward.world.people.terminate(names(1, 1)[0], successor_after_s=300.0)
    treats(ward, node=names(3, 1)[0])
    assert bool(complaints(ward, "HealthyLeftAlone")) is (why == "well")


def test_a_node_that_was_away_with_many_and_goes_away_again_alone_may_be_treated() -> None:
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 600.0)
    ward.passes(3600.0)
    ward.world.network.cut([NODE], "control", 7200.0)
    ward.passes(1200.0)
    treats(ward)
    assert complaints(ward, "HealthyLeftAlone") == []


def test_a_straggler_may_be_treated_when_the_others_have_been_back_for_half_an_hour() -> None:
    ward = unwatched()
    cut = ward.world.network.cut(names(0, 8), "control")
    ward.passes(1200.0)
    ward.world.network.mend(cut, [name for name in names(0, 8) if name != NODE])
    ward.passes(2000.0)
    treats(ward)
    assert complaints(ward, "HealthyLeftAlone") == []


@pytest.mark.parametrize(("again_s", "complained"), [(300.0, True), (1_600.0, False)])
@pytest.mark.parametrize("boots", [True, False])
def test_a_straggler_stays_a_patient_when_others_vanish_later_but_not_before_it_was_one(
    again_s: float, complained: bool, boots: bool
) -> None:
    """Two of fourteen were cut off again minutes after all had booted (seed 60008), or were never back."""
    ward = unwatched()
    ward.world.network.cut(names(0, 12), "power", 3600.0)
    ward.world.network.cut([NODE], "power", 3600.0 if boots else 90_000.0)
    ward.passes(3600.0 + 900.0)
    if boots:
        ward.world.network.cut([NODE], "power", 90_000.0)
    ward.passes(again_s)
    ward.world.network.cut(names(8, 4), "control", 3000.0)
    ward.passes(400.0)
    treats(ward, verb=Verb.POWER_CYCLE)
    assert bool(complaints(ward, "HealthyLeftAlone")) is complained


@pytest.mark.parametrize(("later_s", "complained"), [(60.0, False), (1200.0, True)])
def test_a_straggler_is_a_patient_until_it_is_up_again_and_then_its_absence_is_no_reason(
    later_s: float, complained: bool
) -> None:
    ward = unwatched()
    ward.world.network.cut([NODE], "power", 6000.0)
    ward.passes(600.0)
    ward.world.network.cut(names(8, 4), "power", 600.0)
    ward.passes(5400.0 + later_s)  # its own power has been back for so long
    treats(ward, verb=Verb.POWER_CYCLE)
    assert bool(complaints(ward, "HealthyLeftAlone")) is complained


@pytest.mark.parametrize(("alone_s", "complained"), [(3_000.0, False), (60.0, True)])
def test_a_straggler_that_is_cut_off_once_more_with_many_before_it_answered_stays_a_patient(
    alone_s: float, complained: bool
) -> None:
    """Seed 50001455: nobody can see that its cable is out twice."""
    ward = unwatched()
    ward.world.network.cut([NODE], "control", 90_000.0)
    ward.world.network.cut(names(8, 4), "control", 1_200.0)
    ward.passes(1_200.0 + alone_s)
    ward.world.network.cut([NODE, *names(0, 3)], "control", 7_200.0)
    ward.passes(400.0)
    treats(ward)
    assert bool(complaints(ward, "HealthyLeftAlone")) is complained


@pytest.mark.parametrize("split", [True, False])
def test_those_whom_people_have_treated_alone_keep_nobody_else_from_being_a_straggler(split: bool) -> None:
    """Seed 50001347: three of a rack were split off; the fourth went away with others, who came back."""
    ward = unwatched()
    rack = [n.name for n in ward.world.nodes.values() if n.rack == ward.world.nodes[NODE].rack and n.name != NODE]
    others = [n.name for n in ward.world.nodes.values() if n.rack != ward.world.nodes[NODE].rack][:4]
    ward.world.network.cut(rack, "control", 90_000.0)
    ward.passes(900.0)
    if split:
        ward.world.note("order", "absence", act="split", by="bob", case="absence.1")
    ward.passes(60.0)
    ward.world.network.cut([NODE], "control", 90_000.0)
    ward.world.network.cut(others, "control", 600.0)
    ward.passes(600.0 + 2_000.0)
    treats(ward)
    assert bool(complaints(ward, "HealthyLeftAlone")) is not split


@pytest.mark.parametrize(("later_s", "complained"), [(1.0, False), (900.0, True)])
def test_a_boot_behind_a_cut_is_seen_by_nobody(later_s: float, complained: bool) -> None:
    """Seed 50001586: a successor behind a dead switch had booted; it was a patient until it answered."""
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 7_200.0)
    ward.passes(600.0)
    ward.world.note("person", "absence", act="split", by="bob", case="absence.1")
    ward.passes(60.0)
    ward.world.note("boot", NODE, boot="another")
    ward.passes(6_540.0 + later_s)
    treats(ward)
    assert bool(complaints(ward, "HealthyLeftAlone")) is complained


@pytest.mark.parametrize("cut", [4, 2])
def test_a_job_may_be_given_up_that_died_before_many_were_cut_off_or_after_a_few_were(cut: int) -> None:
    ward = unwatched(barren_limit=1)
    ward.submit("llama")
    if cut < 3:
        ward.world.network.cut(names(0, cut), "both", 600.0)
        ward.passes(900.0)
    ward.world.gangs.stop(ward.world.jobs["llama"], "llama#1")
    ward.passes(60.0)
    if cut >= 3:
        ward.world.network.cut(names(8, cut), "both", 7200.0)
    recovery = a_recovery(RecoveryPhase.STOPPING)
    version = ward.run.store.create(recovery)
    ward.judge.look()
    ward.run.store.archive(replace(recovery, phase=RecoveryPhase.FAILED), version, 1)
    ward.world.note("tick")
    assert complaints(ward, "NoJobGivenUp") == []


def test_a_person_may_have_nodes_replaced_that_are_away() -> None:
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "power", 7200.0)
    ward.world.note("person", NODE, act="approve", by="alice", case=f"{NODE}.1", verb="REPLACE")
    treats(ward, verb=Verb.REPLACE)
    assert complaints(ward, "HealthyLeftAlone") == []


@pytest.mark.parametrize("approved", [True, False])
def test_who_is_exchanged_by_a_persons_word_about_many_is_closed_for_it(approved: bool) -> None:
    """Seed 50000709."""
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.passes(1_200.0)
    if approved:
        ward.world.note("person", "absence", act="approve", by="bob", case="absence.1", verb="REPLACE")
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    assert bool(complaints(ward, "HealthyLeftAlone")) is not approved


@pytest.mark.parametrize(("writes", "complained"), [(True, True), (False, False)])
def test_an_attempt_begins_beside_ranks_that_write(writes: bool, complained: bool) -> None:
    ward = unwatched()
    ward.world.note("two-attempts", "", job="llama", attempt=2, beside=1, nodes=NODE, writes=writes, by="llama#7")
    assert bool(complaints(ward, "OneAttemptWrites")) == complained


def test_whoever_asks_for_an_attempt_beside_ranks_that_write_leans_on_the_platform() -> None:
    ward = unwatched()
    ward.world.note("asked-beside", "", job="llama", attempt=1, nodes=NODE)
    assert complaints(ward, "OneAttemptWrites")


@pytest.mark.parametrize(
    ("what", "complained"),
    [("storage", True), ("data", True), ("power", True), ("power of two", False), ("nothing", False)],
)
def test_a_job_is_given_up_for_something_shared(what: str, complained: bool) -> None:
    ward = unwatched(barren_limit=1)
    job = ward.submit("llama")
    ward.passes(200.0)  # it has saved nothing yet
    if what == "storage":
        ward.world.shared.storage_hangs(7200.0)
    if what == "data":
        ward.world.network.cut(names(0, 8), "data", 7200.0)
    if what.startswith("power"):
        ward.world.network.cut(names(0, 2 if what.endswith("two") else 8), "power", 7200.0)
    if job.live:
        ward.world.gangs.stop(job, "llama#1.3")
    recovery = a_recovery(RecoveryPhase.STOPPING)
    version = ward.run.store.create(recovery)
    ward.judge.look()
    ward.run.store.archive(replace(recovery, phase=RecoveryPhase.FAILED), version, 1)
    ward.world.note("tick")
    assert bool(complaints(ward, "NoJobGivenUp")) == complained


@pytest.mark.parametrize(("tries", "user", "complained"), [(1, False, True), (2, False, False), (1, True, False)])
def test_a_job_is_given_up_that_has_not_had_its_attempts(tries: int, user: bool, complained: bool) -> None:
    ward = unwatched()
    job = ward.submit("llama", bug_at_step=5 if user else -1)
    ward.passes(400.0)
    for n in range(2, tries + 1):
        ward.world.gangs.stop(job, "owner")
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
        ward.passes(400.0)
    if job.live:
        ward.world.gangs.stop(job, "owner")
    gives_up(ward)
    assert bool(complaints(ward, "NoJobGivenUp")) == complained


def test_an_attempt_that_dies_of_its_own_while_something_is_shared_is_one_of_its_own() -> None:
    """Seed 50001295: it hung in a cut fabric, and a GPU fell off the bus meanwhile."""
    ward = unwatched()
    job = ward.submit("llama")
    ward.world.network.cut(names(0, 4), "data", 3600.0)
    for n in range(2, 5):
        ward.world.strike("gpu_lost_79", names(0, 1)[0], n)
        ward.passes(60.0)
        if n < 4:
            ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
            ward.passes(60.0)
    gives_up(ward)
    assert not complaints(ward, "NoJobGivenUp")


@pytest.mark.parametrize(("limit", "explained", "complained"), [(2, True, False), (3, True, True), (3, False, False)])
def test_a_job_whose_deaths_are_explained_has_all_of_its_attempts(
    limit: int, explained: bool, complained: bool
) -> None:
    """Two that nothing explains are its owner's, whatever the limit is (docs/cases.md: given up with "nothing that
    explains it twice")."""
    ward = unwatched(barren_limit=limit)
    job = ward.submit("llama")
    for n in (2, 3):
        ward.passes(60.0)
        if explained:
            ward.world.strike("gpu_lost_79", names(0, 1)[0], n)
        ward.passes(60.0)
        if job.live:
            ward.world.gangs.stop(job, "owner")
        ward.judge.look()
        if n == 2:
            ward.world.gangs.restart("llama#2.3", job, n, 0, names(0, 4))
    gives_up(ward)
    assert bool(complaints(ward, "NoJobGivenUp")) is complained


@pytest.mark.parametrize(("limit", "complained"), [(3, True), (2, False)])
def test_a_restart_that_something_shared_has_spent_is_not_added_to_its_own(limit: int, complained: bool) -> None:
    """Two of its own and one in a dead fabric between them are not three, though the last one was its own."""
    ward = unwatched(barren_limit=limit)
    job = ward.submit("llama")
    for n in (2, 3, 4):
        ward.passes(60.0)
        if n == 3:
            ward.world.gangs.stop(job, "owner")
            ward.judge.look()
            ward.world.services.all_back()
        else:
            ward.world.strike("gpu_lost_79", names(0, 1)[0], n)
            ward.passes(60.0)
        if n == 2:
            ward.world.shared.subnet_manager_dies()
        if n < 4:
            ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
    gives_up(ward)
    assert bool(complaints(ward, "NoJobGivenUp")) is complained


@pytest.mark.parametrize(("own", "complained"), [(True, False), (False, True)])
def test_an_attempt_whose_rank_hangs_by_its_own_node_in_a_cut_fabric_is_one_of_its_own(
    own: bool, complained: bool
) -> None:
    """Seed 720274: a GPU that was lost without a word would have kept it from beginning in a whole fabric too."""
    ward = unwatched()
    job = ward.submit("llama")
    ward.world.network.cut(names(0, 4), "data", 36_000.0)
    for n in range(2, 5):
        ward.passes(60.0)
        if own:
            ward.world.strike("gpu_lost_silent", names(0, 1)[0], 0)
        ward.passes(400.0)
        ward.world.gangs.stop(job, "owner")
        ward.judge.look()
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
    ward.passes(60.0)
    ward.world.gangs.stop(job, "owner")
    gives_up(ward)
    assert bool(complaints(ward, "NoJobGivenUp")) is complained


def test_attempts_that_something_shared_has_spent_are_none_of_its_own() -> None:
    ward = unwatched()
    job = ward.submit("llama")
    ward.world.shared.subnet_manager_dies()
    for n in range(2, 4):
        ward.world.gangs.stop(job, "owner")
        ward.judge.look()
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
        ward.passes(60.0)
        ward.judge.look()
    ward.world.services.all_back()
    ward.world.gangs.stop(job, "owner")
    ward.judge.look()
    ward.world.gangs.restart("llama#4.3", job, 4, 0, names(0, 4))
    ward.passes(600.0)
    ward.world.gangs.stop(job, "owner")
    gives_up(ward)
    assert "given up after" in complaints(ward, "NoJobGivenUp")[0]


def gives_up(ward: Ward) -> None:
    recovery = a_recovery(RecoveryPhase.STOPPING)
    version = ward.run.store.create(recovery)
    ward.world.note("tick")
    ward.judge.look()
    ward.run.store.archive(replace(recovery, phase=RecoveryPhase.FAILED), version, 1)
    ward.world.note("tick")
