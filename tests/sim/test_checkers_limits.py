"""The checkers of limits and of people's consent complain when they must, and hold their peace when they need not.

The world is driven by hand; no brain runs. See test_checkers.py.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sickbay.model import Action, Case, Diagnosis, Entry, Pause, Phase, Place, Severity, Verb, When
from sickbay.settings import LEVELS, Limit
from sickbay.sim.checkers.consent import is_open
from sickbay.sim.checkers.limits import most_of
from tests.builders import a_case
from tests.sim.ward import Ward, a_policy, names

MONDAY = 1_789_948_800.0  # 2026-09-21 00:00 UTC


def unwatched(**policy: Any) -> Ward:
    return Ward(brains=0, policy=a_policy(**policy))


def asks(ward: Ward, verb: Verb, node: str, **args: str) -> None:
    ward.run.platform.perform(Action(f"{node}.1/2", verb, Place(node), args))


def treats(ward: Ward, node: str, verb: Verb = Verb.REBOOT, step: int = 7) -> None:
    asks(ward, Verb.CORDON, node)
    ward.world.treatments.begin(f"{node}.1/{step}", verb, ward.world.nodes[node])


SAID = {
    When.NOW: ("gpu-lost", "xid.79"), When.CHECKPOINT: ("sram-threshold", "smi.sram-threshold"),
    When.IDLE: ("row-remap-pending", "xid.63"),
}  # fmt: skip


def keeps(ward: Ward, node: str, when: When, written: When | None = None) -> Case:
    """A case about what the node's tools have truly printed. `written`: how urgent the case calls it, if otherwise."""
    fault, code = SAID[when]
    ward.world.agents.printed.setdefault(node, {})[code] = ward.world.now
    found = Diagnosis(fault, Place(node), Severity.RESET, written or when, 0.9, ("why",), 0.0, code, "agent")
    case = replace(a_case(Phase.CORDONING, node=node, id=f"{node}.1"), diagnoses=(found,))
    ward.run.store.create(case)
    ward.judge.look()
    return case


def complaints(ward: Ward, by: str) -> list[str]:
    ward.judge.look()
    return [said for said, who in zip(ward.judge.violations, ward.judge.by, strict=True) if who == by]


# -- how much at once


@pytest.mark.parametrize(
    ("limit", "total", "most"),
    [
        (Limit(percent=10.0, at_least=2), 5, 2),
        (Limit(percent=10.0, at_least=2), 64, 6),
        (Limit(count=4, at_least=0), 64, 4),
        (Limit(count=0, at_least=0), 64, 0),
        (Limit(percent=0.0, at_least=1), 64, 0),
        (Limit(percent=50.0, at_least=1), 1, 1),
    ],
)
def test_what_a_limit_lets_through(limit: Limit, total: int, most: int) -> None:
    assert most_of(limit, total) == most


def test_more_nodes_of_one_domain_are_taken_than_the_limit_allows() -> None:
    ward = Ward(brains=0, policy=a_policy(max_out_domain=Limit(count=1, at_least=0)), domain_size=2)
    for name in ("node-0000", "node-0002"):
        asks(ward, Verb.CORDON, name)
    assert complaints(ward, "WithinLimits") == []
    asks(ward, Verb.CORDON, "node-0001")
    assert "2 nodes of the domain taken out" in complaints(ward, "WithinLimits")[0]


def test_more_nodes_are_treated_at_once_than_the_limit_allows() -> None:
    ward = unwatched(at_once=Limit(count=1, at_least=0))
    treats(ward, "node-0001")
    ward.passes(3600.0)
    treats(ward, "node-0002")
    assert complaints(ward, "TreatedFewAtOnce") == []
    treats(ward, "node-0003")
    assert "2 nodes are treated at the same time (node-0002, node-0003)" in complaints(ward, "TreatedFewAtOnce")[0]


@pytest.mark.parametrize(
    ("kind", "by", "complained"),
    [("p5.48xlarge", "", True), ("", "", False), ("p5.48xlarge", "alice", False), ("p5.48xlarge", "sickbay", True)],
)
def test_a_machine_is_under_treatment_as_long_as_its_type_may_take_to_be_exchanged(
    kind: str, by: str, complained: bool
) -> None:
    """Unless a person let it go; that we let it go ourselves makes it no less under way."""
    ward = unwatched(at_once=Limit(count=1, at_least=0))
    ward.world.nodes["node-0001"].kind = kind
    ward.world.provider.next = ["never"]
    gives_back(ward, "node-0001")
    if by:
        lets_go(ward, "node-0001", by)
    ward.passes(2400.0)
    treats(ward, "node-0002")
    assert bool(complaints(ward, "TreatedFewAtOnce")) is complained


def put_back(ward: Ward, age_s: int, led_for: float) -> None:
    """The store is put back to what it held so long ago, and somebody leads now who has led for so long."""
    ward.world.note("etcd-restored", "", age=age_s)
    led = SimpleNamespace(first_led=0.0, led_since=ward.world.now - led_for, controller=None)
    ward.run.brains = [led]  # type: ignore[list-item]


# (how old is what is put back, since when has who leads led, is what was begun 2,400 s ago known)
RESTORED = [(3600, -30.0, False), (600, -30.0, True), (3600, 7200.0, True)]


@pytest.mark.parametrize(("age_s", "led_for", "known"), RESTORED)
def test_a_treatment_that_a_restored_store_never_had_fills_no_place_once_nobody_remembers_it(
    age_s: int, led_for: float, known: bool
) -> None:
    ward = unwatched(at_once=Limit(count=1, at_least=0))
    ward.world.nodes["node-0001"].kind = "p5.48xlarge"
    ward.world.provider.next = ["never"]
    gives_back(ward, "node-0001")
    ward.passes(2400.0)
    put_back(ward, age_s, led_for)
    treats(ward, "node-0002")
    assert bool(complaints(ward, "TreatedFewAtOnce")) is known


@pytest.mark.parametrize(("age_s", "led_for", "known"), RESTORED)
def test_a_machine_that_went_and_that_a_restored_store_still_had_fills_no_place_once_nobody_remembers_it(
    age_s: int, led_for: float, known: bool
) -> None:
    ward = unwatched(max_out=Limit(count=1, at_least=0))
    ward.world.provider.next = ["never"]
    gives_back(ward, "node-0001")
    ward.passes(2400.0)
    put_back(ward, age_s, led_for)
    asks(ward, Verb.CORDON, "node-0002")
    assert bool(complaints(ward, "WithinLimits")) is known


def test_a_verb_is_used_more_often_in_a_window_than_allowed() -> None:
    ward = unwatched(per_window={"REBOOT": 1})
    treats(ward, "node-0001")
    ward.passes(3700.0)
    treats(ward, "node-0002")
    assert complaints(ward, "FewInAWindow") == []
    ward.passes(600.0)
    treats(ward, "node-0003")
    assert "2 REBOOT in pool default within 60 minutes, at most 1" in complaints(ward, "FewInAWindow")[0]


@pytest.mark.parametrize("verb", LEVELS[3:])
def test_a_verb_is_used_though_none_is_allowed(verb: str) -> None:
    ward = unwatched(per_window={verb: 0})
    treats(ward, "node-0001", Verb(verb))
    assert f"1 {verb} in pool default" in complaints(ward, "FewInAWindow")[0]


def drains(ward: Ward, node: str, job: str) -> None:
    ward.submit(job, (node,))
    keeps(ward, node, When.NOW)
    asks(ward, Verb.CORDON, node)
    asks(ward, Verb.DRAIN, node)
    ward.judge.look()


def test_more_drains_evict_work_in_a_window_than_allowed() -> None:
    ward = unwatched(per_window={"DRAIN": 1})
    drains(ward, "node-0001", "one")
    ward.passes(3700.0)
    drains(ward, "node-0002", "two")
    assert complaints(ward, "FewInAWindow") == []
    ward.passes(600.0)
    drains(ward, "node-0003", "three")
    assert "2 DRAIN in pool default within 60 minutes, at most 1" in complaints(ward, "FewInAWindow")[0]


def test_a_drain_that_evicts_nothing_takes_no_place_and_one_that_finds_new_work_takes_one() -> None:
    ward = unwatched(per_window={"DRAIN": 1})
    asks(ward, Verb.CORDON, "node-0001")
    asks(ward, Verb.DRAIN, "node-0001")
    drains(ward, "node-0002", "two")
    ward.world.note("drain", "node-0002", case="node-0002.1", job="somebody's", moving=True)
    assert complaints(ward, "FewInAWindow") == []


def test_more_nodes_are_closed_in_a_window_than_allowed_where_each_was_in_service() -> None:
    ward = unwatched(per_window={"CORDON": 1})
    ward.world.people.cordon("node-0001")
    for name in names(1, 2):
        asks(ward, Verb.CORDON, name)
    assert complaints(ward, "FewInAWindow") == []
    asks(ward, Verb.CORDON, "node-0003")
    assert "2 CORDON in pool default" in complaints(ward, "FewInAWindow")[0]


WAITS = [
    (When.CHECKPOINT, None, True), (When.NOW, None, False),
    (When.CHECKPOINT, When.NOW, True), (When.IDLE, When.NOW, True),  # whatever a case calls it
]  # fmt: skip


@pytest.mark.parametrize(("when", "written", "complained"), WAITS)
def test_a_drain_stops_a_job_though_none_may_be_hurt_for_what_could_wait(
    when: When, written: When | None, complained: bool
) -> None:
    ward = unwatched(jobs_hurt_per_window=0)
    ward.submit("llama", ("node-0001",))
    keeps(ward, "node-0001", when, written)
    asks(ward, Verb.CORDON, "node-0001")
    asks(ward, Verb.DRAIN, "node-0001")
    assert bool(complaints(ward, "FewJobsHurt")) == complained


def gives_back(ward: Ward, node: str) -> None:
    asks(ward, Verb.CORDON, node)
    ward.judge.look()
    ward.world.treatments.begin(f"{node}.1/7", Verb.REPLACE, ward.world.nodes[node])
    ward.judge.look()


def lets_go(ward: Ward, node: str, by: str, number: int = 1) -> None:
    said = Entry(8, "CANCELLED", 0.0, by, "let it go", "DISMISSED")
    case = a_case(Phase.DISMISSED, node=node, id=f"{node}.{number}", journal=(said,))
    ward.run.store.archive(case, ward.run.store.create(case), 1)


def test_a_node_that_is_given_back_for_another_is_out_until_the_other_serves() -> None:
    ward = unwatched(max_out=Limit(count=1, at_least=0))
    gives_back(ward, "node-0001")
    ward.passes(7200.0)
    assert ward.world.nodes["node-0001"].gate
    asks(ward, Verb.CORDON, "node-0002")
    assert "2 nodes of the pool taken out (node-0001, node-0002)" in complaints(ward, "WithinLimits")[0]


def test_a_node_that_is_given_back_and_has_no_successor_is_out() -> None:
    ward = unwatched(max_out=Limit(count=1, at_least=0))
    ward.world.provider.next = ["never"]
    gives_back(ward, "node-0001")
    ward.passes(7200.0)
    asks(ward, Verb.CORDON, "node-0002")
    assert "2 nodes of the pool taken out" in complaints(ward, "WithinLimits")[0]


@pytest.mark.parametrize(("by", "number", "complained"), [
    ("alice", 1, False), ("sickbay", 1, True),
    ("alice", 2, False),  # of the machine that came in its place, and went as well (seed 705)
])  # fmt: skip
def test_a_machine_without_a_successor_fills_no_place_once_a_person_has_let_it_go(
    by: str, number: int, complained: bool
) -> None:
    """As docs/alerts.md says of `abort`."""
    ward = unwatched(max_out=Limit(count=1, at_least=0))
    ward.world.provider.next = ["never"]
    gives_back(ward, "node-0001")
    ward.passes(7200.0)
    lets_go(ward, "node-0001", by, number)
    asks(ward, Verb.CORDON, "node-0002")
    assert bool(complaints(ward, "WithinLimits")) is complained


def test_a_machine_without_a_successor_fills_no_place_once_somebody_has_deleted_its_record() -> None:
    ward = unwatched(max_out=Limit(count=1, at_least=0))
    ward.world.provider.next = ["never"]
    gives_back(ward, "node-0001")
    ward.passes(7200.0)
    ward.world.note("person", "node-0001", act="delete-record", by="alice", case="node-0001.1")
    asks(ward, Verb.CORDON, "node-0002")
    assert complaints(ward, "WithinLimits") == []


@pytest.mark.parametrize("how", ["terminated", "served"])
def test_whoever_was_taken_away_or_serves_again_fills_no_place(how: str) -> None:
    ward = unwatched(max_out=Limit(count=1, at_least=0))
    gives_back(ward, "node-0001")
    ward.passes(7200.0)
    if how == "served":
        asks(ward, Verb.RELEASE, "node-0001")
    else:
        ward.world.people.terminate("node-0001")
    asks(ward, Verb.CORDON, "node-0002")
    assert complaints(ward, "WithinLimits") == []


@pytest.mark.parametrize(
    ("when", "stuck", "ago_s", "complained"),
    [
        (When.IDLE, False, 1200.0, True),
        (When.IDLE, True, 1200.0, False),  # its job can go on nowhere else
        (When.NOW, False, 1200.0, False),
        (When.IDLE, False, 60.0, False),
    ],
)
def test_who_is_out_by_others_doing_fills_a_place_for_what_can_wait(
    when: When, stuck: bool, ago_s: float, complained: bool
) -> None:
    ward = unwatched(max_out=Limit(count=2, at_least=0))
    ward.world.people.cordon("node-0001")
    ward.world.strike("host_crash", "node-0002")
    ward.passes(ago_s)
    keeps(ward, "node-0003", when)
    ward.world.nodes["node-0003"].stuck = ["llama"] if stuck else []
    asks(ward, Verb.CORDON, "node-0003")
    assert bool(complaints(ward, "WithinLimits")) is complained


@pytest.mark.parametrize(("meanwhile", "complained"), [("", False), ("opened", True), ("another machine", True)])
def test_who_took_over_an_older_mark_takes_no_place_by_closing_that_node_again(
    meanwhile: str, complained: bool
) -> None:
    """Its object was deleted and came back without the mark (seed 1412)."""
    ward = unwatched(max_out=Limit(count=2, at_least=0))
    node = ward.world.nodes["node-0003"]
    node.mark, node.closed = "node-0003.0", True
    for name in ("node-0001", "node-0002"):
        ward.world.people.cordon(name)
    ward.passes(1200.0)
    keeps(ward, "node-0003", When.IDLE)
    asks(ward, Verb.CORDON, "node-0003", adopts="node-0003.0")
    if meanwhile == "opened":
        ward.world.people.uncordon("node-0003")
    if meanwhile == "another machine":
        ward.world.note("joined", "node-0003")
    ward.world.people.delete_object("node-0003")
    ward.passes(300.0)
    asks(ward, Verb.CORDON, "node-0003")
    assert bool(complaints(ward, "WithinLimits")) is complained


@pytest.mark.parametrize(("n", "complained"), [(1, False), (2, True)])
def test_a_case_that_closes_a_node_which_it_has_just_released_takes_no_place_anew(n: int, complained: bool) -> None:
    """Its answer got lost (seed 50001563)."""
    ward = unwatched(max_out=Limit(count=1, at_least=0))
    asks(ward, Verb.CORDON, "node-0001")
    ward.world.nodes["node-0003"].ready = False  # it was down when it was closed: that took no place of the limit
    asks(ward, Verb.CORDON, "node-0003")
    ward.judge.look()
    ward.world.nodes["node-0003"].ready = True
    asks(ward, Verb.RELEASE, "node-0003")
    ward.run.platform.perform(Action(f"node-0003.{n}/2", Verb.CORDON, Place("node-0003")))
    assert bool(complaints(ward, "WithinLimits")) is complained


def test_of_two_pools_that_one_pass_takes_nodes_from_one_allows_none() -> None:
    """Whoever came first: the pool that allows none was not to be touched."""
    ward = unwatched(max_out_fleet=Limit(count=5))
    none = a_policy(max_out_fleet=Limit(count=0, at_least=0))
    ward.run.settings = replace(ward.run.settings, pools={"other": none})
    ward.world.nodes["node-0002"].pool = "other"
    asks(ward, Verb.CORDON, "node-0001")
    asks(ward, Verb.CORDON, "node-0002")
    assert "2 nodes of the fleet taken out" in complaints(ward, "WithinLimits")[0]


# -- what people allow


def approve(ward: Ward, node: str, verb: str) -> None:
    ward.world.note("person", node, act="approve", by="alice", case=f"{node}.1", verb=verb)


def does(ward: Ward, verb: str) -> None:
    node = "node-0001"
    if verb == "CORDON":
        asks(ward, Verb.CORDON, node)
    elif verb == "DRAIN":
        ward.submit("llama", (node,))
        asks(ward, Verb.CORDON, node)
        asks(ward, Verb.DRAIN, node)
    else:
        treats(ward, node, Verb(verb))


@pytest.mark.parametrize("verb", LEVELS[1:])
def test_a_verb_that_needs_approval_is_done_without(verb: str) -> None:
    ward = unwatched(approval=(verb,))
    does(ward, verb)
    assert f"{verb} of node-0001 in node-0001.1 though nobody had approved it" in complaints(ward, "Approved")[0]


@pytest.mark.parametrize("verb", LEVELS[1:])
def test_a_verb_that_needs_approval_is_done_after_a_person_gave_it(verb: str) -> None:
    ward = unwatched(approval=(verb,))
    approve(ward, "node-0001", verb)
    does(ward, verb)
    assert complaints(ward, "Approved") == []


@pytest.mark.parametrize("verb", LEVELS[1:])
def test_a_verb_beyond_the_level_of_the_pool_is_used(verb: str) -> None:
    ward = unwatched(max_verb=LEVELS[LEVELS.index(verb) - 1])
    does(ward, verb)
    assert f"{verb} of node-0001 though its pool's max_verb is" in complaints(ward, "WithinLevel")[0]


def test_a_job_is_stopped_in_a_pool_that_is_not_to_be_drained() -> None:
    ward = unwatched(max_verb="CORDON")
    job = ward.submit("llama")
    ward.passes(1200.0)
    ward.world.gangs.stop(job, "llama#1.3")
    assert "llama was stopped though max_verb is CORDON" in complaints(ward, "WithinLevel")[0]


def test_the_policy_of_a_pool_counts_for_its_own_nodes_only() -> None:
    ward = unwatched()
    ward.run.settings = replace(ward.run.settings, pools={"other": a_policy(max_verb="OBSERVE")})
    ward.world.nodes["node-0002"].pool = "other"
    asks(ward, Verb.CORDON, "node-0001")
    assert complaints(ward, "WithinLevel") == []
    asks(ward, Verb.CORDON, "node-0002")
    assert len(complaints(ward, "WithinLevel")) == 1


def test_work_is_evicted_where_it_may_not_be() -> None:
    ward = unwatched(evict=False)
    ward.submit("llama", ("node-0001",))
    asks(ward, Verb.CORDON, "node-0001")
    asks(ward, Verb.DRAIN, "node-0001")
    assert "stopped llama though its pool may not evict" in complaints(ward, "WorkLeftAlone")[0]


@pytest.mark.parametrize(
    ("when", "written", "complained"),
    [(When.IDLE, None, True), (When.CHECKPOINT, None, False), (When.IDLE, When.NOW, True)],
)
def test_what_can_wait_is_done_outside_the_maintenance_windows(
    when: When, written: When | None, complained: bool
) -> None:
    ward = unwatched(windows=("Sun 03:00-04:00",))
    keeps(ward, "node-0001", when, written)
    asks(ward, Verb.CORDON, "node-0001")
    assert bool(complaints(ward, "InMaintenance")) == complained


@pytest.mark.parametrize(("stuck", "complained"), [(["llama"], False), ([], True)])
def test_ranks_that_were_stuck_there_could_not_wait_though_their_machine_is_gone_by_now(
    stuck: list[str], complained: bool
) -> None:
    """The judge looked when the node had been terminated, and with it what was stuck there (seed 100072)."""
    ward = unwatched(windows=("Sun 03:00-04:00",))
    keeps(ward, "node-0001", When.IDLE)
    ward.world.nodes["node-0001"].stuck = stuck
    asks(ward, Verb.CORDON, "node-0001")
    ward.world.nodes["node-0001"].stuck = []
    assert bool(complaints(ward, "InMaintenance")) == complained


@pytest.mark.parametrize(
    ("window", "hours", "opened"),
    [
        ("02:00-05:00", 3, True),
        ("02:00-05:00", 5, False),
        ("Mon 22:00-02:00", 25, True),
        ("Mon 22:00-02:00", 1, False),
        ("Sun 22:00-02:00", 1, True),
        ("Fri-Mon 00:00-23:59", 12, True),
        ("Fri-Mon 00:00-23:59", 36, False),
    ],
)
def test_when_a_window_is_open(window: str, hours: float, opened: bool) -> None:
    assert is_open((window,), MONDAY + hours * 3600.0) == opened


@pytest.mark.parametrize(("scope", "complained"), [("fleet", True), ("pool:default", True), ("node:node-0009", False)])
def test_a_node_is_closed_while_hands_are_off_it(scope: str, complained: bool) -> None:
    ward = unwatched()
    ward.run.store.create(Pause(scope, "alice", "change freeze", 0.0))
    ward.world.note("tick")
    ward.judge.look()
    asks(ward, Verb.CORDON, "node-0001")
    assert bool(complaints(ward, "PauseObeyed")) == complained
