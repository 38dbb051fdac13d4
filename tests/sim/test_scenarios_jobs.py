"""The prototype's lessons about jobs, and its open questions, arranged on purpose with the real brain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sickbay.core.recover_table import JobEvent
from sickbay.model import (
    Command,
    Done,
    Event,
    JobChanged,
    JobPhase,
    Phase,
    Progress,
    Recovery,
    RecoveryPhase,
    Retry,
    Verb,
)
from sickbay.settings import JobPolicy
from sickbay.sim.mutants.brain import restart_anyway, two_lives
from tests.sim.removed import Removed, both, door, job_row, notices, row, rule, wrapped
from tests.sim.ward import Ward, a_policy, names

SICK = "node-0002"  # one of the four nodes of llama


def working_ward(nodes: int = 10, **how: Any) -> Ward:
    """Llama runs on the first four nodes and has made its first steps."""
    ward = Ward(nodes, **how)
    ward.submit()
    return ward.passes(1200.0)


def attempts(ward: Ward, job: str = "llama") -> list[tuple[str, ...]]:
    """Where it was placed, each time."""
    return [tuple(str(f.detail["nodes"]).split(",")) for f in ward.facts("place") if f.detail["job"] == job]


def test_lesson_07_a_job_that_moves_is_not_stopped_because_its_steps_were_told_late() -> None:
    ward = working_ward()
    ward.door.late = lambda change: 1800.0 if isinstance(change, Progress | JobChanged) else 0.0
    ward.until_job("llama", RecoveryPhase.STALLED)
    ward.until(lambda: ward.door.sent(Verb.STOP_JOB))
    ward.door.late = lambda change: 0.0
    ward.ends_well()
    assert ward.facts("job-end") == []
    assert ward.world.jobs["llama"].attempt == 1


def test_a_job_that_hangs_in_a_cut_fabric_is_not_given_up_because_its_stops_were_told_late() -> None:
    """Each stop is heard of a minute after it was done: an attempt that was stopped does not die once more."""
    ward = working_ward()
    ward.world.network.cut(sorted(ward.world.nodes), "data", 7200.0)
    ward.door.late = lambda change: 60.0 if isinstance(change, JobChanged) else 0.0
    ward.passes(10_800.0)
    ward.door.late = lambda change: 0.0
    ward.ends_well()
    assert ward.world.jobs["llama"].live


def test_lesson_08_a_hung_node_drains_as_unreachable_and_its_job_moves() -> None:
    ward = working_ward()
    ward.world.strike("host_crash", SICK, effect="hang", cure="reboot")
    ended = ward.until_ended(SICK)
    assert "UNREACHABLE" in [e.event for e in ended.journal]
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.until(lambda: ward.world.jobs["llama"].live)
    assert len(attempts(ward)) == 2
    assert SICK not in attempts(ward)[1]
    ward.ends_well()


def test_lesson_12_a_restart_that_dies_at_once_is_made_again() -> None:
    ward = working_ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: len(attempts(ward)) == 2)
    ward.world.strike("unexplained_job_failure", attempts(ward)[1][0])  # before its first step
    ward.until(lambda: len(attempts(ward)) == 3, 600.0)  # not only when its time is up
    ward.until_job("llama", RecoveryPhase.RUNNING)
    ward.ends_well()
    assert ward.world.jobs["llama"].live


def test_lesson_12_a_restart_that_makes_no_step_is_stopped_and_made_again() -> None:
    ward = working_ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: len(attempts(ward)) == 2)
    ward.world.strike("job_hang", attempts(ward)[1][0], 1)
    ward.until(lambda: len(attempts(ward)) == 3)
    ward.ends_well()
    assert ward.world.jobs["llama"].live


def test_lesson_12_a_restart_that_is_refused_is_tried_again_and_spends_no_attempt() -> None:
    ward = working_ward(jobs=JobPolicy(barren_limit=2))
    refusals: list[str] = []

    def refuse(action: Any, go: Any) -> Any:
        if len(refusals) < 3 and action.call:
            refusals.append(action.key)
            ward.world.people.cordon(action.nodes[0])  # somebody takes the node at that moment
            outcome = go(action)
            ward.world.people.uncordon(action.nodes[0])
            return outcome
        return go(action)

    ward.door.on[Verb.RESTART_JOB] = refuse
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: len(attempts(ward)) == 2)
    assert len(ward.facts("restart-refused")) == 3
    assert ward.world.jobs["llama"].attempt == 2
    ward.ends_well()


def test_lesson_15_an_attempt_that_still_lives_is_not_ignored_and_no_second_one_is_started() -> None:
    """The platform says the gang is stopped, but its ranks go on for a while, hung."""
    ward = working_ward()
    told: list[str] = []

    def lie(action: Any, go: Any) -> Any:
        if told and action.key != told[0]:
            return go(action)
        told.append(action.key)
        return Done("the gang was told to stop")

    ward.door.on[Verb.STOP_JOB] = lie
    ward.world.strike("job_hang", SICK, 0)
    ward.until(lambda: len(attempts(ward)) == 2, 14_400.0)
    ends = [f for f in ward.facts("job-end") if f.detail["attempt"] == 1]
    assert ends != []
    assert ends[0].t <= ward.facts("place")[1].t
    ward.ends_well()


def test_lesson_15_an_owner_who_starts_the_job_again_is_not_doubled_by_us() -> None:
    """We wait for capacity; two nodes come free and the owner takes them at once, which we hear of late."""
    ward = working_ward(nodes=6, policy=a_policy(max_verb="DRAIN"))
    ward.fill_limits("node-0004", "node-0005")
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_job("llama", RecoveryPhase.WAITING_FOR_CAPACITY)
    for name in ("node-0004", "node-0005"):
        ward.world.people.uncordon(name)
    ward.world.flush()
    ward.door.late = lambda change: 120.0
    job = ward.world.jobs["llama"]
    ward.world.gangs._requeue(job, job.life, again=False)
    ward.until(lambda: ward.door.sent(Verb.RESTART_JOB), 60.0)
    ward.passes(600.0)
    ward.door.late = lambda change: 0.0
    assert job.live
    assert len(attempts(ward)) == 2
    ward.ends_well()


def test_a_later_attempt_than_the_one_we_knew_is_looked_after_when_it_dies() -> None:
    """The next leader's first look is old, so it takes the second attempt for the first; then that one dies."""
    ward = working_ward()
    alive = ward.run.platform.observe()
    ward.world.strike("unexplained_job_failure", SICK)
    ward.until(lambda: len(attempts(ward)) == 2)
    ward.door.old = alive
    ward.crash(back_after=1.0)
    ward.passes(1500.0)
    ward.world.strike("unexplained_job_failure", attempts(ward)[1][0])
    ward.until(lambda: len(attempts(ward)) == 3, 1800.0)
    ward.ends_well()


def test_a_node_that_was_repaired_and_proved_well_is_capacity_for_the_job_it_had_hurt() -> None:
    ward = working_ward(nodes=4)
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_ended(SICK)
    ward.until(lambda: ward.world.jobs["llama"].live, 300.0)
    assert SICK in attempts(ward)[1]
    ward.ends_well()


# -- open questions that the product answers


def test_a_rank_stuck_on_an_escalated_node_does_not_keep_its_job_from_the_spares() -> None:
    """Fenced by attempt number: what an old rank writes on a node that carries our mark no later attempt reads."""
    ward = working_ward(policy=a_policy(max_verb="DRAIN"))  # so nothing removes the rank
    ward.world.strike("driver_hung", SICK, cure="reboot")
    ward.until(lambda: len(attempts(ward)) == 2, 14_400.0)
    assert SICK not in attempts(ward)[1]
    ward.until_phase(SICK, Phase.ESCALATED, 43_200.0)
    assert ward.world.nodes[SICK].stuck == ["llama"]
    ward.ends_well()
    assert ward.world.jobs["llama"].live


def test_a_rank_stuck_on_a_node_that_no_longer_answers_holds_a_later_attempt_until_its_owner_has_spoken() -> None:
    """That job had left the node, so its restart was asked for and refused for ever (seed 50000882)."""
    ward = working_ward(policy=a_policy(max_verb="DRAIN"))
    ward.world.strike("driver_hung", SICK, cure="reboot")
    ward.until(lambda: len(attempts(ward)) == 2, 14_400.0)
    ward.world.strike("host_crash", SICK, cure="reboot")
    ward.passes(600.0)
    ward.world.gangs.stop(ward.world.jobs["llama"], "alice", JobPhase.FAILED)
    ward.passes(7200.0)
    assert (len(attempts(ward)), ward.facts("restart-refused")) == (2, [])
    assert any(f"{SICK}" in n.body and "sickbay job restart llama" in n.body for n in ward.run.mailbox.notices)
    ward.run.store.create(Command("order", "restart", "llama", "alice", "it is dead", ward.world.now))
    ward.until(lambda: len(attempts(ward)) == 3, 3600.0)


def test_a_job_without_capacity_rests_with_a_notice_and_goes_on_when_there_is_some() -> None:
    ward = working_ward(nodes=5, policy=a_policy(max_verb="REBOOT"), jobs=JobPolicy(capacity_s=1800.0))
    for name in (SICK, "node-0004"):
        ward.world.strike("gpu_lost_79", name, 0, cure="power_cycle")
    ward.until(lambda: any(n.title == "llama waits for capacity" for n in ward.run.mailbox.notices), 14_400.0)
    assert len(attempts(ward)) == 1
    ward.passes(7200.0)
    ward.run.settings = replace(ward.run.settings, policy=a_policy())
    ward.crash()  # its operator lets it go further, and starts it again
    ward.says("retry", ward.until_phase(SICK, Phase.ESCALATED))
    ward.until(lambda: len(attempts(ward)) == 2, 14_400.0)
    ward.ends_well(14_400.0)


def test_a_stop_that_gets_no_answer_is_asked_again_until_it_does_and_nothing_is_started_meanwhile() -> None:
    ward = working_ward()
    since = ward.world.now
    ward.door.on[Verb.STOP_JOB] = lambda action, go: (
        go(action) if ward.world.now > since + 5400.0 else Retry(30.0, "no answer in time")
    )
    ward.world.strike("job_hang", SICK, 0)
    ward.until(lambda: len(attempts(ward)) == 2, 14_400.0)
    assert ward.facts("place")[1].t > since + 5400.0
    assert len({a.key for a in ward.door.sent(Verb.STOP_JOB)}) > 1
    ward.ends_well()


# -- the rules taken away


def _stop_anyway(old: Any) -> Any:
    def stop(self: Any, action: Any) -> Any:
        return old(self, replace(action, args={k: v for k, v in action.args.items() if k != "last_step"}))

    return stop


def _life_unseen(old: Any) -> Any:
    def waiting(s: Any, r: Any, policy: Any, now: Any) -> Any:
        return old(replace(s, job=replace(s.job, phase=JobPhase.STOPPED)), r, policy, now)

    return waiting


def _shuns_for_ever(old: Any) -> Any:
    return lambda job, good, suspects: old(job, good, suspects) if suspects else None


def _as_we_knew_it(old: Any) -> Any:
    def running(s: Any, r: Any, policy: Any, now: Any) -> Any:
        move, after = old(s, r, policy, now)
        return move, replace(after, attempt=r.attempt)

    return running


def _never_later(old: Any) -> Any:
    def stopping(s: Any, r: Any, policy: Any, now: Any) -> Any:
        return old(replace(s, job=replace(s.job, attempt=min(s.job.attempt, r.attempt))), r, policy, now)

    return stopping


def _no_fence(old: Any) -> Any:
    def refusal(self: Any, job: Any, nodes: Any, from_step: Any) -> str:
        stuck = [n.name for n in self.world.nodes.values() if job.id in n.stuck]
        return f"ranks live on {stuck}" if stuck else str(old(self, job, nodes, from_step))

    return refusal


def _told_nothing(old: Any) -> Any:
    return lambda s, r, why, now: replace(old(s, r, why, now), notices=())


P, E = RecoveryPhase, JobEvent
RULES: list[tuple[Callable[[], None], str, Removed]] = [
    (test_lesson_07_a_job_that_moves_is_not_stopped_because_its_steps_were_told_late, "stop does not look",
     door("_stop_job", _stop_anyway)),
    (test_lesson_08_a_hung_node_drains_as_unreachable_and_its_job_moves, "a hung node never drains",
     row(Phase.DRAINING, Event.UNREACHABLE, Phase.DRAINING)),
    (test_lesson_12_a_restart_that_dies_at_once_is_made_again, "no row for a restart that dies",
     job_row(P.RESTARTING, E.DIED, None)),
    (test_lesson_12_a_restart_that_makes_no_step_is_stopped_and_made_again, "no row for a restart that stands",
     job_row(P.RESTARTING, E.TIMED_OUT, None)),
    (test_lesson_12_a_restart_that_is_refused_is_tried_again_and_spends_no_attempt, "no row for a refused restart",
     job_row(P.RESTARTING, E.REFUSED, P.FAILED)),
    (test_lesson_15_an_attempt_that_still_lives_is_not_ignored_and_no_second_one_is_started,
     "a live attempt is ignored",
     both(rule("core.recover", P.WAITING_FOR_CAPACITY, _life_unseen),
          wrapped("sim.gangs", "Gangs.refusal", two_lives))),
    (test_lesson_15_an_owner_who_starts_the_job_again_is_not_doubled_by_us, "the door does not look",
     both(wrapped("platforms.simulated.gang_door", "restart", restart_anyway),
          wrapped("sim.gangs", "Gangs.refusal", two_lives))),
    (test_a_later_attempt_than_the_one_we_knew_is_looked_after_when_it_dies, "the attempt we knew is the one that died",
     both(rule("core.recover", P.RUNNING, _as_we_knew_it), rule("core.recover", P.STOPPING, _never_later))),
    (test_a_node_that_was_repaired_and_proved_well_is_capacity_for_the_job_it_had_hurt, "a suspect for ever",
     wrapped("core.capacity", "choose", _shuns_for_ever)),
    (test_a_rank_stuck_on_an_escalated_node_does_not_keep_its_job_from_the_spares, "no fence by attempt",
     wrapped("sim.gangs", "Gangs.refusal", _no_fence)),
    (test_a_job_without_capacity_rests_with_a_notice_and_goes_on_when_there_is_some, "nobody is told",
     wrapped("core.recover", "_entering", _told_nothing)),
    (test_a_stop_that_gets_no_answer_is_asked_again_until_it_does_and_nothing_is_started_meanwhile, "stopped, surely",
     job_row(P.STOPPING, E.TIMED_OUT, P.FAILED)),
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "removed"), [(s, r) for s, _, r in RULES], ids=[words for _, words, _ in RULES])
def test_a_scenario_notices_when_its_rule_is_taken_away(scenario: Callable[[], None], removed: Removed) -> None:
    notices(scenario, removed)


def test_what_the_examination_of_a_dead_job_finds_is_treated_though_its_nodes_agent_is_mute() -> None:
    w = Ward()
    w.submit(nodes=names(4, 3))
    w.passes(1_000.0)
    w.world.agents.silence(w.world.nodes["node-0005"])
    w.world.strike("gpu_lost_79", "node-0005", 0, cure="reboot")
    w.passes(3 * 3600.0)
    assert w.treatments("node-0005") == ["REBOOT"]


# --- deleted and submitted again under the same name, faster than anybody looks ---------------------------------------


def again(ward: Ward, on: tuple[str, ...]) -> Ward:
    """Both fall into one pass: nobody sees that it is away."""
    ward.world.people.delete_job("llama")
    ward.submit("llama", on)
    return ward.passes(1.0)


def test_a_job_that_was_submitted_again_at_once_is_another_one_and_has_its_whole_time_to_start() -> None:
    """The old one's progress was its own: it was stalled at 240 s and stopped while it started."""
    ward = working_ward()
    again(ward, names(4, 4))
    ward.until_job("llama", RecoveryPhase.RUNNING, within=60.0)
    ward.passes(3_600.0)
    assert [e.event for e in ward.recovery("llama").journal] == ["ADOPTED"]  # type: ignore[union-attr]
    (ended,) = ward.run.store.history(Recovery)
    assert ended.phase is RecoveryPhase.GONE
    assert len(ward.facts("job-end")) == 1
    ward.ends_well()


def test_what_its_owner_said_of_the_old_one_starts_no_attempt_beside_the_new_one() -> None:
    """It was restarted beside its own ranks, which made steps and wrote (f6d of an outside attacker)."""
    ward = Ward(32, rack_size=8)
    ward.submit()
    ward.passes(3_600.0)
    cut = ward.world.network.cut(names(0, 4), "control")
    ward.passes(900.0)
    ward.run.store.create(Command("order-1", "restart", "llama", "ann", "on purpose", ward.world.now))
    ward.world.note("person", "", act="restart-job", by="ann", job="llama", dark=",".join(names(0, 4)))
    ward.passes(900.0)
    assert ward.world.jobs["llama"].attempt == 2
    ward.world.network.mend(cut)
    ward.passes(7_200.0)
    since = len(ward.facts("two-attempts"))
    again(ward, names(16, 4)).passes(200.0)
    ward.world.network.cut(names(16, 4), "control")
    ward.passes(3 * 3_600.0)
    assert len(ward.facts("two-attempts")) == since
    assert ward.world.jobs["llama"].attempt == 1
    told = [n for n in ward.run.mailbox.notices if "out of reach" in n.title]
    assert len(told) == 2, "of the second one too, though both were at their first attempt"
    ward.is_sound()


def test_a_job_that_was_submitted_again_while_nobody_led_has_not_lost_its_number() -> None:
    ward = working_ward()
    ward.world.strike("host_crash", SICK, 0, cure="reboot")
    ward.until(lambda: ward.world.jobs["llama"].attempt == 2 and ward.world.jobs["llama"].live, within=14_400.0)
    ward.passes(900.0)
    ward.crash(back_after=30.0)
    again(ward, names(4, 4)).passes(3_600.0)
    assert ward.recovery("llama").attempt == 1  # type: ignore[union-attr]
    assert not [n for n in ward.run.mailbox.notices if "number" in n.title]
    ward.ends_well()


def test_an_owners_word_about_ranks_out_of_reach_is_over_when_they_are_back() -> None:
    """Cut off again two hours later, the very same attempt was started anew beside its own ranks, without a word."""
    ward = Ward(32, rack_size=8)
    ward.submit()
    ward.passes(3_600.0)
    cut = ward.world.network.cut(names(0, 4), "control")
    ward.passes(150.0)
    ward.run.store.create(Command("order-1", "restart", "llama", "ann", "on purpose", ward.world.now))
    ward.passes(60.0).world.network.mend(cut)
    ward.passes(7_200.0)
    ward.world.network.cut(names(0, 4), "control")
    ward.passes(3 * 3_600.0)
    assert ward.facts("two-attempts") == []
    assert ward.world.jobs["llama"].attempt == 1
