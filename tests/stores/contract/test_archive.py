"""Ended records: kept, found again, forgotten in time; and records that stay of bounded size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay import wire
from sickbay.errors import AlreadyExists
from sickbay.model import Case, NodeRecord, Recovery
from sickbay.ports import Store

from ..builders import a_case, a_diagnosis, a_recovery, an_entry
from ..conftest import Pair


def _end(store: Store, value: Case | Recovery) -> None:
    store.archive(value, store.create(value), 0)


def _ids(store: Store, **asked: object) -> list[str]:
    return [case.id for case in store.history(Case, **asked)]  # type: ignore[arg-type]


def test_an_archived_case_is_no_longer_live_and_is_found_in_history(pair: Pair) -> None:
    _end(pair[0], a_case())
    assert pair[1].get(Case, "n1.1") is None
    assert list(pair[1].history(Case)) == [a_case()]


def test_what_ended_or_never_was_is_missing_among_the_live(pair: Pair) -> None:
    _end(pair[0], a_case("n1.1"))
    pair[0].create(a_case("n1.2"))
    assert pair[1].missing(Case, ("n1.1", "n1.2", "n1.3")) == ["n1.1", "n1.3"]


def test_a_recovery_that_ended_or_was_never_there_is_missing_too(pair: Pair) -> None:
    for job in ("llama", "team/llama"):
        pair[0].create(a_recovery(job))
    assert pair[1].missing(Recovery, ("llama", "team/llama", "team/mixtral")) == ["team/mixtral"]
    stored = pair[0].get(Recovery, "team/llama")
    assert stored is not None
    pair[0].archive(stored.value, stored.version, 0)
    assert pair[1].missing(Recovery, ("llama", "team/llama")) == ["team/llama"]


def test_a_record_has_moved_when_it_is_there_in_another_version(store: Store) -> None:
    first = store.create(a_case("n1.1"))
    assert not store.moved(Case, "n1.1", first)
    second = store.commit(a_case("n1.1"), first, 0)
    assert store.moved(Case, "n1.1", first)
    assert not store.moved(Case, "n1.1", second)
    assert not store.moved(Case, "n1.2", first)


def test_a_case_number_is_never_used_twice(pair: Pair) -> None:
    """lessons.md 1."""
    _end(pair[0], a_case("n1.1"))
    with pytest.raises(AlreadyExists, match="in the archive"):
        pair[1].create(a_case("n1.1"))
    pair[1].create(a_case("n1.2"))


def test_a_job_may_come_back_after_its_recovery_ended(store: Store) -> None:
    _end(store, a_recovery())
    _end(store, a_recovery())
    assert len(list(store.history(Recovery))) == 2


def test_what_ended_last_under_a_key_is_found_by_it_while_nothing_lives_there(pair: Pair) -> None:
    assert pair[1].last_ended(Recovery, "team/llama") is None
    for restarts in (1, 2):
        _end(pair[0], replace(a_recovery("team/llama"), restarts=restarts))
    _end(pair[0], a_recovery("team/mixtral"))
    _end(pair[0], a_case("n1.1"))
    ended = pair[1].last_ended(Recovery, "team/llama")
    assert ended is not None
    assert ended.restarts == 2
    assert pair[1].last_ended(Case, "n1.1") == a_case("n1.1")
    pair[0].create(a_recovery("team/llama"))
    assert pair[1].last_ended(Recovery, "team/llama") is None


def test_what_was_pruned_ended_long_ago_and_is_not_found_by_its_key(pair: Pair) -> None:
    _end(pair[0], a_recovery(ended=50.0))
    pair[1].prune(older_than=300.0)
    assert pair[0].last_ended(Recovery, a_recovery().job) is None


def test_history_is_newest_first_and_limited(store: Store) -> None:
    for number in range(1, 6):
        _end(store, a_case(f"n1.{number}", ended=100.0 * number))
    assert _ids(store) == ["n1.5", "n1.4", "n1.3", "n1.2", "n1.1"]
    assert _ids(store, limit=2) == ["n1.5", "n1.4"]
    assert _ids(store, limit=0) == []


def test_history_order_survives_a_clock_that_jumped_back(store: Store) -> None:
    _end(store, a_case("n1.1", ended=900.0))
    _end(store, a_case("n1.2", ended=100.0))
    assert _ids(store) == ["n1.2", "n1.1"]


def test_history_is_filtered_by_node_fault_and_time(store: Store) -> None:
    _end(store, a_case("n1.1", fault="gpu-lost", ended=100.0))
    _end(store, a_case("n2.1", fault="gpu-lost", ended=200.0))
    _end(store, a_case("n1.2", fault="ecc", ended=300.0))
    assert _ids(store, node="n1") == ["n1.2", "n1.1"]
    assert _ids(store, fault="gpu-lost") == ["n2.1", "n1.1"]
    assert _ids(store, since=200.0) == ["n1.2", "n2.1"]
    assert _ids(store, node="n1", fault="gpu-lost", since=50.0) == ["n1.1"]
    assert _ids(store, node="n1", fault="gpu-lost", since=150.0) == []
    assert _ids(store, node="' or 1=1 --") == []


def test_a_case_of_several_diagnoses_is_found_by_each(store: Store) -> None:
    _end(store, replace(a_case(), diagnoses=(a_diagnosis("ecc"), a_diagnosis("nvlink"))))
    assert _ids(store, fault="ecc") == _ids(store, fault="nvlink") == ["n1.1"]


def test_recoveries_are_found_by_any_of_their_nodes(store: Store) -> None:
    _end(store, a_recovery("a", nodes=("n1", "n2")))
    _end(store, a_recovery("b", nodes=("n2",)))
    assert [recovery.job for recovery in store.history(Recovery, node="n2")] == ["b", "a"]
    assert [recovery.job for recovery in store.history(Recovery, node="n1")] == ["a"]
    assert list(store.history(Case)) == []


def test_kinds_that_are_never_archived_have_no_history(store: Store) -> None:
    store.create(NodeRecord("n1"))
    assert list(store.history(NodeRecord)) == []


def test_prune_forgets_what_ended_before_and_says_how_many(pair: Pair) -> None:
    for number in range(1, 5):
        _end(pair[0], a_case(f"n1.{number}", ended=100.0 * number))
    _end(pair[0], a_recovery(ended=50.0))
    assert pair[1].prune(older_than=300.0) == 3
    assert pair[1].prune(older_than=300.0) == 0
    assert _ids(pair[0], node="n1") == ["n1.4", "n1.3"] == _ids(pair[0], fault="gpu-lost")
    assert list(pair[0].history(Recovery)) == []


@pytest.mark.parametrize("value", [a_case(entries=400), replace(a_recovery(), journal=a_case(entries=400).journal)])
def test_a_long_journal_is_bounded_by_the_store(store: Store, value: Any) -> None:
    store.create(value)
    kept = store.list(type(value))[0].value
    assert len(kept.journal) == wire.MAX_ENTRIES
    assert kept.dropped_entries == 400 - wire.MAX_ENTRIES
    assert kept.journal[: wire.HEAD] == value.journal[: wire.HEAD]
    assert kept.journal[-1] == value.journal[-1]


def test_a_huge_case_is_bounded_when_committed_and_when_archived(store: Store) -> None:
    version = store.create(a_case())
    huge = replace(a_case(), journal=tuple(an_entry(n, why="x" * 9000) for n in range(100)))
    version = store.commit(huge, version, 0)
    assert len(wire.encode(store.list(Case)[0].value)) <= wire.MAX_BYTES
    store.archive(huge, version, 0)
    assert len(wire.encode(next(store.history(Case)))) <= wire.MAX_BYTES
