"""What people must be told is told, whoever leads by then: at least once, and under one key."""

from __future__ import annotations

from typing import Any

from sickbay.core import keeping
from sickbay.model import Case, Failed, JobPhase, Ledger, NodeRecord, Notice, RankExit, Recovery, Verb
from sickbay.ports import Store
from sickbay.settings import JobPolicy, Limit
from tests.builders import a_finding, a_job, a_node, a_policy
from tests.controller.door import Door, Pager, Shift, busy

HOUR = 3_600.0


def out_of_order() -> Shift:
    """A controller whose pager does not answer."""
    return Shift(Door(), pager=Pager(up=False))


def escalated(shift: Shift) -> Shift:
    shift.door.says[Verb.DRAIN] = lambda _: Failed("a pod cannot be evicted")
    shift.door.shows("n1", findings=(a_finding(),))
    return shift.passes(60.0)


def with_the_pager_up(shift: Shift) -> Shift:
    after = shift.successor()
    after.pager.up = True
    return after.passes(HOUR)


def owed(store: Store) -> list[str]:
    """Keys of all notices on record."""
    kinds: tuple[type[Any], ...] = (Case, NodeRecord, Recovery, Ledger)
    records = [s.value for kind in kinds for s in store.list(kind)]
    carried = [r.record for r in records if isinstance(r, Case) and r.record is not None]
    return [notice.key for record in (*records, *carried) for notice in record.notices]


def test_a_page_about_a_case_at_rest_is_sent_by_the_next_leader() -> None:
    shift = escalated(out_of_order())
    assert shift.pager.told == []
    after = with_the_pager_up(shift)
    assert after.pager.keys("urgent") == ["n1.1/5"]
    with_the_pager_up(after)
    assert after.pager.keys("urgent") == ["n1.1/5"]


def test_what_a_case_that_has_ended_had_to_say_is_said_by_the_next_leader() -> None:
    shift = out_of_order()
    shift.door.shows("n1", findings=(a_finding(),))
    shift.passes(HOUR)
    assert [case.phase for case in shift.store.history(Case)] == ["RESOLVED"]
    after = with_the_pager_up(shift)
    assert sum("well, or gone for good" in notice.title for notice in after.pager.told) == 1
    assert owed(shift.store) == []


def test_what_a_job_that_has_ended_had_to_say_is_said_by_the_next_leader() -> None:
    door = Door(*(a_node(n, jobs=("llama",)) for n in ("n1", "n2")), jobs=(a_job(checkpoint=None),))
    shift = Shift(door, pager=Pager(up=False), jobs=JobPolicy(barren_limit=1)).passes(30.0)
    for name in ("n1", "n2"):
        door.shows(name, jobs=())
    door.shows_job("llama", phase=JobPhase.FAILED, exits=(RankExit(1, "n2", 1, ("killed",)),))
    shift.passes(HOUR)
    assert len(list(shift.store.history(Recovery))) == 1
    after = with_the_pager_up(shift)
    assert len(after.pager.told) == 1
    assert "llama" in after.pager.told[0].title
    assert owed(shift.store) == []
    assert len(with_the_pager_up(after).pager.told) == 1


def test_a_full_limit_that_could_not_be_told_is_told_by_the_next_leader_and_then_forgotten() -> None:
    limits = a_policy(max_out=Limit(count=1), max_out_fleet=Limit(count=1), approval=())
    shift = Shift(Door(a_node("n1"), a_node("n2")), pager=Pager(up=False), policy=limits)
    shift.door.says[Verb.DRAIN] = busy
    for name in ("n1", "n2"):
        shift.door.shows(name, findings=(a_finding(node=name),))
    shift.passes(60.0)
    after = shift.successor()
    after.pager.up = True
    after.passes(600.0)
    assert sum("no more nodes may be taken out" in notice.title for notice in after.pager.told) == 1
    assert owed(shift.store) == []


def test_a_decision_that_was_dropped_takes_no_page_with_it_that_is_still_on_record() -> None:
    after = escalated(out_of_order()).successor()
    after.pager.up = True
    after.controller._desk.unsay({"n1"})
    after.passes(60.0)
    assert after.pager.keys("urgent") == ["n1.1/5"]


def test_a_record_keeps_its_pages_before_its_remarks() -> None:
    page = Notice("page", "urgent", "t", "b")
    remarks = [Notice(f"remark-{i}", "warning", "t", "b") for i in range(2 * keeping.OWED_MAX)]
    kept = keeping.owed((page,), remarks, (page,))
    assert len(kept) == keeping.OWED_MAX
    assert kept[0] == page
    assert kept[-1] == remarks[-1]
