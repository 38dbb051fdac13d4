"""The door as the controller uses it: one call at a time, sent once, observed afterwards, never made late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sickbay.controller.crew import InlineCrew, PoolCrew
from sickbay.controller.dispatch import RESEND_S, UNREAD_S, Answer, Dispatcher, may_resend, sent
from sickbay.core.machine import withdrawal
from sickbay.model import Action, Before, Done, Failed, Lost, Node, Outcome, Place, Retry, Started, Unguarded, Verb
from tests.builders import a_gpu, a_node, an_action
from tests.controller.door import Door, HandClock


class LaterCrew:
    """Keeps the work until it is told to do it: a busy pool."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Outcome], Callable[[Outcome], None]]] = []

    def submit(self, work: Callable[[], Outcome], answer: Callable[[Outcome], None]) -> None:
        self.waiting.append((work, answer))

    def work(self) -> None:
        for work, answer in self.waiting:
            answer(work())
        self.waiting.clear()

    def close(self) -> None: ...


class Desk:
    def __init__(self, crew: LaterCrew | None = None, *nodes: object) -> None:
        self.door, self.clock, self.answers = Door(), HandClock(), list[Answer]()
        self.crew = crew
        self.dispatcher = Dispatcher(self.door, crew or InlineCrew(), self.clock, self.answers.append)

    def performs(self, action: Action, outcome: Outcome | None = None) -> None:
        if outcome is not None:
            self.door.says[action.verb] = lambda _: outcome
        self.dispatcher.perform(action, "n1", "node", watch=100.0)


@pytest.mark.parametrize("outcome", [Done("ok"), Failed("no"), Unguarded("not ours"), Lost("never arrived")])
def test_a_final_answer_is_delivered_under_its_key(outcome: Outcome) -> None:
    desk = Desk()
    desk.performs(an_action(), outcome)
    assert [(a.owner, a.key, a.outcome) for a in desk.answers] == [("n1", "n1.1/7", outcome)]


@pytest.mark.parametrize("outcome", [Started(30.0), Retry(30.0, "busy")])
def test_long_work_is_asked_again_later_and_says_what_it_waits_for(outcome: Outcome) -> None:
    desk = Desk()
    desk.performs(an_action(), outcome)
    assert [answer.outcome for answer in desk.answers] == [outcome]
    assert not desk.dispatcher.is_due(an_action(), 129.0)
    assert desk.dispatcher.due_at(an_action()) == 130.0
    assert desk.dispatcher.is_due(an_action(), 130.0)


def test_an_answer_that_depends_on_the_node_comes_with_a_fresh_look_at_it() -> None:
    desk = Desk()
    desk.performs(an_action(Verb.CORDON))
    assert desk.answers[0].node is not None
    assert desk.answers[0].node.cordoned


def test_an_action_has_one_call_under_way() -> None:
    desk = Desk(LaterCrew())
    desk.performs(an_action())
    assert not desk.dispatcher.is_due(an_action(), 1e9)
    assert desk.dispatcher.due_at(an_action()) is None


def test_a_node_has_one_call_under_way_so_a_late_cordon_cannot_land_after_its_release() -> None:
    desk = Desk(LaterCrew())
    desk.performs(an_action(Verb.CORDON, "n1.1/3"))
    release, other = an_action(Verb.RELEASE, "n1.1/4"), an_action(Verb.CORDON, "n2.1/1", place=Place("n2"))
    assert not desk.dispatcher.is_due(release, 1e9)
    assert desk.dispatcher.is_due(other, 1e9)
    assert desk.crew is not None
    desk.crew.work()
    assert desk.dispatcher.is_due(release, 1e9)


def test_two_jobs_do_not_wait_for_each_other() -> None:
    desk = Desk(LaterCrew())
    stop = an_action(Verb.STOP_JOB, "llama#5", place=Place(""), args={"job": "llama"})
    desk.performs(stop)
    assert not desk.dispatcher.is_due(replace(stop, key="llama#6"), 1e9)
    assert desk.dispatcher.is_due(replace(stop, key="mixtral#1", args={"job": "mixtral"}), 1e9)


def test_an_action_waits_for_its_own_time() -> None:
    assert not Desk().dispatcher.is_due(an_action(ask_at=50.0), 49.0)
    assert Desk().dispatcher.is_due(an_action(ask_at=50.0), 50.0)


def test_a_treatment_is_taken_back_at_once_and_not_when_it_is_time_to_hear_how_it_fares() -> None:
    desk, sent_one = Desk(), an_action(sends=1)
    desk.performs(sent_one, Started(30.0))
    back = withdrawal(sent_one)
    assert desk.dispatcher.is_due(back, 100.0)
    desk.performs(back, Retry(30.0, "not yet"))
    assert (desk.dispatcher.is_due(back, 129.0), desk.dispatcher.due_at(back)) == (False, 130.0)
    desk.dispatcher.forget(back.key)
    assert desk.dispatcher.due_at(back) == desk.dispatcher.due_at(sent_one) == 0.0


@pytest.mark.parametrize("verb", [Verb.REBOOT, Verb.RESTART_JOB])
def test_a_call_that_comes_too_late_after_its_commit_is_not_made(verb: Verb) -> None:
    desk = Desk(LaterCrew())
    desk.performs(an_action(verb, call=True, sends=1))
    desk.clock.passes(5.1)
    assert desk.crew is not None
    desk.crew.work()
    assert not desk.door.asked
    assert isinstance(desk.answers[0].outcome, Retry)


def test_looking_is_never_too_late() -> None:
    desk = Desk(LaterCrew())
    desk.performs(an_action(Verb.REBOOT, call=False, sends=1))
    desk.clock.passes(60.0)
    assert desk.crew is not None
    desk.crew.work()
    assert len(desk.door.asked) == 1


def test_a_lost_call_is_made_once_more_and_then_no_more() -> None:
    lost = Lost("no such request")
    assert may_resend(an_action(sends=1), lost)
    assert not may_resend(an_action(sends=2), lost)
    assert not may_resend(an_action(sends=1), Done())


def test_a_lost_treatment_waits_before_it_is_sent_again_and_a_job_does_not() -> None:
    desk = Desk()
    reboot, restart = an_action(Verb.REBOOT), an_action(Verb.RESTART_JOB, "llama#5", args={"job": "llama"})
    for action in (reboot, restart):
        desk.dispatcher.resend_later(action, 100.0)
    assert desk.dispatcher.due_at(reboot) == 100.0 + RESEND_S
    assert desk.dispatcher.is_due(restart, 100.0)


def test_what_a_cancelled_case_only_watches_is_never_called_again() -> None:
    assert not may_resend(an_action(sends=1, call=False), Lost("no such request"))


def test_only_what_may_be_sent_once_is_counted() -> None:
    assert not may_resend(an_action(Verb.CORDON, sends=1), Lost("?"))


def test_what_was_true_before_is_read_directly() -> None:
    desk = Desk()
    desk.door.nodes["n1"] = a_node(boot_id="b7", gpus=(a_gpu("S1"),))
    assert desk.dispatcher.before(an_action()) == Before("b7", "i-n1", "uid-n1", ("GPU-S1",))


def test_a_node_that_cannot_be_read_is_not_treated() -> None:
    desk = Desk()
    desk.door.nodes.clear()
    assert desk.dispatcher.before(an_action()) is None


def test_a_commit_says_that_a_call_is_about_to_be_made() -> None:
    action = sent(an_action(call=False), Before("b7"), 123.0)
    assert (action.before.boot_id, action.sends, action.sent_at, action.call) == ("b7", 1, 123.0, True)
    assert sent(action, Before("b7"), 124.0).sends == 2


def test_a_platform_that_raises_is_asked_again_later(caplog: pytest.LogCaptureFixture) -> None:
    crew, said = PoolCrew(1), list[Outcome]()

    def work() -> Outcome:
        raise RuntimeError("a bug in the adapter")

    crew.submit(work, said.append)
    crew.close()
    assert isinstance(said[0], Retry)
    assert "a bug in the adapter" in said[0].why


def test_an_answer_that_could_not_be_heard_leaves_the_node_free_to_be_asked_again() -> None:
    desk = Desk()

    def broken(node: str) -> Node | None:
        raise RuntimeError("a bug in the adapter")

    desk.door.look = broken  # type: ignore[method-assign]
    desk.performs(an_action(Verb.CORDON), Done())
    assert desk.answers == []
    assert desk.dispatcher.due_at(an_action(Verb.CORDON)) == 100.0 + UNREAD_S
