"""decode(encode(x)) == x, for every noun the store keeps and for what agents send."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sickbay import wire
from sickbay.errors import StoreError
from sickbay.model import (
    Case,
    Command,
    Cost,
    Diagnosis,
    Finding,
    Job,
    Ledger,
    Node,
    NodeRecord,
    Notice,
    Part,
    Pause,
    Place,
    Recovery,
    RecoveryPhase,
    Severity,
    Status,
    When,
)

KEPT = (Case, Recovery, NodeRecord, Ledger, Part, Command, Pause)
SENT = (Finding, Diagnosis, Node, Job, Notice)

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=4),
    int: st.integers(-(2**53), 2**53),
    bool: st.booleans(),
    type(None): st.none(),
}


@cache
def any_of(hint: Any) -> st.SearchStrategy[Any]:
    """A small value of any type the model uses: from_type would do, with collections too large to be quick."""
    if hint in PLAIN:
        return PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        fields = {name: any_of(part) for name, part in get_type_hints(hint).items() if name != "schema"}
        return st.builds(cast(Any, hint), **fields)
    parts = get_args(hint)
    if get_origin(hint) is tuple and Ellipsis in parts:
        return st.lists(any_of(parts[0]), max_size=2).map(tuple)
    if get_origin(hint) is tuple:
        return st.tuples(*map(any_of, parts))
    if get_origin(hint) is Mapping:
        return st.dictionaries(any_of(parts[0]), any_of(parts[1]), max_size=2)
    return st.one_of(*map(any_of, parts)) if parts else st.sampled_from(hint)


@pytest.mark.parametrize("kind", [*KEPT, *SENT], ids=lambda kind: kind.__name__)
def test_what_is_written_is_read_back_and_carries_schema_and_cluster(kind: type[Any]) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(any_of(cast(Any, kind)))
    def round_trip(value: Any) -> None:
        data = wire.encode(value)
        assert wire.decode(kind, data) == value
        tree = json.loads(data)
        assert tree == json.loads(json.dumps(wire.to_json(value)))
        assert (tree["schema"], tree["cluster"]) == (1, getattr(value, "cluster", ""))

    round_trip()


def test_a_noun_without_a_cluster_of_its_own_is_sent_with_the_senders() -> None:
    assert json.loads(wire.encode(Notice("k", "info", "t", "b"), cluster="east"))["cluster"] == "east"


FINDING = Finding("b/1", "agent", "kernel-log", Place("n1"), Status.FAILED, "xid.79", "lost", severity=Severity.REPLACE)


def test_a_recovery_of_the_version_before_is_read_and_its_last_attempt_is_not_counted() -> None:
    """It said in three fields what an attempt costs; an upgrade may cost no job one."""
    r = Recovery("llama", RecoveryPhase.WAITING_FOR_CAPACITY, 3, 9, 1.0, None, barren=4, spared=2)
    tree = {k: v for k, v in wire.to_json(r).items() if k != "cost"}
    before = {**tree, "excused": True, "outage": "several jobs fail alike", "by_drain": "n1.1"}
    read = wire.decode(Recovery, json.dumps(before))
    assert (read.cost, read.barren, read.spared, read.by_drain) == (Cost.SETTLED, 4, 2, "n1.1")


@pytest.mark.parametrize("cost", Cost)
def test_what_an_attempt_cost_travels_as_a_word(cost: Cost) -> None:
    r = Recovery("llama", RecoveryPhase.WAITING_FOR_CAPACITY, 3, 9, 1.0, None, cost=cost)
    assert wire.to_json(r)["cost"] == cost.value
    assert wire.decode(Recovery, wire.encode(r)) == r


def test_severity_travels_by_name() -> None:
    assert wire.to_json(FINDING)["severity"] == "REPLACE"
    assert wire.to_json({"worst": Severity.RESET, "all": [FINDING]})["worst"] == "RESET"
    diagnosis = Diagnosis("ecc", Place("n1"), Severity.RESET, When.NOW, 1.0, (), 0.0)
    assert b'"severity":"RESET"' in wire.encode(diagnosis)


def test_an_unknown_severity_is_a_clear_error() -> None:
    data = wire.encode(FINDING).replace(b'"REPLACE"', b'"HOPELESS"')
    with pytest.raises(StoreError, match="'HOPELESS' is not one of NONE, MONITOR, RESET, REBOOT, REPLACE"):
        wire.decode(Finding, data)


@pytest.mark.parametrize("severity", Severity)
def test_the_originals_words_and_ours_name_the_same_severities(severity: Severity) -> None:
    assert wire.from_originals(wire.to_originals(severity)) is severity
    assert wire.from_originals(severity.name) is severity


def test_the_originals_say_isolate() -> None:
    assert wire.to_originals(Severity.REPLACE) == "ISOLATE"
    assert wire.from_originals("isolate") is Severity.REPLACE
    assert wire.from_originals("") is Severity.NONE
    with pytest.raises(StoreError, match="is not one of"):
        wire.from_originals("EXPLODE")


def test_fields_of_a_later_version_are_let_through() -> None:
    data = json.dumps({**wire.to_json(Pause("fleet", "ann", "why", 1.0)), "colour": "red", "extra": {"a": [1]}})
    assert wire.decode(Pause, data) == Pause("fleet", "ann", "why", 1.0)
    data = json.dumps({**wire.to_json(FINDING), "colour": "red"})
    assert wire.decode(Finding, data) == FINDING


@pytest.mark.parametrize("value", [Pause("fleet", "ann", "why", 1.0), NodeRecord("n1"), FINDING])
def test_a_newer_schema_is_refused_with_its_number(value: Any) -> None:
    tree = {**wire.to_json(value), "schema": 7}
    with pytest.raises(StoreError, match=r"newer Sickbay .schema 7; this one reads up to 1"):
        wire.decode(type(value), json.dumps(tree))


def test_a_newer_schema_is_the_reason_given_even_when_a_field_changed_its_type() -> None:
    tree = {**wire.to_json(Pause("fleet", "ann", "why", 1.0)), "schema": 7, "since": "yesterday"}
    with pytest.raises(StoreError, match="newer Sickbay"):
        wire.decode(Pause, json.dumps(tree))


@pytest.mark.parametrize("kind", [*KEPT, Finding], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"3", b'"x"', b"{}", b"\xff\xfe", b'{"schema":"one"}'])
def test_garbage_is_a_clear_error(kind: type[Any], data: bytes) -> None:
    if kind is Ledger and data == b"{}":
        return  # every field of the Ledger has a default
    with pytest.raises(StoreError, match=f"not a readable {kind.__name__}"):
        wire.decode(kind, data)


@pytest.mark.parametrize(
    ("data", "shape"), [(b"null", "null"), (b"3", "a number"), (b"true", "a truth value"), (b'"x"', "a text")]
)
@pytest.mark.parametrize("kind", [NodeRecord, Case])
def test_what_is_no_object_is_called_what_it_is(kind: type[Any], data: bytes, shape: str) -> None:
    """A NodeRecord that was null said "argument of type 'NoneType' is not iterable"."""
    with pytest.raises(StoreError, match=f"this is not a readable {kind.__name__}: .* but {shape}$"):
        wire.decode(kind, data)
