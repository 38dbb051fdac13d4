"""Nodes that are away at the same time: keeps count, and keeps the one case about what they share.

core/absence.py decides; here it is gathered who is away, and written what was decided. Called by controller/desk.py
once a pass and for each node's slice. Cost: nothing while nobody is away; then it follows who is. It treats nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sickbay.controller.asking import Unsaid
from sickbay.controller.heartbeats import Heartbeats
from sickbay.controller.records import UNWRITTEN, Records
from sickbay.controller.view import View
from sickbay.core import absence as core
from sickbay.core import absence_memory as memories
from sickbay.core import absence_story as stories
from sickbay.core import absence_words as words
from sickbay.core import keeping, machine, one_by_one, proved, rebuild
from sickbay.core.frozen import replace
from sickbay.core.turn import Now
from sickbay.model import Absence, Case, Ledger, Node, NodeRecord, Notice, Phase, RecoveryPhase
from sickbay.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """What a node's own decision needs to know of it."""

    since: float | None = None
    absent: str = ""
    exchange: bool = False
    witness: str = ""  # who else says that it is alive


PRESENT = Member()


class Absences:
    def __init__(self, view: View, records: Records, settings: Settings, unsaid: Unsaid) -> None:
        self._view, self._records, self._settings = view, records, settings
        self._unsaid = unsaid
        self._unwritten = NodeRecord(core.NAME, cluster=settings.cluster)
        self._memory = memories.Memory()
        self._seen: tuple[object, ...] = ()
        self._found = True  # nothing is counted yet: who is away now was so before this leader came
        self._absentees: dict[str, tuple[Node, core.Absentee]] = {}  # as they were made last, and of which view
        self._told: stories.Story | None = None  # where its record cannot be read
        self._let_go = float("-inf")  # watch time at which a case ended that could not be kept
        self._kept: Case | None = None  # its case, where that cannot be written
        self._unanswerable = False  # the last word about it named no command, for none would have been heard
        self.over = ""  # why its case has ended by itself, until that is written
        self.due: float | None = None  # watch time of the next look that time alone makes necessary

    # -- for each node's decision

    def member(self, name: str, now: Now, heartbeats: Heartbeats) -> Member:
        since = self._view.away.get(name)
        if name not in self._view.away or since is None:
            return PRESENT
        ledger, case = self._records.ledger, self._case()
        if name in self.members and case is not None:
            return Member(since, f"it is away together with many others ({case.id}): nothing is done to it")
        if self._is_left(since, now):
            return Member(since, "people closed the case about the nodes that went away with it, and look after it")
        node = self._view.nodes.get(name)
        witness = self._witness(node, since, heartbeats) if node is not None and not node.ready else ""
        return Member(since, exchange=node is not None and self._is_exchanged(node, since, ledger), witness=witness)

    def _is_exchanged(self, node: Node, since: float, ledger: Ledger) -> bool:
        known = self._view.records.get(node.name)
        absentee = core.Absentee(node.name, since, core.keys_of(node))
        return core.is_exchanged(absentee, ledger, known.value if known else None)

    def excuses(self, name: str, now: Now) -> bool:
        """May its ranks have been silent because it was away with many others?"""
        return memories.excuses(self._memory, name, now.watch)

    def forbids(self, case: Case, now: Now, heartbeats: Heartbeats) -> str:
        """Why a node that went away alone is not taken out, or not treated, now; "" when it may be."""
        node, since = self._view.nodes.get(case.node), self._view.away.get(case.node)
        if node is None or since is None or not core.is_only_evidence(case):
            return ""
        cut_off = core.cut_off(case, node, self._witness(node, since, heartbeats))
        if cut_off or case.phase is Phase.WAITING:
            return cut_off
        limits = self._settings.controller
        in_vain = one_by_one.forbids(case, self._records.ledger, now.watch, limits)
        return core.too_soon(case, since, now.watch, limits) or in_vain

    def note_end(self, case: Case, now: Now) -> None:
        """Of a node's own case."""
        before = self._records.ledger
        ledger, told = one_by_one.noted(case, before, now.watch, now.wall, self._settings.controller)
        if told is not None:
            self._unsaid[told.key] = ("ledger", "", told)
        if ledger is not before:
            self._records.put_ledger(ledger)

    def _witness(self, node: Node, since: float, heartbeats: Heartbeats) -> str:
        """Who else says that this machine is alive; "" if nobody does."""
        if node.machine == "running":
            return "its provider says that the machine runs and answers"
        if heartbeats.last(node.name) > since + core.COUNTED_S:
            return "its agent is still heard by another road"
        jobs = [r.value for r in self._view.recoveries.values() if node.name in r.value.nodes]
        moving = [r.job for r in jobs if r.phase is RecoveryPhase.RUNNING and r.progressed > since + core.COUNTED_S]
        return f"{moving[0]}, which has ranks on it, still makes steps" if moving else ""

    @property
    def members(self) -> frozenset[str]:
        """Who is away together with many."""
        return self._memory.members

    @property
    def out_by_nobody(self) -> frozenset[str]:
        """Who counts as out without having been taken out by anybody. Whoever carries our mark was, and stays out when
        the others are back, also if the record of it was deleted meanwhile (seed 720092)."""
        if not self.members:
            return self.members
        return frozenset(n for n in self.members if (node := self._view.nodes.get(n)) is None or not node.mark)

    def _case(self) -> Case | None:
        stored = self._view.cases.get(core.NAME)
        return stored.value if stored else None

    # -- once a pass

    def look(self, now: Now) -> None:
        """Count who is away; open, widen or end the one case about them."""
        self._remember()
        self._take_up(now)
        self._look(now)
        if self._unkept():
            self._kept = self._case()

    def _look(self, now: Now) -> None:
        if (deleted := self._view.lost.pop(core.NAME, None)) is not None:  # somebody deleted its record: a cancel
            self._let_people_have_it(deleted.id, now)
        case = self._case()
        if case is None and self._found and not self._unkept() and self._is_cut_short(now):
            self._let_people_have_it(f"{core.NAME}.{self._record().last_n}", now)  # deleted while nobody led
        if not self._view.away and case is None and not self.members:
            self._close_story(now)
            self._ask_for(self._over_at())
            self._found = False
            return
        if self._found and case is not None and case.absence is not None:
            self._doubt(proved.rebooted(case.absence.boots, self._view.nodes.values()))
            if core.was_passed_over(case, now.watch):
                case = core.taken_up(case, None, now.watch)
        self._stamp(now)
        self._take_back(now)
        if len(self._absentees) > len(self._view.away):
            self._absentees = {n: known for n, known in self._absentees.items() if n in self._view.away}
        missing = self._away(now)
        everybody = [a for a in missing if not a.alone]
        away = [a for a in everybody if not a.held]
        seen = (case and case.step, case and case.absence and case.absence.split, case and case.approved,
                case and machine.is_frozen(case), tuple(missing))  # fmt: skip
        if seen == self._seen and (self.due is None or now.watch < self.due):
            return
        self._seen = seen
        company = [a for a in missing if not a.held]
        scope = core.scope_of(company, self._view.members, self._settings.controller)
        if case is not None and case.absence is not None:
            everybody = core.joining(case.absence, everybody, scope, now.watch)
            away = core.joining(case.absence, away, scope, now.watch)
            self._go_on(case, case.absence, away, scope, now)
        elif mine := [a for a in away if core.belongs(a, scope)]:
            if core.lasts(away, now.watch):
                self._open(mine, scope, len(company) - len(away), now)
        else:  # nobody, or only those who are left to people or treated alone
            self._close_story(now)
        self._count(everybody, now)

    def _is_cut_short(self, now: Now) -> bool:
        """Those who are many still are counted anew: whether a case was deleted, or never written by one who died just
        then, the record does not say, and people had heard of none (seed 50000229)."""
        if not stories.is_cut_short(self._record(), now.watch):
            return False
        self._stamp(now)
        return not core.scope_of(
            [a for a in self._away(now) if not a.held], self._view.members, self._settings.controller
        )

    def _remember(self) -> None:
        """What people said of them outlives a Ledger that somebody deletes."""
        record = self._record()
        fresh = record if self._unkept() else rebuild.remembered(record, self._records.ledger)
        if fresh is not record:
            self._records.put_record(fresh)

    # -- what people know of it, which outlives its cases

    def _record(self) -> NodeRecord:
        known = self._view.records.get(core.NAME)
        return known.value if known else self._unwritten

    def _story(self) -> stories.Story | None:
        return stories.read(self._record()) or (self._told if self._unkept() else None)

    def _over_at(self) -> float | None:
        return stories.over_at(self._story(), self._record().past, self._let_go)

    def _close_story(self, now: Now) -> None:
        """That it is over is said when it is: an hour after its last case, if nobody went away together since."""
        story, at = self._story(), self._over_at()
        if story is None or at is None or now.watch < at:
            return
        record = stories.written(self._record(), None)
        alone = sorted(a.node for a in self._away(now) if not a.held)
        told = words.over(f"{core.NAME}.{record.last_n}", story, alone, now.wall)
        self._told = None
        self._unsaid[told.key] = ("record", core.NAME, told)
        self._records.put_record(replace(record, notices=keeping.owed(record.notices, (told,))))

    def _ask_for(self, due: float | None) -> None:
        if due != self.due:
            self.due = due
            self._view.due("node", core.NAME, due)

    def _stamp(self, now: Now) -> None:
        """Since when each is away."""
        ledger, quiet_s, case = self._records.ledger, self._settings.policy.quiet_s, self._case()
        theirs = case.absence if case is not None else None
        for name in [name for name, since in self._view.away.items() if since is None]:
            known, has_answered = self._view.records.get(name), name in self._view.answered
            record, later = known.value if known else None, memories.went_later(name, theirs, ledger)
            self._view.away[name] = memories.away_since(
                record, ledger, quiet_s, now.watch, has_answered=has_answered, went_later=later
            )

    def _take_back(self, now: Now) -> None:
        """Who was left to people and is still away when their time is over: nothing else would wake it."""
        away = self._view.away.items() if self._records.ledger.left_at > core.NEVER else ()
        theirs = frozenset(name for name, since in away if since is not None and self._is_left(since, now))
        for name in sorted(self._memory.theirs - theirs):
            self._view.touch_node(name)
        self._memory = replace(self._memory, theirs=theirs)

    def _away(self, now: Now) -> list[core.Absentee]:
        found, ledger = [], self._records.ledger
        plain = max(ledger.split_at, ledger.left_at) <= core.NEVER  # nobody is alone, nobody is left to people
        for name, since in self._view.away.items():
            node, stored = self._view.nodes.get(name), self._view.cases.get(name)
            case = stored.value if stored else None
            if node is None or since is None:
                continue
            seen, known = self._absentees.get(name, (None, None))
            if plain and case is None and seen is node and known and known.since == since and not known.alone:
                found.append(known)  # as in the pass before: hundreds may be away for hours
            elif not core.excuse(node, None) and not core.is_known_dead(case, now.watch):
                alone = core.is_alone(since, ledger) or self._is_left(since, now)
                absentee = core.Absentee(name, since, core.keys_of(node), core.is_held(node, case), alone)
                self._absentees[name] = (node, absentee)
                found.append(absentee)
        return found

    def _is_left(self, since: float, now: Now) -> bool:
        return core.is_left(since, self._records.ledger, self._settings.policy.quiet_s, now.watch)

    def _open(self, away: list[core.Absentee], scope: tuple[str, ...], beside: int, now: Now) -> None:
        record, story = self._records.numbered_on(self._record()), self._story()
        case = core.open_case(
            away, scope, self._view.members, beside, n=record.last_n, now=now.watch, at=now.wall,
            cluster=self._settings.cluster,
        )  # fmt: skip
        assert case.absence is not None
        absence = replace(case.absence, boots=self._boots("", [a.node for a in away]))
        case = replace(case, absence=absence)
        if story is not None and stories.goes_on(story, record.past, self._let_go, absence.wave):
            case, story = self._with_news(case, absence, stories.again(story, absence.count), away, now)
        else:
            case, story = self._telling_began(case, now), stories.Story(absence.wave, most=absence.most)
        story = replace(story, opened=now.watch)
        self._memory, self._told = replace(self._memory, missed=None), story
        # by itself, before the case: whoever deletes that does not take its number
        self._records.put_record(stories.written(record, story))
        self._records.put_case(case, False, ())
        self._seen = ()  # it may be dropped, where somebody has moved the record
        log.warning("case=%s opened: %s", case.id, case.journal[0].why)

    def _go_on(self, case: Case, before: Absence, away: list[core.Absentee], scope: tuple[str, ...], now: Now) -> None:
        left = memories.left(self._memory, before, {a.node for a in away}, self._view.nodes)
        absence = core.counted(before, away, scope, self._view.members, now.watch, left)
        mine = [a.node for a in away if core.belongs(a, absence.scope)]
        absence = replace(absence, boots=self._boots(absence.boots, mine))
        missed = {name: self._view.nodes[name].instance for name in mine}
        self._memory = replace(self._memory, missed=missed, left=absence.left)
        story = stories.goes_on_in(self._story() or stories.of_old(before), before, absence, now.watch)
        if absence.most < before.most:  # counted anew for those who are still away; people hear of all
            story = replace(story, most=max(story.most, before.most))
        fresh = replace(case, absence=absence)
        ending = core.ending(fresh, now.watch)
        self.over = ending[0] if ending is not None else ""
        if ending is not None:  # the case itself is ended where all cases are, by core/decide.py
            story = replace(story, most=max(story.most, absence.most))
            self._view.touch_node(core.NAME)
        else:
            fresh, story = self._with_news(fresh, before, story, away, now)
        grown = fresh.notices != case.notices or absence.scope != before.scope or bool(left)
        patience = keeping.LATER_S if absence.boots == before.boots else keeping.SOON_S
        self._keep(case, fresh, story, keeping.NOW if grown else patience)
        if ending is not None and self._unkept():
            self._drop(fresh, now)

    def _keep(self, case: Case, fresh: Case, story: stories.Story, patience: float) -> None:
        self._told = story
        if story != stories.read(self._record()):
            record = stories.written(self._record(), story)
            self._records.put_record(record, patience=patience)
            fresh = replace(fresh, record=record)
        if fresh != case:
            self._records.put_case(fresh, False, (), patience=patience)

    def _with_news(
        self, case: Case, before: Absence, story: stories.Story, away: list[core.Absentee], now: Now
    ) -> tuple[Case, stories.Story]:
        """What people are told now, if anything: that others went away, how long it lasts, or that they come and go."""
        absence, day = case.absence, stories.news(story, now.watch)
        assert absence is not None
        if stories.is_another(before, absence, now.watch):
            return self._telling_began(words.again(case, absence, now.wall), now), story
        if not absence.count or day == stories.UNTOLD:
            return case, story
        story, unkept = replace(story, day=day, most=max(story.most, absence.most)), self._unkept()
        if story.times == 1:
            told = words.lost(case, absence, day, self._gpus(away), self._jobs_hurt(), now.wall, unkept)
        else:
            told = words.comes_and_goes(case, absence, story, day, self._jobs_hurt(), now.watch, now.wall, unkept)
        return self._telling(case, told, told.key.partition("/")[2]), story

    def _telling_began(self, case: Case, now: Now) -> Case:
        assert case.absence is not None
        return self._telling(case, words.began(case, case.absence, now.wall, self._unkept()), "began")

    def _telling(self, case: Case, notice: Notice, what: str) -> Case:
        assert case.absence is not None
        self._unsaid[notice.key] = ("node", case.node, notice)
        self._unanswerable = bool(self._unkept())
        told = replace(case.absence, told=(*case.absence.told, what))
        return replace(case, absence=told, notices=(*case.notices, notice)[-8:])

    # -- while a record about it cannot be read, it is kept in memory alone, and told all the same

    def _unkept(self) -> str:
        """What keeps it from being written, in words; "" if nothing does."""
        one = self._view.off.nodes.get(core.NAME)
        return f"{one.name} in {one.where}" if one is not None else ""

    def _take_up(self, now: Now) -> None:
        """It can be written again: people know of this case, and were told of its nodes anew in another (seed 496)."""
        stored, kept = self._view.cases.get(core.NAME), self._kept
        if self._unkept():
            return
        if core.NAME in self._view.lost:  # somebody removed it instead: people have it
            self._kept, self._unanswerable = None, False
        elif stored is not None and stored.version != UNWRITTEN:
            self._go_on_with(stored.value, now)
        elif stored is None and kept is not None and self._told is not None:
            self._kept = kept if self._is_written_at_last(kept, self._told, now) else None

    def _go_on_with(self, stored: Case, now: Now) -> None:
        """It had been on record all the time, as it stood when that could be read last. What is decided about it may be
        dropped until it is written (seed 1528)."""
        if core.NAME not in self._view.read_again:
            self._kept, self._unanswerable = None, False
        elif stored.absence is not None:
            story = self._told or self._story() or stories.of_old(stored.absence)
            self._write_again(core.taken_up(stored, self._kept, now.watch), story, now)

    def _write_again(self, case: Case, story: stories.Story, now: Now) -> None:
        """With what people have heard of it meanwhile, and the word that they may decide now: nothing else would look
        at it again, or tell them of it, for days (found by an outsider)."""
        self._seen, self._told = (), story
        if self._unanswerable and case.absence is not None and case.absence.count:
            told = words.readable(case, case.absence, now.wall)
            self._unsaid[told.key] = ("node", core.NAME, told)
            case = replace(case, notices=(*(n for n in case.notices if n.key != told.key), told)[-8:])
        self._records.put_case(case, False, ())
        self._records.put_record(stories.written(self._record(), story))

    def _is_written_at_last(self, kept: Case, story: stories.Story, now: Now) -> bool:
        record, number = self._record(), rebuild.numbers((kept.id,))[core.NAME]
        if self._records.last_ended(core.NAME) >= number:  # whoever wrote what could not be read has used that up
            return False
        self._records.put_record(stories.written(replace(record, last_n=max(record.last_n, number)), story))
        self._write_again(replace(kept, record=None), story, now)
        return True

    def _drop(self, case: Case, now: Now) -> None:
        """Nobody decides about a case that cannot be written: without this it would never end, and who went away next
        would be counted in it without a word."""
        self._view.cases.pop(core.NAME, None)
        self._let_go, self._kept = now.watch, None
        self.ended(case, now)

    def _let_people_have_it(self, case: str, now: Now) -> None:
        """Somebody deleted its record: a cancel. The record about absences carries the word of it."""
        story, record = self._story(), stories.written(self._record(), None)
        self.over, self._seen, self._told = "", (), None
        self._records.put_ledger(core.left_to_people(self._records.ledger, now.watch, self._view.away))
        told = words.deleted(case, story, now.wall)
        self._unsaid[told.key] = ("record", core.NAME, told)
        self._records.put_record(replace(record, notices=keeping.owed(record.notices, (told,))))

    def ended(self, case: Case, now: Now) -> None:
        """Its case is closed. Not before that, who is away now is treated alone, or left to people."""
        self.over, self._seen = "", ()
        quiet_s, away = self._settings.policy.quiet_s, self._view.away
        ledger = core.settled(self._records.ledger, case, quiet_s, now.watch, away)
        if ledger != self._records.ledger:
            self._records.put_ledger(ledger)

    def _count(self, away: list[core.Absentee], now: Now) -> None:
        """Who belongs to it now; those who joined or left have a decision to make of their own."""
        case = self._case()
        scope = case.absence.scope if case is not None and case.absence is not None else ()
        members = {a.node for a in away if core.belongs(a, scope)} if scope else set()
        before, self._memory = self._memory, memories.counted(self._memory, members, self._view.nodes, now.watch)
        for name in sorted(before.members ^ members):
            self._view.touch_node(name)
        if back := before.members - members:
            self._doubt(memories.unproved(before, self._memory, self._view.nodes))
            if case is not None and case.absence is not None:
                nodes = [self._view.nodes[name] for name in back if name in self._view.nodes]
                self._doubt(proved.rebooted(case.absence.boots, nodes))
            self._view.touched_jobs.update(dict.fromkeys(sorted(self._view.waiting_jobs)))
        self._found = False
        self.due = self._next_look(case, now)
        self._view.due("node", core.NAME, self.due)

    # -- who is back with another boot (core/proved.py)

    def _boots(self, boots: str, away: list[str]) -> str:
        went = {name: self._view.nodes[name].boot_id for name in away if name not in self._memory.members}
        return proved.noted(boots, went, again=not self._found)

    def _doubt(self, names: set[str]) -> None:
        """On record until it was examined in this boot. If that is lost the case says it again: it lasts for longer."""
        for name in sorted(names):
            node, stored = self._view.nodes[name], self._view.records.get(name)
            record = stored.value if stored else NodeRecord(name, cluster=self._settings.cluster)
            if record.unproved != node.boot_id and not proved.is_examined(node):
                self._records.put_record(replace(record, unproved=node.boot_id), patience=keeping.LATER_S)

    def _next_look(self, case: Case | None, now: Now) -> float | None:
        times = [since + core.COUNTED_S for since in self._view.away.values() if since is not None]
        if case is not None and case.absence is not None:
            times += core.next_look(case.absence)
            times += [stories.next_news(story)] if (story := self._story()) is not None else []
        elif (over := self._over_at()) is not None:
            times.append(over)
        return min((t for t in times if t > now.watch), default=None)

    def _gpus(self, away: list[core.Absentee]) -> int:
        return sum(self._view.nodes[a.node].gpus_expected for a in away if a.node in self.members)

    def _jobs_hurt(self) -> tuple[str, ...]:
        """Jobs with nodes among those away that do not run."""
        hurt = [
            job for job, stored in self._view.recoveries.items()
            if stored.value.phase is not RecoveryPhase.RUNNING and self.members.intersection(stored.value.nodes)
        ]  # fmt: skip
        return tuple(sorted(hurt))
