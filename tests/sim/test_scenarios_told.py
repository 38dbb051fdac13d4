"""Where we may do nothing, people are told: once, as soon as it is certain, and many at once in one message."""

from __future__ import annotations

import pytest

from sickbay.model import Command, Notice, Pause, RecoveryPhase
from sickbay.settings import JobPolicy, Policy
from tests.sim.ward import Ward, a_policy, names

SICK = "node-0005"
DAY = 86_400.0


def training(ward: Ward) -> Ward:
    ward.submit(nodes=names(4, 3))
    return ward.passes(1_000.0)


def fails(ward: Ward, node: str = SICK) -> float:
    ward.world.strike("gpu_lost_79", node, 0, cure="reboot")
    return ward.world.now


def told(ward: Ward, name: str) -> list[Notice]:
    return [n for n in ward.run.mailbox.notices if n.title.startswith(name)]


def test_a_fresh_install_tells_at_once_what_is_wrong_what_it_would_do_and_which_setting_lets_it() -> None:
    """The first word came after 24 hours, as a warning that the case was left for later."""
    ward = training(Ward(policy=Policy()))
    at = fails(ward)
    ward.passes(DAY)
    (notice,) = told(ward, SICK)
    assert notice.at - at < 300.0
    assert notice.level == "urgent"
    assert notice.title == "node-0005: GPU fell off the bus on GPU 0000:53:00 (only observed)"
    for words in ("policy.max_verb is OBSERVE", "Sickbay only observes", "Xid (PCI:0000:53:00): 79", "llama",
                  "Sickbay would: CORDON, then DRAIN, then REBOOT.", "raise policy.max_verb to REBOOT"):  # fmt: skip
        assert words in notice.body
    assert ward.door.calls == []
    ward.is_sound()


@pytest.mark.parametrize("level", ["OBSERVE", "CORDON"])
def test_the_owner_of_a_job_that_we_may_not_restart_is_told_once_that_it_died(level: str) -> None:
    ward = training(Ward(policy=a_policy(max_verb=level)))
    at = fails(ward)
    ward.passes(3 * DAY)
    (notice,) = told(ward, "llama")
    assert notice.at - at < 300.0
    assert (notice.level, notice.title) == ("urgent", "llama has died and is not restarted")
    for words in ("on node-0005 exited", f"policy.max_verb is {level}", "GPU fell off the bus",
                  "Start it again by hand", "set policy.max_verb to DRAIN"):  # fmt: skip
        assert words in notice.body
    assert not ward.world.jobs["llama"].live


def test_where_jobs_are_not_brought_back_their_death_is_told_all_the_same() -> None:
    ward = training(Ward(jobs=JobPolicy(enabled=False)))
    fails(ward)
    ward.passes(DAY)
    (notice,) = told(ward, "llama")
    assert "jobs.enabled is false" in notice.body
    assert "set jobs.enabled to true" in notice.body
    assert ward.world.jobs["llama"].attempt == 1
    ward.is_sound()


def test_a_job_that_stands_still_where_we_only_observe_is_told() -> None:
    ward = training(Ward(policy=Policy()))
    ward.world.strike("job_hang", SICK)
    ward.until_job("llama", RecoveryPhase.STALLED)
    ward.passes(300.0)
    (notice,) = told(ward, "llama")
    assert notice.title == "llama stands still and is not restarted"
    assert "no step after" in notice.body


def test_a_job_that_its_owner_starts_again_and_that_dies_again_is_told_again() -> None:
    ward = training(Ward(policy=Policy()))
    fails(ward)
    ward.until_job("llama", RecoveryPhase.STOPPING)
    ward.passes(7_200.0)
    assert ward.world.gangs.resubmit(ward.world.jobs["llama"])
    ward.until_job("llama", RecoveryPhase.RUNNING)
    ward.passes(1_200.0)
    ward.world.strike("unexplained_job_failure", ward.world.jobs["llama"].nodes[0])
    ward.passes(3_600.0)
    assert len(told(ward, "llama")) == 2


def test_the_same_fault_on_the_same_node_is_not_told_again_within_a_day() -> None:
    """In whatever case it is: a person lets the first one go, and asks for it to be taken up again."""
    ward = Ward(policy=Policy())
    fails(ward)
    ward.passes(300.0)
    ward.says("abort", ward.case(SICK))
    ward.passes(60.0)
    ward.run.store.create(Command("again", "reopen", SICK, "alice", "", ward.world.now))
    ward.passes(3_600.0)
    assert ward.case(SICK) is not None
    assert len([n for n in told(ward, SICK) if "only observed" in n.title]) == 1


def test_a_new_leader_does_not_tell_it_again() -> None:
    ward = training(Ward(policy=Policy()))
    fails(ward)
    ward.passes(900.0)
    ward.crash()
    ward.passes(3_600.0)
    assert len({n.key for n in (*told(ward, SICK), *told(ward, "llama"))}) == 2


@pytest.mark.parametrize(
    ("lasts", "words"), [(20 * 3_600.0, "until 2026-"), (300 * DAY, "until 2027-"), (None, "without")]
)
def test_what_fails_during_a_pause_is_told_once_with_its_end_and_how_to_end_it(lasts: float | None, words: str) -> None:
    """Nobody was told anything in ten days of a pause of 300."""
    ward = training(Ward())
    now = ward.world.now
    ward.run.store.create(Pause("fleet", "alice", "maintenance", now, now + lasts if lasts else None))
    ward.passes(100.0)
    at = fails(ward)
    ward.passes(18 * 3_600.0)
    (node,), (job,) = told(ward, SICK), told(ward, "llama")
    for notice in (node, job):
        assert notice.at - at < 300.0
        assert notice.level == "urgent"
        for said in ("the whole fleet is paused by alice (maintenance)", words, "sickbay resume --all"):
            assert said in notice.body
    assert ward.treatments() == []
    ward.is_sound()


def test_a_pause_of_a_year_keeps_being_told_with_the_job_that_it_keeps_down() -> None:
    ward = training(Ward())
    ward.run.store.create(Pause("fleet", "alice", "", ward.world.now, ward.world.now + 300 * DAY))
    ward.passes(100.0)
    fails(ward)
    ward.passes(5 * DAY)
    reminders = [n for n in ward.run.mailbox.notices if "is still paused" in n.title]
    assert len(reminders) == 5
    assert all("node-0005.1" in n.body and "llama" in n.body for n in reminders)
    assert len(told(ward, SICK)) == len(told(ward, "llama")) == 1


def test_a_fault_that_can_wait_is_no_alarm_during_a_pause() -> None:
    ward = Ward()
    ward.run.store.create(Pause("fleet", "alice", "", ward.world.now, ward.world.now + 20 * 3_600.0))
    ward.passes(100.0)
    ward.world.strike("row_remap_pending_63", SICK, 0, cure="reset")
    ward.passes(10 * 3_600.0)
    assert ward.case(SICK) is not None
    assert ward.run.mailbox.notices == []
