"""What must be on record at once, and what may wait where a write is dear (core/keeping.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.core import keeping
from sickbay.core.turn import Decision, NodeSlice
from sickbay.model import Case, Node, Phase
from tests.builders import a_case, a_diagnosis, a_latch, a_node, a_record, an_action


def patience(before: Case | None, after: Case, node: Node | None = None, ended: bool = False) -> float:
    record = a_record()
    return keeping.patience(NodeSlice(record, node or a_node(), case=before), Decision(record, after, ended=ended))


@pytest.mark.parametrize("phase", [Phase.CORDONING, Phase.COLLECTING, Phase.REPAIRING, Phase.RETURNING])
def test_a_phase_in_which_something_is_done_is_on_record_first(phase: Phase) -> None:
    assert patience(a_case(Phase.WAITING), a_case(phase)) == keeping.NOW


def test_a_case_is_on_record_when_it_opens_and_when_it_ends() -> None:
    assert patience(None, a_case(Phase.SUSPECTED)) == keeping.NOW
    assert patience(a_case(Phase.VERIFYING), a_case(Phase.VERIFYING), ended=True) == keeping.NOW


def test_an_examination_is_on_record_so_that_the_next_leader_does_not_begin_its_settle_time_anew() -> None:
    assert patience(a_case(Phase.REPAIRING), a_case(Phase.VERIFYING)) == keeping.NOW


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.QUEUED, Phase.REPAIRING, Phase.VERIFYING])
def test_what_a_case_waits_for_is_on_record_within_fifteen_seconds(phase: Phase) -> None:
    assert patience(a_case(phase), a_case(phase, refusal="3 of at most 3 are out")) == keeping.SOON_S == 15.0


def test_a_drain_may_begin_unwritten_only_where_nobody_is_moved() -> None:
    before, after = a_case(Phase.HOLDING), a_case(Phase.DRAINING)
    assert patience(before, after, a_node(jobs=())) == keeping.SOON_S
    assert patience(before, after, a_node(jobs=("llama",))) == keeping.NOW


@pytest.mark.parametrize("how", ["held", "paused"])
def test_nobody_reads_held_beside_a_drain_that_goes_on(how: str) -> None:
    """Seed 7104: a pause ended and the empty node was drained, while the record still said paused."""
    held = replace(a_case(Phase.HOLDING), held=how == "held", paused=how == "paused")
    free = a_case(Phase.DRAINING)
    assert patience(held, free, a_node(jobs=())) == keeping.NOW
    assert patience(free, held) == keeping.NOW


def test_what_joins_a_case_without_changing_its_course_may_wait() -> None:
    before = a_case(Phase.VERIFYING)
    after = a_case(Phase.VERIFYING, diagnoses=(*before.diagnoses, a_diagnosis("ecc-uncontained")))
    assert patience(before, after) == keeping.RARELY_S
    assert patience(before, a_case(Phase.VERIFYING, pending=an_action())) == keeping.NOW
    assert patience(a_case(Phase.ESCALATED), replace(after, phase=Phase.ESCALATED)) == keeping.LATER_S


def test_which_boot_a_healthy_node_is_in_is_worth_no_write_and_a_verdict_is() -> None:
    before = a_record()
    assert not keeping.is_worth_a_write(before, a_record(boot_id="another", boot_seen=7.0), stored=False)
    assert keeping.is_worth_a_write(before, a_record(boot_id="another", boot_seen=7.0), stored=True)
    assert keeping.is_worth_a_write(before, a_record(a_latch()), stored=False)
    assert not keeping.is_worth_a_write(before, before, stored=True)


@pytest.mark.parametrize("stored", [True, False])
def test_the_same_answers_under_new_numbers_are_worth_no_write(stored: bool) -> None:
    """Of 5,000 healthy nodes seventeen speak every second: each word had been a write."""
    again = replace(a_record(), seen={"boot|agent|efa-enumeration|tool.missing|": 41})
    assert not keeping.is_worth_a_write(a_record(), again, stored=stored)
