"""Whatever one node, job, record, command or rule raises stays with it: the pass goes on for all others."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sickbay.controller import desk, monitor
from sickbay.controller.containment import FIRST_S, LONGEST_S, MOST_TOLD, Containment
from sickbay.controller.unheeded import why_not
from sickbay.core import admit, obey, rebuild, recover
from sickbay.core.decide import decide as decided
from sickbay.core.turn import NodeSlice, Now
from sickbay.errors import InputError, NotLeader, StoreError
from sickbay.model import (
    Case,
    Command,
    JobPhase,
    Latch,
    Ledger,
    NodeRecord,
    Notice,
    Phase,
    Place,
    Retry,
    Seat,
    Severity,
    Verb,
    When,
)
from sickbay.settings import Limit
from sickbay.sim.swarm import Crash
from sickbay.stores.memory import MemoryStore
from tests.builders import a_finding, a_job, a_node, a_policy
from tests.controller.door import Door, Shift, busy

HOUR = 3_600.0


def struck(shift: Shift, *names: str, code: str = "xid.79") -> Shift:
    for name in names:
        node = shift.door.nodes[name]
        seen = len(node.findings) + node.version
        shift.door.shows(name, findings=(a_finding(code, seen, node=name, boot=node.boot_id),))
    return shift


def ward(*names: str, **settings: Any) -> Shift:
    return Shift(Door(*(a_node(name) for name in names)), **settings)


class Broken(RuntimeError):
    """A bug of ours."""


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of nodes about which no decision can be made."""
    names, decide = {"n1"}, decided

    def raises(s: NodeSlice, ctx: Any) -> Any:
        if s.record.node in names:
            raise Broken(f"nobody thought of {s.record.node}")
        return decide(s, ctx)

    monkeypatch.setattr(desk, "decide", raises)
    return names


def told(shift: Shift, word: str) -> list[Notice]:
    return [n for n in shift.pager.told if word in n.title + n.body]


# --- one node -------------------------------------------------------------------------------------------------------


def test_what_ended_while_nothing_could_be_decided_about_a_node_is_heard_afterwards(poisoned: set[str]) -> None:
    """Its REBOOT had timed out by then, and a node that was well again got the next stronger treatment."""
    poisoned.clear()
    shift = ward("n1", policy=a_policy(approval=()))
    shift.door.says[Verb.REBOOT] = busy
    case = struck(shift, "n1").passes(600.0).case()
    assert case is not None
    assert case.phase is Phase.REPAIRING
    poisoned.add("n1")
    shift.passes(2 * HOUR)
    poisoned.clear()
    del shift.door.says[Verb.REBOOT]
    shift.door.shows("n1", boot_id="after-the-reboot", findings=())
    shift.passes(HOUR)
    assert shift.door.called(Verb.POWER_CYCLE) == []
    assert shift.case() is None


def test_a_node_that_raises_is_left_alone_and_the_others_are_treated(poisoned: set[str]) -> None:
    shift = struck(ward("n1", "n2", policy=a_policy(approval=(), max_out_fleet=a_room(2))), "n1", "n2").passes(600.0)
    assert shift.case("n1") is None
    assert {a.place.node for a in shift.door.asked} == {"n2"}
    assert shift.door.called(Verb.REBOOT)


def a_room(count: int) -> Any:
    return Limit(count=count, at_least=count)


def test_it_is_told_once_in_words_however_often_it_is_tried(poisoned: set[str]) -> None:
    shift = struck(ward("n1", "n2"), "n1").passes(6 * HOUR)
    (notice,) = told(shift, "not attended")
    assert notice.level == "urgent"
    assert notice.title == "n1 is not attended: an internal error"
    assert "Broken: nobody thought of n1" in notice.body
    assert "Nothing is written or done about n1" in notice.body
    assert "tried again" in notice.body


def test_it_is_tried_again_with_back_off_and_attended_when_it_can_be(poisoned: set[str]) -> None:
    shift = struck(ward("n1"), "n1").passes(2 * HOUR)
    tries = len(shift.controller.contained)
    assert 2 * HOUR / LONGEST_S <= tries <= 2 * HOUR / LONGEST_S + 10
    poisoned.clear()
    shift.passes(LONGEST_S + 600.0)
    assert shift.door.called(Verb.REBOOT)
    assert shift.controller.containment.unattended() == {}


def test_whoever_lists_nodes_sees_who_is_not_attended_until_it_is(poisoned: set[str]) -> None:
    shift = struck(ward("n1", "n2"), "n1").passes(60.0)
    (ledger,) = shift.store.list(Ledger)
    assert ledger.value.unattended == {"node n1": "Broken: nobody thought of n1"}
    poisoned.clear()
    shift.passes(HOUR)
    (ledger,) = shift.store.list(Ledger)
    assert ledger.value.unattended == {}


def test_what_the_simulator_judges_names_the_node_and_the_error(poisoned: set[str]) -> None:
    shift = struck(ward("n1"), "n1").passes(1.0)
    assert shift.controller.contained[0].startswith("node n1: Broken: nobody thought of n1 (")
    assert shift.controller.containment.counts.value("node") == 1


def test_the_traceback_is_in_the_log_at_most_once_an_hour_for_each_kind(
    poisoned: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    poisoned |= {"n2", "n3"}
    with caplog.at_level(logging.ERROR):
        struck(ward("n1", "n2", "n3"), "n1", "n2", "n3").passes(HOUR - 60.0)
    assert len([r for r in caplog.records if r.exc_info]) == 1
    with caplog.at_level(logging.ERROR):
        caplog.clear()
        shift = struck(ward("n1"), "n1").passes(3 * HOUR)
    assert shift is not None
    assert 2 <= len([r for r in caplog.records if r.exc_info]) <= 4


def test_a_bug_that_hits_every_node_is_a_handful_of_notices(poisoned: set[str]) -> None:
    names = [f"n{i}" for i in range(1, 41)]
    poisoned |= set(names)
    shift = struck(ward(*names), *names).passes(HOUR / 2)
    assert len(told(shift, "internal error")) <= MOST_TOLD + 1
    assert told(shift, f"{len(names)} nodes")


def test_half_a_decision_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised after the case was put: neither case nor record is in the store."""

    def raises(self: Any, name: str, *rest: Any) -> None:
        raise Broken("no index")

    monkeypatch.setattr(desk.Desk, "_settle", raises)
    shift = struck(ward("n1"), "n1").passes(60.0)
    assert shift.store.list(NodeRecord) == []
    assert shift.case("n1") is None
    assert shift.door.asked == []


def test_a_case_under_way_is_not_asked_for_while_its_node_raises(poisoned: set[str]) -> None:
    poisoned.clear()
    shift = struck(ward("n1"), "n1")
    shift.door.says[Verb.DRAIN] = lambda action: Retry(5.0, "not yet")
    shift.passes(120.0)
    asked = len(shift.door.asked)
    poisoned.add("n1")
    struck(shift, "n1", code="xid.48").passes(FIRST_S)
    assert len(shift.door.asked) <= asked + 1
    poisoned.clear()
    del shift.door.says[Verb.DRAIN]
    shift.passes(HOUR)
    assert shift.door.called(Verb.REBOOT), "what was decided before the bug is taken up again"


# --- a record, a command, a job -------------------------------------------------------------------------------------


def test_a_record_that_no_rule_can_read_stops_only_its_own_node() -> None:
    shift = ward("n1", "n2")
    shift.controller.abandon()
    latch = Latch("no-such-fault", "x.1", Place("n1"), "b/1", "", 0.0, 0.0, Severity.REBOOT)
    shift.store.create(NodeRecord("n1", latched=(latch,)), 1)
    again = struck(shift.successor(), "n1", "n2").passes(600.0)
    assert {a.place.node for a in again.door.asked} == {"n2"}
    assert told(again, "no-such-fault")


def test_a_command_that_raises_is_set_aside_and_its_node_is_attended(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any) -> Any:
        raise Broken("what a command")

    monkeypatch.setitem(obey.OBEY, "approve", raises)
    shift = struck(ward("n1"), "n1").passes(1.0)
    case = shift.case("n1")
    assert case is not None
    shift.store.create(Command("c1", "approve", case.id, "alice", "why not", 0.0))
    shift.passes(900.0)
    assert shift.door.called(Verb.REBOOT), "the node is treated as if nothing had been said"
    assert shift.store.get(Command, "c1") is not None, "left untouched"
    (notice,) = told(shift, "internal error")
    assert "approve" in notice.title
    assert "alice" in notice.body


def test_a_job_that_raises_is_left_alone_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = recover.decide

    def raises(s: Any, *rest: Any) -> Any:
        if s.job is not None and s.job.id == "sick":
            raise Broken("what a job")
        return decide(s, *rest)

    monkeypatch.setattr(recover, "decide", raises)
    gangs = (a_job(id="sick", nodes=("n1",)), a_job(id="well", nodes=("n2",)))
    shift = Shift(Door(a_node("n1"), a_node("n2"), jobs=gangs)).passes(1.0)
    shift.door.shows_job("well", phase=JobPhase.FAILED)
    shift.door.shows_job("sick", phase=JobPhase.FAILED)
    shift.passes(60.0)
    assert {a.args.get("job") for a in shift.door.asked if not a.place.node} == {"well"}
    assert told(shift, "sick is not attended")


# --- rules of the pass ----------------------------------------------------------------------------------------------


def test_a_rule_that_raises_in_admission_stops_disruption_and_not_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = struck(ward("n1", "n2"), "n1").passes(1.0)
    shift.door.asked.clear()
    monkeypatch.setattr(admit, "_refusal", _raise)
    struck(shift, "n2").passes(120.0)
    case = shift.case("n2")
    assert case is not None
    assert case.phase is Phase.WAITING, "seen, and not taken out"
    assert not shift.door.called(Verb.REBOOT)
    (notice,) = told(shift, "admission to treatment")
    assert notice.level == "urgent"
    assert "No node is taken out of service or treated" in notice.body
    monkeypatch.undo()
    shift.passes(HOUR)
    assert shift.door.called(Verb.REBOOT)


def _raise(*_: Any, **__: Any) -> Any:
    raise Broken("no such rule")


def test_a_treatment_that_has_its_seat_is_not_sent_while_admission_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = struck(ward("n1"), "n1")
    look = shift.door.look
    monkeypatch.setattr(shift.door, "look", lambda n: _unread() if phase(shift) is Phase.REPAIRING else look(n))
    shift.passes(600.0)
    assert phase(shift) is Phase.REPAIRING, "admitted, and not sent: its node cannot be read"
    monkeypatch.setattr(admit, "admit", _raise)
    monkeypatch.setattr(shift.door, "look", look)
    shift.passes(120.0)
    assert not shift.door.called(Verb.REBOOT)
    monkeypatch.undo()
    assert shift.passes(120.0).door.called(Verb.REBOOT)


def phase(shift: Shift, node: str = "n1") -> Phase | None:
    case = shift.case(node)
    return case.phase if case else None


def _unread() -> Any:
    raise InputError("no look")


@pytest.mark.parametrize("kind", [Case, Ledger], ids=lambda k: k.__name__)
def test_what_cannot_be_written_stops_nothing_but_what_depends_on_it(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = ward("n1", "n2", policy=a_policy(approval=(), max_out_fleet=a_room(2)))
    create, commit = shift.store.create, shift.store.commit

    def refuses(value: Any) -> bool:
        return isinstance(value, kind) and getattr(value, "node", "n1") == "n1"

    monkeypatch.setattr(shift.store, "create", lambda v, *r: _raise() if refuses(v) else create(v, *r))
    monkeypatch.setattr(shift.store, "commit", lambda v, *r: _raise() if refuses(v) else commit(v, *r))
    struck(shift, "n1", "n2").passes(HOUR)
    touched = {a.place.node for a in shift.door.called(Verb.REBOOT)}
    assert touched == ({"n2"} if kind is Case else set()), "without its Ledger it takes nobody"
    assert shift.controller.contained
    assert shift.turns < 1_000, "and does not go round: it made twenty passes a second"


def test_a_rule_that_raises_in_the_monitor_costs_common_causes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor.Monitor, "look", _raise)
    shift = struck(ward("n1"), "n1").passes(600.0)
    assert shift.door.called(Verb.REBOOT)
    assert len(told(shift, "common causes")) == 1


def test_an_outbox_that_raises_costs_nothing_but_the_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = struck(ward("n1"), "n1")
    monkeypatch.setattr(shift.controller._outbox, "put", _raise)
    shift.passes(600.0)
    assert shift.door.called(Verb.REBOOT)
    assert any(line.startswith("notice ") for line in shift.controller.contained)


def test_a_platform_that_raises_while_it_is_read_costs_its_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = struck(ward("n1", "n2", policy=a_policy(approval=(), max_out_fleet=a_room(2))), "n1", "n2")
    look = shift.door.look
    monkeypatch.setattr(shift.door, "look", lambda name: _raise() if name == "n1" else look(name))
    shift.passes(HOUR)
    assert {a.place.node for a in shift.door.called(Verb.REBOOT)} == {"n2"}


# --- what others have written -----------------------------------------------------------------------------------------


def test_an_error_about_one_command_sets_it_aside_and_the_pass_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`why_not` raised for one, and every pass ended there."""
    monkeypatch.setattr(desk, "why_not", lambda c, *a, **k: _raise() if c.id == "bad" else why_not(c, *a, **k))
    shift = struck(ward("n1", "n2"), "n1")
    for name in ("bad", "good"):
        shift.store.create(Command(name, "acknowledge", "n2", "ann", "x" * 5_000, 0.0))
    shift.passes(HOUR)
    assert shift.door.called(Verb.REBOOT)
    assert shift.store.get(Command, "good") is None
    assert shift.store.get(Command, "bad") is not None
    assert len([n for n in shift.pager.told if "command acknowledge n2 by ann (bad) is set aside" in n.title]) == 1
    assert shift.controller.containment.counts.value("command") == 1


@pytest.mark.parametrize("what", ["read_unread", "heed_restore", "find_lost", "read_people"])
def test_an_error_in_what_is_read_first_ends_no_pass_and_it_is_met_again(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = struck(ward("n1"), "n1")
    broken = [True]
    work = getattr(shift.controller.records, what)
    monkeypatch.setattr(shift.controller.records, what, lambda *a: _raise() if broken else work(*a))
    shift.passes(HOUR)
    assert len([n for n in shift.pager.told if "an internal error" in n.title]) == 1
    broken.clear()
    shift.passes(HOUR)
    assert shift.door.called(Verb.REBOOT)


def test_while_nobody_can_say_whether_the_store_was_put_back_nothing_is_disrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shift = struck(ward("n1"), "n1")
    monkeypatch.setattr(shift.controller.records, "heed_restore", lambda *a: _raise())
    shift.passes(HOUR)
    assert not shift.door.called(Verb.CORDON)


def test_a_number_of_five_thousand_digits_in_the_ledger_costs_no_takeover() -> None:
    store = MemoryStore()
    seat = Seat(f"n9.{'9' * 5_000}", "n9", "out", "CORDON", "default", "", "", 0.0)
    store.create(Ledger(seats=(seat,)))
    shift = Shift(Door(a_node("n1"), a_node("n2")), store)
    assert struck(shift, "n1").passes(HOUR).door.called(Verb.REBOOT)


def test_a_watch_time_that_is_no_number_costs_no_takeover() -> None:
    store = MemoryStore()
    store.create(Ledger(watch_time=float("nan")))
    assert struck(Shift(Door(a_node("n1"), a_node("n2")), store), "n1").passes(HOUR).door.called(Verb.REBOOT)


def test_an_error_about_one_record_costs_no_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = struck(ward("n1", "n2", policy=a_policy(approval=("REBOOT",))), "n1", "n2").passes(HOUR)
    seats = rebuild.seats
    monkeypatch.setattr(
        rebuild, "seats", lambda ledger, cases: _raise() if "n1.1" in {c.id for c in cases} else seats(ledger, cases)
    )
    after = shift.successor().passes(60.0)
    assert after.controller.contained[0].startswith("record n1.1: ")
    assert any("record n1.1" in n.title for n in after.pager.told)


# --- what is not contained ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NotLeader("lost"), StoreError("full"), Crash()], ids=lambda e: type(e).__name__)
def test_a_lost_lead_a_broken_store_and_a_crash_end_the_pass(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: Any) -> Any:
        raise error

    shift = struck(ward("n1"), "n1")
    monkeypatch.setattr(desk, "decide", raises)
    with pytest.raises(type(error)):
        shift.passes(1.0)


# --- limits of nothing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["CORDON", "RESET_GPU", "REBOOT", "POWER_CYCLE", "REPLACE"])
def test_a_window_of_none_means_none_and_says_so(verb: str) -> None:
    request = admit.request_of(
        _case(), a_node(), Verb(verb), when=When.NOW, severity=Severity.REBOOT, in_window=True, alive=True
    )
    policy = a_policy(approval=(), per_window={verb: 0}, max_out_fleet=a_room(5), max_out=a_room(5))
    got = admit.admit((request,), Ledger(), admit.Counts({"fleet": 9, "pool:default": 9}), lambda _: policy, 5.0)
    assert got.granted == frozenset()
    (refusal,) = got.refused.values()
    assert refusal.why == f"policy.per_window.{verb} is 0: no {verb} is made in pool default until that is raised"
    assert refusal.again_at > 5.0


def test_no_job_may_be_hurt_where_jobs_hurt_per_window_is_zero() -> None:
    request = admit.request_of(
        _case(), a_node(), Verb.CORDON, when=When.CHECKPOINT, severity=Severity.REBOOT, in_window=True, alive=True
    )
    policy = a_policy(approval=(), jobs_hurt_per_window=0, max_out_fleet=a_room(5), max_out=a_room(5))
    got = admit.admit((request,), Ledger(), admit.Counts({"fleet": 9, "pool:default": 9}), lambda _: policy, 5.0)
    (refusal,) = got.refused.values()
    assert "policy.jobs_hurt_per_window is 0" in refusal.why


def _case() -> Any:
    shift = struck(ward("n1"), "n1").passes(1.0)
    case = shift.case("n1")
    assert case is not None
    return case


def test_a_fleet_with_limits_of_nothing_is_watched_and_nothing_raises() -> None:
    none = dict.fromkeys(("CORDON", "DRAIN", "RESET_GPU", "REBOOT", "POWER_CYCLE", "REPLACE"), 0)
    shift = struck(ward("n1", policy=a_policy(approval=(), per_window=none, jobs_hurt_per_window=0)), "n1")
    shift.passes(HOUR)
    assert shift.controller.contained == []
    assert not shift.door.called(Verb.CORDON)


# --- the book itself ------------------------------------------------------------------------------------------------


def test_one_that_went_well_for_long_begins_anew() -> None:
    book, now = Containment(), Now(0.0, 0.0)
    book.contain("node", "n1", Broken("once"), now)
    assert book.rests("node", "n1", Now(FIRST_S / 2, 0.0))
    assert not book.rests("node", "n1", Now(FIRST_S, 0.0))
    book.went_well("node", "n1")
    book.contain("node", "n1", Broken("again"), Now(100.0, 0.0))
    assert book.rests("node", "n1", Now(100.0 + FIRST_S, 0.0)), "soon after: the waits go on growing"
    book.went_well("node", "n1")
    book.contain("node", "n1", Broken("again"), Now(2 * HOUR, 0.0))
    assert not book.rests("node", "n1", Now(2 * HOUR + FIRST_S, 0.0))
