"""What holds for any sequence of events from any phase (Hypothesis), and through whole turns of core/decide."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from sickbay.core import machine
from sickbay.core.decide import TURNS_MAX
from sickbay.model import TREATMENTS, Case, Done, Event, Failed, Lost, Outcome, Phase, Rung, Unguarded, Verb
from tests.builders import WALL, a_case, a_finding, a_node, a_pass, a_policy
from tests.core.bedside import Bedside

LIVE = sorted(machine.LIVE)
phases = st.sampled_from(LIVE)
events = st.sampled_from(sorted(Event))
verbs = st.sampled_from(TREATMENTS)
ladders = st.sets(verbs).map(lambda some: tuple(Rung(v, 60.0) for v in TREATMENTS if v in some))
allowances = st.frozensets(st.sampled_from(sorted(Verb)))


def step(case: Case, event: Event) -> Case | None:
    moved = machine.step(case, event, now=2_000.0, at=WALL, by="test", why="it happened", policy=a_policy())
    if moved is not None and moved.phase is Phase.REPAIRING:
        verb = machine.next_rung(case, frozenset(Verb))
        moved = machine.start_rung(moved, verb, 60.0, 2_000.0, {}) if verb else moved
    return moved


def lives(case: Case, said: list[Event]) -> list[Case]:
    """The case after each event that moved it."""
    path = [case]
    for event in said:
        moved = step(path[-1], event)
        if moved is not None:
            path.append(moved)
    return path


@given(phases, st.lists(events, max_size=30))
def test_step_numbers_only_grow_and_never_repeat(phase: Phase, said: list[Event]) -> None:
    numbers = [case.step for case in lives(a_case(phase), said)]
    assert numbers == sorted(set(numbers))


@given(phases, st.lists(events, max_size=30))
def test_an_action_is_named_by_the_step_that_asked_for_it(phase: Phase, said: list[Event]) -> None:
    for case in lives(a_case(phase), said)[1:]:
        if case.pending is not None and case.pending is not case.unfinished and case.unfinished is None:
            assert case.pending.key.startswith(f"{case.id}/{case.step}-")


@given(phases, st.lists(events, min_size=1, max_size=30))
def test_an_action_of_another_case_by_the_same_name_has_another_key(phase: Phase, said: list[Event]) -> None:
    one, other = a_case(phase, opened_at=1_790_000_000.0), a_case(phase, opened_at=1_790_000_015.0)
    mine, theirs = ({c.pending.key for c in lives(each, said)[1:] if c.pending} for each in (one, other))
    assert not mine & theirs, "a number may come again after a restore: seed 287"


@given(phases, st.lists(events, max_size=30))
def test_every_live_phase_but_escalated_has_a_deadline_ahead(phase: Phase, said: list[Event]) -> None:
    for case in lives(a_case(phase), said)[1:]:
        if case.phase in machine.LIVE and case.phase not in (Phase.ESCALATED, Phase.REPAIRING):
            assert case.deadline is not None
            assert case.deadline > 2_000.0


@given(phases, events)
def test_a_hold_freezes_everything_but_a_cancel_and_a_machine_that_is_gone(phase: Phase, event: Event) -> None:
    assume(phase is not Phase.CANCELLING)
    moved = step(a_case(phase, held=True), event)
    assert moved is None or event in (Event.CANCELLED, Event.GONE)


@given(events)
def test_a_held_case_that_is_cancelled_can_still_be_let_go(event: Event) -> None:
    held, free = a_case(Phase.CANCELLING, held=True), a_case(Phase.CANCELLING)
    assert machine.goes_to(held, event) is machine.goes_to(free, event)


@given(phases, st.lists(events, max_size=40))
def test_a_cancelled_case_never_takes_a_node_again(phase: Phase, said: list[Event]) -> None:
    cancelled = a_case(Phase.ESCALATED, cancelled=True)
    for case in lives(cancelled, said):
        assert case.phase in (Phase.ESCALATED, Phase.CANCELLING) or case.phase in machine.ENDS
        assert case.pending is None or case.pending.verb is Verb.RELEASE


@example(Phase.REPAIRING, [Event.UNREACHABLE])
@given(phases, st.lists(events, max_size=40))
def test_the_rung_goes_down_only_by_a_retry_or_when_it_was_not_tried(phase: Phase, said: list[Event]) -> None:
    case = a_case(phase, "ecc-uncontained", rung=Verb.RESET_GPU)
    for event in said:
        moved = step(case, event)
        if moved is None:
            continue
        let_go = event in (Event.REJOINED, Event.CANCELLED)
        unsent = let_go and case.pending is not None and not case.pending.sends
        refused = case.phase is Phase.REPAIRING and (
            unsent or event in (Event.UNGUARDED, Event.UNREACHABLE, Event.CLEARED, Event.EXHAUSTED)
        )
        if event is not Event.RETRIED and not refused:
            assert force(moved.rung) >= force(case.rung)
        case = moved


def force(verb: Verb | None) -> int:
    return -1 if verb is None else TREATMENTS.index(verb)


@given(ladders, st.none() | verbs, allowances)
def test_the_next_rung_is_always_strictly_stronger_and_allowed(
    rungs: tuple[Rung, ...], tried: Verb | None, allowed: frozenset[Verb]
) -> None:
    case = a_case(Phase.QUEUED, rung=tried)
    verb = machine.next_rung(replace(case, plan=replace(case.plan, rungs=rungs)), allowed)
    if verb is not None:
        assert force(verb) > force(tried)
        assert verb in allowed
        weaker = [r.verb for r in rungs if force(tried) < force(r.verb) < force(verb)]
        assert not allowed & set(weaker)


@given(verbs)
def test_a_rung_refused_at_the_door_is_the_next_one_again(verb: Verb) -> None:
    case = a_case(Phase.QUEUED, plan=replace(a_case().plan, rungs=tuple(Rung(v, 60.0) for v in TREATMENTS)))
    case = replace(case, rung=TREATMENTS[force(verb) - 1] if force(verb) else None)
    repairing = step(case, Event.ADMITTED)
    assert repairing is not None
    assert repairing.rung is verb
    refused = step(repairing, Event.UNGUARDED)
    assert refused is not None
    assert machine.next_rung(refused, frozenset(Verb)) is verb
    assert verb not in refused.rungs_tried


def test_the_journal_is_bounded_and_keeps_its_beginning() -> None:
    case = a_case()
    for n in range(300):
        case = machine.note(case, "MERGED", at=WALL, by="sickbay", why=f"line {n}")
    assert len(case.journal) == machine.JOURNAL_MAX
    assert case.journal[0].why == "it was seen"
    assert case.journal[-1].why == "line 299"
    assert case.dropped_entries == 301 - machine.JOURNAL_MAX


# --- whole turns: whatever happens to a node, in whatever order ------------------------------------------------------

outcomes = st.sampled_from((Done(), Failed("no"), Lost("never arrived"), Unguarded("not ours"), None))
happenings = st.one_of(
    st.tuples(st.just("answer"), outcomes),
    st.tuples(st.just("late"), outcomes),
    st.tuples(st.just("verified"), st.booleans()),
    st.tuples(st.just("command"), st.sampled_from(("hold", "unhold", "abort", "retry", "examine", "approve"))),
    st.tuples(st.just("find"), st.sampled_from(("xid.79", "xid.95", "xid.63", "smi.gpu-lost"))),
    st.tuples(st.just("wait"), st.sampled_from((1.0, 60.0, 3_600.0, 100_000.0))),
    st.tuples(st.just("grant"), st.none()),
    st.tuples(st.just("busy"), st.booleans()),
    st.tuples(st.just("uncordon"), st.none()),
    st.tuples(st.just("rejoin"), st.none()),
    st.tuples(st.just("ready"), st.booleans()),
    st.tuples(st.just("pause"), st.sampled_from(("", "fleet is paused by ann"))),
)


def happens(bed: Bedside, what: str, value: object, n: int) -> None:
    assert bed.node is not None
    pending = bed.live.pending if bed.live else None
    if what == "answer" and pending is not None:
        assert value is None or isinstance(value, Done | Failed | Lost | Unguarded)
        bed.answers(value) if value is not None else bed.turns()
    elif what == "verified" and pending is not None and pending.verb is Verb.VERIFY:
        bed.verified(n=n, sick=() if value else (a_finding("smi.gpu-lost", n, check="nvidia-smi"),))
    elif what == "command":
        bed.commands(str(value))
    elif what == "find":
        bed.finds(str(value), n)
    elif what == "wait":
        assert isinstance(value, float)
        bed.waits(value)
    elif what == "grant":
        bed.grants()
    elif what == "busy":
        bed.busy = bool(value)
        bed.shows(jobs=("llama",) if value else ())
    elif what == "uncordon":
        bed.shows(cordoned=False, mark="")
    elif what == "rejoin":
        bed.shows(uid=f"uid-{n}")
    elif what == "ready":
        bed.shows(ready=bool(value))
    elif what == "pause":
        bed.paused = str(value)
        bed.turns()


def late(bed: Bedside, outcome: Outcome | None) -> None:
    """An answer for a step that is over changes nothing that no answer would not change."""
    if bed.live is None or outcome is None:
        return
    case, record = bed.live, bed.record
    quiet = Bedside(case, record=record, node=bed.node, now=bed.now)
    told = Bedside(case, record=record, node=bed.node, now=bed.now)
    for one in (quiet, told):
        one.busy, one.paused = bed.busy, bed.paused
    quiet.turns()
    told.turns(outcome=outcome, answers=f"{case.id}/{case.step - 1}")
    if case.pending is None or case.pending.key != f"{case.id}/{case.step - 1}":
        assert told.case == quiet.case
        assert told.record == quiet.record


@examples(max_examples=150)
@given(st.lists(happenings, max_size=40))
def test_whatever_happens_a_turn_is_short_and_a_case_asks_for_one_thing(said: list[tuple[str, object]]) -> None:
    bed = Bedside(policy=a_policy(approval=()))
    seen: set[str] = set()
    for n, (what, value) in enumerate((("find", "xid.79"), *said), start=1):
        before = bed.live
        if what == "late":
            assert value is None or isinstance(value, Done | Failed | Lost | Unguarded)
            late(bed, value)
            continue
        happens(bed, what, value, n)
        after = bed.last
        if before is None or after is None:
            continue
        assert after.step - before.step <= TURNS_MAX if after.id == before.id else after.id not in seen
        assert after.step >= before.step if after.id == before.id else True
        seen.add(before.id)
        if after.phase in machine.LIVE and after.phase is not Phase.ESCALATED:
            assert after.deadline is not None
        if before.cancelled and after.id == before.id:
            assert after.phase in (Phase.CANCELLING, Phase.ESCALATED) or after.phase in machine.ENDS
        if after.phase is Phase.RESOLVED and before.phase is Phase.RETURNING and after.id == before.id:
            assert "VERIFYING" in bed.path


@examples(max_examples=150)
@given(st.lists(happenings, max_size=40))
def test_a_case_that_is_left_alone_ends_or_rests_with_a_person(said: list[tuple[str, object]]) -> None:
    bed = Bedside(policy=a_policy(approval=()))
    bed.finds("xid.79")
    for n, (what, value) in enumerate(said, start=2):
        if what != "late":
            happens(bed, what, value, n)
    bed.paused = ""
    bed.turns().commands("unhold")
    first = bed.live.id if bed.live else ""
    for _ in range(60):
        if bed.live is None or bed.live.id != first or bed.live.phase is Phase.ESCALATED:
            return
        bed.waits(700_000.0)
    raise AssertionError(f"still {bed.phase}: {bed.path}")


def test_a_turn_is_a_function_of_what_it_looks_at() -> None:
    seen = (a_finding("xid.79"), a_pass("nvidia-smi", 9))
    one, two = (Bedside(node=a_node(findings=seen)).turns() for _ in range(2))
    assert one.decision == two.decision
