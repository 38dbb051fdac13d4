"""What the prototype's traces showed, and limits under stale views, arranged on purpose with the real brain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sickbay.model import Done, Event, NodeChanged, Phase, Started, Verb
from sickbay.settings import Limit
from tests.sim.removed import Removed, both, notices, row, wrapped
from tests.sim.ward import Ward, a_policy, names

SICK = "node-0005"
TWO = Limit(count=2, at_least=1)


def test_a_view_from_before_the_illness_does_not_clear_it() -> None:
    """The next leader's first look is old: the same boot, all well. Only a later observation may clear."""
    ward = Ward(policy=a_policy(max_out=TWO))
    node = ward.world.nodes[SICK]
    ward.world.truth_changed(node)
    ward.until(lambda: node.findings)  # its agent says: all well
    well = ward.run.platform.observe()
    ward.fill_limits(*names(0, 2))  # so the case waits, and could clear
    ward.ails(SICK, "gpu_lost_silent", cure="reboot")
    ward.world.truth_changed(node)
    case = ward.until_phase(SICK, Phase.WAITING)
    ward.door.old = well
    ward.door.late = lambda change: 300.0
    ward.crash(back_after=1.0)
    ward.passes(200.0)
    ward.door.late = lambda change: 0.0
    assert ward.ended(SICK) == []
    for name in names(0, 2):
        ward.world.people.uncordon(name)
    assert ward.until_ended(SICK).id == case.id
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()


def test_a_view_of_the_machine_that_was_there_before_does_not_end_the_case_about_its_successor() -> None:
    ward = Ward()
    before = ward.run.platform.observe()
    ward.world.people.terminate(SICK, successor_after_s=60.0)
    ward.until_ended(SICK)  # the newcomer was examined
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    case = ward.until_phase(SICK, Phase.COLLECTING)
    ward.door.old = before
    ward.crash(back_after=1.0)
    assert ward.until_ended(SICK).id == case.id
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()


def test_another_fault_is_not_missed_by_an_examination_of_the_first() -> None:
    ward = Ward()
    ward.world.strike("host_crash", SICK, cure="reboot")
    ward.until_phase(SICK, Phase.REPAIRING)
    ward.ails(SICK, "row_remap_failed_64", cure="replace")  # its lines went down with the host
    ward.until_ended(SICK)
    assert ward.treatments(SICK)[-1] == "REPLACE"
    ward.ends_well()


def test_a_finding_that_comes_while_a_case_is_let_go_opens_the_next_one() -> None:
    ward = Ward()
    ward.submit("llama", names(4, 4))
    ward.passes(900.0)
    ward.world.strike("row_remap_pending_63", SICK, 0, cure="reset")
    ward.until_phase(SICK, Phase.HOLDING)
    since = ward.world.now
    ward.door.on[Verb.RELEASE] = lambda action, go: go(action) if ward.world.now > since + 300.0 else Started(20.0)
    ward.says("abort", ward.case(SICK))
    ward.until_phase(SICK, Phase.CANCELLING)
    ward.world.strike("gpu_lost_79", SICK, 3, cure="reboot")
    ward.until(lambda: ward.ended(SICK))
    assert ward.ended(SICK)[0].cancelled
    ward.until(lambda: ward.treatments(SICK), 1800.0)
    ward.until(lambda: len(ward.ended(SICK)) == 2)
    assert ward.is_well(SICK)
    ward.is_sound()


def test_a_hold_during_the_examination_does_not_return_the_node_on_old_evidence() -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    held: list[str] = []

    def hold_when_answered(action: Any, go: Any) -> Any:
        outcome = go(action)
        if isinstance(outcome, Done) and not held:
            held.append(action.key)
            ward.says("hold", ward.case(SICK))  # with the answer on its way: all well
        return outcome

    ward.door.on[Verb.VERIFY] = hold_when_answered
    ward.until(lambda: held)
    ward.passes(1200.0)
    ward.ails(SICK, "row_remap_pending_63", cure="reset")
    ward.says("unhold", ward.case(SICK))
    ward.until_ended(SICK)
    assert ward.is_well(SICK)
    ward.ends_well()


def test_a_node_that_looks_down_in_a_late_view_takes_nobody_s_place() -> None:
    """It was away for a minute, and the watch is late: on a fresh read it is up, so it needs a seat like any other."""
    ward = Ward(policy=a_policy(max_out=TWO))
    ward.fill_limits(*names(0, 1))
    ward.world.strike("gpu_lost_79", "node-0008", 0, cure="never")
    ward.until_phase("node-0008", Phase.HOLDING)  # now the limit is full
    node = ward.world.nodes[SICK]
    node.ready = False
    ward.world.touch(node)
    ward.passes(30.0)
    ward.door.late = lambda change: 900.0 if isinstance(change, NodeChanged) and change.node.ready else 0.0
    node.ready = True
    ward.world.touch(node)
    ward.passes(600.0)
    assert ward.facts("cordon", SICK) == []
    ward.is_sound()


# -- the rules taken away


def _merged_anyway(old: Any) -> Any:
    def merge(turn: Any) -> None:
        cancelled = turn.case is not None and turn.case.cancelled
        turn.case = replace(turn.case, cancelled=False) if cancelled else turn.case
        old(turn)
        turn.case = replace(turn.case, cancelled=True) if cancelled else turn.case

    return merge


def _of_any_age(old: Any) -> Any:
    def open_case(*args: Any, **kw: Any) -> Any:
        case, record = old(*args, **kw)
        return replace(case, opened_version=0), record

    return open_case


RULES: list[tuple[Callable[[], None], str, Removed]] = [
    (test_a_view_from_before_the_illness_does_not_clear_it, "any observation clears",
     wrapped("core.triage", "is_later", lambda old: lambda finding, latch: True)),
    (test_a_view_of_the_machine_that_was_there_before_does_not_end_the_case_about_its_successor, "any view is of now",
     wrapped("core.triage", "open_case", _of_any_age)),
    (test_another_fault_is_not_missed_by_an_examination_of_the_first, "a narrow examination",
     wrapped("core.plan", "_checks", lambda old: lambda diagnoses, catalog, before: ("kernel-log",))),
    (test_a_finding_that_comes_while_a_case_is_let_go_opens_the_next_one, "swallowed",
     wrapped("core.decide", "_merge", _merged_anyway)),
    (test_a_hold_during_the_examination_does_not_return_the_node_on_old_evidence, "old evidence counts",
     row(Phase.VERIFYING, Event.UNHELD, None)),
    (test_a_node_that_looks_down_in_a_late_view_takes_nobody_s_place, "a late view gives a place away",
     both(wrapped("controller.desk", "Desk._fresh", lambda old: lambda self, name: self._view.nodes.get(name)),
          wrapped("core.steps", "_unless_opened", lambda old: lambda turn, case, moved: moved))),  # the door looks too
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "removed"), [(s, r) for s, _, r in RULES], ids=[words for _, words, _ in RULES])
def test_a_scenario_notices_when_its_rule_is_taken_away(scenario: Callable[[], None], removed: Removed) -> None:
    notices(scenario, removed)
