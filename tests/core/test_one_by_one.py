"""Nodes that go away one after another: when reboots in vain are too many, and what people are told of it."""

from __future__ import annotations

from sickbay.core import one_by_one
from sickbay.model import Case, Entry, Event, Ledger, Phase, Verb
from sickbay.settings import ControllerSettings
from tests.builders import a_case, a_ledger

LIMITS = ControllerSettings()
DAY = 86_400.0


def in_vain(event: str = Event.EXAMINED) -> Case:
    """It was rebooted, still did not answer, and came back by itself."""
    back = Entry(9, event, 0.0, "sickbay", "it answers again", Phase.CORDONING.value)
    return a_case(Phase.RESOLVED, "node-not-ready", rungs_tried=(Verb.REBOOT,), journal=(back,))


def ended(ledger: Ledger, *at: float) -> tuple[Ledger, int]:
    """After such cases at these times, and how many notices."""
    told = []
    for watch in at:
        ledger, notice = one_by_one.noted(in_vain(), ledger, watch, 0.0, LIMITS)
        told.append(notice)
    return ledger, len([n for n in told if n is not None])


def test_a_reboot_that_helped_is_not_noted() -> None:
    ledger = a_ledger()
    assert one_by_one.noted(in_vain(Event.DONE), ledger, 1.0, 0.0, LIMITS) == (ledger, None)


def test_the_third_within_a_day_is_told_once_and_keeps_the_next_one_from_its_reboot() -> None:
    ledger, told = ended(a_ledger(), 1.0, 2.0)
    assert (told, one_by_one.forbids(in_vain(), ledger, 2.0, LIMITS)) == (0, "")
    ledger, told = ended(ledger, 3.0, 4.0)
    assert told == 1
    assert [n.key for n in ledger.notices] == ["one-by-one/0"]
    assert "rebooted in vain" in one_by_one.forbids(in_vain(), ledger, 4.0, LIMITS)


def test_those_of_yesterday_do_not_count() -> None:
    ledger, told = ended(a_ledger(), 1.0, 2.0, DAY + 3.0)
    assert (told, one_by_one.forbids(in_vain(), ledger, DAY + 3.0, LIMITS)) == (0, "")
