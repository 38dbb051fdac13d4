"""What the prototype taught (lessons.md), the items that need the shell: two clocks, sends, leaders, late calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.errors import NotLeader
from sickbay.model import Case, Command, Done, Phase, Retry, Started, Verb
from sickbay.stores.memory import MemoryStore
from tests.builders import a_finding
from tests.controller.door import Door, Shift, busy


def draining() -> Shift:
    shift = Shift(Door())
    shift.door.says[Verb.DRAIN] = busy
    shift.door.shows("n1", findings=(a_finding(),))
    return shift.passes(60.0)


def phase(shift: Shift) -> Phase:
    case = shift.case()
    assert case is not None
    return case.phase


@pytest.mark.parametrize("jump_s", [86_400.0, 30 * 86_400.0])
def test_05_an_outage_of_the_controller_makes_nothing_time_out(jump_s: float) -> None:
    shift = draining()
    shift.clock.passes(jump_s)
    after = shift.successor().passes(60.0)
    assert phase(after) is Phase.DRAINING


def test_05_a_step_of_the_wall_clock_makes_nothing_time_out() -> None:
    shift = draining()
    shift.clock.wall += 1e7
    assert phase(shift.passes(60.0)) is Phase.DRAINING


def test_14_every_send_is_on_record_before_it_is_made() -> None:
    shift = Shift(Door())
    seen: list[int] = []

    def reboot(action: object) -> Started:
        stored = shift.controller.records.store
        pending = stored.list(Case)[0].value.pending
        seen.append(pending.sends if pending else 0)
        return Started(60.0)

    shift.door.says[Verb.REBOOT] = reboot
    shift.door.shows("n1", findings=(a_finding(),))
    shift.passes(600.0)
    assert len(seen) > 2
    assert set(seen) == {1}
    assert len(shift.door.called(Verb.REBOOT)) == 1


def test_16_an_old_leader_that_reads_again_cannot_write_a_case() -> None:
    door, store = Door(), MemoryStore()
    door.says[Verb.DRAIN] = busy
    old = Shift(door, store)
    door.shows("n1", findings=(a_finding(),))
    old.passes(60.0)
    Shift(door, store, old.clock).passes(30.0)
    old.controller.resync()
    asked = len(door.asked)
    with pytest.raises(NotLeader):
        old.passes(600.0)
    assert len(door.asked) == asked


def test_18_a_cancel_in_flight_waits_for_the_treatment_it_had_sent() -> None:
    shift = Shift(Door())
    shift.door.says[Verb.REBOOT] = lambda _: Started(30.0)
    shift.door.shows("n1", findings=(a_finding(),))
    shift.passes(120.0)
    shift.store.create(Command("c1", "abort", "n1.1", "ann", "", 0.0))
    shift.passes(300.0)
    assert phase(shift) is Phase.CANCELLING
    assert not shift.door.called(Verb.RELEASE)
    assert [s.kind for s in shift.controller.records.ledger.seats if s.kind == "treat"] == ["treat"]
    shift.door.says[Verb.REBOOT] = lambda _: Done()
    shift.passes(120.0)
    assert shift.door.called(Verb.RELEASE)
    assert len(shift.door.called(Verb.REBOOT)) == 1


def test_an_abort_is_not_lost_by_a_leader_that_was_paused() -> None:
    """The old leader has read the command and stands still; the new one carries it out; the old one cannot."""
    door, store = Door(), MemoryStore()
    door.says[Verb.DRAIN] = busy
    old = Shift(door, store)
    door.shows("n1", findings=(a_finding(),))
    old.passes(60.0)
    store.create(Command("c1", "abort", "n1.1", "ann", "", 0.0))
    old.controller._gather(old.controller._now())
    new = Shift(door, store, old.clock)
    with pytest.raises(NotLeader):
        old.passes(60.0)
    assert [c.value.id for c in store.list(Command)] == ["c1"]
    new.passes(60.0)
    assert store.list(Command) == []
    assert new.case() is None


def test_what_was_true_before_a_treatment_is_read_directly_and_not_from_a_cache() -> None:
    shift = Shift(Door())
    shift.door.says[Verb.COLLECT] = busy
    shift.door.shows("n1", findings=(a_finding(),))
    shift.passes(60.0)
    shift.door.nodes["n1"] = replace(shift.door.nodes["n1"], boot_id="boot-unseen")  # the watch has not told us yet
    shift.door.says[Verb.COLLECT] = lambda _: Done()
    shift.door.says[Verb.REBOOT] = lambda _: Retry(30.0, "asking")
    shift.passes(120.0)
    assert shift.door.called(Verb.REBOOT)[0].before.boot_id == "boot-unseen"
