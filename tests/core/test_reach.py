"""Ranks out of reach: when a job may be started elsewhere, what its owner hears, and what ends the wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.core import reach
from sickbay.core.recover import decide
from sickbay.core.turn import JobSlice, Now
from sickbay.model import JobPhase, Recovery, RecoveryPhase
from sickbay.settings import JobPolicy
from tests.builders import a_command, a_job, a_node, a_recovery

NOW = Now(1_000.0, 2_000.0)
DEAD_JOB = a_job(JobPhase.FAILED)
WAITING = a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY)


def a_slice(since: float = 500.0, **changed: Any) -> JobSlice:
    """n2 does not answer; two other nodes are good and free."""
    values: dict[str, Any] = {
        "job": DEAD_JOB, "recovery": WAITING, "good": ("n8", "n9"), "unreachable": {"n2": since},
    }  # fmt: skip
    return JobSlice(**{**values, **changed})


def loose(s: JobSlice, r: Recovery = WAITING) -> tuple[str, ...]:
    assert s.job is not None
    return reach.loose(s, r, s.job)


# --- may ranks hide there ---------------------------------------------------------------------------------------------


def test_ranks_may_hide_on_a_node_that_does_not_answer_or_is_not_to_be_seen() -> None:
    assert reach.may_hide_ranks(a_node(ready=False))
    assert reach.may_hide_ranks(None)
    assert not reach.may_hide_ranks(a_node())


@pytest.mark.parametrize("shown", [{"machine": "off"}, {"machine": "dead"}, {"gone": True}])
def test_no_rank_hides_on_a_machine_without_power_or_one_that_is_gone(shown: dict[str, Any]) -> None:
    assert not reach.may_hide_ranks(a_node(ready=False, **shown))


def test_a_machine_that_its_provider_calls_retired_may_still_run() -> None:
    assert reach.may_hide_ranks(a_node(ready=False, machine="retired"))


# --- may the job be started elsewhere ---------------------------------------------------------------------------------


def test_a_job_is_not_started_elsewhere_while_ranks_out_of_reach_may_write() -> None:
    made = decide(a_slice(), JobPolicy(), NOW).recovery
    assert made is not None
    assert made.phase is RecoveryPhase.WAITING_FOR_CAPACITY
    assert made.refusal == (
        "ranks of an earlier attempt may still run and write on n2, which does not answer; if you know that they write "
        "nothing any more: sickbay job restart llama"
    )


@pytest.mark.parametrize("node", ["n2", "n7"], ids=["of the last attempt", "of one before"])
def test_ranks_hide_on_a_node_that_is_shown_with_some_and_went_away_after_the_stop(node: str) -> None:
    """The brain asked for a restart that its door refused, for ever, and its owner heard no way out (seeds 762,
    50000882)."""
    s, stopped = a_slice(since=500.0), replace(WAITING, stopped=400.0)
    assert loose(s, stopped) == ()
    s = replace(s, left_on={node: 500.0})
    assert loose(s, stopped) == (node,)
    (note,) = reach.told(s, stopped, NOW).notices
    assert note.body.startswith(f"1 node with ranks of llama does not answer: {node}.")


def test_an_owners_word_is_about_ranks_of_earlier_attempts_too() -> None:
    s = a_slice(unreachable={}, left_on={"n7": 500.0}, commands=(a_command("restart"),))
    said = reach.obey(s, WAITING, Now(5.0, 5.0))
    assert (said.unfenced, loose(s, said)) == (DEAD_JOB.attempt, ())


def test_when_they_answer_again_it_is() -> None:
    made = decide(a_slice(unreachable={}), JobPolicy(), NOW).recovery
    assert made is not None
    assert made.phase is RecoveryPhase.RESTARTING


def test_a_job_whose_checkpoints_are_fenced_by_attempt_need_not_wait() -> None:
    assert loose(a_slice(job=replace(DEAD_JOB, fenced=True))) == ()


def test_its_owners_word_is_for_this_attempt_and_no_later_one() -> None:
    said = reach.obey(replace(a_slice(), commands=(a_command("restart"),)), WAITING, Now(5.0, 5.0))
    assert said.unfenced == DEAD_JOB.attempt
    assert (said.journal[-1].event, said.journal[-1].why) == ("RESTART", "because I say so")
    assert loose(a_slice(), said) == ()
    assert loose(a_slice(job=replace(DEAD_JOB, attempt=DEAD_JOB.attempt + 1)), said) == ("n2",)


def test_another_word_changes_nothing_and_is_written_down() -> None:
    said = reach.obey(replace(a_slice(), commands=(a_command("split"),)), WAITING, Now(5.0, 5.0))
    assert said.unfenced == WAITING.unfenced
    assert (said.journal[-1].event, said.journal[-1].by) == ("REFUSED", "ann")
    assert said.journal[-1].why == "unknown command 'split': nothing is done"


def test_its_owners_word_means_nothing_while_no_rank_is_out_of_reach() -> None:
    said = reach.obey(replace(a_slice(unreachable={}), commands=(a_command("restart"),)), WAITING, Now(5.0, 5.0))
    assert said.unfenced == WAITING.unfenced


def test_a_node_that_went_away_after_every_rank_was_gone_hides_none() -> None:
    stopped = replace(WAITING, stopped=600.0)
    assert loose(a_slice(since=601.0), stopped) == ()
    assert loose(a_slice(since=600.0), stopped) == ("n2",)


# --- what its owner hears ---------------------------------------------------------------------------------------------


def test_its_owner_is_told_once_an_attempt_what_it_means_and_what_to_type() -> None:
    told = reach.told(a_slice(), WAITING, NOW)
    (note,) = told.notices
    assert note.body.startswith("1 node with ranks of llama does not answer: n2.")
    assert "sickbay job restart llama" in note.body
    assert reach.told(a_slice(), told, Now(9_000.0, 9_000.0)) is told


def test_a_moment_out_of_reach_is_not_worth_a_word() -> None:
    assert reach.told(a_slice(since=941.0), WAITING, NOW) is WAITING


def test_a_job_that_makes_steps_all_the_same_is_not_worth_a_word() -> None:
    running = a_recovery(progressed=900.0)
    assert reach.told(a_slice(), running, NOW) is running
    assert reach.told(a_slice(), replace(running, progressed=400.0), NOW).notices


# --- what the platform's door is told ---------------------------------------------------------------------------------


def test_the_door_is_told_whom_it_may_leave_behind() -> None:
    s = a_slice(unreachable={}, powerless=("n1", "n2"))
    assert reach.behind(s, WAITING, DEAD_JOB) == "n1,n2"
    assert reach.behind(replace(s, powerless=()), WAITING, DEAD_JOB) == ""
    assert reach.behind(s, WAITING, replace(DEAD_JOB, fenced=True)) == "all"
    assert reach.behind(s, replace(WAITING, unfenced=DEAD_JOB.attempt), DEAD_JOB) == "all"
    assert reach.behind(s, replace(WAITING, unfenced=DEAD_JOB.attempt - 1), DEAD_JOB) == "n1,n2"


def test_of_very_many_machines_without_power_an_action_carries_some() -> None:
    s = a_slice(powerless=tuple(f"n{i}" for i in range(500)))
    assert len(reach.behind(s, WAITING, DEAD_JOB).split(",")) == reach.MOST_BEHIND


def test_a_restart_carries_it() -> None:
    made = decide(a_slice(unreachable={}, powerless=("n2",)), JobPolicy(), NOW).recovery
    assert made is not None
    assert made.pending is not None
    assert made.pending.args["behind"] == "n2"
    plain = decide(a_slice(unreachable={}), JobPolicy(), NOW).recovery
    assert plain is not None
    assert plain.pending is not None
    assert "behind" not in plain.pending.args


# --- a node that is back ----------------------------------------------------------------------------------------------


def test_a_node_that_is_back_holds_the_job_until_its_kubelet_has_ended_the_old_ranks() -> None:
    """It is Ready half a minute before: a second attempt began beside ranks that wrote."""
    made = decide(a_slice(unreachable={}, ending=("n2",)), JobPolicy(), NOW).recovery
    assert made is not None
    assert made.phase is RecoveryPhase.WAITING_FOR_CAPACITY
    assert made.refusal == "ranks of attempt 1 are still being ended on n2"


def test_an_owners_word_counts_for_ranks_that_only_the_platform_knows_of() -> None:
    """The node went away just after its stop was confirmed, and the door still shows a rank there."""
    stopped = replace(WAITING, stopped=600.0)
    s = a_slice(since=601.0, commands=(a_command("restart"),))
    assert loose(s, stopped) == ()
    assert reach.obey(s, stopped, Now(5.0, 5.0)).unfenced == DEAD_JOB.attempt


@pytest.mark.parametrize(
    ("seen", "stands"),
    [({}, 0), ({"unreachable": {"n2": 500.0}}, 1), ({"powerless": ("n2",)}, 1), ({"job": DEAD_JOB}, 1)],
    ids=["all answer", "one is away", "one has no power", "it is down"],
)
def test_an_owners_word_is_over_once_the_job_runs_and_all_its_nodes_answer(seen: dict[str, Any], stands: int) -> None:
    """Said two hours before, it started an attempt beside ranks of the same one that had been cut off again."""
    r = a_recovery(unfenced=1)
    assert reach.forget(JobSlice(**{"job": a_job(), "recovery": r, **seen}), r).unfenced == stands
