"""Our mark as data: patches that say what they expect, and a memory that survives whatever others write into it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.errors import ApiError
from sickbay.kube.names import keys
from sickbay.kube.objects import Meta, NodeObject, NodeSpec, Taint
from sickbay.model import Action, Place, Verb
from sickbay.platforms.kubernetes import marks
from sickbay.platforms.kubernetes.marks import HOLD_OFF, Found, HeldMeta, HeldNode, Managed

KEYS = keys()
CASE = "n1.3"
KARPENTER, AUTOSCALER = HOLD_OFF


def a_node(annotations: dict[str, str] | None = None, **spec: Any) -> NodeObject:
    return NodeObject(metadata=Meta(name="n1", uid="u1", annotations=annotations), spec=NodeSpec(**spec))


def held(node: NodeObject, *managers: Managed) -> HeldNode:
    meta = HeldMeta(name="n1", uid="u1", annotations=node.metadata.annotations, managed_fields=list(managers))
    return HeldNode(metadata=meta, spec=node.spec)


def applied(node: NodeObject, ops: list[marks.Op]) -> NodeObject:
    """What an API server does with them, as far as these patches go (the real one is in test_cordon, test_release)."""
    annotations, taints = dict(node.metadata.annotations or {}), list(node.spec.taints or [])
    closed = node.spec.unschedulable
    for op in ops:
        path, value = op["path"], op.get("value")
        if op["op"] == "test":
            continue
        if path == "/spec/unschedulable":
            closed = op["op"] == "add"
        elif path.startswith("/metadata/annotations/"):
            key = path.removeprefix("/metadata/annotations/").replace("~1", "/").replace("~0", "~")
            annotations.pop(key, None) if op["op"] == "remove" else annotations.update({key: value})
        elif path == "/spec/taints" or path == "/spec/taints/-":
            taints += msgspec.convert(value if isinstance(value, list) else [value], list[Taint])
        elif path.startswith("/spec/taints/") and op["op"] == "remove":
            del taints[int(path.rpartition("/")[2])]
    return NodeObject(
        metadata=Meta(name="n1", uid="u1", annotations=annotations), spec=NodeSpec(unschedulable=closed, taints=taints)
    )


def test_the_taint_carries_the_cases_number_and_nothing_that_a_taint_may_not_carry() -> None:
    assert marks.number_of("ip-10-1-0-1.ec2.internal.17") == "17"
    assert marks.number_of("no number at all") == "0"
    assert marks.number_of("n1." + "9" * 100) == "0"


def test_the_case_is_the_args_or_the_keys() -> None:
    action = Action("a.b.3/12", Verb.DRAIN, Place("a.b"))
    assert marks.case_of(action) == "a.b.3"
    assert marks.case_of(Action("x/1", Verb.DRAIN, Place("a"), {"case": "a.7"})) == "a.7"


def test_every_write_is_preceded_by_a_test_of_the_same_place() -> None:
    node = a_node({KARPENTER: "false"}, taints=[Taint("a", "NoSchedule", "b")])
    ops = marks.cordon_ops(node, KEYS, CASE)
    tested = [op["path"] for op in ops if op["op"] == "test"]
    written = [op["path"] for op in ops if op["op"] != "test" and op["path"] != "/spec/taints/-"]
    assert "/metadata/uid" in tested
    assert set(written) <= set(tested)


def test_a_node_without_annotations_or_taints_gets_room_for_them() -> None:
    ops = marks.cordon_ops(a_node(), KEYS, CASE)
    assert {"op": "add", "path": "/metadata/annotations", "value": {}} in ops
    assert any(op["path"] == "/spec/taints" and op["op"] == "add" for op in ops)


TAINTS = st.lists(
    st.builds(Taint, st.sampled_from(["a", "b/c", "d~e"]), st.sampled_from(["NoSchedule", "NoExecute"])),
    max_size=4,
    unique_by=lambda taint: (taint.key, taint.effect),
)
NOTES = st.dictionaries(st.sampled_from([*HOLD_OFF, "x", "y/z~"]), st.text(max_size=300), max_size=4)


@given(TAINTS, NOTES, st.booleans())
def test_a_cordon_and_its_release_leave_every_node_as_it_was(
    taints: list[Taint], notes: dict[str, str], closed: bool
) -> None:
    before = a_node(notes, taints=taints, unschedulable=closed)
    during = applied(before, marks.cordon_ops(before, KEYS, CASE))
    assert marks.is_closed(during, KEYS, CASE)
    assert marks.cordon_ops(during, KEYS, CASE) == []
    after = applied(during, marks.release_ops(held(during), KEYS, CASE, cancel=False))
    assert after == before
    assert marks.release_ops(held(after), KEYS, CASE, cancel=False) == []


@given(
    st.one_of(st.text(), st.sampled_from(["{}", "null", "[[[[", '{"annotations": 3}', '{"annotations": {"x": "y"}}']))
)
def test_whatever_somebody_writes_into_our_memory_is_survived(text: str) -> None:
    node = a_node(
        {KEYS.case: CASE, KEYS.before: text}, unschedulable=True, taints=[Taint(KEYS.case, "NoSchedule", "3")]
    )
    found = marks.read_found(node, KEYS)
    assert found is None or set(found.annotations or ()) <= set(HOLD_OFF)
    ops = marks.release_ops(held(node), KEYS, CASE, cancel=False)
    touched = {op["path"] for op in ops if op["op"] != "test"}
    ours = {f"/metadata/annotations/{key.replace('/', '~1')}" for key in (KEYS.case, KEYS.before, *HOLD_OFF)}
    assert touched <= ours | {"/spec/unschedulable", "/spec/taints/0"}


def test_a_rivals_value_too_long_to_be_kept_is_left_as_it_is() -> None:
    node = a_node({KARPENTER: "x" * 1_000})
    after = applied(node, marks.cordon_ops(node, KEYS, CASE))
    assert after.metadata.annotation(KARPENTER) == "x" * 1_000
    assert (marks.read_found(after, KEYS) or Found()).annotations == {
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": None
    }
    assert len(after.metadata.annotation(KEYS.before)) < marks.MOST_BYTES


def test_who_else_wrote_the_cordon_is_read_from_the_servers_own_record() -> None:
    node = a_node({KEYS.case: CASE, KEYS.before: marks.write_found(Found())}, unschedulable=True)
    spec: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
    assert marks.opens(held(node, Managed("sickbay", spec)), KEYS, CASE)
    assert marks.opens(held(node, Managed("kubelet", {"f:spec": {"f:providerID": {}}})), KEYS, CASE)
    assert not marks.opens(held(node, Managed("sickbay", spec), Managed("kubectl-cordon", spec)), KEYS, CASE)
    assert marks.closed_by(held(node, Managed("argocd", spec), Managed("x", {"f:spec": "odd"}))) == ("argocd",)


@pytest.mark.parametrize(
    ("error", "stale"),
    [
        (ApiError(409, "Conflict", "the object has been modified"), True),
        (ApiError(422, "Invalid", "the server rejected our request due to an error in our request"), True),
        (
            ApiError(422, "Invalid", "ValidatingAdmissionPolicy 'x' denied request: no"),
            False,
        ),
        (ApiError(403, "Forbidden", "User cannot patch resource nodes"), False),
    ],
)
def test_old_knowledge_and_a_refusal_are_told_apart(error: ApiError, stale: bool) -> None:
    assert error.stale is stale
