"""One record that cannot be read, damaged or of a newer Sickbay: what it is about is left alone, all else goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sickbay import wire
from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.errors import NotLeader
from sickbay.model import Case, Command, JobPhase, Ledger, NodeRecord, Part, Pause, Phase, Recovery, Verb
from sickbay.ports import Value
from sickbay.settings import Limit
from sickbay.stores import records
from sickbay.stores.memory import MemoryStore
from sickbay.stores.sqlite import SqliteStore
from tests.builders import a_case, a_command, a_finding, a_gpu, a_job, a_node, a_policy, a_recovery
from tests.stores.conftest import SPOILERS, Spoiler

from .door import Door, Shift, busy


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "sickbay.db", synchronous="OFF")
    yield opened
    opened.close()


@pytest.fixture
def spoiler(store: SqliteStore) -> Spoiler:
    return SPOILERS["sqlite"](store)


def two_sick(**changed: Any) -> Door:
    """Both nodes have lost a GPU; nothing but what is known of them can keep us from treating them."""
    return Door(
        *(
            a_node(name, findings=(a_finding(node=name),), gpus=(a_gpu(f"S-{name}"),), **changed)
            for name in ("n1", "n2")
        )
    )


def treated(door: Door) -> set[str]:
    return {action.place.node for action in door.called(Verb.REBOOT)}


ABOUT_N1: list[Any] = [NodeRecord("n1", last_n=4), a_case(), Part("S-n1")]
by_kind = pytest.mark.parametrize("value", ABOUT_N1, ids=lambda value: type(value).__name__)


@by_kind
def test_the_node_is_left_alone_and_the_other_one_is_treated(store: SqliteStore, spoiler: Spoiler, value: Any) -> None:
    store.create(value, 1)
    spoiler.spoil(value)
    there = spoiler.raw(value)
    door = two_sick()
    shift = Shift(door, store).passes(3_600.0)
    assert treated(door) == {"n2"}
    assert {action.place.node for action in door.asked} == {"n2"}
    assert spoiler.raw(value) == there
    (notice,) = [told for told in shift.pager.told if told.key.startswith("unread/")]
    assert type(value).__name__ in notice.title
    assert str(store.path) in notice.body
    assert "delete from records" in notice.body


@by_kind
def test_it_is_taken_up_without_a_restart_once_it_can_be_read(store: SqliteStore, spoiler: Spoiler, value: Any) -> None:
    store.create(value, 1)
    spoiler.spoil(value)
    door = two_sick()
    shift = Shift(door, store).passes(3_600.0)
    spoiler.mend(value)
    shift.passes(3_600.0)
    assert treated(door) == {"n1", "n2"}


def test_the_time_in_which_nobody_could_read_its_case_is_not_counted(store: SqliteStore, spoiler: Spoiler) -> None:
    """It had timed out at once, seconds before it was done (seed 1528)."""
    door = two_sick()
    door.says[Verb.CORDON] = busy
    policy = a_policy(cordon_s=300.0)
    shift = Shift(door, store, policy=policy).passes(60.0)
    case = shift.case("n1")
    assert case is not None
    assert case.phase is Phase.CORDONING
    spoiler.spoil(case)
    shift.passes(3_600.0)
    spoiler.mend(case)
    shift.passes(200.0)
    assert "TIMED_OUT" not in [entry.event for entry in shift.case("n1").journal]  # type: ignore[union-attr]
    assert (again := shift.case("n1")) is not None
    assert again.phase is Phase.CORDONING


def test_nor_is_the_time_in_which_an_earlier_leader_could_not_read_it(store: SqliteStore, spoiler: Spoiler) -> None:
    """A roll-back, and hours later the upgrade again: each node whose treatment had ended meanwhile got the next
    stronger one, for nobody had asked how the first had gone (seed 1462)."""
    door = two_sick()
    door.says[Verb.REBOOT] = busy
    shift = Shift(door, store).passes(600.0)
    case = shift.case("n1")
    assert case is not None
    assert case.phase is Phase.REPAIRING
    spoiler.spoil(case)
    shift = shift.successor().passes(7_200.0)
    spoiler.mend(case)
    del door.says[Verb.REBOOT]
    door.shows("n1", boot_id="after-the-reboot")
    shift.successor().passes(600.0)
    assert not [action for action in door.called(Verb.POWER_CYCLE) if action.place.node == "n1"]
    assert "n1.1" in [ended.id for ended in store.history(Case) if ended.phase is Phase.RESOLVED]


def test_who_was_left_alone_for_the_record_of_a_cause_is_taken_up_once_that_can_be_read(
    store: SqliteStore, spoiler: Spoiler
) -> None:
    """What came due meanwhile was passed over, and nothing woke it again (seed 1315)."""
    about = NodeRecord("driver=570", last_n=1)
    store.create(about, 1)
    spoiler.spoil(about)
    door = two_sick(factors={"driver": "570"})
    shift = Shift(door, store).passes(3_600.0)
    assert treated(door) == set()
    spoiler.mend(about)
    shift.passes(3_600.0)
    assert treated(door) == {"n1", "n2"}


def test_a_record_that_turns_unreadable_under_a_leader_stops_only_its_node(
    store: SqliteStore, spoiler: Spoiler
) -> None:
    door = two_sick()
    door.says[Verb.DRAIN] = busy
    shift = Shift(door, store).passes(600.0)
    case = shift.case("n1")
    assert case is not None
    spoiler.spoil(case)
    there = spoiler.raw(case)
    del door.says[Verb.DRAIN]
    shift.passes(3_600.0)
    assert treated(door) == {"n2"}
    assert spoiler.raw(case) == there


@pytest.mark.parametrize("verb", [Verb.DRAIN, Verb.REBOOT], ids=["asked", "waiting for a place"])
def test_a_case_that_somebody_deletes_while_its_nodes_record_cannot_be_read_stops_nobody(verb: Verb) -> None:
    """The other node is attended, and this one is let go later (seeds 229, 232)."""
    store, door = MemoryStore(), two_sick()
    spoiler = SPOILERS["memory"](store)
    door.says[verb] = busy
    shift = Shift(door, store, policy=a_policy(at_once=Limit(count=1))).passes(600.0)
    case = shift.case("n1") if verb is Verb.DRAIN else shift.case("n2")
    assert case is not None
    record = NodeRecord(case.node, last_n=1)
    store.create(record, shift.controller.records.epoch)
    spoiler.spoil(record)
    shift.passes(60.0)
    store.lose(Case, case.id)
    shift.passes(600.0)
    assert shift.controller.contained == []
    spoiler.mend(record)
    shift.passes(600.0)
    assert any(f"deleted the record of {case.id}" in notice.body for notice in shift.pager.told)


def test_a_seat_of_a_case_that_cannot_be_read_stays_taken(store: SqliteStore, spoiler: Spoiler) -> None:
    door = two_sick()
    door.says[Verb.DRAIN] = busy
    shift = Shift(door, store).passes(600.0)
    case = shift.case("n1")
    assert case is not None
    spoiler.spoil(case)
    after = shift.successor().passes(3_600.0)
    assert "n1.1" in {seat.case for seat in after.controller.records.ledger.seats}


def test_beside_a_case_that_cannot_be_read_the_heir_of_a_deleted_one_keeps_its_places() -> None:
    """Its treatment goes on; another node was treated beside it (seed 224)."""
    store, door = MemoryStore(), two_sick()
    door.says[Verb.REBOOT] = busy
    shift = Shift(door, store, policy=a_policy(approval=(), at_once=Limit(count=2))).passes(600.0)
    unread = shift.case("n2")
    assert unread is not None
    SPOILERS["memory"](store).spoil(unread)
    shift.passes(60.0)
    store.lose(Case, "n1.1")
    shift.passes(60.0)
    seats = sorted((seat.case, seat.kind) for seat in shift.controller.records.ledger.seats)
    assert seats == [(case, kind) for case in ("n1.2", "n2.1") for kind in ("out", "treat")]


def test_a_job_whose_recovery_cannot_be_read_is_left_alone(store: SqliteStore, spoiler: Spoiler) -> None:
    recovery = a_recovery()
    store.create(recovery, 1)
    spoiler.spoil(recovery)
    door = Door(a_node("n1"), a_node("n2"), jobs=(a_job(JobPhase.FAILED, managed=True),))
    Shift(door, store).passes(3_600.0)
    assert door.asked == []
    assert [one.kind for one in store.unread()] == [Recovery]


def test_a_command_that_cannot_be_read_waits_and_the_others_are_obeyed(store: SqliteStore, spoiler: Spoiler) -> None:
    door = two_sick()
    door.says[Verb.DRAIN] = busy
    shift = Shift(door, store).passes(600.0)
    unread, read = replace(a_command("abort"), id="c1"), replace(a_command("hold"), id="c2")
    store.create(unread)
    spoiler.spoil(unread)
    store.create(read)
    shift.passes(60.0)
    case = shift.case("n1")
    assert case is not None
    assert case.held
    assert not case.cancelled
    assert [one.key for one in store.unread()] == ["c1"]
    assert store.list(Command) == []


def test_a_command_about_a_case_that_cannot_be_read_waits_with_it(store: SqliteStore, spoiler: Spoiler) -> None:
    store.create(a_case(), 1)
    spoiler.spoil(a_case())
    store.create(a_command("abort"))
    Shift(two_sick(), store).passes(600.0)
    assert len(store.list(Command)) == 1


def test_a_command_about_a_case_waits_with_the_record_of_its_node_also_under_a_new_leader(
    store: SqliteStore, spoiler: Spoiler
) -> None:
    """He has not read the case, and told whoever approved it that there is none (seed 1003)."""
    door = two_sick()
    door.says[Verb.DRAIN] = busy
    Shift(door, store).passes(600.0)
    store.create(record := NodeRecord("n1", last_n=1))
    spoiler.spoil(record)
    shift = Shift(door, store).passes(60.0)
    store.create(a_command("hold"))
    shift.passes(60.0)
    assert [stored.value.verb for stored in store.list(Command)] == ["hold"]


@pytest.mark.parametrize(
    ("scope", "off"), [("node:n1", {"n1"}), ("pool:default", {"n1", "n2"}), ("fleet", {"n1", "n2"})]
)
def test_a_pause_that_cannot_be_read_is_a_pause_of_its_scope(
    store: SqliteStore, spoiler: Spoiler, scope: str, off: set[str]
) -> None:
    pause = Pause(scope, "ann", "", 0.0, until=1.0)  # it would be over, if anybody could read that
    store.create(pause)
    spoiler.spoil(pause)
    door = two_sick(pool="default")
    shift = Shift(door, store).passes(3_600.0)
    assert treated(door) == {"n1", "n2"} - off
    spoiler.mend(pause)
    shift.passes(3_600.0)
    assert treated(door) == {"n1", "n2"}


def test_without_its_ledger_a_controller_only_watches(store: SqliteStore, spoiler: Spoiler) -> None:
    ledger = Ledger(epoch=7, watch_time=500.0)
    store.create(ledger, 7)
    spoiler.spoil(ledger)
    there = spoiler.raw(ledger)
    door = two_sick()
    shift = Shift(door, store).passes(3_600.0)
    assert door.asked == []
    assert {stored.value.node for stored in store.list(Case)} == {"n1", "n2"}
    assert spoiler.raw(ledger) == there
    assert "unread/Ledger/ledger" in shift.pager.keys("urgent")
    spoiler.mend(ledger)
    with pytest.raises(NotLeader, match="can be read again"):
        shift.passes(60.0)
    shift.successor().passes(3_600.0)
    assert treated(door) == {"n1", "n2"}


def test_a_ledger_that_turns_unreadable_ends_the_lead_and_the_next_one_only_watches(
    store: SqliteStore, spoiler: Spoiler
) -> None:
    door = Door(a_node("n1"), a_node("n2"))
    shift = Shift(door, store).passes(60.0)
    spoiler.spoil(shift.controller.records.ledger)
    with pytest.raises(NotLeader, match="cannot be read"):
        shift.passes(600.0)
    after = shift.successor()
    door.shows("n1", findings=(a_finding(node="n1"),))
    after.passes(3_600.0)
    assert door.asked == []


def test_every_unreadable_record_is_told_once(store: SqliteStore, spoiler: Spoiler) -> None:
    values: list[Any] = [NodeRecord("n1"), a_command("hold"), a_recovery(), Part("S9")]
    for value in values:
        store.create(value)
        spoiler.spoil(value)
    shift = Shift(two_sick(), store).passes(7_200.0)
    told = [notice.key for notice in shift.pager.told if notice.key.startswith("unread/")]
    assert sorted(told) == [
        "unread/Command/cmd-hold",
        "unread/NodeRecord/n1",
        "unread/Part/S9",
        "unread/Recovery/llama",
    ]


class NewerStore(SqliteStore):
    """As a Sickbay whose records of some kinds have the next schema writes them."""

    newer: tuple[type[Any], ...] = ()

    def create(self, value: Value, epoch: int = 0) -> int:
        return super().create(self._raised(value), epoch)

    def commit(self, value: Value, expect: int, epoch: int, consumes: Sequence[str] = ()) -> int:
        return super().commit(self._raised(value), expect, epoch, consumes)

    def _raised(self, value: Any) -> Any:
        return replace(value, schema=2) if isinstance(value, self.newer) else value


@pytest.mark.parametrize("newer", [(Case,), (NodeRecord, Case), (Ledger, NodeRecord, Case)], ids=len)
def test_a_controller_that_is_upgraded_rolled_back_and_upgraded_again_treats_each_node_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: tuple[type[Any], ...]
) -> None:
    path, door, current = tmp_path / "sickbay.db", two_sick(), wire.SCHEMA
    door.says[Verb.DRAIN] = busy
    old = Shift(door, SqliteStore(path, synchronous="OFF")).passes(600.0)
    old.controller.abandon()

    def upgrade() -> Shift:
        monkeypatch.setattr(wire, "SCHEMA", current + 1)
        store = NewerStore(path, synchronous="OFF")
        store.newer = newer
        return Shift(door, store, old.clock)

    upgrade().passes(60.0).controller.abandon()
    monkeypatch.setattr(wire, "SCHEMA", current)
    before, asked = SqliteStore(path), len(door.asked)
    del door.says[Verb.DRAIN]
    back = Shift(door, before, old.clock).passes(600.0)
    assert len(door.asked) == asked
    assert {one.kind for one in before.unread()} == set(newer) - {NodeRecord}  # an open case carries its node's record
    assert any("run the newer version" in notice.body for notice in back.pager.told)
    back.controller.abandon()
    upgrade().passes(3_600.0)
    assert [action.place.node for action in door.called(Verb.REBOOT)] == ["n1", "n2"]


CASE, RECORD = a_case(Phase.WAITING, id="n1.7"), NodeRecord("n1", last_n=7)


@pytest.mark.parametrize("new_leader", [True, False])
@pytest.mark.parametrize(
    ("value", "put_back"), [(CASE, True), (CASE, False), (RECORD, False)],
    ids=["a store that is put back", "a case that a person removes", "the record of a node that a person removes"],
)  # fmt: skip
def test_a_number_that_stood_in_what_could_not_be_read_is_not_used_again(
    value: Any, put_back: bool, new_leader: bool
) -> None:
    """Whoever leads knows what it was called, though nothing else of it: actions were asked for by that (seed 1670)."""
    store, door = MemoryStore(), Door(a_node())
    door.says[Verb.DRAIN] = busy
    shift = Shift(door, store).passes(600.0)
    epoch, yesterday = shift.controller.records.epoch, store.contents()
    store.create(value, epoch)
    if value is RECORD:
        store.archive(replace(CASE, phase=Phase.DISMISSED), store.create(CASE, epoch), epoch)
    SPOILERS["memory"](store).spoil(value)
    shift = shift.successor().passes(600.0)
    store.replace_contents(yesterday) if put_back else store.lose(type(value), records.key_of(value))
    shift.passes(60.0)
    shift = shift.successor() if new_leader else shift
    door.shows("n1", findings=(a_finding(),))
    after = shift.passes(60.0).case("n1")
    assert after is not None
    assert after.id == "n1.8"


def test_such_a_number_is_on_record_for_the_next_leader_although_a_case_at_rest_was_put_back_in_its_place() -> None:
    """It stood in a case that was open again and rested with a person: nothing was ever written to that, and the next
    leader gave the number to another case (seed 50001400)."""
    store = MemoryStore()
    version = store.create(a_case(Phase.ESCALATED), 0)
    yesterday = store.contents()
    store.archive(a_case(Phase.DISMISSED), version, 0)
    store.create(CASE, 0)
    SPOILERS["memory"](store).spoil(CASE)
    leader = Records(store, View(), "test")
    leader.take_over()
    store.replace_contents(yesterday)
    leader.read_unread(0.0)
    leader.flush(0.0)
    heir = View()
    Records(store, heir, "test").take_over()
    assert heir.cases["n1"].value.id == "n1.1"
    assert heir.records["n1"].value.last_n == 7


@pytest.mark.parametrize("new_leader", [True, False])
def test_a_second_absence_of_many_is_told_though_the_record_of_the_first_cannot_be_read(
    store: SqliteStore, spoiler: Spoiler, new_leader: bool
) -> None:
    """It was counted in the first one's case, which could not end, and nobody heard of it."""
    names = [f"n{n:02}" for n in range(20)]
    door = Door(*(a_node(name) for name in names))
    shift = Shift(door, store).passes(30.0)
    _show(door, names[:5], ready=False)
    case = shift.passes(600.0).case("absence")
    assert case is not None
    spoiler.spoil(case)
    shift = (shift.successor() if new_leader else shift).passes(2 * 3_600.0)
    _show(door, names[:5], ready=True)
    before = len(shift.passes(2 * 3_600.0).pager.told)
    _show(door, names[8:14], ready=False)
    (note,) = shift.passes(600.0).pager.told[before:]
    assert note.title == "6 nodes are away together"
    assert "n08" in note.body
    assert "no command about it is heard until then" in note.body
    assert note.case != "absence.1"
    assert door.called(Verb.CORDON) == []


def test_what_was_told_of_many_while_the_record_could_not_be_read_is_not_told_again_when_it_can_be(
    store: SqliteStore, spoiler: Spoiler
) -> None:
    """Its case was kept in memory, was said to have been deleted, and was begun again (seed 496)."""
    names = [f"n{n:02}" for n in range(20)]
    door = Door(*(a_node(name) for name in names))
    shift = Shift(door, store).passes(30.0)
    _show(door, names[:5], ready=False)
    shift.passes(600.0)
    _show(door, names[:5], ready=True)
    shift.passes(2 * 3_600.0)
    record = store.get(NodeRecord, "absence")
    assert record is not None
    spoiler.spoil(record.value)
    shift.passes(60.0)
    _show(door, names[8:14], ready=False)
    told = [note.key for note in shift.passes(1_200.0).pager.told if "absence" in note.case]
    assert told == ["absence.1/began", "absence.1/over", "absence.2/began"]
    spoiler.mend(record.value)
    case = shift.passes(600.0).case("absence")
    assert [note.key for note in shift.pager.told if "absence" in note.case] == told
    assert case is not None
    assert store.get(Case, "absence.2") is not None


def _show(door: Door, names: Sequence[str], *, ready: bool) -> None:
    for name in names:
        door.shows(name, ready=ready)
