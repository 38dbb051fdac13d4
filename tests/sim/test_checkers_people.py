"""The checkers judge what operators do by what they truly said: both ways. The world is driven by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sickbay import wire
from sickbay.model import Action, Case, Ledger, NodeRecord, Pause, Phase, Place, Recovery, RecoveryPhase, Verb
from sickbay.settings import JobPolicy
from sickbay.sim import backup
from sickbay.stores.memory import MemoryStore
from tests.builders import a_case, a_recovery
from tests.sim.ward import Ward, a_policy, names

NODE, CASE = "node-0003", "node-0003.1"


def unwatched(**policy: object) -> Ward:
    return Ward(20, brains=0, policy=a_policy(**policy), jobs=JobPolicy(capacity_s=3600.0))


def closes(ward: Ward, node: str = NODE, n: int = 1) -> None:
    ward.run.platform.perform(Action(f"{node}.{n}/2", Verb.CORDON, Place(node)))


def treats(ward: Ward, verb: Verb = Verb.REPLACE, node: str = NODE, n: int = 1) -> None:
    closes(ward, node, n)
    ward.world.treatments.begin(f"{node}.{n}/7", verb, ward.world.nodes[node])


def complaints(ward: Ward, by: str, *, at_the_end: bool = False) -> list[str]:
    ward.judge.look()
    if at_the_end:
        ward.judge.conclude()
    return [said for said, who in zip(ward.judge.violations, ward.judge.by, strict=True) if who == by]


def pauses(ward: Ward, scope: str) -> None:
    ward.run.store.create(Pause(scope, "bob", "why", ward.world.now))
    ward.world.note("person", "", act="pause", scope=scope)
    ward.judge.look()


# -- hands off


@pytest.mark.parametrize(
    ("scope", "complained"),
    [("pool:default", True), ("pool:other", False), (f"node:{NODE}", True), ("node:node-0009", False), ("fleet", True)],
)
@pytest.mark.parametrize("what", ["cordon", "treat", "place"])
def test_something_begins_on_a_node_from_which_hands_are_off(what: str, scope: str, complained: bool) -> None:
    ward = unwatched()
    job = ward.submit("llama", ("node-0012",))
    ward.world.gangs.stop(job, "somebody")
    if what == "treat":
        closes(ward)
    pauses(ward, scope)
    ward.passes(1.0)
    if what == "place":
        ward.world.gangs.restart("llama#1", job, 2, 0, (NODE,))
    else:
        closes(ward) if what == "cordon" else ward.world.treatments.begin(
            f"{CASE}/7", Verb.REBOOT, ward.world.nodes[NODE]
        )
    assert bool(complaints(ward, "PauseObeyed")) == complained


@pytest.mark.parametrize(
    ("said", "complained"),
    [({"act": "pause", "until": "-"}, True), ({"act": "pause", "until": 60.0}, False), ({"act": "resume"}, False)],
)
def test_a_pause_is_in_force_until_a_person_ends_it_or_writes_one_with_an_end_over_it(
    said: dict[str, str | float], complained: bool
) -> None:
    """The endless one came back with a restored store before anybody looked again."""
    ward = unwatched()
    pauses(ward, "pool:default")
    ward.passes(1.0)
    ward.world.note("person", "", scope="pool:default", **said)
    closes(ward)
    assert bool(complaints(ward, "PauseObeyed")) == complained


@pytest.mark.parametrize(
    ("scope", "by", "complained"),
    [("pool:default", "llama#1.3", True), ("pool:default", "owner", False), ("node:node-0012", "llama#1.3", False)],
)
def test_a_gang_is_stopped_in_a_pool_from_which_hands_are_off(scope: str, by: str, complained: bool) -> None:
    """By us; and a pause of one of its nodes does not keep it from being stopped for the others."""
    ward = unwatched()
    job = ward.submit("llama", ("node-0011", "node-0012"))
    ward.passes(60.0)
    pauses(ward, scope)
    ward.passes(1.0)
    ward.world.gangs.stop(job, by)
    assert bool(complaints(ward, "PauseObeyed")) == complained


@pytest.mark.parametrize(("sent_before", "complained"), [(True, False), (False, True)])
def test_what_was_sent_before_a_pause_and_waits_in_a_line_runs_to_its_end(sent_before: bool, complained: bool) -> None:
    ward = unwatched()
    ward.world.waits_s = (60.0, 60.0)
    closes(ward)
    if not sent_before:
        pauses(ward, "pool:default")
        ward.passes(5.0)
    ward.world.treatments.begin(f"{CASE}/7", Verb.REBOOT, ward.world.nodes[NODE])
    if sent_before:
        ward.passes(5.0)
        pauses(ward, "pool:default")
    ward.passes(120.0)
    assert bool(complaints(ward, "PauseObeyed")) == complained


@pytest.mark.parametrize(
    ("after_s", "ends", "complained"),
    [(200.0, "", True), (60.0, "", False), (200.0, "opt-in", False), (700.0, "deleted", False)],
)
def test_something_is_done_to_a_node_that_is_opted_out(after_s: float, ends: str, complained: bool) -> None:
    """Not within the two minutes that a change may take to be told; nor when the label is gone, by a person's hand or
    with the object that carried it."""
    ward = unwatched()
    ward.world.people.opt_out(NODE)
    if ends == "opt-in":
        ward.world.people.opt_out(NODE, opted_out=False)
    if ends == "deleted":
        ward.world.people.delete_object(NODE)
    ward.passes(after_s)
    closes(ward)
    assert bool(complaints(ward, "OptedOut")) == complained


@pytest.mark.parametrize("verb", ["abort", "hold"])
@pytest.mark.parametrize(("deleted", "complained"), [("", True), ("abort", False), ("hold", False)])
def test_what_nobody_had_read_when_it_was_deleted_was_not_said(verb: str, deleted: str, complained: bool) -> None:
    ward = unwatched()
    ward.world.note("order", NODE, act=verb, by="bob", case=CASE)
    if deleted:
        ward.world.note("person", "", act="delete-command", verb=verb, case=CASE, said=ward.world.now)
    ward.passes(600.0)
    treats(ward, Verb.REBOOT)
    checker = "PersonObeyed" if verb == "abort" else "HoldObeyed"
    assert bool(complaints(ward, checker)) == complained


@pytest.mark.parametrize("verb", ["abort", "hold"])
@pytest.mark.parametrize(
    ("unread", "readable_for", "complained"), [(True, 0.0, False), (True, 600.0, True), (False, 0.0, True)]
)
def test_what_was_said_while_nobody_could_read_of_the_node_is_lost_with_a_store_that_is_put_back(
    unread: bool, readable_for: float, complained: bool, verb: str
) -> None:
    """By whoever has led all the while, too: he had heard of it only where he could read it."""
    ward = unwatched()
    assert isinstance(ward.run.store, MemoryStore)
    ward.run.store.create(NodeRecord(NODE))
    if unread:
        backup.written_by_a_newer(ward.run.store, NodeRecord, NODE)
    ward.world.note("order", NODE, act=verb, by="bob", case=CASE)
    ward.passes(600.0)
    ward.judge.look(anyway=True)
    if readable_for:
        backup.written_by_a_newer(ward.run.store, NodeRecord, NODE, newer=False)
        ward.judge.look(anyway=True)
        ward.passes(readable_for)
        ward.judge.look(anyway=True)
    ward.run.brains = [SimpleNamespace(first_led=0.0, led_since=0.0, controller=None)]  # type: ignore[list-item]
    ward.world.note("etcd-restored", "", age=900)
    treats(ward, Verb.REBOOT)
    assert bool(complaints(ward, "PersonObeyed" if verb == "abort" else "HoldObeyed")) == complained


# -- what they decide


@pytest.mark.parametrize(
    ("acknowledged", "later", "complained"),
    [(False, "", True), (True, "", False), (True, "gpu_lost_79", True), (True, "user_bug", False)],
)
def test_a_sick_node_that_a_person_calls_well_is_theirs_until_something_new_befalls_it(
    acknowledged: bool, later: str, complained: bool
) -> None:
    ward = unwatched()
    ward.world.strike("gpu_lost_79", NODE, 1)
    if acknowledged:
        ward.world.note("order", NODE, act="acknowledge", by="bob", case=NODE)
    if later:
        ward.world.strike(later, NODE, 2)
    assert bool(complaints(ward, "EndsOrRests", at_the_end=True)) == complained


@pytest.mark.parametrize(
    ("said", "complained"), [("", True), ("acknowledge", False), ("delete-node-record", False), ("restored", False)]
)
def test_of_the_jobs_that_a_part_has_ended_nobody_knows_after_this(said: str, complained: bool) -> None:
    ward = unwatched()
    ward.world.strike("gpu_lost_79", NODE, 0)
    job = ward.submit("llama", (NODE,))
    for attempt in range(2, 6):
        if attempt == 5 and said == "acknowledge":
            ward.world.note("order", NODE, act=said, by="bob", case=NODE)
        if attempt == 5 and said == "delete-node-record":
            ward.world.note("person", NODE, act=said)
        if attempt == 5 and said == "restored":
            ward.world.note("etcd-restored", "", age=3600)
        ward.world.gangs.stop(job, "somebody")
        ward.world.gangs.restart(f"llama#{attempt}", job, attempt, 0, (NODE,))
        ward.world.note("ranks-dead", "", job="llama", ranks="0", why="gpu_lost_79")
        ward.judge.look()
    assert bool(complaints(ward, "LemonsKillFewJobs")) == complained


@pytest.mark.parametrize(("dark", "beside", "complained"), [(NODE, 1, False), ("-", 1, True), (NODE, 2, True)])
def test_an_owner_who_knows_that_ranks_out_of_reach_are_done_for_may_have_the_job_restarted(
    dark: str, beside: int, complained: bool
) -> None:
    """The word is about ranks that are out of reach when it is said, not about those of a later attempt."""
    ward = unwatched()
    ward.submit("llama", (NODE,))
    ward.world.note("person", "", act="restart-job", by="bob", job="llama", dark=dark)
    ward.world.note("two-attempts", "", job="llama", attempt=3, beside=beside, nodes=NODE, writes=True, by="llama#7")
    assert bool(complaints(ward, "OneAttemptWrites")) == complained


@pytest.mark.parametrize(
    ("case", "node", "back", "complained"),
    [
        ("absence.1", NODE, False, False),
        ("absence.1", NODE, True, True),
        ("absence.1", "node-0009", False, True),
        ("node-0007.1", NODE, False, True),
    ],
)
def test_who_approves_the_exchange_of_an_absence_means_those_who_do_not_answer_then(
    case: str, node: str, back: bool, complained: bool
) -> None:
    ward = unwatched(approval=("REPLACE",))
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.passes(600.0)
    ward.world.note("person", "", act="approve", by="bob", case=case, verb="REPLACE")
    if back:
        ward.world.network.mend_all()
        ward.passes(600.0)
    treats(ward, node=node)
    assert bool(complaints(ward, "Approved")) == complained
    assert bool(complaints(ward, "HealthyLeftAlone")) == (complained and node == NODE)


@pytest.mark.parametrize(("ours", "complained"), [(True, True), (False, False)])
def test_a_person_who_opens_a_node_ends_the_case_in_which_it_was_to_be_exchanged_if_there_was_one(
    ours: bool, complained: bool
) -> None:
    """Who takes back a cordon of their own says nothing about that."""
    ward = unwatched(approval=("REPLACE",))
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.passes(600.0)
    ward.world.note("person", "", act="approve", by="bob", case="absence.1", verb="REPLACE")
    if ours:
        closes(ward, n=1)
    else:
        ward.world.people.cordon(NODE)
    ward.world.people.uncordon(NODE)
    ward.world.nodes[NODE].mark = ""
    treats(ward, n=2)
    assert bool(complaints(ward, "Approved")) == complained


def test_an_exchange_that_was_approved_for_an_absence_is_one() -> None:
    ward = unwatched(approval=("REPLACE",))
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.passes(600.0)
    ward.world.note("person", "", act="approve", by="bob", case="absence.1", verb="REPLACE")
    ward.world.note(
        "treat-start", NODE, key="node-0003.1/7", verb="REPLACE", mark=CASE, cordoned=True, jobs="-", ready=False
    )
    ward.world.note(
        "treat-start",
        NODE,
        key="node-0003.2/7",
        verb="REPLACE",
        mark="node-0003.2",
        cordoned=True,
        jobs="-",
        ready=False,
    )
    assert len(complaints(ward, "Approved")) == 1


@pytest.mark.parametrize(
    ("live", "falls_after_s", "left"), [(False, -1.0, True), (True, 60.0, True), (True, 600.0, False)]
)
def test_a_job_whose_record_somebody_deleted_while_it_was_down_is_left_to_people(
    live: bool, falls_after_s: float, left: bool
) -> None:
    ward = unwatched()
    job = ward.submit("llama", ("node-0012",), managed=True)
    ward.passes(300.0)
    if falls_after_s < 0:
        ward.world.gangs.stop(job, "somebody")
    ward.world.note("person", "", act="delete-recovery", job="llama", live=live)
    ward.passes(max(falls_after_s, 0.0))
    ward.world.gangs.stop(job, "somebody") if job.live else None
    ward.run.store.create(a_recovery(RecoveryPhase.EXAMINING, job="llama"))
    assert bool(complaints(ward, "JobsMove", at_the_end=True)) == (not left)


@pytest.mark.parametrize(("scope", "complained"), [("pool:default", False), ("pool:other", True)])
def test_where_hands_are_off_an_owner_hears_of_the_pause_and_not_of_the_ranks(scope: str, complained: bool) -> None:
    ward = unwatched()
    ward.run.store.create(a_case(Phase.QUEUED, node=NODE, id=CASE))
    ward.submit("llama", names(0, 4), managed=True)
    leads = SimpleNamespace(led_since=0.0, first_led=0.0, controller=None, next_turn=float("inf"), wake=lambda: None)
    ward.run.brains.append(leads)  # type: ignore[arg-type]
    pauses(ward, scope)
    ward.world.note("orphans", "", job="llama", attempt=1, nodes=NODE, writes=True)
    for _ in range(3):
        ward.judge.look()
        ward.passes(300.0)
        ward.world.note("tick")
    assert bool(complaints(ward, "OwnersTold")) == complained


@pytest.mark.parametrize(("later_s", "complained"), [(60.0, False), (600.0, True)])
def test_an_owner_hears_of_the_ranks_soon_after_a_pause_is_over(later_s: float, complained: bool) -> None:
    """Not in the same second: nothing had moved for eight minutes while it lasted (seed 50004119)."""
    ward = unwatched()
    ward.submit("llama", names(0, 4), managed=True)
    leads = SimpleNamespace(led_since=0.0, first_led=0.0, controller=None, next_turn=float("inf"), wake=lambda: None)
    ward.run.brains.append(leads)  # type: ignore[arg-type]
    pauses(ward, "fleet")
    ward.world.note("orphans", "", job="llama", attempt=1, nodes=NODE, writes=True)
    ward.judge.look()
    ward.passes(500.0)
    ward.run.store.delete(Pause, "fleet")
    ward.judge.look(anyway=True)
    ward.passes(later_s)
    ward.judge.look(anyway=True)
    assert bool(complaints(ward, "OwnersTold")) is complained


@pytest.mark.parametrize(
    ("record", "complained"),
    [(Ledger(), False), (a_recovery(RecoveryPhase.STOPPING, job="llama"), False),
     (a_recovery(RecoveryPhase.STOPPING, job="other"), True), (a_case(Phase.QUEUED, node=NODE, id=CASE), True),
     (Pause("pool:default", "bob", "why", 0.0), False), (Pause("pool:other", "bob", "why", 0.0), True)],
)  # fmt: skip
def test_where_hands_are_off_for_a_record_that_nobody_can_read_an_owner_hears_of_that(
    record: Ledger | Recovery | Case | Pause, complained: bool
) -> None:
    ward = unwatched()
    ward.submit("llama", names(0, 4), managed=True)
    leads = SimpleNamespace(led_since=0.0, first_led=0.0, controller=None, next_turn=float("inf"), wake=lambda: None)
    ward.run.brains.append(leads)  # type: ignore[arg-type]
    ward.run.store.create(replace(record, schema=wire.SCHEMA + 1))
    ward.world.note("orphans", "", job="llama", attempt=1, nodes=NODE, writes=True)
    for _ in range(3):
        ward.passes(300.0)
        ward.world.note("tick")
        ward.judge.look(anyway=True)
    assert bool(complaints(ward, "OwnersTold")) == complained


@pytest.mark.parametrize(("forgotten", "complained"), [(True, False), (False, True)])
def test_what_waited_in_a_line_may_begin_when_its_mark_was_just_lost_by_nobodys_word(
    forgotten: bool, complained: bool
) -> None:
    ward = unwatched()
    ward.world.waits_s = (60.0, 60.0)
    treats(ward, Verb.REBOOT)
    ward.passes(30.0)
    if forgotten:
        ward.world.services.forget(3600.0)
    else:
        ward.world.people.uncordon(NODE)
    ward.passes(60.0)
    assert bool(complaints(ward, "TreatedSafely")) == complained


@pytest.mark.parametrize(("answered", "complained"), [(False, False), (True, True)])
def test_who_is_treated_alone_since_a_person_split_their_case_stays_so_until_it_answers(
    answered: bool, complained: bool
) -> None:
    """Also where its rack loses its power for two minutes in between: it is the same absence."""
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.passes(600.0)
    ward.world.note("order", "absence", act="split", by="bob", case="absence.1")
    if answered:
        ward.world.network.mend_all()
        ward.passes(600.0)
    ward.world.network.cut(names(0, 8), "both", 900.0)
    ward.passes(600.0)
    treats(ward, Verb.REBOOT)
    assert bool(complaints(ward, "HealthyLeftAlone")) == complained
