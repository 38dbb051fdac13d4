"""Who is told the same over and over is seen. Notices are sent by hand, as one process or another."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sickbay.model import Notice, Pause
from tests.sim.test_checkers_outages import NODE, complaints, unwatched
from tests.sim.ward import Ward, names

CASE = f"{NODE}.1"


def tells(
    ward: Ward, key: str, title: str, *, body: str = "", case: str = "", process: int = 1, after_s: float = 60.0
) -> None:
    ward.run.mailbox.send(Notice(key, "warning", title, body, case, 0.0), process)
    ward.passes(after_s)
    ward.world.note("tick")
    ward.judge.look()


@pytest.mark.parametrize(("then", "complained"), [(1, True), (2, False)])
def test_one_key_is_told_twice_by_one_process(then: int, complained: bool) -> None:
    """What was sent when a process died is sent again by the next one."""
    ward = unwatched()
    tells(ward, "k", "the fleet is paused")
    tells(ward, "k", "the fleet is paused", process=then)
    assert bool(complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(
    ("meanwhile", "complained"), [("", True), ("an hour", False), ("a fault", False), ("a leap", False), ("ours", True)]
)
def test_the_same_words_come_again_though_nothing_has_happened(meanwhile: str, complained: bool) -> None:
    ward = unwatched()
    tells(ward, "k/1", f"{NODE}: a GPU is lost", after_s=3600.0 if meanwhile == "an hour" else 600.0)
    if meanwhile == "a fault":
        ward.world.strike("gpu_lost_79", NODE, 1)
    if meanwhile == "ours":
        ward.world.note("cordon", NODE, case=CASE, sick=False, gate=False)
    ward.clock.offset += 86_400.0 if meanwhile == "a leap" else 0.0
    tells(ward, "k/2", f"{NODE}: a GPU is lost")
    assert bool(complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(
    ("orders", "by", "complained"), [(1, "carol", True), (2, "carol", False), (2, "dave", True), (0, "carol", True)]
)
def test_an_order_that_nobody_can_obey_is_answered_as_often_as_it_was_given(
    orders: int, by: str, complained: bool
) -> None:
    """Twice within two minutes, and two answers (seed 50002091)."""
    ward = unwatched()
    for _ in range(orders):
        ward.world.note("order", "node-0004", act="reopen", by=by, case="node-0004")
    for n in range(2):
        answer = "Nothing was done. reopen node-0004 by carol: no open case, node or job has this name."
        tells(ward, f"unheeded/{n}", "a command was not obeyed", body=answer)
    assert bool(complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(("led_s", "complained"), [(60.0, False), (3600.0, True)])
def test_what_the_one_who_led_before_owed_people_may_come_again(led_s: float, complained: bool) -> None:
    """It had written down what it owed them and not that it told them (seed 50000025)."""
    ward = unwatched()
    since = ward.world.now - led_s
    brain = SimpleNamespace(first_led=since, led_since=since, controller=None, next_turn=1e18, wake=lambda: None)
    ward.run.brains.append(brain)  # type: ignore[arg-type]
    tells(ward, "k/1", "llama has died and is not restarted")
    tells(ward, "k/2", "llama has died and is not restarted")
    assert bool(complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(("things", "said", "complained"), [(4, 0, False), (5, 0, True), (5, 1, False)])
def test_people_are_told_more_than_a_handful_of_one_case_within_a_day(things: int, said: int, complained: bool) -> None:
    ward = unwatched()
    for _ in range(said):
        ward.world.note("order", NODE, act="retry", by="alice", case=CASE)
    for n in range(things):
        tells(ward, f"k/{n}", f"{NODE}: {n}", case=CASE)
    assert any("things of node-0003.1 within a day" in words for words in complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(
    ("meanwhile", "complained"),
    [
        ("another fault", False), ("another accusation", False), ("a pause ends", False), ("a pause goes on", True),
        ("its fault again", True), ("its agent repeated", True), ("another pool's pause ends", True),
    ],
)  # fmt: skip
def test_more_than_a_handful_is_told_where_more_has_befallen_the_node(meanwhile: str, complained: bool) -> None:
    """Of a paused node each fault is told, and then that it is taken out and what became of it (seeds 81, 103)."""
    ward = unwatched()
    scope = "pool:another" if meanwhile == "another pool's pause ends" else "fleet"
    ward.run.store.create(Pause(scope, "ann", "", ward.world.now))
    ward.world.strike("gpu_lost_79", NODE, 1)
    for n in range(4):
        tells(ward, f"k/{n}", f"{NODE}: {n}", case=CASE)
    if meanwhile in ("another fault", "its fault again"):
        ward.world.strike("sram" if meanwhile == "another fault" else "gpu_lost_79", NODE, 2)
    if meanwhile == "another accusation":
        ward.world.outsiders.accuse("sweep", NODE, "xid.119", 0)
    if meanwhile == "its agent repeated":
        ward.world.outsiders.repeat("sweep", NODE)
    if meanwhile.endswith("ends"):
        ward.run.store.delete(Pause, scope)
    tells(ward, "k/4", f"{NODE}: 4", case=CASE)
    assert any("things of node-0003.1 within a day" in words for words in complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(("whose", "complained"), [(NODE, False), ("node-0004", True)])
def test_a_roll_out_that_is_taken_back_is_news_of_those_who_had_it(whose: str, complained: bool) -> None:
    """Such a node is examined again, and people hear what became of it (seed 125)."""
    ward = unwatched()
    rollout = ward.world.rollouts.begin("driver", "driver-next", every_s=None)
    ward.world.rollouts.booting(ward.world.nodes[whose], is_new=False)
    tells(ward, "k/1", f"{NODE}: its NVLink failed (in the hands of a person)", after_s=600.0)
    ward.world.rollouts.undo(rollout)
    tells(ward, "k/2", f"{NODE}: its NVLink failed (in the hands of a person)")
    assert bool(complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(("apart_s", "complained"), [(1200.0, True), (9000.0, False)])
def test_people_are_told_more_than_three_things_of_one_incident(apart_s: float, complained: bool) -> None:
    ward = unwatched()
    for n in range(2):
        ward.world.network.cut(names(0, 8), "control", 600.0)
        for key in ("began", "lost"):
            tells(ward, f"absence.{n}/{key}", f"{n} {key}", case=f"absence.{n}", after_s=300.0)
        ward.passes(apart_s)
    assert any("of one incident" in words for words in complaints(ward, "ToldOnce")) is complained


def test_what_began_long_after_the_last_ones_went_away_is_another_incident() -> None:
    """The judge had not seen those go away together who were away for reasons of their own (seed 213)."""
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 600.0)
    for key in ("began", "over"):
        tells(ward, f"absence.1/{key}", f"1 {key}", case="absence.1", after_s=300.0)
    ward.passes(9_000.0)
    for key in ("began", "lost", "over"):
        tells(ward, f"absence.2/{key}", f"2 {key}", case="absence.2", after_s=300.0)
    assert not [words for words in complaints(ward, "ToldOnce") if "of one incident" in words]


@pytest.mark.parametrize(("quiet_s", "complained"), [(4_200.0, False), (600.0, True)], ids=["rightly", "too early"])
def test_what_begins_after_people_were_told_that_it_is_over_is_another_incident(
    quiet_s: float, complained: bool
) -> None:
    """A straggler came back meanwhile, which kept the first one alive for the judge (50000142)."""
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 600.0)
    tells(ward, "absence.1/began", "1 began", case="absence.1", after_s=300.0)
    ward.passes(quiet_s)
    tells(ward, "absence.1/over", "1 over", case="absence.1")
    ward.world.network.cut(names(0, 8), "control", 600.0)
    for key in ("began", "lost", "over"):
        tells(ward, f"absence.2/{key}", f"2 {key}", case="absence.2", after_s=60.0)
    assert any("of one incident" in words for words in complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(("count", "complained"), [(1, False), (8, True)], ids=["one alone", "many"])
def test_who_goes_away_alone_before_it_is_over_does_not_make_the_next_one_the_same(
    count: int, complained: bool
) -> None:
    """A node that was cut off beside a straggler had kept the first one alive (seed 1240)."""
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 600.0)
    for key in ("began", "lost"):
        tells(ward, f"absence.1/{key}", f"1 {key}", case="absence.1", after_s=300.0)
    ward.passes(2_400.0)
    ward.world.network.cut(names(10, count), "control", 600.0)
    ward.passes(1_800.0)
    tells(ward, "absence.1/over", "1 over", case="absence.1")
    ward.world.network.cut(names(0, 8), "control", 600.0)
    for key in ("began", "lost", "over"):
        tells(ward, f"absence.2/{key}", f"2 {key}", case="absence.2")
    assert any("of one incident" in words for words in complaints(ward, "ToldOnce")) is complained


def test_what_was_told_before_others_went_away_is_about_those_who_went_before() -> None:
    """It was heard with the next look, after they had gone, and counted for them (seed 50000958)."""
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 600.0)
    tells(ward, "absence.1/began", "1 began", case="absence.1", after_s=4_500.0)
    for key in ("lost", "over"):
        ward.run.mailbox.send(Notice(f"absence.1/{key}", "info", f"1 {key}", "", "absence.1", 0.0), 1)
    ward.passes(60.0)
    ward.world.network.cut(names(0, 8), "control", 600.0)
    for key in ("began", "lost", "over"):
        tells(ward, f"absence.2/{key}", f"2 {key}", case="absence.2")
    assert not [words for words in complaints(ward, "ToldOnce") if "of one incident" in words]


@pytest.mark.parametrize(("act", "complained"), [("abort", False), ("hold", True)])
def test_who_is_away_after_people_closed_it_is_another_incident(act: str, complained: bool) -> None:
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 600.0)
    for key in ("began", "lost"):
        tells(ward, f"absence.1/{key}", f"1 {key}", case="absence.1")
    ward.world.note("order", "absence", act=act, by="alice", case="absence.1")
    for key in ("began", "lost", "over"):
        tells(ward, f"absence.2/{key}", f"2 {key}", case="absence.2")
    assert any("of one incident" in words for words in complaints(ward, "ToldOnce")) is complained


@pytest.mark.parametrize(("case", "complained"), [("absence.1", False), ("absence.2", True)])
def test_that_the_last_one_is_over_is_not_counted_to_the_next_though_that_has_begun(
    case: str, complained: bool
) -> None:
    """Somebody deleted the record, and those who were away were many again in the same pass (seed 50000165)."""
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 600.0)
    tells(ward, "absence.1/began", "1 began", case="absence.1")
    ward.world.note("person", "absence", act="delete-record", case="absence.1")
    for key, about in (("absence.2/began", "absence.2"), (f"{case}/over", case), ("absence.2/lost", "absence.2")):
        tells(ward, key, key, case=about)
    tells(ward, "absence.2/end", "2 over", case="absence.2")
    assert any("of one incident" in words for words in complaints(ward, "ToldOnce")) is complained
