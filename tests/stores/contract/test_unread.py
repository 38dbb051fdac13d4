"""One record that cannot be read, damaged or of a newer Sickbay, stops nobody else's; and nobody writes over it."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.errors import Unreadable
from sickbay.model import Case, Command, NodeRecord, Pause, Recovery
from sickbay.ports import Store
from sickbay.stores import records

from ..builders import ONE_OF_EACH, a_case, a_command, a_pause, a_recovery
from ..conftest import Pair, Spoiler

each = pytest.mark.parametrize("value", ONE_OF_EACH, ids=lambda value: type(value).__name__)


@each
def test_an_unreadable_record_is_named_with_its_key_its_place_and_the_reason(
    pair: Pair, spoiler: Spoiler, value: Any
) -> None:
    pair[0].create(value, epoch=3)
    spoiler.spoil(value)
    for store in pair:
        (found,) = store.unread()
        assert (found.kind, found.key) == (type(value), records.key_of(value))
        assert "newer Sickbay" in found.why
        assert found.where
        assert found.epoch == (0 if isinstance(value, Command | Pause) else 3)


@each
def test_it_is_left_out_of_the_list_and_the_others_are_in_it(pair: Pair, spoiler: Spoiler, value: Any) -> None:
    pair[0].create(value)
    others: tuple[Any, ...] = (
        a_case("n7.1"),
        a_recovery("other"),
        NodeRecord("n7"),
        a_command("c7"),
        a_pause("node:7"),
    )
    for other in others:
        pair[0].create(other)
    spoiler.spoil(value)
    for store in pair:
        for other in others:
            assert other in [stored.value for stored in store.list(type(other))]
        assert records.key_of(value) not in [records.key_of(stored.value) for stored in store.list(type(value))]


@each
def test_nobody_reads_or_writes_over_it(pair: Pair, spoiler: Spoiler, value: Any) -> None:
    version = pair[0].create(value, epoch=1)
    spoiler.spoil(value)
    there = spoiler.raw(value)
    for store in pair:
        with pytest.raises(Unreadable):
            store.get(type(value), records.key_of(value))
        with pytest.raises(Unreadable):
            store.create(value, epoch=9)
        for expect in (version, version + 1):
            with pytest.raises(Unreadable):
                store.commit(value, expect, epoch=9)
    assert spoiler.raw(value) == there


@each
def test_once_mended_it_is_read_again_without_opening_the_store_anew(pair: Pair, spoiler: Spoiler, value: Any) -> None:
    pair[0].create(value)
    spoiler.spoil(value)
    assert [len(store.unread()) for store in pair] == [1, 1]
    spoiler.mend(value)
    for store in pair:
        assert list(store.unread()) == []
        stored = store.get(type(value), records.key_of(value))
        assert stored is not None
        assert stored.value == value
        assert value in [one.value for one in store.list(type(value))]


@pytest.mark.parametrize("value", [a_command(), a_pause(), NodeRecord("n1")], ids=lambda value: type(value).__name__)
def test_a_person_may_remove_it(pair: Pair, spoiler: Spoiler, value: Any) -> None:
    pair[0].create(value)
    spoiler.spoil(value)
    pair[1].delete(type(value), records.key_of(value))
    assert [list(store.unread()) for store in pair] == [[], []]
    assert pair[0].get(type(value), records.key_of(value)) is None


def test_one_that_turns_unreadable_while_the_store_is_open_is_found(pair: Pair, spoiler: Spoiler) -> None:
    for case in ("n1.1", "n2.1"):
        pair[0].create(a_case(case), epoch=1)
    assert [list(store.unread()) for store in pair] == [[], []]
    assert len(pair[1].list(Case)) == 2
    spoiler.spoil(a_case("n2.1"))
    for store in pair:
        store.token()
        assert [found.key for found in store.unread()] == ["n2.1"]
        assert [stored.value.id for stored in store.list(Case)] == ["n1.1"]


def test_the_archive_tells_what_it_can(store: Store, spoiler: Spoiler) -> None:
    for case in ("n1.1", "n2.1"):
        store.archive(a_case(case), store.create(a_case(case)), 0)
    store.archive(a_recovery(), store.create(a_recovery()), 0)
    spoiler.spoil(a_case("n1.1"), archived=True)
    assert [case.id for case in store.history(Case)] == ["n2.1"]
    assert len(list(store.history(Recovery))) == 1
