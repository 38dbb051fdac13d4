"""What only the memory store promises: the same object back, no copy."""

from __future__ import annotations

from sickbay.model import Case
from sickbay.stores.memory import MemoryStore

from .builders import a_case


def test_reads_hand_out_the_very_object_that_was_written() -> None:
    store, case = MemoryStore(), a_case()
    store.create(case)
    stored = store.get(Case, case.id)
    assert stored is not None
    assert stored.value is case
    assert store.list(Case)[0] is stored


def test_a_record_without_a_cluster_gets_the_stores() -> None:
    store = MemoryStore("east")
    store.create(a_case())
    assert store.list(Case)[0].value.cluster == "east"
