"""What /metrics counts, from records as they are written: docs/metrics.md as arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.controller.accounts import Accounts, reason_of
from sickbay.controller.desk import _why_not
from sickbay.controller.metered import MeteredNotifier, MeteredPlatform, MeteredStore
from sickbay.controller.tallies import Histogram, Tally
from sickbay.controller.view import View
from sickbay.core.admit import TREAT, Counts, Request, admit
from sickbay.errors import StaleWrite
from sickbay.model import Case, Done, Entry, Failed, Ledger, NodeRecord, Notice, Outcome, Phase, Retry, Verb, When
from sickbay.ports import Stored
from sickbay.settings import Limit
from sickbay.stores.memory import MemoryStore
from tests.builders import WALL, a_case, a_diagnosis, a_job, a_ledger, a_node, a_past, a_policy, a_request, a_seat

# The worked example of docs/metrics.md, in seconds from its first line of evidence.
EXAMPLE = (
    (Phase.SUSPECTED, 4.0), (Phase.CORDONING, 4.0), (Phase.DRAINING, 15.0), (Phase.COLLECTING, 330.0),
    (Phase.QUEUED, 390.0), (Phase.REPAIRING, 390.0), (Phase.VERIFYING, 1_110.0), (Phase.RETURNING, 1_430.0),
    (Phase.RESOLVED, 1_440.0),
)  # fmt: skip


def books(now: float = WALL + 5_000.0) -> Accounts:
    return Accounts(lambda: now)


def ended(end: Phase = Phase.RESOLVED, rungs: tuple[Verb, ...] = (Verb.POWER_CYCLE,), node: str = "n1") -> Case:
    steps = (*EXAMPLE[:-1], (end, 1_440.0))
    line = tuple((phase.value, WALL + at) for phase, at in steps)
    return a_case(end, node=node, opened_at=WALL + 4.0, timeline=line, rungs_tried=rungs)


def closed(accounts: Accounts, case: Case) -> None:
    accounts.wrote(replace(case, phase=Phase.SUSPECTED, timeline=case.timeline[:1]), False)
    accounts.wrote(case, True)


def parts(accounts: Accounts) -> dict[str, float]:
    return {labels[0]: spread.sum for labels, spread in accounts.mttr.items() if spread.counts[-1]}


# --- cases ------------------------------------------------------------------------------------------------------------


def test_a_resolved_case_gives_the_five_parts_of_the_worked_example() -> None:
    accounts = books()
    closed(accounts, ended())
    assert parts(accounts) == {
        "detect": 4.0, "decide": 0.0, "drain": 326.0, "repair": 780.0, "verify": 330.0, "total": 1_440.0,
    }  # fmt: skip
    assert accounts.ends.items() == [(("node", "gpu-lost", "default", "RESOLVED"), 1.0)]
    assert accounts.opened.items() == [(("node", "gpu-lost", "default"), 1.0)]


@pytest.mark.parametrize(
    ("end", "rungs", "false"),
    [(Phase.RESOLVED, (Verb.REBOOT,), 0.0), (Phase.RESOLVED, (), 1.0), (Phase.DISMISSED, (), 1.0)],
)
def test_a_node_taken_out_for_nothing_is_a_false_disruption(end: Phase, rungs: tuple[Verb, ...], false: float) -> None:
    accounts = books()
    closed(accounts, ended(end, rungs))
    assert (accounts.disruptive.value("default"), accounts.false_disruptions.value("default")) == (1.0, false)


def test_a_case_that_never_took_its_node_out_disrupts_nobody() -> None:
    accounts = books()
    closed(accounts, replace(ended(Phase.DISMISSED), timeline=((Phase.SUSPECTED.value, WALL),)))
    assert accounts.disruptive.items() == []
    assert parts(accounts) == {}


def test_what_another_leader_wrote_is_not_counted_again() -> None:
    accounts = books()
    case = a_case(Phase.WAITING, refusal="outside the maintenance windows (Sat)")
    accounts.know([case])
    accounts.wrote(case, False)  # the new leader's stamp
    assert accounts.opened.items() == accounts.refusals.items() == []
    accounts.wrote(ended(), True)
    assert accounts.ends.value("node", "gpu-lost", "default", "RESOLVED") == 1.0


def test_a_replaced_machine_is_back_when_a_successor_in_its_pool_may_take_work() -> None:
    clock = [WALL]
    accounts, view = Accounts(lambda: clock[0]), View()
    view.nodes = {"n1": a_node("n1"), "n2": a_node("n2")}
    accounts.look(view, 0.0)
    gone = replace(ended(), journal=(Entry(1, "REPLACED", WALL, "sickbay", ""),), rungs_tried=(Verb.REPLACE,))
    closed(accounts, gone)
    clock[0] = WALL + 1_500.0
    view.nodes = {"n2": a_node("n2"), "n9": a_node("n9", gate=True)}
    accounts.look(view, 100.0)
    assert (parts(accounts), len(accounts.awaited)) == ({}, 1)  # n2 is no successor, n9 has not passed its checks
    clock[0] = WALL + 2_000.0
    view.nodes["n9"] = a_node("n9")
    accounts.look(view, 200.0)
    assert (parts(accounts)["total"], len(accounts.awaited)) == (2_000.0, 0)


def test_one_successor_heals_one_case() -> None:
    accounts, view = books(), View()
    view.nodes = {"n1": a_node("n1"), "n2": a_node("n2")}
    accounts.look(view, 0.0)
    for node in ("n1", "n2"):
        closed(accounts, replace(ended(node=node), journal=(Entry(1, "REPLACED", WALL, "sickbay", ""),)))
    view.nodes = {"n9": a_node("n9")}
    accounts.look(view, 100.0)
    accounts.look(view, 200.0)
    assert len(accounts.awaited) == 1


def test_the_same_fault_on_the_same_node_within_a_week_is_a_relapse_and_counted_once() -> None:
    accounts = books()
    closed(accounts, ended())
    again = replace(a_case(), id="n1.2", opened_at=WALL + 6 * 86_400.0)
    accounts.wrote(again, False)
    accounts.wrote(replace(again, id="n1.3"), False)
    assert accounts.relapses.value("default") == 1.0
    assert accounts.resolved.value("default") == 1.0


def test_a_week_later_it_is_a_new_illness() -> None:
    accounts = books()
    closed(accounts, ended())
    accounts.wrote(replace(a_case(), id="n1.2", opened_at=WALL + 8 * 86_400.0), False)
    assert accounts.relapses.items() == []


def test_a_part_that_fails_in_another_machine_is_a_relapse_and_a_new_machine_is_not() -> None:
    accounts = books()
    part = (replace(a_diagnosis("gpu-lost"), part="S1"),)
    closed(accounts, replace(ended(), diagnoses=part, rungs_tried=(Verb.REPLACE,)))
    accounts.wrote(replace(a_case(), id="n1.2", opened_at=WALL + 9_000.0), False)
    assert accounts.relapses.items() == []
    accounts.wrote(replace(a_case(node="n5"), diagnoses=part, opened_at=WALL + 9_000.0), False)
    assert accounts.relapses.value("default") == 1.0


def test_a_new_leader_knows_from_the_records_what_may_relapse() -> None:
    accounts = books()
    past = replace(a_past("gpu-lost"), end="RESOLVED", ended_at=WALL, rung=Verb.REBOOT)
    accounts.know([NodeRecord("n1", past=(past,))])
    accounts.wrote(replace(a_case(), id="n1.9", opened_at=WALL + 60.0), False)
    assert accounts.relapses.value("default") == 1.0


def test_what_went_on_while_another_led_is_not_told() -> None:
    accounts, view = books(), View()
    view.nodes, view.jobs = {"n1": a_node("n1")}, {"llama": a_job()}
    accounts.look(view, 0.0)
    closed(accounts, replace(ended(), journal=(Entry(1, "REPLACED", WALL, "sickbay", ""),)))
    accounts.begin_lead()
    assert (accounts.jobs.open, accounts.awaited) == ({}, {})
    assert accounts.jobs.ended.items() == []
    assert accounts.leads.value() == 1.0


# --- refusals ---------------------------------------------------------------------------------------------------------

FREE = Limit()
ONE = Limit(count=1)
HUNDRED = Counts({"fleet": 100, "pool:default": 100})
OTHERS: dict[str, Any] = {"max_out": FREE, "max_out_fleet": FREE, "at_once": FREE}
REFUSED: dict[str, tuple[Request, dict[str, Any], Ledger]] = {
    "breaker": (a_request(), {}, a_ledger(breaker="5 cases", breaker_until=9e9)),
    "approval": (a_request(verb=Verb.REPLACE, kind=TREAT), {}, a_ledger()),
    "maintenance-window": (a_request(when=When.IDLE, in_window=False), {"windows": ("Sat 02:00-05:00",)}, a_ledger()),
    "max-out": (a_request(), {"max_out": ONE}, a_ledger(a_seat("n2.1"))),
    "at-once": (
        a_request(kind=TREAT, verb=Verb.REBOOT), {"at_once": ONE}, a_ledger(a_seat("n2.1", TREAT, Verb.REBOOT))
    ),
    "per-window": (a_request(), {"per_window": {"CORDON": 1}}, a_ledger(windows={"default/CORDON": (0.0,)})),
    "jobs-hurt": (
        a_request(when=When.CHECKPOINT, hurts=True), {"jobs_hurt_per_window": 1},
        a_ledger(windows={"fleet/jobs-hurt": (0.0,)}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_every_rule_of_admission_has_a_reason_of_its_own(reason: str) -> None:
    request, policy, ledger = REFUSED[reason]
    limits = a_policy(**{**OTHERS, **policy})
    refusal = admit([request], ledger, HUNDRED, lambda pool: limits, 1.0).refused[request.case]
    assert reason_of(a_case(Phase.WAITING, refusal=refusal.why)) == reason


def test_what_policy_and_people_forbid_has_a_reason_too() -> None:
    observing, ceiling = _why_not(a_policy(max_verb="OBSERVE")), _why_not(a_policy())
    assert reason_of(a_case(refusal=observing)) == "observe-only"
    assert reason_of(a_case(refusal=ceiling)) == "ceiling"
    assert reason_of(a_case(held=True, refusal="held by ann: approval is pending")) == "held"
    assert reason_of(a_case(paused=True, refusal="fleet is paused by ann")) == "paused"
    assert reason_of(a_case(Phase.DRAINING, refusal="1 pod is protected by a budget")) == "platform"
    assert reason_of(a_case()) == ""


def test_a_refusal_is_counted_when_it_begins_and_not_at_each_look() -> None:
    accounts = books()
    for words in (
        "3 of at most 3 nodes of fleet are out already: a",
        "2 of at most 3 nodes of fleet are out already: b",
    ):
        accounts.wrote(a_case(Phase.WAITING, refusal=words), False)
    assert accounts.refusals.items() == [(("max-out", "default"), 1.0)]


# --- doors and bounds -------------------------------------------------------------------------------------------------


def test_the_metered_store_answers_as_the_inner_one_and_counts() -> None:
    accounts = books()
    store = MeteredStore(MemoryStore("c"), accounts)
    case = replace(a_case(), cluster="c")
    version = store.create(case, 1)
    assert store.list(Case) == [Stored(case, version, 1)]
    with pytest.raises(StaleWrite):
        store.commit(case, version + 7, 1)
    store.archive(replace(case, phase=Phase.DISMISSED), version, 1)
    assert store.list(Case) == []
    assert accounts.store_writes.value("Case") == 2.0
    assert accounts.store_errors.value("stale") == 1.0
    assert accounts.ends.value("node", "gpu-lost", "default", "DISMISSED") == 1.0


def test_notices_are_counted_by_what_became_of_them() -> None:
    accounts, said = books(), list[Outcome]([Done(), Failed("no"), Retry(1.0, "later")])

    class Pager:
        name = "pager"

        def send(self, notice: Notice) -> Outcome:
            return said.pop()

    pager = MeteredNotifier(Pager(), accounts)
    for _ in range(3):
        pager.send(Notice("k", "info", "t", "b"))
    assert {labels[1]: n for labels, n in accounts.notices.items()} == {"delivered": 1.0, "failed": 1.0, "later": 1.0}


def test_the_metered_platform_has_the_verbs_of_the_inner_one() -> None:
    from tests.controller.door import Door

    door = Door()
    assert MeteredPlatform(door, books()).verbs == door.verbs


def test_names_from_outside_cannot_fill_the_memory() -> None:
    tally, histogram = Tally(most=3), Histogram((1.0,), most=3)
    for n in range(100):
        tally.add("a", f"pool-{n}")
        histogram.observe(0.5, "total", f"pool-{n}")
    assert len(tally.items()) == 4
    assert tally.value("other", "other") == 97.0
    assert {labels for labels, _ in histogram.items()} >= {("total", "other")}
    assert sum(spread.counts[-1] for _, spread in histogram.items()) == 100
