"""Cases that a setting of none stops: one message says what waits, which setting, and the command."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.model import Job, Notice, Verb
from sickbay.settings import Limit
from tests.builders import a_finding, a_job, a_node, a_policy
from tests.controller.door import Door, Shift

HOUR = 3_600.0
WIDE = Limit(percent=100.0)
TREATMENTS = (Verb.RESET_GPU, Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE)


def sick(count: int = 3, **policy: Any) -> Shift:
    names = [f"n{n}" for n in range(count)]
    free = {"max_out": WIDE, "max_out_fleet": WIDE, "max_out_rack": WIDE, "at_once": WIDE, "approval": ()}
    shift = Shift(Door(*(a_node(n) for n in names)), policy=a_policy(**{**free, **policy}))
    for name in names:
        shift.door.shows(name, findings=(a_finding("xid.79", node=name),))
    return shift


def waiting(code: str, *jobs: Job, **policy: Any) -> Shift:
    """Two nodes of which an agent says this; `policy` is wide open but for what is named."""
    free = {"max_out": WIDE, "max_out_fleet": WIDE, "max_out_rack": WIDE, "at_once": WIDE, "approval": ()}
    work = tuple(job.id for job in jobs)
    nodes = [a_node(n, jobs=work, findings=(a_finding(code, node=n),)) for n in ("n1", "n2")]
    return Shift(Door(*nodes, jobs=jobs), policy=a_policy(**{**free, **policy}))


def told(shift: Shift) -> list[Notice]:
    return [n for n in shift.pager.told if "allows none" in n.title]


@pytest.mark.parametrize(
    ("policy", "setting"),
    [
        ({"at_once": Limit(percent=0.0)}, "at_once"),
        ({"per_window": {verb.value: 0 for verb in TREATMENTS}}, "per_window."),
    ],
)
def test_cases_that_a_setting_of_none_stops_are_one_notice_that_names_it(policy: dict[str, Any], setting: str) -> None:
    (note,) = told(sick(**policy).passes(HOUR))
    assert f"policy.{setting}" in note.title
    assert "3 cases wait" in note.title
    assert "n0.1, n1.1, n2.1" in note.body
    assert f"when policy.{setting}" in note.body
    assert "sickbay case abort n0.1" in note.body


def test_the_same_wait_is_not_told_again_within_the_day() -> None:
    assert len(told(sick(1, at_once=Limit(percent=0.0)).passes(6 * HOUR))) == 1


def test_a_drain_that_may_stop_no_job_is_told() -> None:
    job = a_job(nodes=("n1", "n2"), managed=True)
    shift = waiting("smi.sram-threshold", job, jobs_hurt_per_window=0).passes(300.0)
    (note,) = told(shift)
    assert "policy.jobs_hurt_per_window allows none, 2 cases wait" in note.title
    assert "our drains may stop no job" in note.body
    assert "when policy.jobs_hurt_per_window is raised" in note.body
    assert shift.door.called(Verb.CORDON) == []


# The clock of these tests begins on a Friday at 08:00.


@pytest.mark.parametrize(
    ("windows", "words"),
    [(("Fri 06:00-07:00",), "opens in 6.9 days"), (("every night",), "none of them ever opens")],
)
def test_cases_whose_window_opens_too_late_or_never_are_one_notice(windows: tuple[str, ...], words: str) -> None:
    shift = waiting("smi.remap-pending", windows=windows).passes(2 * HOUR)
    (note,) = [n for n in shift.pager.told if "no maintenance window opens in time" in n.title]
    assert "2 cases wait" in note.title
    assert words in note.body
    assert "give policy.windows one that opens sooner" in note.body
    assert "sickbay case abort n1.1" in note.body
    assert shift.door.called(Verb.CORDON) == []


@pytest.mark.parametrize("windows", [("Sat 02:00-05:00",), ("07:00-08:00",)])
def test_a_window_that_opens_while_the_cases_still_wait_is_no_news(windows: tuple[str, ...]) -> None:
    shift = waiting("smi.remap-pending", windows=windows).passes(6 * HOUR)
    assert shift.case("n1") is not None
    assert [n for n in shift.pager.told if "window" in n.title] == []


def test_a_limit_that_is_only_full_is_not_called_none() -> None:
    assert told(sick(3, at_once=Limit(count=1)).passes(HOUR)) == []
