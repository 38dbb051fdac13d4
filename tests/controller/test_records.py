"""One leader's reading and writing: the epoch fences a deposed controller, a stale write is read again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core.keeping import SOON_S
from sickbay.errors import NotLeader
from sickbay.model import Case, Command, Ledger, NodeRecord, Part, Pause, Phase, Recovery, RecoveryPhase, Verb
from sickbay.stores.memory import MemoryStore
from tests.builders import a_case, a_command, a_latch, a_ledger, a_record, a_recovery, a_seat, an_action


class FrugalStore(MemoryStore):
    lanes, frugal = 1, True


def lead(store: MemoryStore) -> Records:
    records = Records(store, View(), "")
    records.take_over()
    return records


def two_leaders() -> tuple[MemoryStore, Records, Records]:
    """An old leader with an open case and a job, and the one that has taken over since."""
    store = MemoryStore()
    old = lead(store)
    old.put_record(a_record())
    keep(old, a_case())
    old.put_recovery(a_recovery(), False)
    old.flush(0.0)
    return store, old, lead(store)


def keep(records: Records, case: Case, *, ended: bool = False, consumes: tuple[str, ...] = ()) -> bool:
    """Put and write; False when the decision was dropped."""
    records.put_case(case, ended, consumes)
    records.flush(0.0)
    dropped, records.reread = records.reread, set()
    return case.node not in dropped


def test_every_leader_has_a_higher_epoch_than_the_last() -> None:
    store = MemoryStore()
    assert [lead(store).epoch for _ in range(3)] == [1, 2, 3]


def test_a_new_leader_stamps_every_open_record_first() -> None:
    store, _, new = two_leaders()
    case, recovery, ledger = store.get(Case, "n1.1"), store.get(Recovery, "llama"), store.get(Ledger, "ledger")
    assert case is not None
    assert recovery is not None
    assert ledger is not None
    assert case.epoch == recovery.epoch == ledger.epoch == new.epoch == 2


def test_a_new_leader_sees_what_the_old_one_knew() -> None:
    _, _, new = two_leaders()
    view = new._view
    assert (list(view.cases), list(view.recoveries), list(view.records)) == (["n1"], ["llama"], ["n1"])
    assert (list(view.touched_nodes), list(view.touched_jobs)) == (["n1"], ["llama"])


def test_a_deposed_leader_cannot_move_a_case() -> None:
    store, old, _ = two_leaders()
    with pytest.raises(NotLeader):
        keep(old, a_case(Phase.CORDONING))
    with pytest.raises(NotLeader):
        keep(old, a_case(Phase.DISMISSED), ended=True)
    stored = store.get(Case, "n1.1")
    assert stored is not None
    assert stored.value.phase is Phase.WAITING


def test_a_deposed_leader_does_not_take_the_end_of_a_case_for_a_person_who_deleted_its_record() -> None:
    _, old, new = two_leaders()
    assert keep(new, a_case(Phase.DISMISSED), ended=True)
    with pytest.raises(NotLeader):
        old.find_lost()
    assert old._view.lost == {}


def test_a_deposed_leader_does_not_take_the_end_of_a_recovery_for_a_person_who_deleted_its_record() -> None:
    _, old, new = two_leaders()
    new.put_recovery(a_recovery(RecoveryPhase.COMPLETED), True)
    new.flush(0.0)
    with pytest.raises(NotLeader):
        old.find_lost()
    assert old._view.lost_jobs == {}


def test_a_deposed_leader_cannot_move_a_job_or_take_a_seat() -> None:
    _, old, _ = two_leaders()
    old.put_recovery(a_recovery(step=6), False)
    with pytest.raises(NotLeader):
        old.flush(0.0)
    old.put_ledger(replace(old.ledger, breaker="mine"))
    with pytest.raises(NotLeader):
        old.flush(0.0)
    with pytest.raises(NotLeader):
        old.still_leads()


def test_a_deposed_leader_that_reads_again_still_cannot_write() -> None:
    """Compare-and-set alone would let it: it has the newest version in its hand."""
    store, old, _ = two_leaders()
    stored = store.get(Case, "n1.1")
    assert stored is not None
    old._view.cases["n1"] = stored
    with pytest.raises(NotLeader):
        keep(old, a_case(Phase.CORDONING))


def test_a_record_somebody_else_wrote_is_read_again_and_the_decision_dropped() -> None:
    store = MemoryStore()
    records = lead(store)
    records.put_record(a_record())
    records.flush(0.0)
    stored = store.get(NodeRecord, "n1")
    assert stored is not None
    store.commit(replace(stored.value, lemon="seen by a person"), stored.version, records.epoch)
    records.put_record(a_record(last_n=9))
    records.flush(0.0)
    assert records.reread == {"n1"}
    assert records._view.records["n1"].value.lemon == "seen by a person"
    assert "n1" in records._view.touched_nodes


def test_a_case_that_was_dropped_before_it_was_written_is_not_taken_for_one_that_somebody_deleted() -> None:
    """People were told that somebody had closed it, and its nodes were left to them (seed 50000769)."""
    store = MemoryStore()
    records = lead(store)
    records.put_record(a_record())
    records.flush(0.0)
    stored = store.get(NodeRecord, "n1")
    assert stored is not None
    store.commit(replace(stored.value, lemon="seen by a person"), stored.version, records.epoch)
    records.put_record(a_record(last_n=1))
    assert not keep(records, a_case())
    assert "n1" not in records._view.cases
    assert records._view.lost == {}


def test_a_ledger_somebody_else_wrote_is_read_again() -> None:
    store = MemoryStore()
    records = lead(store)
    stored = store.get(Ledger, "ledger")
    assert stored is not None
    store.commit(replace(stored.value, breaker="theirs"), stored.version, records.epoch)
    records.put_ledger(replace(records.ledger, breaker="ours"))
    records.put_case(a_case(Phase.CORDONING), False, ())  # it was given a seat in a Ledger that is not to be
    records.flush(0.0)
    assert records.ledger.breaker == "theirs"
    assert not store.list(Case)
    records.put_ledger(replace(records.ledger, breaker="ours"))
    assert records.flush(0.0)
    stored = store.get(Ledger, "ledger")
    assert stored is not None
    assert stored.value.breaker == "ours"


def test_a_case_that_moves_twice_in_a_pass_is_written_once() -> None:
    store = MemoryStore()
    records = lead(store)
    before = store.token()
    records.put_case(a_case(Phase.WAITING), False, ())
    records.put_case(a_case(Phase.CORDONING), False, ())
    records.flush(0.0)
    stored = store.get(Case, "n1.1")
    assert stored is not None
    assert stored.value.phase is Phase.CORDONING
    assert store.token() == before + 1


def test_a_case_and_what_is_remembered_of_its_node_are_one_write() -> None:
    store = MemoryStore()
    records = lead(store)
    before = store.token()
    records.put_case(a_case(), False, ())
    records.put_record(a_record(last_n=1))
    records.flush(0.0)
    assert store.token() == before + 1
    assert store.list(NodeRecord) == []
    assert lead(store)._view.records["n1"].value == a_record(last_n=1)


def test_an_open_case_knows_better_than_the_record_as_it_was_before() -> None:
    store = MemoryStore()
    records = lead(store)
    records.put_record(a_record(last_n=4))
    records.flush(0.0)
    records.put_case(a_case(), False, ())
    records.put_record(a_record(last_n=5))
    records.flush(0.0)
    successor = lead(store)
    assert successor._view.records["n1"].value.last_n == 5
    successor.put_case(a_case(Phase.DISMISSED), True, ())
    successor.put_record(a_record(last_n=5, lemon="two relapses"))
    successor.flush(0.0)
    assert [(r.value.last_n, r.value.lemon) for r in store.list(NodeRecord)] == [(5, "two relapses")]


def test_a_case_that_ends_gives_back_what_it_carried_before_it_goes() -> None:
    """Crashed in between, the next leader ends the case again, from the record that it still carries."""
    store = MemoryStore()
    records = lead(store)
    records.put_case(a_case(), False, ())
    records.put_record(a_record(last_n=1))
    records.flush(0.0)
    records.put_case(replace(records._view.cases["n1"].value, phase=Phase.DISMISSED), True, ())
    records.put_record(a_record(last_n=1))
    assert [draft.wave for draft in records._drafts.values()] == [1, 0]
    records.flush(0.0)
    assert [r.value.last_n for r in store.list(NodeRecord)] == [1]
    assert [case.record for case in store.history(Case)] == [None]


def test_what_waited_to_be_written_of_a_node_goes_with_its_case() -> None:
    store = FrugalStore()
    records = lead(store)
    records.put_record(a_record(), patience=120.0)
    records.flush(0.0)
    records.put_case(a_case(), False, ())
    records.put_record(a_record(last_n=1))
    before = store.token()
    records.flush(200.0)
    assert store.token() == before + 1


def test_a_case_that_somebody_deleted_does_not_give_its_number_to_the_next_one() -> None:
    """Its actions were asked for by that number, and the doors remember them."""
    store = MemoryStore()
    records = lead(store)
    records.put_case(a_case(), False, ())
    records.put_record(a_record(last_n=1))
    records.flush(0.0)
    del store._live[Case]["n1.1"]
    assert not keep(records, a_case(Phase.CORDONING))
    assert "n1" not in records._view.cases
    assert records._view.records["n1"].value.last_n == 1


def test_the_number_of_a_deleted_case_is_written_down_for_the_next_leader() -> None:
    """It was on record in that case only; its machine was gone too, with the mark (seed 403007)."""
    store = MemoryStore()
    records = lead(store)
    records.put_case(a_case(Phase.ESCALATED), False, ())
    records.put_record(a_record(last_n=1))
    records.flush(0.0)
    del store._live[Case]["n1.1"]
    records.find_lost()
    records.flush(0.0)
    assert lead(store)._view.records["n1"].value.last_n == 1


def test_a_place_without_a_case_says_which_number_was_used_while_nobody_led() -> None:
    store = MemoryStore()
    records = lead(store)
    records.put_ledger(a_ledger(a_seat("n1.4"), epoch=records.epoch))
    records.flush(0.0)
    heir = lead(store)
    heir.put_ledger(replace(heir.ledger, seats=()))
    heir.flush(0.0)
    assert lead(store)._view.records["n1"].value.last_n == 4


def test_a_delivered_notice_waits_for_the_next_write_of_its_record_but_not_for_ever() -> None:
    store = FrugalStore()
    records = lead(store)
    keep(records, a_case())
    before = store.token()
    records.put_case(a_case(refusal="told"), False, (), patience=120.0)
    records.flush(10.0)
    records.flush(100.0)
    assert store.token() == before
    records.flush(200.0)
    stored = store.get(Case, "n1.1")
    assert stored is not None
    assert stored.value.refusal == "told"


def test_what_may_wait_has_its_own_time_however_long_something_else_has_waited() -> None:
    store = FrugalStore()
    records = lead(store)
    keep(records, a_case())
    before = store.token()
    records.put_case(a_case(refusal="boots"), False, (), patience=900.0)
    records.flush(0.0)
    records.put_case(a_case(Phase.VERIFYING), False, (), patience=300.0)
    records.flush(400.0)
    records.flush(699.0)
    assert store.token() == before
    records.flush(700.0)
    assert store.token() != before


def test_an_ended_case_goes_to_the_archive_and_its_number_is_never_used_again() -> None:
    store = MemoryStore()
    records = lead(store)
    assert keep(records, a_case())
    assert keep(records, a_case(Phase.DISMISSED), ended=True)
    assert "n1" not in records._view.cases
    assert [c.id for c in store.history(Case)] == ["n1.1"]
    assert not keep(records, a_case())


def test_a_case_that_opens_and_ends_in_one_turn_is_archived_too() -> None:
    store = MemoryStore()
    assert keep(lead(store), a_case(Phase.DISMISSED), ended=True)
    assert [c.id for c in store.history(Case)] == ["n1.1"]


def test_a_persons_command_is_removed_by_the_write_that_carries_it_and_by_no_other() -> None:
    store = MemoryStore()
    records = lead(store)
    keep(records, a_case())
    store.create(a_command("abort"))
    keep(records, a_case(Phase.CORDONING))
    assert [c.verb for c in records.read_people()] == ["abort"]
    keep(records, a_case(Phase.CANCELLING), consumes=("cmd-abort",))
    assert records.read_people() == []


def test_a_command_survives_a_write_that_was_refused() -> None:
    store, old, new = two_leaders()
    store.create(a_command("abort"))
    with pytest.raises(NotLeader):
        keep(old, a_case(Phase.CANCELLING), consumes=("cmd-abort",))
    assert [c.value.id for c in store.list(Command)] == ["cmd-abort"]
    assert keep(new, a_case(Phase.CANCELLING), consumes=("cmd-abort",))
    assert store.list(Command) == []


def test_pauses_are_read_as_they_stand() -> None:
    store = MemoryStore()
    records = lead(store)
    store.create(Pause("fleet", "ann", "", 0.0))
    records.read_people()
    assert list(records._view.pauses) == ["fleet"]


def test_the_part_ledger_remembers_where_a_part_lived_and_why_it_was_condemned() -> None:
    store = MemoryStore()
    records = lead(store)
    records.put_part("S1", "n1", "n1.1", "", ())
    records.put_part("S1", "n1", "n1.1", "", ())  # closing twice after a crash counts once
    records.put_part("S1", "n2", "n2.4", "row-remap-failed in case n2.4", ("i-n7",))
    stored = store.get(Part, "S1")
    assert stored is not None
    assert (stored.value.nodes, stored.value.strikes) == (("n1", "n2"), 2)
    assert stored.value.condemned == "row-remap-failed in case n2.4"
    records.read_parts()
    assert records._view.condemned == {"S1": ("i-n7",)}
    records.put_part("S1", "n3", "n3.1", "", ())
    assert store.get(Part, "S1").value.condemned  # type: ignore[union-attr]


def test_a_pardoned_part_is_condemned_no_more_and_its_record_says_who_did_that() -> None:
    store = MemoryStore()
    records = lead(store)
    records.put_part("S1", "n2", "n2.4", "row-remap-failed in case n2.4", ())
    records.pardon([("S1", "ann: mended"), ("S2", "ann: never heard of")])
    stored = store.get(Part, "S1")
    assert stored is not None
    assert stored.value.condemned == ""
    assert stored.value.pardoned == "ann: mended (it was condemned for row-remap-failed in case n2.4)"
    assert records._view.condemned == {}


def test_case_and_its_pending_action_are_one_write() -> None:
    store = MemoryStore()
    records = lead(store)
    keep(records, a_case(Phase.REPAIRING, pending=an_action(Verb.REBOOT, sends=1)))
    successor = lead(store)
    found = successor._view.cases["n1"].value
    assert found.pending is not None
    assert found.pending.sends == 1


# --- a Ledger that somebody deletes ----------------------------------------------------------------------------------


def with_history(store: MemoryStore) -> Records:
    """A leader whose third term has seen a case and a job come to where they are."""
    for _ in range(2):
        lead(store)
    records = lead(store)
    records.put_ledger(replace(records.ledger, watch_time=4_000.0))
    records.put_case(a_case(Phase.REPAIRING, entered=5_000.0, deadline=9_000.0, rung=Verb.REBOOT), False, ())
    records.put_record(a_record(a_latch(seen=4_900.0), last_n=1))
    records.put_recovery(a_recovery(entered=4_500.0), False)
    records.flush(0.0)
    return records


def test_without_a_ledger_neither_epoch_nor_watch_time_goes_back() -> None:
    store = MemoryStore()
    with_history(store)
    store.lose(Ledger, "ledger")
    records = lead(store)
    assert (records.epoch, records.ledger.epoch, records.ledger.watch_time) == (4, 4, 5_000.0)


def test_watch_time_is_never_behind_what_the_records_have_seen() -> None:
    """The Ledger is written once a minute, a case when it moves."""
    store = MemoryStore()
    with_history(store)
    assert lead(store).ledger.watch_time == 5_000.0


def test_without_a_ledger_the_places_of_open_cases_are_taken_again() -> None:
    store = MemoryStore()
    with_history(store)
    store.lose(Ledger, "ledger")
    seats = {(s.case, s.kind, s.verb) for s in lead(store).ledger.seats}
    assert seats == {("n1.1", "out", "CORDON"), ("n1.1", "treat", "REBOOT")}


def test_a_case_that_waits_has_no_place_to_take_again() -> None:
    store = MemoryStore()
    records = lead(store)
    keep(records, a_case(Phase.WAITING))
    store.lose(Ledger, "ledger")
    assert lead(store).ledger.seats == ()


def test_a_leader_whose_ledger_is_deleted_writes_it_again_and_leads_on() -> None:
    store = MemoryStore()
    records = with_history(store)
    store.lose(Ledger, "ledger")
    records.still_leads()
    stored = store.get(Ledger, "ledger")
    assert stored is not None
    assert (stored.epoch, stored.value.watch_time) == (3, 4_000.0)
    records.put_ledger(replace(records.ledger, watch_time=4_060.0))
    assert records.flush(0.0)


def test_a_write_that_finds_no_ledger_makes_it_again_and_decides_anew() -> None:
    store = MemoryStore()
    records = with_history(store)
    store.lose(Ledger, "ledger")
    records.put_ledger(replace(records.ledger, breaker="ours"))
    records.flush(0.0)
    assert store.get(Ledger, "ledger") is not None
    records.put_ledger(replace(records.ledger, breaker="ours"))
    records.flush(0.0)
    stored = store.get(Ledger, "ledger")
    assert stored is not None
    assert stored.value.breaker == "ours"


def test_a_deposed_leader_does_not_write_a_deleted_ledger_again_over_the_new_one() -> None:
    store = MemoryStore()
    old = with_history(store)
    store.lose(Ledger, "ledger")
    new = lead(store)
    with pytest.raises(NotLeader):
        old.still_leads()
    assert new.epoch == 4


def test_a_deposed_leader_does_not_make_the_ledger_again_that_the_new_one_has_not_missed_yet() -> None:
    """Else both lead, and neither gets anything written for as long as the other writes."""
    store = MemoryStore()
    old, new = with_history(store), lead(store)
    store.lose(Ledger, "ledger")
    with pytest.raises(NotLeader):
        old.still_leads()
    new.still_leads()
    stored = store.get(Ledger, "ledger")
    assert stored is not None
    assert stored.epoch == 4


def test_a_ledger_that_an_older_leader_has_made_again_is_taken_back() -> None:
    store = MemoryStore()
    old = lead(store)
    new = lead(store)  # no record to stamp: the older one cannot know
    store.lose(Ledger, "ledger")
    old.still_leads()
    new.still_leads()
    with pytest.raises(NotLeader):
        old.still_leads()
    new.put_ledger(replace(new.ledger, breaker="ours"))
    new.flush(0.0)
    stored = store.get(Ledger, "ledger")
    assert stored is not None
    assert (stored.epoch, stored.value.breaker) == (2, "ours")


def test_what_a_job_waits_for_is_written_once_in_fifteen_seconds_however_often_it_changes() -> None:
    store = FrugalStore()
    records = lead(store)
    records.put_recovery(a_recovery(), False)
    records.flush(0.0)
    first = store.get(Recovery, "llama")
    assert first is not None
    for second in range(1, 151):
        records.put_recovery(a_recovery(refusal=f"needs 7 good nodes, {second} are known"), False, patience=SOON_S)
        assert records.next_due(second) <= second + SOON_S
        records.flush(second)
    last = store.get(Recovery, "llama")
    assert last is not None
    assert last.version - first.version <= 10
    assert last.value.refusal > "needs 7 good nodes, 135"


def test_nobody_sleeps_past_a_write_that_was_put_after_the_last_flush() -> None:
    records = lead(FrugalStore())
    assert records.next_due(7.0) == float("inf")
    records.put_recovery(a_recovery(), False, patience=SOON_S)
    assert records.next_due(7.0) == 7.0 + SOON_S
