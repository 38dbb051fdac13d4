"""The prototype's lessons about sends, guards and leaders, each arranged on purpose with the real brain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sickbay.controller.crew import Answer, InlineCrew, Work
from sickbay.errors import NotLeader
from sickbay.model import Before, Case, Done, Event, Failed, Finding, Phase, Place, Retry, Severity, Status, Verb
from sickbay.settings import Limit
from sickbay.stores.memory import MemoryStore
from tests.sim.removed import Removed, both, door, notices, row, wrapped
from tests.sim.ward import Ward, a_policy, names

SICK = "node-0005"
HOUR, DAY = 3_600.0, 86_400.0


def sick_ward(kind: str = "gpu_lost_79", cure: str = "reboot", **how: Any) -> Ward:
    ward = Ward(**how)
    ward.world.strike(kind, SICK, 0, cure=cure)
    return ward


# -- 14: sends


def test_lesson_14_a_second_send_is_recorded_before_it_is_made_and_there_is_no_third() -> None:
    """Requests are lost and the process dies after each: what is on record is all that the next one knows. What was
    lost for good was not tried: the same is asked for in a new step."""
    ward = sick_ward()
    recorded: list[int] = []

    def lose(action: Any, go: Any) -> Any:
        if not action.call or len(recorded) == 4:
            return go(action)
        case = ward.case(SICK)
        assert case is not None
        assert case.pending is not None
        recorded.append(case.pending.sends)
        ward.world.after(1.0, ward.crash)
        return Retry(5.0, "the request got no answer in time")

    ward.door.on[Verb.REBOOT] = lose
    ward.until(lambda: ward.treatments(SICK), 7200.0)
    assert recorded == [1, 2, 1, 2]
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.until_ended(SICK)
    ward.ends_well()


def test_lesson_14_a_request_that_got_lost_is_made_again_once_and_acts_once() -> None:
    ward = sick_ward()
    lost: list[str] = []

    def lose_first(action: Any, go: Any) -> Any:
        if action.call and not lost:
            lost.append(action.key)
            return Retry(5.0, "the request got no answer in time")
        return go(action)

    ward.door.on[Verb.REBOOT] = lose_first
    ward.until_ended(SICK)
    assert [(a.key, a.sends) for a in ward.door.sent(Verb.REBOOT)] == [(lost[0], 1), (lost[0], 2)]
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()


def test_after_a_reset_whose_answer_was_lost_the_key_on_the_node_keeps_it_from_being_made_twice() -> None:
    ward = sick_ward("ecc_uncontained_95", "reset")

    def lose_answers(action: Any, go: Any) -> Any:
        go(action)
        if action.call:
            ward.world.after(1.0, ward.crash)
            return Retry(5.0, "the answer got lost")
        return go(action)

    ward.door.on[Verb.RESET_GPU] = lose_answers
    ward.until_ended(SICK)
    assert ward.treatments(SICK) == ["RESET_GPU"]
    assert ward.is_well(SICK)
    ward.ends_well()


# -- 16: leaders


class Witness(MemoryStore):
    """A store that notes under which epoch each record about nodes and jobs was written."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []

    def commit(self, value: Any, expect: int, epoch: int, consumes: Any = ()) -> int:
        version = super().commit(value, expect, epoch, consumes)
        self.epochs.append(epoch)
        return version


def deposed(ward: Ward, during: Phase) -> Any:
    """The first brain stops in the middle of a case; the second takes the lead. Returns the first one's controller."""
    ward.until_phase(SICK, during)
    old = ward.brains[0].controller
    assert old is not None
    ward.brains[0].next_turn = float("inf")
    assert ward.lock.holder is not None
    ward.lock.holder._believes_until = float("inf")  # it goes on believing that it leads
    ward.lock.holder = None
    ward.brains[1].next_turn = ward.world.now
    return old


def goes_on(ward: Ward, controller: Any) -> None:
    for _ in range(40):
        ward.clock.leap += 20.0
        controller.turn()


def test_lesson_16_an_old_leader_that_reads_again_can_write_nothing() -> None:
    store = Witness()
    ward = sick_ward(brains=2, store=store)
    old = deposed(ward, Phase.COLLECTING)
    ward.passes(20.0)
    asked = len(ward.door.calls)
    for stored in store.list(Case):  # it re-reads: its versions are the newest, so compare-and-set alone would let it
        old.view.cases[stored.value.node] = stored
        old.view.touch_node(stored.value.node)
    old.resync()
    old._leads = True
    with pytest.raises(NotLeader):
        goes_on(ward, old)
    assert len(ward.door.calls) == asked
    assert store.epochs == sorted(store.epochs)
    old.abandon()
    ward.until_ended(SICK)
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()


def test_an_abort_that_a_paused_leader_had_read_is_carried_out_by_the_next_one() -> None:
    ward = sick_ward(brains=2)
    ward.until_phase(SICK, Phase.COLLECTING)
    ward.says("abort", ward.case(SICK))
    leader = ward.brains[0].controller
    assert leader is not None
    leader._gather(leader._now())  # it has read the command, and stands still on this line
    old = deposed(ward, Phase.COLLECTING)
    ward.until(lambda: ward.ended(SICK), 600.0)
    old.abandon()
    ended = ward.ended(SICK)[0]
    assert (ended.phase, ended.cancelled) == (Phase.DISMISSED, True)
    assert ward.treatments(SICK) == []
    assert not ward.world.nodes[SICK].mark
    ward.is_sound()


# -- 18: the guard at the door, late calls, cancels in flight


def test_lesson_18_a_treatment_is_refused_at_the_door_when_somebody_took_the_node_at_that_moment() -> None:
    ward = sick_ward()
    meddled: list[str] = []

    def meddle(action: Any, go: Any) -> Any:
        if action.call and not meddled:
            meddled.append(action.key)
            ward.world.people.uncordon(SICK)
            ward.submit("stray", (SICK,), managed=False)
        return go(action)

    ward.door.on[Verb.REBOOT] = meddle
    ward.until(lambda: ward.ended(SICK) or ward.treatments(SICK))
    assert ward.treatments(SICK) == []
    assert ward.world.jobs["stray"].live
    assert ward.ended(SICK)[0].cancelled
    ward.is_sound()


class SlowCrew(InlineCrew):
    """Hands a reboot on ten minutes after it was asked to: a stuck thread, a paused machine."""

    ward: Ward

    def submit(self, work: Work, answer: Answer) -> None:
        case = self.ward.case(SICK)
        late = case is not None and case.phase is Phase.REPAIRING and case.pending is not None
        if late and not self.ward.treatments(SICK) and not hasattr(self, "kept"):
            self.kept = True
            self.ward.world.after(600.0, lambda: answer(work()))
        else:
            answer(work())


def test_lesson_18_a_call_is_made_within_seconds_of_its_commit_or_not_at_all() -> None:
    ward = Ward(crew=SlowCrew)
    SlowCrew.ward = ward
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_ended(SICK)
    made = [(t, a) for t, a in ward.door.calls if a.verb is Verb.REBOOT and a.call]
    assert made
    assert all(a.sent_at is not None and t - a.sent_at <= 5.0 for t, a in made)
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()


def test_lesson_18_a_cancel_in_flight_lets_the_node_go_only_after_the_treatment_it_had_sent() -> None:
    ward = sick_ward()
    ward.until(lambda: ward.treatments(SICK))
    ward.says("abort", ward.case(SICK))
    ward.until_ended(SICK)
    (let_go,) = ward.facts("release", SICK)
    assert let_go.detail["treating"] == "-"
    assert ward.facts("treat-end", SICK)[0].t <= let_go.t
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.is_sound()


def test_a_seat_is_kept_as_long_as_a_cancelled_reboot_is_under_way() -> None:
    ward = sick_ward(policy=a_policy(at_once=Limit(count=1, at_least=1)))
    ward.until(lambda: ward.treatments(SICK))
    ward.world.strike("gpu_lost_79", "node-0006", 0, cure="reboot")
    ward.says("abort", ward.case(SICK))
    ward.until(lambda: ward.treatments("node-0006"))
    over = ward.facts("treat-end", SICK)
    assert over != []
    assert over[0].t <= ward.facts("treat-start", "node-0006")[0].t
    ward.until_ended("node-0006")
    ward.is_sound()


# -- found by reading


def test_old_evidence_does_not_return_a_node_after_a_reset_whose_boot_is_the_same() -> None:
    """The first examination after the reset gets the answer of an earlier one: all well, of this very boot."""
    ward = sick_ward("ecc_uncontained_95", "replace")
    told: list[str] = []

    def old_answer(action: Any, go: Any) -> Any:
        if told:
            return go(action)
        told.append(action.key)
        boot = ward.world.nodes[SICK].boot_id
        return Done("", tuple(
            Finding(f"{boot}/{i}", "agent", check, Place(SICK), Status.OK, "", "all well", (), Severity.NONE, boot,
                    answers=f"{SICK}.1/2")
            for i, check in enumerate(action.args["checks"].split(","))
        ))  # fmt: skip

    ward.door.on[Verb.VERIFY] = old_answer
    ward.until_phase(SICK, Phase.ESCALATED)  # no fresh answer is no answer
    assert ward.facts("release", SICK) == []
    ward.is_sound()


def test_a_release_that_landed_unheard_is_taken_back_when_the_node_falls_ill_while_returning() -> None:
    ward = sick_ward()
    struck: list[float] = []

    def fall_ill() -> None:
        ward.world.strike("ecc_dbe_48", SICK, 3, cure="reset")

    def lose_answers(action: Any, go: Any) -> Any:
        outcome = go(action)
        if struck:
            return outcome
        struck.append(ward.world.now)
        ward.world.after(2.0, fall_ill)
        return Retry(30.0, "the answer got lost")

    ward.door.on[Verb.RELEASE] = lose_answers
    ended = ward.until_ended(SICK)
    assert ended.id == f"{SICK}.1"
    assert [f.detail["case"] for f in ward.facts("cordon", SICK)] == [ended.id, ended.id]
    assert ward.facts("unguarded") == []
    assert ward.is_well(SICK)
    ward.ends_well()


def test_an_uncordon_is_believed_only_at_a_version_later_than_our_cordon() -> None:
    """The next leader's first look is older than our cordon: that is no person's uncordon."""
    ward = sick_ward()
    ward.until(lambda: ward.case(SICK))
    before = ward.run.platform.observe()
    ward.until_phase(SICK, Phase.COLLECTING)
    ward.door.old = replace(before, nodes=tuple(
        replace(n, cordoned=False, mark="", version=2) if n.name == SICK else n for n in before.nodes
    ))  # fmt: skip
    ward.crash(back_after=1.0)
    ended = ward.until_ended(SICK)
    assert not ended.cancelled
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()


def test_what_was_true_before_a_treatment_is_read_directly_and_not_from_a_late_view() -> None:
    """Somebody reboots the node by hand while the watch is ten minutes late: the call must name the boot of now."""
    ward = sick_ward("gpu_lost_79", "power_cycle")
    ward.until_phase(SICK, Phase.COLLECTING)
    ward.door.late = lambda change: 600.0
    ward.world.treatments.boot(ward.world.nodes[SICK])
    booted = ward.world.nodes[SICK].boot_id
    ward.until(lambda: ward.door.sent(Verb.REBOOT), 500.0)
    assert ward.door.sent(Verb.REBOOT)[0].before.boot_id == booted
    assert ward.facts("unguarded") == []
    ward.door.late = lambda change: 0.0
    ward.until_ended(SICK)
    ward.ends_well()


# -- the rules taken away


def _second_send_unrecorded(old: Any) -> Any:
    def put_sent(self: Any, name: str, action: Any) -> None:
        if action.sends < 2:
            old(self, name, action)

    return put_sent


def _act_again(old: Any) -> Any:
    def prepare(self: Any, desk: Any, owner: Any, action: Any, now: Any) -> Any:
        return replace(action, call=True) if action.sends else old(self, desk, owner, action, now)

    return prepare


def _no_key_kept(old: Any) -> Any:
    def treat(self: Any, action: Any) -> Any:
        if action.call:
            self.world.treatments.delivered.pop(action.key, None)
        return old(self, action)

    return treat


def _any_epoch(old: Any) -> Any:
    return lambda value, stored, expect, epoch: old(value, stored, expect, 1_000_000)


def _removed_unread(old: Any) -> Any:
    def take(self: Any, commands: Any) -> None:
        old(self, commands)
        self._records.consume([c.id for c in commands])

    return take


def _freed_at_once(old: Any) -> Any:
    return lambda seat, case, now: bool(old(seat, case, now)) and not (seat.kind == "treat" and case.cancelled)


def _any_answer(old: Any) -> Any:
    def verify(case: Any, record: Any, findings: Any, *rest: Any) -> Any:
        key = case.pending.key if case.pending else ""
        return old(case, record, [replace(f, answers=key) for f in findings], *rest)

    return verify


def _any_version(old: Any) -> Any:
    return lambda case, node: old(replace(case, cordon_version=min(case.cordon_version, 1)), node)


def _from_the_first_view(old: Any) -> Any:
    seen: dict[str, Before] = {}

    def before(self: Any, action: Any) -> Any:
        world = self._platform._world
        first = world.factory.boot_id(world.nodes[action.place.node].instance, 0)
        return seen.setdefault(action.place.node, replace(old(self, action), boot_id=first))

    return before


RULES: list[tuple[Callable[[], None], str, Removed]] = [
    (test_lesson_14_a_second_send_is_recorded_before_it_is_made_and_there_is_no_third,
     "the second send is not recorded",
     wrapped("controller.desk", "Desk.put_sent", _second_send_unrecorded)),
    (test_lesson_14_a_request_that_got_lost_is_made_again_once_and_acts_once, "what is lost stays lost",
     wrapped("controller.loop", "may_resend", lambda old: lambda action, outcome: False)),
    (test_after_a_reset_whose_answer_was_lost_the_key_on_the_node_keeps_it_from_being_made_twice, "a re-send acts",
     both(wrapped("controller.loop", "Controller._prepare", _act_again), door("_treat", _no_key_kept))),
    (test_lesson_16_an_old_leader_that_reads_again_can_write_nothing, "compare-and-set alone",
     both(wrapped("stores.records", "refuse_stale", _any_epoch),
          wrapped("controller.records", "Records.still_leads", lambda old: lambda self: None))),
    (test_an_abort_that_a_paused_leader_had_read_is_carried_out_by_the_next_one, "commands are removed when read",
     wrapped("controller.desk", "Desk.take_commands", _removed_unread)),
    (test_lesson_18_a_treatment_is_refused_at_the_door_when_somebody_took_the_node_at_that_moment, "no guard",
     door("_unguarded", lambda old: lambda self, action, node: "")),
    (test_lesson_18_a_call_is_made_within_seconds_of_its_commit_or_not_at_all, "any time is good enough",
     wrapped("controller.dispatch", "CALL_WITHIN_S", lambda old: 1e9)),
    (test_lesson_18_a_cancel_in_flight_lets_the_node_go_only_after_the_treatment_it_had_sent,
     "the sent one is forgotten",
     wrapped("core.machine", "_unfinished", lambda old: lambda case, event: None)),
    (test_a_seat_is_kept_as_long_as_a_cancelled_reboot_is_under_way, "the seat is freed at once",
     wrapped("core.admit", "is_needed", _freed_at_once)),
    (test_old_evidence_does_not_return_a_node_after_a_reset_whose_boot_is_the_same, "any answer counts",
     wrapped("core.triage", "verify", _any_answer)),
    (test_a_release_that_landed_unheard_is_taken_back_when_the_node_falls_ill_while_returning, "still closed, surely",
     row(Phase.RETURNING, Event.WORSENED, Phase.QUEUED)),
    (test_an_uncordon_is_believed_only_at_a_version_later_than_our_cordon, "any view is believed",
     wrapped("core.decide", "_was_uncordoned", _any_version)),
    (test_what_was_true_before_a_treatment_is_read_directly_and_not_from_a_late_view, "before comes from a cache",
     wrapped("controller.dispatch", "Dispatcher.before", _from_the_first_view)),
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "removed"), [(s, r) for s, _, r in RULES], ids=[words for _, words, _ in RULES])
def test_a_scenario_notices_when_its_rule_is_taken_away(scenario: Callable[[], None], removed: Removed) -> None:
    notices(scenario, removed)


# -- what waits in a line


def test_what_has_not_begun_does_not_happen_after_a_person_has_opened_the_node() -> None:
    """Seen beside a queue that suspends Jobs: the machine was rebooted 80 s after a person's uncordon."""
    ward = sick_ward(waits_s=(170.0, 170.0))
    ward.until(lambda: ward.facts("treat-waits", SICK))
    ward.passes(60.0)
    ward.world.people.uncordon(SICK)
    ended = ward.until_ended(SICK)
    assert ward.treatments(SICK) == []
    assert ended.phase is Phase.DISMISSED
    said = [e.why for e in ended.journal if e.event == "WITHDRAWN"]
    assert said == [f"REBOOT was not done to the node: REBOOT of {SICK}: it was taken back before it had begun"]
    ward.is_sound()


def test_what_has_begun_when_it_is_cancelled_is_seen_to_its_end() -> None:
    ward = sick_ward(waits_s=(30.0, 30.0))
    ward.until(lambda: ward.treatments(SICK))
    ward.says("abort", ward.case(SICK))
    ended = ward.until_ended(SICK)
    assert ward.treatments(SICK) == ["REBOOT"]
    assert [e.why.partition(":")[0] for e in ended.journal if e.event == "ENDED"] == ["REBOOT had begun"]


def test_what_waits_too_long_was_not_tried_and_a_person_is_told_why() -> None:
    ward = sick_ward(waits_s=(1000.0, 1000.0))
    case = ward.until_phase(SICK, Phase.ESCALATED, 14_400.0)
    assert ward.treatments(SICK) == []
    assert case.rungs_tried == ()
    assert "waited 180 s in a line and was taken back" in case.journal[-1].why


def test_a_release_that_lacks_a_right_is_told_asked_again_and_made_when_the_right_is_back() -> None:
    """It was a person's case when return_s was over, and stayed one when the role was mended."""
    ward = sick_ward()
    ward.until_phase(SICK, Phase.VERIFYING)
    ward.world.services.fail("rights")
    ward.passes(DAY)
    told = [n for n in ward.run.mailbox.notices if n.level == "urgent"]
    assert [f"a right is missing: we cannot take our mark off {SICK}" in n.body for n in told] == [True]
    assert not ward.world.nodes[SICK].serving()
    ward.world.services.back("rights")
    assert ward.until_ended(SICK, 600.0).phase is Phase.RESOLVED
    assert ward.is_well(SICK)
    ward.ends_well()


def test_a_node_let_go_while_a_right_is_missing_is_let_go_when_it_is_back() -> None:
    ward = sick_ward()
    case = ward.until_phase(SICK, Phase.VERIFYING)
    ward.world.services.fail("rights")
    ward.says("abort", case)
    ward.passes(DAY)
    assert [n.level for n in ward.run.mailbox.notices if "a right is missing" in n.body] == ["urgent"]
    ward.world.services.back("rights")
    assert ward.until_ended(SICK, 600.0).phase is Phase.DISMISSED
    assert ward.world.nodes[SICK].mark == ""
    ward.is_sound()


# -- a provider that is away


@pytest.mark.parametrize(
    ("kind", "gpu", "cure", "minutes"),
    [
        ("row_remap_failed_64", 2, "replace", 10),
        ("host_crash", None, "reboot", 40),
        ("host_crash", None, "reboot", 300),
    ],
)
def test_a_provider_that_is_away_is_asked_again_and_the_node_is_mended_when_it_is_back(
    kind: str, gpu: int | None, cure: str, minutes: int
) -> None:
    """Three tries in five minutes were all, and the case stayed with a person in words that nobody could act on."""
    ward = Ward(12)
    ward.world.services.fail("provider", minutes * 60.0)
    ward.world.strike(kind, SICK, *([] if gpu is None else [gpu]), cure=cure)
    ward.passes(minutes * 60.0)
    assert ward.treatments(SICK) == []
    ward.until_ended(SICK)
    assert ward.treatments(SICK) == [cure.upper()]
    levels = [n.level for n in ward.run.mailbox.notices]
    assert "urgent" not in levels
    assert levels.count("warning") == (minutes > 10)
    ward.until(lambda: ward.is_well(SICK))
    ward.ends_well()


def test_a_provider_that_is_away_is_told_once_with_what_does_not_answer_and_how_to_stop_it() -> None:
    ward = Ward(12)
    ward.world.services.fail("provider")
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    ward.passes(4 * HOUR)
    case = ward.case(SICK)
    assert case is not None
    assert case.phase is not Phase.ESCALATED
    told = [n for n in ward.run.mailbox.notices if n.level != "info"]
    assert [n.level for n in told] == ["warning"]
    for words in ("REPLACE", "the provider's API does not answer", "tried again by itself",
                  f"sickbay case hold {case.id}", f"sickbay case abort {case.id}"):  # fmt: skip
        assert words in told[0].body
    calls = [at for at, a in ward.door.calls if a.verb is Verb.REPLACE and a.call]
    assert len(calls) < 70, "with back-off"
    ward.passes(4 * HOUR)
    assert "REPLACE could not be delivered for 6 hours: the provider's API does not answer" in ward.story_of(SICK)
    assert [n.level for n in ward.run.mailbox.notices if n.level == "urgent"] == ["urgent"]
    ward.is_sound()


def test_what_waits_for_a_provider_keeps_no_place_from_others_and_counts_in_no_window() -> None:
    only = Limit(count=1, percent=100.0, at_least=1)
    ward = Ward(12, policy=a_policy(at_once=only, per_window={"REPLACE": 1}))
    ward.world.services.fail("provider", 3 * HOUR)
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    ward.passes(HOUR)
    ward.world.strike("ecc_uncontained_95", "node-0002", 0, cure="reset")
    ward.passes(1.5 * HOUR)
    assert ward.treatments() == ["RESET_GPU"]
    assert ward.is_well("node-0002")
    ward.until_ended(SICK, 2 * HOUR)
    assert ward.treatments(SICK) == ["REPLACE"]
    ward.ends_well()


def test_a_node_that_is_well_again_before_its_provider_is_back_is_examined_and_not_treated() -> None:
    ward = Ward(12)
    ward.world.services.fail("provider", 5 * HOUR)
    ward.world.strike("host_crash", SICK, cure="reboot")
    ward.passes(HOUR)
    ward.world.people.revive(SICK)
    ward.passes(2 * HOUR)
    assert ward.treatments(SICK) == []
    assert ward.is_well(SICK)
    ward.ends_well(4 * HOUR)


def test_a_case_that_waits_for_its_provider_is_let_go_at_a_persons_word() -> None:
    ward = Ward(12)
    ward.world.services.fail("provider", 5 * HOUR)
    ward.world.strike("row_remap_failed_64", SICK, 2, cure="replace")
    ward.passes(HOUR)
    case = ward.case(SICK)
    assert case is not None
    ward.says("abort", case)
    assert ward.until_ended(SICK, 600.0).phase is Phase.DISMISSED
    ward.passes(6 * HOUR)
    assert not [f for f in ward.facts("treat-start", SICK) if str(f.detail["key"]).startswith(f"{case.id}/")]
    ward.is_sound()


def test_a_cordon_that_failed_does_not_close_a_node_that_a_person_has_opened_unseen() -> None:
    ward = sick_ward()
    seen: list[str] = []

    def never_ready(action: Any, go: Any) -> Any:
        return Failed("only 7 of 8 GPUs are allocatable") if action.args.get("cancel") != "1" else go(action)

    def open_first(action: Any, go: Any) -> Any:
        if ward.facts("verify", SICK) and not seen:
            seen.append(action.key)
            ward.world.people.uncordon(SICK)
        return go(action)

    ward.door.on[Verb.RELEASE] = never_ready
    ward.door.on[Verb.CORDON] = open_first
    ward.until(lambda: bool(seen))
    ward.passes(HOUR)
    assert not [f for f in ward.facts("cordon", SICK) if f.t > ward.facts("verify", SICK)[-1].t]
    assert not ward.world.nodes[SICK].cordoned
    ward.is_sound()


def test_a_drain_that_lacks_a_right_is_told_asked_again_and_taken_up_when_the_right_is_back() -> None:
    """It was a person's case for good at the first refusal: nobody came back to it when the role was mended."""
    ward = Ward()
    job = ward.submit("llama", (SICK,))
    ward.world.services.fail("rights")
    ward.world.strike("ecc_uncontained_95", SICK, 0, cure="reset")
    case = ward.until_phase(SICK, Phase.ESCALATED)
    ward.passes(1800.0)
    told = [n for n in ward.run.mailbox.notices if n.case == case.id and n.level == "urgent"]
    lacked = (f"a right is missing: we cannot evict {job.id} from {SICK}", "we cannot take our mark off")
    assert [words in n.body for words, n in zip(lacked, told, strict=True)] == [True, True]
    assert "goes on by itself as soon as that works" in told[0].body
    ward.world.services.back("rights")
    assert ward.until_ended(SICK).phase is Phase.RESOLVED
    assert ward.treatments(SICK) == ["RESET_GPU"]
    ward.ends_well()


# -- 20: one missing right is one thing to mend


def test_one_right_missing_on_many_nodes_is_one_notice_and_when_it_is_back_they_are_treated() -> None:
    """Each node was an escalation: from five on the breaker opened, and treatment began 55 minutes after it was
    back; and each node was an urgent notice of its own."""
    ward = Ward(24, policy=a_policy(max_out=Limit(), max_out_fleet=Limit(), at_once=Limit()))
    sick = names(3, 6)
    ward.world.services.fail("marks")
    for name, kind in zip(sick, ("gpu_lost_79", "ecc_uncontained_95", "row_remap_pending_63") * 2, strict=True):
        ward.world.strike(kind, name, 0, cure="reboot")
    ward.passes(900.0)
    cases = [case for name in sick if (case := ward.case(name)) is not None]
    assert [case.phase for case in cases] == [Phase.ESCALATED] * len(sick)
    urgent = [n for n in ward.run.mailbox.notices if n.level == "urgent"]
    assert [n.title for n in urgent] == [f"{len(sick)} nodes cannot be closed for new work"]
    assert "a right is missing: we cannot put our mark on" in urgent[0].body
    assert all(case.id in urgent[0].body for case in cases)
    assert "goes on by itself as soon as that works" in urgent[0].body
    ward.world.services.back("marks")
    ward.passes(900.0)
    assert all(ward.treatments(name) for name in sick)
    for name in sick:
        ward.until_ended(name)
    ward.ends_well()
