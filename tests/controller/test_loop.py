"""The loop at a scripted door: commit before call, watch time, crashes, commands, limits. No hardware here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sickbay.errors import NotLeader, StaleWrite, StoreError
from sickbay.model import (
    Action,
    Case,
    Command,
    Done,
    Failed,
    JobPhase,
    Ledger,
    Lost,
    Node,
    NodeChanged,
    NodeDeleted,
    Outcome,
    Part,
    Pause,
    Phase,
    RankExit,
    Recovery,
    RecoveryPhase,
    Retry,
    Started,
    Status,
    Verb,
)
from sickbay.settings import ControllerSettings, JobPolicy, Limit
from sickbay.stores.memory import MemoryStore
from tests.builders import a_finding, a_gpu, a_job, a_node, a_pass, a_policy
from tests.controller.door import Door, Shift, busy

HOUR = 3_600.0


def on_duty(*nodes: Node, **settings: Any) -> Shift:
    return Shift(Door(*nodes), **settings)


def struck(shift: Shift, node: str = "n1", code: str = "xid.79", n: int = 1) -> Shift:
    boot = shift.door.nodes[node].boot_id
    shift.door.shows(node, findings=(a_finding(code, n, node=node, boot=boot),))
    return shift


def archived(shift: Shift) -> list[Case]:
    return list(shift.store.history(Case))


@pytest.mark.parametrize("how", ["a successor", "a resync"])
def test_a_machine_that_went_while_nobody_watched_ends_its_case_and_holds_no_seat(how: str) -> None:
    shift = struck(on_duty())
    shift.door.says[Verb.REBOOT] = lambda action: Started(15.0, "it boots")
    shift.passes(300.0)
    case = shift.case()
    assert case is not None
    assert case.phase is Phase.REPAIRING
    del shift.door.nodes["n1"]
    shift.controller.resync()
    shift.passes(60.0)
    assert shift.case() is not None, "absence is no proof"
    shift.door.gone.add(case.instance)
    if how == "a resync":
        shift.controller.resync()
    else:
        shift = shift.successor()
    shift.passes(60.0)
    assert [c.phase for c in archived(shift)] == [Phase.RESOLVED]
    assert not shift.controller.records.ledger.seats


# --- the whole line ---------------------------------------------------------------------------------------------------


def test_a_sick_node_is_taken_out_treated_proved_well_and_returned() -> None:
    shift = struck(on_duty()).passes(HOUR)
    asked = [a.verb for a in shift.door.asked]
    assert asked == [Verb.CORDON, Verb.DRAIN, Verb.COLLECT, Verb.REBOOT, Verb.VERIFY, Verb.RELEASE]
    assert [c.phase for c in archived(shift)] == [Phase.RESOLVED]
    assert not shift.door.nodes["n1"].cordoned
    assert shift.controller.records.ledger.seats == ()


def test_a_fresh_install_touches_nothing_and_says_why() -> None:
    shift = struck(on_duty(policy=a_policy(max_verb="OBSERVE"))).passes(HOUR)
    assert shift.door.asked == []
    case = shift.case()
    assert case is not None
    assert "policy.max_verb is OBSERVE" in case.refusal


def test_nothing_sick_nothing_asked_nothing_written() -> None:
    shift = on_duty(a_node("n1"), a_node("n2"))
    token = shift.store.token()
    shift.controller.turn()
    assert shift.door.asked == []
    assert shift.store.token() == token


# --- crashes ----------------------------------------------------------------------------------------------------------


def test_a_controller_killed_in_the_middle_of_a_reboot_sends_no_second_one() -> None:
    shift = on_duty()
    shift.door.says[Verb.REBOOT] = lambda _: Started(60.0, "under way")
    struck(shift).passes(120.0)
    assert len(shift.door.called(Verb.REBOOT)) == 1
    after = shift.successor()
    del shift.door.says[Verb.REBOOT]
    after.passes(HOUR)
    assert len(shift.door.called(Verb.REBOOT)) == 1
    assert [c.phase for c in archived(after)] == [Phase.RESOLVED]


def test_a_controller_killed_between_commit_and_call_sends_it_once_when_it_is_known_lost() -> None:
    shift = on_duty()
    delivered: set[str] = set()

    def reboot(action: Action) -> Outcome:
        if not action.call and action.key not in delivered:
            return Lost("no such request")
        if action.call:
            if not delivered and len(shift.door.called(Verb.REBOOT)) == 1:
                raise KeyboardInterrupt  # killed: the commit is there, the call never left
            delivered.add(action.key)
        return Done()

    shift.door.says[Verb.REBOOT] = reboot
    with pytest.raises(KeyboardInterrupt):
        struck(shift).passes(HOUR)
    committed = shift.store.list(Case)[0].value.pending
    assert committed is not None
    assert committed.sends == 1
    after = shift.successor().passes(HOUR)
    calls = shift.door.called(Verb.REBOOT)
    assert [a.sends for a in calls] == [1, 2]
    assert archived(after)


def test_a_call_lost_twice_is_not_made_a_third_time_in_its_step_and_a_person_is_asked_after_hours() -> None:
    shift = on_duty()
    shift.door.says[Verb.REBOOT] = lambda _: Lost("the network ate it")
    struck(shift).passes(5 * HOUR)
    assert (the_case(shift).phase, the_case(shift).rungs_tried) == (Phase.QUEUED, ())
    shift.passes(2 * HOUR)
    calls = Counter(action.key for action in shift.door.called(Verb.REBOOT))
    assert set(calls.values()) == {2}
    assert len(calls) > 20
    assert not shift.door.called(Verb.POWER_CYCLE)
    assert (the_case(shift).phase, the_case(shift).rungs_tried) == (Phase.ESCALATED, ())
    assert "could not be delivered for 6 hours: the network ate it" in the_case(shift).journal[-1].why


def test_why_a_treatment_was_not_let_in_stands_in_its_record_before_it_is_asked_for_again() -> None:
    """For 30 seconds the ward list said no more than "REBOOT to answer"."""
    shift = on_duty()
    why = "the reboot Job on n1: a ResourceQuota refuses its Job"
    shift.door.says[Verb.REBOOT] = lambda _: Lost(why)
    struck(shift)
    while not shift.door.called(Verb.REBOOT):
        shift.passes(1.0)
    shift.passes(1.0)
    assert len(shift.door.called(Verb.REBOOT)) == 1
    assert [stored.value.refusal for stored in shift.store.list(Case)] == [why]


def the_case(shift: Shift) -> Case:
    case = shift.case()
    assert case is not None
    return case


def test_a_provider_that_is_not_reached_for_a_minute_makes_no_treatment_stronger() -> None:
    shift = on_duty()

    def reboot(action: Action) -> Outcome:
        if shift.clock.mono < 90.0:
            return Lost("ec2: the name cannot be resolved")
        return shift.door._does(action)

    shift.door.says[Verb.REBOOT] = reboot
    struck(shift).passes(HOUR)
    assert not shift.door.called(Verb.POWER_CYCLE)
    assert [(c.phase, c.rungs_tried) for c in archived(shift)] == [(Phase.RESOLVED, (Verb.REBOOT,))]


def test_the_commit_comes_before_the_call_and_holds_what_was_true_before() -> None:
    shift = on_duty()
    seen: list[Case] = []

    def reboot(_: object) -> Outcome:
        seen.append(shift.store.list(Case)[0].value)
        return Done()

    shift.door.says[Verb.REBOOT] = reboot
    struck(shift).passes(HOUR)
    pending = seen[0].pending
    assert pending is not None
    assert (pending.sends, pending.before.boot_id, pending.before.instance) == (1, "boot-a", "i-n1")


def test_a_cancelled_treatment_that_never_arrived_is_not_sent_again() -> None:
    shift = on_duty()
    shift.door.says[Verb.REBOOT] = lambda a: Retry(30.0, "asking")
    struck(shift).passes(120.0)
    assert len(shift.door.called(Verb.REBOOT)) == 1
    shift.door.says[Verb.REBOOT] = lambda a: Lost("it never arrived")
    shift.store.create(Command("c1", "abort", "n1.1", "ann", "wrong node", 0.0))
    shift.passes(HOUR)
    assert len(shift.door.called(Verb.REBOOT)) == 1
    assert [c.phase for c in archived(shift)] == [Phase.DISMISSED]


# --- two leaders ------------------------------------------------------------------------------------------------------


def test_a_deposed_controller_asks_the_platform_for_nothing() -> None:
    door, store = Door(), MemoryStore()
    old = Shift(door, store)
    new = Shift(door, store, old.clock)
    with pytest.raises(NotLeader):
        struck(old).passes(HOUR)
    assert door.asked == []
    new.passes(HOUR)
    assert door.called(Verb.REBOOT)


def test_a_deposed_controller_that_has_nothing_to_write_still_asks_for_nothing() -> None:
    door, store = Door(), MemoryStore()
    door.says[Verb.DRAIN] = busy
    rarely = ControllerSettings(period_s=600.0)  # so that its own Ledger write does not find out first
    old = struck(Shift(door, store, controller=rarely)).passes(60.0)
    Shift(door, store, old.clock)
    asked = len(door.asked)
    old.clock.passes(40.0)
    with pytest.raises(NotLeader):
        old.controller.turn()
    assert len(door.asked) == asked


def test_a_controller_that_loses_its_lease_stops_before_it_asks() -> None:
    shift = struck(on_duty())
    shift.lead.mine = False
    with pytest.raises(NotLeader):
        shift.passes(HOUR)
    assert shift.door.asked == []


def test_a_standby_does_not_start() -> None:
    shift = on_duty()
    shift.controller.stop()
    with pytest.raises(NotLeader):
        shift.controller.turn()


# --- watch time -------------------------------------------------------------------------------------------------------


def test_a_controller_that_stood_still_for_a_day_times_nothing_out() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(60.0)
    shift.clock.passes(86_400.0)
    shift.controller.turn()
    case = shift.case()
    assert case is not None
    assert case.phase is Phase.DRAINING


def test_a_clock_that_is_set_back_or_forward_moves_no_deadline() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(60.0)
    shift.clock.wall += 1e6
    shift.passes(60.0)
    shift.clock.wall -= 2e6
    shift.passes(60.0)
    case = shift.case()
    assert case is not None
    assert case.phase is Phase.DRAINING


def test_a_sign_of_life_makes_no_pass_and_is_heard_by_the_next_one() -> None:
    shift = on_duty().passes(60.0)
    shift.controller.woken.clear()
    shift.door.shows("n1", last_check=77.0)
    assert not shift.controller.woken.is_set()
    shift.passes(60.0)
    assert shift.controller.view.nodes["n1"].last_check == 77.0


def test_the_same_checks_passed_once_more_make_no_pass_and_no_decision() -> None:
    shift = on_duty().passes(60.0)
    shift.door.shows("n1", findings=(a_pass(n=1),), last_check=76.0)
    shift.passes(60.0)
    shift.controller.woken.clear()
    shift.door.shows("n1", findings=(a_pass(n=2),), last_check=77.0)
    assert not shift.controller.woken.is_set()
    shift.door.shows("n1", findings=(a_pass(n=3, status=Status.UNKNOWN),), last_check=78.0)
    assert shift.controller.woken.is_set()


def test_of_two_showings_of_one_version_the_later_one_counts() -> None:
    shift = on_duty().passes(60.0)
    well = shift.door.nodes["n1"]
    shift.door.tell(NodeChanged(replace(well, ready=False)))
    shift.door.tell(NodeChanged(well))  # as it is known: no news by itself
    shift.controller.turn()
    assert shift.controller.view.nodes["n1"].ready
    shift.door.tell(NodeChanged(replace(well, last_check=77.0)))
    shift.door.tell(NodeChanged(replace(well, ready=False)))
    shift.passes(1.0)
    assert not shift.controller.view.nodes["n1"].ready


def test_whatever_a_node_shows_besides_wakes_a_pass_at_once() -> None:
    shift = on_duty().passes(60.0)
    for changed in ({"ready": False}, {"jobs": ("llama",)}, {"cordoned": True}, {"boot_id": "another"}):
        shift.controller.woken.clear()
        shift.door.shows("n1", **changed)
        assert shift.controller.woken.is_set(), changed
        shift.passes(1.0)


def test_any_word_about_a_sick_node_wakes_a_pass() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(300.0)
    shift.controller.woken.clear()
    shift.door.shows("n1", last_check=77.0)
    assert shift.controller.woken.is_set()


def test_watch_time_goes_on_where_the_last_leader_left_it() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(300.0)
    watched = shift.controller.records.ledger.watch_time
    shift.clock.passes(86_400.0)
    after = shift.successor()
    after.passes(30.0)
    stored = after.store.get(Ledger, "ledger")
    assert stored is not None
    assert watched <= stored.value.watch_time <= watched + 60.0


def test_a_node_under_watch_does_time_out() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    case = struck(shift).passes(2 * HOUR).case()
    assert case is not None
    assert case.phase is Phase.ESCALATED


# --- quiet doors ------------------------------------------------------------------------------------------------------


def test_a_cordon_that_keeps_failing_is_asked_for_once_a_minute_not_in_a_circle() -> None:
    shift = on_duty()
    shift.door.says[Verb.CORDON] = lambda _: Failed("forbidden")
    struck(shift).passes(600.0)
    assert 5 <= len(shift.door.asked) <= 15


def test_a_job_that_saved_while_its_node_may_not_be_drained_is_not_asked_in_a_circle() -> None:
    shift = on_duty(a_node(jobs=("llama",)), policy=a_policy(max_verb="CORDON"))
    struck(shift, code="xid.92").passes(600.0)
    assert len(shift.door.asked) <= 3


# --- people -----------------------------------------------------------------------------------------------------------


def test_a_pause_written_while_the_controller_was_down_is_obeyed() -> None:
    shift = on_duty()
    shift.store.create(Pause("fleet", "ann", "power work", 0.0))
    struck(shift).passes(HOUR)
    assert shift.door.asked == []
    shift.store.delete(Pause, "fleet")
    shift.passes(HOUR)
    assert archived(shift)


def test_nothing_is_asked_for_after_a_pause_until_it_is_on_record_that_the_case_goes_on() -> None:
    """Somebody else had moved the record, so that the end of the pause was not written: the node was closed all the
    same, beside a record that said paused (seed 50001705)."""
    store, door = MemoryStore(), Door(a_node(findings=(a_finding(),)))
    seen: list[bool] = []

    def says(action: Action) -> Outcome:
        seen.extend(stored.value.paused for stored in store.list(Case))
        return busy(action)

    door.says[Verb.CORDON] = says
    shift = Shift(door, store).passes(60.0)
    store.create(Pause("fleet", "ann", "change freeze", shift.clock.wall))
    shift.passes(60.0)
    asked, (stored,) = len(seen), store.list(Case)
    assert (stored.value.phase, stored.value.paused) == (Phase.CORDONING, True)
    store.commit(stored.value, stored.version, shift.controller.records.epoch)
    store.delete(Pause, "fleet")
    shift.passes(60.0)
    assert len(seen) > asked
    assert not any(seen)


def test_an_abort_is_obeyed_once_and_removed_with_the_write_that_carries_it() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(60.0)
    shift.store.create(Command("c1", "abort", "n1.1", "ann", "wrong node", 0.0))
    shift.passes(60.0)
    assert [c.phase for c in archived(shift)] == [Phase.DISMISSED]
    assert shift.store.list(Command) == []
    assert not shift.door.nodes["n1"].cordoned


def test_a_hold_whose_write_was_refused_is_heard_again_before_anything_is_done() -> None:
    """Somebody else had moved the record: the node was closed 0.01 s before its hold was heard (seed 50000276)."""
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(60.0)
    (stored,) = shift.store.list(Case)
    shift.store.create(Command("c1", "hold", "n1.1", "ann", "let me look", 0.0))
    shift.store.commit(stored.value, stored.version, shift.controller.records.epoch)
    del shift.door.says[Verb.DRAIN]
    asked = len(shift.door.asked)
    shift.passes(120.0)
    assert the_case(shift).held
    assert {action.verb for action in shift.door.asked[asked:]} <= {Verb.DRAIN}


def test_a_command_for_nobody_is_removed() -> None:
    shift = on_duty()
    shift.store.create(Command("c1", "abort", "n9.1", "ann", "typo", 0.0))
    shift.passes(30.0)
    assert shift.store.list(Command) == []
    (told,) = shift.pager.told
    assert told.level == "warning"
    assert "abort n9.1 by ann: no open case, node or job has this name" in told.body


def test_a_command_for_a_node_without_a_case_is_told_to_be_in_vain() -> None:
    shift = on_duty()
    shift.store.create(Command("c1", "hold", "n1", "ann", "", 0.0))
    shift.passes(30.0)
    assert shift.store.list(Command) == []
    (told,) = shift.pager.told
    assert "hold n1 by ann: n1 has no open case; without one it can be acknowledged or reopened" in told.body


def test_a_thousand_commands_for_nobody_are_told_once_a_minute_and_a_few_by_name() -> None:
    shift = on_duty()
    for n in range(1_000):
        shift.store.create(Command(f"c{n}", "abort", f"n9.{n}" + "9" * 900, "ann", "", 0.0))
    shift.passes(30.0)
    shift.store.create(Command("late", "abort", "n10.1", "bob", "", 0.0))
    shift.passes(20.0)
    assert shift.store.list(Command) == []
    (told,) = shift.pager.told
    assert "and 990 more" in told.body
    assert len(told.body) < 5_000
    shift.passes(60.0)
    assert [("n10.1" in n.body, len(n.body) < 500) for n in shift.pager.told[1:]] == [(True, True)]


def test_a_command_that_nobody_knows_stands_in_the_case_as_refused_and_is_no_event_of_it() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(60.0)
    shift.store.create(Command("c1", "unreachable", "n1.1", "ann", "", 0.0))
    shift.passes(60.0)
    last = the_case(shift).journal[-1]
    assert (last.event, last.by) == ("REFUSED", "ann")
    assert last.why == "unknown command 'unreachable', nothing done"


def test_a_held_case_that_is_aborted_ends() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(60.0)
    for verb in ("hold", "abort"):
        shift.store.create(Command(f"c-{verb}", verb, "n1.1", "ann", "", 0.0))
        shift.passes(30.0)
    assert [c.phase for c in archived(shift)] == [Phase.DISMISSED]


def test_a_replacement_waits_for_approval_and_then_goes_on() -> None:
    shift = on_duty(policy=a_policy())
    struck(shift, code="smi.remap-failed").passes(HOUR)
    case = shift.case()
    assert case is not None
    assert "sickbay case approve n1.1" in case.refusal
    shift.store.create(Command("c1", "approve", "n1.1", "ann", "go", 0.0, {"verb": "REPLACE"}))
    shift.passes(120.0)
    assert shift.door.called(Verb.REPLACE)


def test_a_notice_reaches_the_log_once() -> None:
    shift = on_duty()
    shift.door.says[Verb.CORDON] = lambda _: Failed("forbidden")
    struck(shift).passes(HOUR)
    urgent = [line for line in shift.said if "urgent" in line]
    assert len(urgent) == 1
    assert "sickbay case retry n1.1" in urgent[0]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_never_more_nodes_are_out_than_allowed_and_the_rest_say_why() -> None:
    nodes = [a_node(f"n{i}") for i in range(1, 9)]
    shift = on_duty(*nodes, policy=a_policy(max_out=Limit(count=2), max_out_fleet=Limit(count=2), approval=()))
    shift.door.says[Verb.DRAIN] = busy
    for node in nodes:
        struck(shift, node.name)
    shift.passes(300.0)
    assert sum(n.cordoned for n in shift.door.nodes.values()) == 2
    waiting = [c for c in (shift.case(n.name) for n in nodes) if c is not None and c.phase is Phase.WAITING]
    assert len(waiting) == 6
    assert all("2 of at most 2 nodes" in c.refusal for c in waiting)
    assert sum("no more nodes may be taken out" in line for line in shift.said) >= 1


def test_a_driver_that_makes_a_third_of_the_fleet_sick_treats_no_node() -> None:
    nodes = [a_node(f"n{i}", factors={"driver": "570"}) for i in range(1, 10)]
    shift = on_duty(*nodes)
    for name in ("n1", "n2", "n3"):
        struck(shift, name, "xid.74")
    shift.passes(HOUR)
    assert not any(a.verb in (Verb.RESET_GPU, Verb.REBOOT) for a in shift.door.asked)
    factor = shift.case("driver=570")
    assert factor is not None
    assert factor.phase is Phase.ESCALATED
    assert not any(n.cordoned for n in shift.door.nodes.values())


# --- parts and machines -----------------------------------------------------------------------------------------------


def sent_away(*others: Node) -> Shift:
    """The machine of n1 was replaced for its GPU S1; nothing else is replaced any more."""
    shift = on_duty(a_node(gpus=(a_gpu("S1"),)), *others)
    shift.door.shows("n1", findings=(a_finding("smi.remap-failed", part="S1"),))
    shift.passes(HOUR)
    shift.door.shows(
        "n1", instance="i-new", uid="u-new", boot_id="b-new", findings=(), gpus=(), cordoned=False, mark=""
    )
    shift.passes(60.0)
    shift.door.says[Verb.REPLACE] = busy
    return shift


def test_a_part_that_left_with_its_machine_is_refused_when_it_reappears() -> None:
    shift = sent_away(a_node("n2"))
    stored = shift.store.get(Part, "S1")
    assert stored is not None
    assert stored.value.condemned
    shift.door.shows("n2", instance="i-2b", uid="u-2b", boot_id="b-2b", gpus=(a_gpu("S1"),))
    case = shift.passes(60.0).case("n2")
    assert case is not None
    assert case.diagnoses[0].fault == "condemned-part"


@pytest.mark.parametrize("leader", ["the same", "the next"])
def test_a_machine_that_was_there_when_a_part_was_condemned_is_not_accused_of_it(leader: str) -> None:
    """Its agent was silent then: what left was not this part, whatever number it prints."""
    shift = sent_away(a_node("n2"))
    shift = shift.successor() if leader == "the next" else shift
    shift.door.shows("n2", gpus=(a_gpu("S1"),))
    assert shift.passes(HOUR).case("n2") is None


def test_a_number_that_two_nodes_show_is_condemned_with_neither() -> None:
    shift = sent_away(a_node("n2", gpus=(a_gpu("S1"),)))
    assert shift.store.get(Part, "S1") is None
    assert shift.successor().passes(HOUR).case("n2") is None


def test_a_node_condemns_no_part_of_another_node() -> None:
    """One token of one node had thirty-two healthy machines replaced."""
    shift = on_duty(a_node(gpus=(a_gpu("S1"),)), a_node("n2", gpus=(a_gpu("S2"),)))
    shift.door.shows("n1", findings=(a_finding("smi.remap-failed", part="S2"),))
    shift.passes(HOUR)
    assert shift.store.get(Part, "S2") is None
    assert shift.successor().passes(HOUR).case("n2") is None


def test_a_part_is_condemned_although_the_store_failed_at_that_moment() -> None:
    class Fails(MemoryStore):
        broken = True

        def create(self, value: Any, epoch: int = 0) -> int:
            if isinstance(value, Part) and self.broken:
                self.broken = False
                raise StoreError("no space left")
            return super().create(value, epoch)

    shift = Shift(Door(a_node(gpus=(a_gpu("S1"),))), Fails())
    shift.door.shows("n1", findings=(a_finding("smi.remap-failed", part="S1"),))
    with pytest.raises(StoreError):
        shift.passes(HOUR)
    after = shift.successor()
    after.passes(HOUR)
    part = shift.store.get(Part, "S1")
    assert part is not None
    assert part.value.condemned
    assert part.value.strikes == 1
    assert set(after.controller.view.condemned) == {"S1"}


def test_a_machine_that_is_gone_ends_its_case_and_frees_its_seat() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift).passes(60.0)
    shift.door.tell(NodeDeleted("n1", 999, gone=True))
    shift.passes(30.0)
    assert [c.phase for c in archived(shift)] == [Phase.RESOLVED]
    assert shift.controller.records.ledger.seats == ()


def test_what_is_found_while_a_case_is_let_go_opens_the_next_one_at_once() -> None:
    shift = on_duty()
    shift.door.says[Verb.DRAIN] = busy
    struck(shift, code="xid.95").passes(30.0)
    shift.door.says[Verb.RELEASE] = busy
    shift.store.create(Command("c1", "abort", "n1.1", "ann", "", 0.0))
    shift.passes(30.0)
    struck(shift, code="xid.79", n=9).passes(30.0)
    del shift.door.says[Verb.RELEASE]
    case = shift.passes(120.0).case()
    assert case is not None
    assert (case.id, case.diagnoses[0].fault) == ("n1.2", "gpu-lost")


# --- jobs -------------------------------------------------------------------------------------------------------------


def a_gang(**changed: Any) -> Shift:
    nodes = [a_node(n, jobs=("llama",)) for n in ("n1", "n2")] + [a_node("n3")]
    shift = Shift(Door(*nodes, jobs=(a_job(**changed),)))
    return shift.passes(30.0)


def recovery(shift: Shift) -> Recovery:
    return shift.controller.view.recoveries["llama"].value


def test_a_job_that_died_for_no_reason_is_restarted_without_its_first_dead_node() -> None:
    shift = a_gang()
    for name in ("n1", "n2"):
        shift.door.shows(name, jobs=())
    shift.door.shows_job("llama", phase=JobPhase.FAILED, exits=(RankExit(1, "n2", 1, ("killed",)),))
    shift.passes(60.0)
    restart = shift.door.called(Verb.RESTART_JOB)
    assert [a.nodes for a in restart] == [("n1", "n3")]
    assert recovery(shift).phase is RecoveryPhase.RESTARTING


def test_a_refused_restart_is_tried_again_soon_though_nothing_else_changes() -> None:
    shift = a_gang()
    shift.door.says[Verb.RESTART_JOB] = lambda _: Failed("an earlier attempt lives")
    for name in ("n1", "n2"):
        shift.door.shows(name, jobs=())
    shift.door.shows_job("llama", phase=JobPhase.FAILED, exits=(RankExit(1, "n2", 1, ("killed",)),))
    shift.passes(600.0)
    assert 5 <= len(shift.door.called(Verb.RESTART_JOB)) <= 40
    assert recovery(shift).attempt == 1


def test_a_new_leader_counts_a_stall_from_its_own_first_look() -> None:
    shift = a_gang()
    shift.passes(200.0)
    after = shift.successor()
    after.passes(200.0)
    assert recovery(after).phase is RecoveryPhase.RUNNING


def test_a_node_that_gets_a_case_after_it_was_chosen_is_not_used() -> None:
    shift = a_gang()
    shift.door.says[Verb.CORDON] = busy
    for name in ("n1", "n2"):
        shift.door.shows(name, jobs=())
    struck(shift, "n3").passes(30.0)
    shift.door.shows_job("llama", phase=JobPhase.FAILED, exits=(RankExit(1, "n2", 1, ("killed",)),))
    shift.passes(60.0)
    assert all("n3" not in a.nodes for a in shift.door.called(Verb.RESTART_JOB))


class MovesUnderUs(MemoryStore):
    """Whatever ends was moved by somebody else a moment before."""

    moves = False

    def archive(self, *what: Any) -> None:
        if self.moves:
            raise StaleWrite("moved")
        super().archive(*what)


def test_a_job_is_not_placed_on_a_node_whose_case_could_not_be_ended() -> None:
    """Seed 50001135: decided in one pass, the end of the case and the restart; only the second was written."""
    store = MovesUnderUs()
    nodes = [a_node(n, jobs=("llama",)) for n in ("n1", "n2")] + [a_node("n3", ready=False)]
    shift = Shift(Door(*nodes, jobs=(a_job(),)), store).passes(360.0)
    shift.door.says[Verb.REBOOT] = lambda action: Started(15.0, "it boots")
    for name in ("n1", "n2"):
        shift.door.shows(name, jobs=())
    struck(shift, "n2").door.shows_job("llama", phase=JobPhase.FAILED, exits=(RankExit(1, "n2", 1, ("killed",)),))
    shift.passes(60.0)
    assert recovery(shift).phase is RecoveryPhase.WAITING_FOR_CAPACITY
    store.moves = True
    shift.door.shows("n3", ready=True)
    shift.passes(60.0)
    assert shift.case("n3") is not None
    assert not shift.door.called(Verb.RESTART_JOB)
    store.moves = False
    shift.passes(300.0)
    assert [a.nodes for a in shift.door.called(Verb.RESTART_JOB)] == [("n1", "n3")]
    assert recovery(shift).attempt == 1


def test_a_job_is_not_touched_where_jobs_are_only_watched() -> None:
    door = Door(a_node("n1", jobs=("llama",)), jobs=(replace(a_job(), nodes=("n1",)),))
    shift = Shift(door, jobs=JobPolicy(enabled=False)).passes(30.0)
    door.shows_job("llama", phase=JobPhase.FAILED)
    shift.passes(HOUR)
    assert not [a for a in door.asked if a.verb in (Verb.STOP_JOB, Verb.RESTART_JOB)]
