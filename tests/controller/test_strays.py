"""A node that carries our mark although nobody has a record of that case: at the start, or when one is deleted."""

from __future__ import annotations

from dataclasses import replace

from sickbay.controller.strays import MOST_LISTED, STANDS_S
from sickbay.errors import ApiError
from sickbay.model import Action, Case, Command, Done, Failed, Ledger, Node, Outcome, Phase, Retry, Verb
from sickbay.settings import Limit
from sickbay.stores.memory import MemoryStore
from tests.builders import a_finding, a_node, a_policy, a_record
from tests.controller.door import Door, Shift, busy


def marked() -> Node:
    return a_node(cordoned=True, mark="n1.7")


def test_a_mark_that_is_found_at_the_start_is_adopted_examined_and_taken_off() -> None:
    door = Door(marked())
    Shift(door).passes(STANDS_S + 120.0)
    assert (door.nodes["n1"].mark, door.nodes["n1"].cordoned) == ("", False)
    assert [a.verb for a in door.asked if a.verb is Verb.VERIFY]


def test_a_mark_that_the_view_shows_only_after_the_door_refused_the_cordon_for_it_is_taken_off_all_the_same() -> None:
    """etcd was put back: the mark of an ended case is on the node again (seed 70054)."""
    door = Door(a_node(findings=(a_finding("xid.79"),)))
    mine, closes = [""], door.nodes["n1"]

    def cordons(action: Action) -> Outcome:
        mine[0] = action.args.get("adopts", "")
        return Done() if mine[0] == "n1.7" else Failed("n1 carries the mark of n1.7")

    door.says[Verb.CORDON] = cordons
    shift = Shift(door).passes(30.0)
    case = shift.case()
    assert case is not None
    assert (case.phase, closes.mark) == (Phase.ESCALATED, "")
    door.shows("n1", cordoned=True, mark="n1.7")
    shift.passes(STANDS_S + 120.0)
    case = shift.case()
    assert mine == ["n1.7"]
    assert case is None or case.phase is not Phase.ESCALATED


def test_a_mark_on_a_node_that_does_not_answer_and_that_others_hold_is_found_too() -> None:
    """It gets no case for being away: somebody works on it (seed 1310)."""
    door = Door(replace(marked(), ready=False, others=("alice",)))
    Shift(door).passes(STANDS_S + 120.0)
    assert [(a.verb, a.args.get("cancel")) for a in door.asked] == [(Verb.RELEASE, "1")]


def test_a_mark_that_is_put_back_on_a_node_whose_absence_somebody_acknowledged_is_taken_off() -> None:
    """No other case comes for it while it does not answer: a backup of etcd had brought the mark back (seed 1997)."""
    door = Door()
    shift = Shift(door)
    door.shows("n1", ready=False)
    shift.passes(400.0)
    for verb in ("acknowledge", "abort"):
        shift.store.create(Command(f"cmd-{verb}", verb, "n1.1", "ann", "", 0.0))
        shift.passes(30.0)
    assert (shift.case(), door.nodes["n1"].mark) == (None, "")
    door.shows("n1", cordoned=True, mark="n1.1")
    shift.passes(30.0)
    assert listed(shift) == {"n1": "n1.1"}
    shift.passes(STANDS_S)
    assert (door.nodes["n1"].mark, door.nodes["n1"].cordoned) == ("", False)


def test_a_mark_on_a_node_that_does_not_answer_and_is_opted_out_is_taken_off() -> None:
    """No case opens for it."""
    door = Door(replace(marked(), ready=False, opted_out=True))
    Shift(door).passes(STANDS_S + 120.0)
    assert [(a.verb, a.args.get("cancel")) for a in door.asked] == [(Verb.RELEASE, "1")]


def test_a_mark_on_a_node_that_does_not_answer_is_taken_over_by_the_case_for_that() -> None:
    door = Door(replace(marked(), ready=False))
    shift = Shift(door).passes(STANDS_S + 120.0)
    assert door.asked == []
    shift.passes(400.0)
    case = shift.case()
    assert case is not None
    assert (case.diagnoses[0].fault, case.cancelled) == ("node-not-ready", False)
    assert door.asked[0].verb is Verb.CORDON


def test_a_mark_on_a_node_that_is_away_with_many_is_read_once_a_minute_and_not_in_every_pass() -> None:
    """No case comes of it while the others are away: each look called for the next pass, a hundred a second (566)."""
    door = Door(replace(marked(), ready=False), *(a_node(f"n{n}", ready=False) for n in (2, 3, 4)))
    store, look, looked = MemoryStore(), door.look, list[str]()
    store.create(a_record(node="n1", not_ready_since=0.0))
    shift = Shift(door, store)

    def noted(node: str) -> Node | None:
        looked.append(node)
        return look(node)

    shift.controller._desk._strays._look = noted
    shift.passes(1800.0)
    assert 1 <= len(looked) <= 30
    assert door.asked == []


def listed(shift: Shift) -> dict[str, str]:
    """What the ward list can know: it reads the store."""
    ledger = shift.store.get(Ledger, "ledger")
    assert ledger is not None
    return dict(ledger.value.strays)


def test_a_mark_without_a_record_is_in_the_ward_list_from_the_first_look_until_it_has_a_case() -> None:
    shift = Shift(Door(marked(), a_node("n2"))).passes(0.0)
    assert listed(shift) == {"n1": "n1.7"}
    shift.door.says[Verb.VERIFY] = busy
    shift.passes(STANDS_S + 5.0)
    assert shift.case() is not None
    assert listed(shift) == {}


def test_a_mark_that_goes_by_itself_within_a_minute_was_none() -> None:
    door = Door(marked())
    shift = Shift(door).passes(STANDS_S - 10.0)
    door.shows("n1", cordoned=False, mark="")
    shift.passes(STANDS_S)
    assert door.asked == []
    assert listed(shift) == {}


def test_of_thousands_of_marks_without_a_record_a_bounded_number_is_listed() -> None:
    shift = Shift(Door(*(replace(marked(), name=f"n{n}", mark=f"n{n}.1") for n in range(500)))).passes(0.0)
    assert len(listed(shift)) == MOST_LISTED


def test_a_mark_that_only_a_late_view_shows_is_none() -> None:
    door = Door(marked())
    shift = Shift(door)
    door.nodes["n1"] = a_node(version=12)  # nobody was told
    shift.passes(STANDS_S + 30.0)
    assert door.asked == []


def test_a_node_that_cannot_be_read_is_looked_at_again_a_little_later() -> None:
    door = Door(marked())
    shift, look = Shift(door), door.look
    down = [True]

    def unsure(node: str) -> Node | None:
        if down[0]:
            raise ApiError(500, "Internal", "not now")
        return look(node)

    shift.controller._desk._strays._look = unsure
    shift.passes(STANDS_S + 5.0)
    assert shift.case() is None
    down[0] = False
    shift.passes(60.0)
    assert door.asked


def test_the_ward_shows_the_case_that_was_made_of_it() -> None:
    shift = Shift(Door(marked()), policy=a_policy(max_verb="OBSERVE")).passes(STANDS_S + 5.0)
    case = shift.case()
    assert case is not None
    assert (case.id, case.phase, case.diagnoses[0].fault) == ("n1.8", Phase.ESCALATED, "stray-mark")
    assert any("sickbay case abort n1.8" in notice.body for notice in shift.pager.told)
    assert shift.door.asked == []


def sick_shift() -> tuple[Door, MemoryStore, Shift]:
    door, store = Door(), MemoryStore()
    door.says[Verb.DRAIN] = busy
    shift = Shift(door, store)
    door.shows("n1", findings=(a_finding("xid.79"),))
    shift.passes(30.0)
    case = shift.case()
    assert case is not None
    assert case.phase is Phase.DRAINING
    return door, store, shift


def test_deleting_the_record_of_a_case_at_rest_lets_its_node_go() -> None:
    door, store, shift = sick_shift()
    store.lose(Case, "n1.1")
    shift.passes(30.0)
    assert (door.nodes["n1"].mark, door.nodes["n1"].cordoned) == ("", False)
    assert [(c.id, c.phase) for c in store.history(Case)] == [("n1.2", Phase.DISMISSED)]
    assert any("deleted the record of n1.1" in notice.body for notice in shift.pager.told)


def test_a_case_that_another_leader_ended_is_not_taken_for_a_deleted_one() -> None:
    """A leader that stood still for a while has it open in memory (seed 600002)."""
    _, store, shift = sick_shift()
    stored = store.get(Case, "n1.1")
    assert stored is not None
    store.archive(replace(stored.value, phase=Phase.DISMISSED), stored.version, stored.epoch)
    shift.passes(30.0)
    assert not any("deleted the record" in notice.body for notice in shift.pager.told)


def test_a_case_that_waits_for_a_place_answers_for_a_mark_that_came_back() -> None:
    """A platform that forgot our RELEASE shows the old mark again; CORDON would have been refused for it for ever."""
    door = Door(a_node("n1"), a_node("n2"))
    door.says[Verb.DRAIN] = busy
    shift = Shift(door, policy=a_policy(max_out=Limit(count=1), max_out_fleet=Limit(), approval=()))
    door.shows("n2", findings=(a_finding("xid.79", node="n2"),))
    shift.passes(30.0)
    door.shows("n1", findings=(a_finding("xid.79"),))
    shift.passes(30.0)
    door.shows("n1", mark="n1.7", cordoned=True)
    shift.passes(STANDS_S + 60.0)
    case = shift.case()
    assert case is not None
    assert (case.phase, case.adopts) == (Phase.WAITING, "n1.7")


def test_a_record_that_is_deleted_while_it_is_being_written_is_a_cancel_too() -> None:
    door, store, shift = sick_shift()

    def deleted_meanwhile(action: Action) -> Outcome:
        store._live[Case].pop("n1.1", None)  # no token moves: only the write finds out
        store._lists.clear()
        return Retry(5.0, "waits for the pods of a job that is new")

    door.says[Verb.DRAIN] = deleted_meanwhile
    shift.passes(400.0)
    assert (door.nodes["n1"].mark, door.nodes["n1"].cordoned) == ("", False)


def test_all_records_gone_and_a_fresh_start_strand_no_node() -> None:
    door, _, shift = sick_shift()
    shift.controller.abandon()
    door.shows("n1", findings=())
    fresh = MemoryStore()
    Shift(door, fresh, shift.clock).passes(STANDS_S + 300.0)
    del door.says[Verb.DRAIN]
    Shift(door, fresh, shift.clock).passes(300.0)
    assert (door.nodes["n1"].mark, door.nodes["n1"].cordoned) == ("", False)
    assert [c.id for c in fresh.history(Case)] == ["n1.2"]  # never the number that its actions were known by
