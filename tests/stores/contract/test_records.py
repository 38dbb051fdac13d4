"""Keyed records, each compare-and-set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.errors import AlreadyExists, StaleWrite, StoreError
from sickbay.model import Case, Command, Ledger, NodeRecord, Part, Pause, Phase, Recovery
from sickbay.ports import Store
from sickbay.stores import records

from ..builders import ONE_OF_EACH, a_case, a_command, a_pause, a_recovery
from ..conftest import Pair


@pytest.mark.parametrize("value", ONE_OF_EACH, ids=lambda value: type(value).__name__)
def test_what_was_created_is_read_back_by_everybody(pair: Pair, value: Any) -> None:
    version = pair[0].create(value, epoch=3)
    for store in pair:
        stored = store.get(type(value), records.key_of(value))
        assert stored is not None
        assert (stored.value, stored.version) == (value, version)
        assert stored.epoch == (0 if isinstance(value, Command | Pause) else 3)


@pytest.mark.parametrize("value", ONE_OF_EACH, ids=lambda value: type(value).__name__)
def test_a_second_create_is_refused_and_changes_nothing(pair: Pair, value: Any) -> None:
    version = pair[0].create(value)
    with pytest.raises(AlreadyExists, match="already exists"):
        pair[1].create(value, epoch=9)
    stored = pair[1].get(type(value), records.key_of(value))
    assert stored is not None
    assert stored.version == version


def test_an_absent_record_is_none(store: Store) -> None:
    assert store.get(Case, "n1.1") is None
    assert store.get(Ledger, "") is None


def test_the_ledger_is_one_whatever_key_it_is_asked_by(store: Store) -> None:
    store.create(Ledger(epoch=1))
    assert store.get(Ledger, "") == store.get(Ledger, "ledger") == store.get(Ledger, "anything")


def test_live_records_are_listed_by_kind_in_key_order(pair: Pair) -> None:
    for case in ("n3.1", "n1.2", "n2.1"):
        pair[0].create(a_case(case))
    pair[0].create(a_recovery())
    assert [stored.value.id for stored in pair[1].list(Case)] == ["n1.2", "n2.1", "n3.1"]
    assert [stored.value.job for stored in pair[1].list(Recovery)] == ["llama"]
    assert pair[1].list(Part) == []


def test_a_list_follows_every_kind_of_change(pair: Pair) -> None:
    ours, theirs = pair
    first = ours.create(a_case("n1.1"))
    ours.create(a_case("n2.1"))
    assert len(theirs.list(Case)) == 2
    ours.commit(replace(a_case("n1.1"), phase=Phase.CORDONING), first, 0)
    assert theirs.list(Case)[0].value.phase is Phase.CORDONING
    theirs.archive(a_case("n2.1"), theirs.list(Case)[1].version, 0)
    assert [stored.value.id for stored in ours.list(Case)] == ["n1.1"]


def test_a_caller_who_empties_a_list_hurts_nobody(store: Store) -> None:
    store.create(a_case())
    store.list(Case).clear()
    assert len(store.list(Case)) == 1


def test_a_commit_replaces_the_value_and_gives_a_new_version(pair: Pair) -> None:
    first = pair[0].create(a_case(), epoch=1)
    second = pair[0].commit(replace(a_case(), step=2), first, epoch=1)
    stored = pair[1].get(Case, "n1.1")
    assert stored is not None
    assert (stored.value.step, stored.version) == (2, second)
    assert second != first


def test_a_commit_on_an_old_version_is_stale_and_changes_nothing(pair: Pair) -> None:
    first = pair[0].create(a_case())
    pair[0].commit(replace(a_case(), step=2), first, 0)
    with pytest.raises(StaleWrite, match=r"n1\.1 has moved on"):
        pair[1].commit(replace(a_case(), step=3), first, 0)
    stored = pair[1].get(Case, "n1.1")
    assert stored is not None
    assert stored.value.step == 2


def test_a_commit_to_an_absent_record_is_stale(store: Store) -> None:
    with pytest.raises(StaleWrite, match="not there any more"):
        store.commit(a_case(), 1, 0)


def test_a_version_is_never_used_twice_even_after_a_delete(pair: Pair) -> None:
    first = pair[0].create(a_pause())
    pair[1].delete(Pause, "fleet")
    second = pair[1].create(replace(a_pause(), why="another one"))
    assert second != first
    stored = pair[0].get(Pause, "fleet")
    assert stored is not None
    assert stored.value.why == "another one"


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    store.delete(Command, "nobody")
    store.delete(NodeRecord, "nobody")


@pytest.mark.parametrize("kind", [Case, Recovery, Ledger, Part])
def test_what_must_never_vanish_cannot_be_deleted(store: Store, kind: type[Any]) -> None:
    with pytest.raises(StoreError, match="never deleted"):
        store.delete(kind, "x")


def test_the_token_changes_with_every_write_and_only_then(pair: Pair) -> None:
    seen = [pair[1].token()]
    version = pair[0].create(a_case())
    seen.append(pair[1].token())
    version = pair[0].commit(replace(a_case(), step=2), version, 0)
    seen.append(pair[1].token())
    pair[0].create(a_command())
    seen.append(pair[1].token())
    pair[0].delete(Command, "c1")
    seen.append(pair[1].token())
    pair[0].archive(a_case(), version, 0)
    seen.append(pair[1].token())
    assert len(set(seen)) == len(seen)
    with pytest.raises(StaleWrite):
        pair[0].commit(a_case(), 1, 0)
    pair[0].delete(Command, "c1")
    assert pair[1].token() == seen[-1] == pair[0].token()


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.list(Case)
