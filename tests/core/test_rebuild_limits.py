"""What cases say of grants, of the breaker and of reboots in vain, when there is no Ledger that says it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.core import one_by_one, rebuild, rebuild_limits
from sickbay.core.rebuild_limits import Calendar
from sickbay.model import Case, Entry, Event, NodeRecord, Past, Phase, Verb
from tests.builders import WALL, a_case, a_ledger, a_policy

NOW = 5_000.0
ANY = Calendar(((WALL, 4_000.0),), NOW)
FREE = "a place is free within the limits"


def entries(*lines: tuple[str, Phase, str, float]) -> tuple[Entry, ...]:
    return tuple(Entry(n, event, WALL + at, "sickbay", why, phase) for n, (event, phase, why, at) in enumerate(lines))


def went(*lines: tuple[str, Phase, str, float], **changed: Any) -> Case:
    return a_case(Phase.REPAIRING, journal=entries(*lines), **changed)


TREATED = (
    (Event.ADMITTED, Phase.CORDONING, FREE, 10.0),
    (Event.READY, Phase.DRAINING, "", 20.0),
    (Event.ADMITTED, Phase.REPAIRING, "REBOOT is next", 30.0),
)


def test_what_a_case_was_granted_stands_in_its_journal() -> None:
    made = rebuild_limits.with_windows(a_ledger(), [went(*TREATED)], ANY)
    assert made.windows == {"default/CORDON": (4_010.0,), "default/DRAIN": (4_020.0,), "default/REBOOT": (4_030.0,)}


def test_what_could_not_be_delivered_counts_in_no_window() -> None:
    case = went(*TREATED, (Event.UNREACHABLE, Phase.QUEUED, "", 40.0))
    assert "default/REBOOT" not in rebuild_limits.with_windows(a_ledger(), [case], ANY).windows


def test_a_window_of_which_the_ledger_knows_as_much_stays_as_it_is() -> None:
    known = a_ledger(windows={"default/REBOOT": (1.0,), "default/CORDON": ()})
    made = rebuild_limits.with_windows(known, [went(*TREATED)], ANY)
    assert made.windows["default/REBOOT"] == (1.0,)
    assert made.windows["default/CORDON"] == (4_010.0,)


def test_a_moment_of_which_only_the_wall_is_known_was_as_late_as_it_can_have_been() -> None:
    known = Calendar(((WALL, 100.0), (WALL + 500.0, 200.0)), NOW)
    assert [known.watch(WALL + at) for at in (-10.0, 50.0, 400.0, 600.0, 9_000.0)] == [100.0, 150.0, 200.0, 300.0, NOW]


def test_of_a_wall_that_was_set_back_the_latest_moment_counts_at_which_it_can_have_stood_there() -> None:
    """Seed 1435: by a wall that had been a day ahead, a REPLACE of 20 minutes before was taken for one of 77."""
    ended = [Past(f"n{n}.1", "gpu-lost", "", Verb.REBOOT, "RESOLVED", False, watch, WALL + at)
             for n, (watch, at) in enumerate([(100.0, 0.0), (1_000.0, 90_000.0), (4_000.0, 3_900.0)])]  # fmt: skip
    set_back = rebuild_limits.calendar([], [NodeRecord("n1", past=tuple(ended))], NOW)
    assert set_back.watch(WALL + 3_950.0) == 4_050.0  # it stood there after it was set back, or long before
    assert set_back.watch(WALL + 50.0) == 150.0
    assert set_back.watch(WALL + 91_000.0) == NOW
    assert set_back.watch(WALL - 10.0) == 100.0


def test_moments_are_known_by_open_cases_and_by_what_nodes_remember() -> None:
    past = Past("n1.1", "gpu-lost", "", Verb.REBOOT, "RESOLVED", False, 50.0, WALL)
    case = went(*TREATED, timeline=((Phase.REPAIRING, WALL + 30.0),))
    assert rebuild_limits.calendar([case], [NodeRecord("n1", past=(past,))], NOW).known == (
        (WALL, 50.0), (WALL + 30.0, 1_000.0),
    )  # fmt: skip


def test_cases_that_were_escalated_lately_open_the_breaker_again() -> None:
    cases = [went((Event.EXHAUSTED, Phase.ESCALATED, "", at), ("NOTED", Phase.ESCALATED, "", at)) for at in (0.0, 9.0)]
    made = rebuild_limits.with_windows(a_ledger(), cases, ANY)
    assert made.windows["fleet/escalated"] == (4_000.0, 4_009.0)
    policy = a_policy(breaker_failures=2, breaker_quiet_s=3_600.0)
    assert rebuild_limits.with_breaker(made, policy, NOW).breaker_until == 4_009.0 + 3_600.0
    assert rebuild_limits.with_breaker(made, policy, 8_000.0).breaker == ""
    assert rebuild_limits.with_breaker(made, replace(policy, breaker_failures=3), NOW).breaker == ""


def test_a_reboot_in_vain_is_known_by_the_case_that_ended_with_it() -> None:
    case = a_case(
        Phase.RESOLVED, "node-not-ready", rungs_tried=(Verb.REBOOT,), timeline=((Phase.RESOLVED, WALL + 5.0),),
        journal=entries((Event.EXAMINED, Phase.CORDONING, "", 1.0)),
    )  # fmt: skip
    made = rebuild_limits.with_windows(a_ledger(), [case], ANY)
    assert one_by_one.lately(made, NOW) == (4_005.0,)


def test_what_people_said_of_absent_nodes_is_kept_beside_the_ledger() -> None:
    said = a_ledger(split_at=3.0, left_at=4.0, replaced_at=5.0, replaced_from=-1.0, replaced_scope=("rack=r1",))
    record = rebuild.remembered(NodeRecord("absence", told={"absence/began": 1.0}), said)
    assert record.told["absence/began"] == 1.0
    assert rebuild.with_words(a_ledger(), record) == said
    assert rebuild.remembered(record, said) is record
    assert rebuild.remembered(record, a_ledger()).told == {"absence/began": 1.0}
