"""Two writers: old leaders, last seats, and commands that must not get lost."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sickbay.controller.drafts import Draft, Writers
from sickbay.errors import StaleWrite
from sickbay.model import Case, Command, Ledger, Pause
from sickbay.ports import Store

from ..builders import a_case, a_command, a_pause, a_recovery, take_a_seat
from ..conftest import Pair


def test_an_old_leader_that_reads_again_still_cannot_write(pair: Pair) -> None:
    """lessons.md 16: compare-and-set alone lets it."""
    old, new = pair
    version = old.create(a_case(), epoch=1)
    version = new.commit(a_case(), version, epoch=2)  # the new leader stamps what is open
    with pytest.raises(StaleWrite, match="newer leader"):
        old.commit(replace(a_case(), step=9), version, epoch=1)
    with pytest.raises(StaleWrite, match="newer leader"):
        old.archive(a_case(), version, epoch=1)


def test_the_same_leader_and_a_newer_one_may_write(store: Store) -> None:
    version = store.create(a_recovery(), epoch=2)
    version = store.commit(a_recovery(), version, epoch=2)
    store.commit(a_recovery(), version, epoch=5)
    assert store.list(type(a_recovery()))[0].epoch == 5


def test_peoples_records_carry_no_epoch(store: Store) -> None:
    store.create(Ledger(epoch=7), epoch=7)
    version = store.create(a_pause(), epoch=7)
    store.commit(replace(a_pause(), why="longer"), version, epoch=0)
    stored = store.get(Pause, "fleet")
    assert stored is not None
    assert (stored.epoch, stored.value.why) == (0, "longer")


def test_peoples_records_are_still_compare_and_set(pair: Pair) -> None:
    version = pair[0].create(a_pause())
    pair[0].commit(replace(a_pause(), why="one"), version, 0)
    with pytest.raises(StaleWrite):
        pair[1].commit(replace(a_pause(), why="two"), version, 0)


def test_of_two_writers_only_one_gets_the_last_seat(pair: Pair) -> None:
    pair[0].create(Ledger(epoch=1), epoch=1)
    ledgers = [store.get(Ledger, "") for store in pair]
    for number, (store, stored) in enumerate(zip(pair, ledgers, strict=True)):
        assert stored is not None
        if number == 0:
            store.commit(replace(stored.value, watch_time=1.0), stored.version, epoch=1)
        else:
            with pytest.raises(StaleWrite):
                store.commit(replace(stored.value, watch_time=2.0), stored.version, epoch=1)


def test_threads_racing_for_seats_never_overbook(pair: Pair) -> None:
    pair[0].create(Ledger(epoch=1), epoch=1)
    with ThreadPoolExecutor(8) as pool:
        tries = [pool.submit(take_a_seat, pair[n % 2], f"n{n}.1", 5) for n in range(24)]
        won = sum(attempt.result() for attempt in tries)
    stored = pair[1].get(Ledger, "")
    assert stored is not None
    assert won == 5 == len({seat.case for seat in stored.value.seats})


def test_a_commit_removes_the_commands_it_carries(pair: Pair) -> None:
    pair[1].create(a_command("c1"))
    pair[1].create(a_command("c2"))
    version = pair[0].create(a_case(), epoch=1)
    pair[0].commit(replace(a_case(), step=2), version, 1, consumes=["c1"])
    assert [stored.value.id for stored in pair[1].list(Command)] == ["c2"]


def test_an_archive_removes_the_commands_it_carries(store: Store) -> None:
    store.create(a_command("c1"))
    version = store.create(a_case(), epoch=1)
    store.archive(a_case(), version, 1, consumes=["c1", "never-there"])
    assert store.list(Command) == []
    assert store.list(Case) == []


@pytest.mark.parametrize(("off_by", "epoch"), [(1, 2), (0, 1)], ids=["old version", "old epoch"])
def test_a_stale_write_consumes_nothing(store: Store, off_by: int, epoch: int) -> None:
    """lessons.md, seen in traces: an abort command lost by a paused leader."""
    store.create(a_command("c1"))
    version = store.create(a_case(), epoch=2)
    with pytest.raises(StaleWrite):
        store.commit(a_case(), version + off_by, epoch, consumes=["c1"])
    with pytest.raises(StaleWrite):
        store.archive(a_case(), version + off_by, epoch, consumes=["c1"])
    assert [stored.value.id for stored in store.list(Command)] == ["c1"]


def stamped(store: Store, cases: Sequence[Case], versions: Sequence[int]) -> list[int | None]:
    """As a takeover does it: side by side where the store has lanes; None where somebody else had moved the record."""
    drafts = [Draft(case, version) for case, version in zip(cases, versions, strict=True)]
    written = Writers(store).write(drafts, epoch=2)
    return [version for version in written if not isinstance(version, Exception)]


def test_a_takeover_stamps_many_records_and_says_their_versions_in_order(pair: Pair) -> None:
    old, new = pair
    cases = [a_case(f"n{number}.1") for number in range(20)]
    made = [old.create(case, epoch=1) for case in cases]
    versions = stamped(new, cases, made)
    assert versions == [found.version for case in cases if (found := old.get(Case, case.id))]
    with pytest.raises(StaleWrite, match="newer leader"):
        old.commit(cases[7], versions[7] or 0, epoch=1)


def test_a_takeover_that_meets_a_stale_record_stamps_the_others_and_says_so(pair: Pair) -> None:
    cases = [a_case(f"n{number}.1") for number in range(5)]
    versions = [pair[0].create(case, epoch=1) for case in cases]
    pair[0].commit(replace(cases[0], step=9), versions[0], epoch=1)
    found = stamped(pair[1], cases, versions)
    assert [version is None for version in found] == [True, False, False, False, False]
    assert [stored.epoch for stored in pair[1].list(Case)] == [1, 2, 2, 2, 2]


def test_a_command_that_was_consumed_is_not_shown_by_a_store_opened_before_it(pair: Pair) -> None:
    pair[1].create(a_command("c1"))
    assert len(pair[1].list(Command)) == 1
    version = pair[0].create(a_case(), epoch=1)
    pair[0].archive(a_case(), version, 1, consumes=["c1"])
    assert pair[1].list(Command) == []
    assert pair[1].get(Command, "c1") is None


def test_writers_of_different_records_do_not_disturb_each_other(pair: Pair) -> None:
    """The controller commits several records side by side."""

    def live(number: int) -> int:
        store, case = pair[number % 2], a_case(f"n{number}.1")
        version = store.create(case, epoch=1)
        for step in range(2, 6):
            version = store.commit(replace(case, step=step), version, epoch=1)
        return version

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(live, range(12)))
    found = {stored.value.id: stored for stored in pair[0].list(Case)}
    assert [found[f"n{number}.1"].version for number in range(12)] == versions
    assert {stored.value.step for stored in found.values()} == {5}
