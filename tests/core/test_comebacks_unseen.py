"""A REPLACE that is said to be done while the node is shown as it was: what came of it is looked for first."""

from __future__ import annotations

from dataclasses import replace

from sickbay.model import Before, Done, Phase, Verb
from tests.builders import a_case, a_latch, a_node, a_policy, a_record, an_action
from tests.core.bedside import Bedside


def sent() -> Bedside:
    bed = Bedside(node=a_node(ready=False, cordoned=True, mark="n1.1"), policy=a_policy())
    assert bed.node is not None
    before = Before(boot_id=bed.node.boot_id, instance=bed.node.instance)
    asked = replace(an_action(Verb.REPLACE), sends=1, before=before)
    bed.record = a_record(a_latch("gpu-lost", seen=bed.now), last_n=1)
    bed.live = bed.last = a_case(
        Phase.REPAIRING, "gpu-lost", pending=asked, instance=bed.node.instance, uid=bed.node.uid, cordon_version=1,
        rung=Verb.REPLACE, rungs_tried=(Verb.REPLACE,), deadline=bed.now + 7_200.0,
    )  # fmt: skip
    return bed


def test_a_machine_that_is_shown_as_it_was_is_not_taken_for_its_successor() -> None:
    """Its provider had started the very same one again where nobody hears it: the case ended, and left its mark."""
    bed = sent().answers(Done("i-1 was started again"))
    assert (bed.phase, bed.asks) == (Phase.REPAIRING, Verb.REPLACE)
    assert bed.case.pending is not None
    assert bed.case.pending.ask_at == bed.now + 30.0
    bed.shows(ready=True, boot_id="another").answers(Done("i-1 was started again"))
    assert bed.phase is Phase.VERIFYING


def test_one_that_is_gone_by_then_was_replaced() -> None:
    bed = sent()
    bed.node = None
    assert bed.answers(Done("i-2 takes its place")).phase is Phase.RESOLVED
