"""What people are told: each thing once, a handful a day, and few about one incident. Judged by what was sent.

Only what truly happened, or what a person said, makes the same words news again, and more of them: another fault or
accusation, the end of a pause, a roll-out that is taken back; and a clock that leapt, for reminders are counted by the
day. What a process had sent when it died is sent again by the next one: it cannot know that it came. And each order of
a person deserves its answer, however often they give it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, Notice, Pause, Phase
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.checkers.outages import Absent
from sickbay.sim.mailbox import Posted
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

AGAIN_S = 3_240.0  # an hour, by a clock that may run a tenth fast
TAKEN_OVER_S = 300.0  # what its forerunner owed people is told by then, and what it had not written down is lost
LEAPT_S = 600.0  # further apart than this: the clock of the brains was set
DAY_S, INCIDENT_S = 86_400.0, 3_600.0
KNOWN_S = 600.0  # what is told by the day is counted from when they went, and people hear of it a little later
HANDFUL = 4  # of one case within a day: closed, asked about, with a person, over; one more for each word of a person,
# for each thing that befell its node after the first, and for each pause over it that has ended
ABSENCES = 3  # about nodes that are away together: it began, what is lost, it is over
FLAPS = 12
OURS = frozenset(
    ("cordon", "release", "drain", "collect", "verify", "verify-start", "treat-start", "treat-waits", "unguarded")
)
CLOSES = frozenset(("abort", "delete-record"))
WORD = re.compile(r"[^\s,:()]+")


@dataclass(slots=True)
class Incident:
    """Nodes that are away together, as docs/cases.md says: one incident until nobody has been away with many for an
    hour, by the world's cuts, or until people close it. What no cut has made is over an hour after its first word."""

    began: float = float("-inf")
    last: float = float("-inf")  # when nodes were last away together
    over: bool = True
    told: int = 0
    cases: frozenset[str] = frozenset()

    def is_over(self, now: float) -> bool:
        return self.over or now - max(self.last, self.began) > INCIDENT_S


class ToldOnce(Checker):
    """Nobody is told the same thing over and over: one process tells each key once; the same words come again within
    an hour only when something has happened meanwhile; a case tells a handful a day, an incident of many nodes three
    things; and a flapping node opens no case after the other."""

    floor: ClassVar[float] = 900.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._read, self._born = 0, self.world.now
        self._keys: dict[str, Posted] = {}
        self._words: dict[tuple[str, str], Posted] = {}
        self._ordered: Counter[str] = Counter()  # "reopen node-0003 by carol" -> how often a person has said so
        self._answered: Counter[tuple[str, str]] = Counter()  # level and words -> how often people were told so
        self._befell: dict[str, float] = {}  # node, job or "" (something that many share) -> when something happened
        self._said: dict[str, list[float]] = defaultdict(list)  # case -> when a person said or did something about it
        self._told: dict[str, list[float]] = defaultdict(list)  # case -> when people were told of it
        self._struck: dict[str, dict[str, float]] = defaultdict(dict)  # node -> fault, or what it is accused of -> when
        self._rolled: dict[object, set[str]] = defaultdict(set)  # what is rolled out -> nodes that have got it
        self._paused: frozenset[str] = frozenset()  # scopes
        self._resumed: list[tuple[float, str]] = []  # when the pause of a scope was over
        self._unread: set[str] = set()  # cases about many of which nobody could read the record for a while
        self._incident, self._former, self._absent = Incident(), Incident(), Absent(judge)

    def fact(self, fact: Fact) -> None:
        self._note_away(fact)
        if fact.kind in OURS:
            return
        self._note_struck(fact)
        everybody = (*self.world.nodes, *self.world.jobs) if fact.kind == "etcd-restored" else ()
        names = {*everybody, fact.node, str(fact.detail.get("job", "")), *str(fact.detail.get("nodes", "")).split(",")}
        self._befell.update(dict.fromkeys(names, fact.t))
        if fact.kind == "order":
            self._ordered["{act} {case} by {by}".format(**fact.detail)] += 1
        if fact.kind in ("order", "person"):
            self._said[str(fact.detail.get("case", fact.node))].append(fact.t)

    def _note_away(self, fact: Fact) -> None:
        """What was told is over too once nobody can read it, or somebody deleted it (1427, 1244)."""
        known, before = self._incident, self._stands()
        self._absent.fact(fact)
        away = self._absent.unsettled(fact.t)
        if away and not before:
            known.over = known.is_over(fact.t)
        if away or before:
            known.last = fact.t
        closed = fact.detail.get("act") in CLOSES and str(fact.detail.get("case", "")).startswith("absence.")
        unread = fact.kind == "newer-record" and "absence" in str(fact.detail["key"])
        self._unread |= {str(fact.detail["key"])} if unread else set()
        unread |= fact.node == "absence" and fact.detail.get("act") == "delete-node-record"
        known.over |= closed or unread

    def _stands(self) -> bool:
        """Were nodes away with many when anybody heard of it last, and since? Those whose time with people is over by
        now are many anew: that is another incident (1601, 50001902)."""
        known = self._incident
        return bool(self._absent.unsettled(max(known.last, known.began) + 1.0))

    def _note_struck(self, fact: Fact) -> None:
        """What is new about a node; an outsider who repeats what its agent says is not."""
        detail = fact.detail
        if fact.kind == "fault" or (fact.kind == "outsider" and detail["act"] == "accuse"):
            self._struck[fact.node][str(detail.get("what") or detail.get("code"))] = fact.t
        elif fact.kind == "rolled-out":
            self._rolled[detail["factor"], detail["value"]].add(fact.node)
        elif fact.kind == "rolled-back":
            had = self._rolled[detail["factor"], detail["value"]]
            # Whoever rests with a person is examined once more, and that takes a while (444, 265).
            self._befell.update(dict.fromkeys(had, fact.t + INCIDENT_S))

    def moment(self) -> None:
        self._note_pauses()
        self._hear()

    def _note_pauses(self) -> None:
        """One that a newer version wrote goes on: nobody can read its end."""
        wall = self.run.clock.now()
        pauses = [stored.value for stored in self.run.store.list(Pause)]
        unread = [one.key for one in self.run.store.unread() if one.kind is Pause]
        active = frozenset((*unread, *(p.scope for p in pauses if p.until is None or wall < p.until)))
        self._resumed += [(self.world.now, scope) for scope in sorted(self._paused - active)]
        self._paused = active

    def end(self) -> None:
        self._hear()
        self._judge_flaps()

    def _hear(self) -> None:
        box = self.run.mailbox
        for notice, posted in zip(box.notices[self._read :], box.posted[self._read :], strict=True):
            if not self._is_sent_again(notice, posted):
                if not notice.case.startswith("absence."):  # counted by the incident: its words name nobody (1398)
                    self._judge_words(notice, posted)
                self._judge_count(notice, posted)
        self._read = len(box.notices)

    def _is_sent_again(self, notice: Notice, posted: Posted) -> bool:
        before = self._keys.get(notice.key)
        self._keys[notice.key] = posted
        if before is None:
            return False
        words = f"one process has told {notice.key} twice: {notice.title}"
        self.expect(before.process != posted.process or not posted.process, None, words)
        return True

    def _judge_words(self, notice: Notice, posted: Posted) -> None:
        words = notice.level, f"{notice.title}\n{notice.body.partition(chr(10))[0]}"  # with why: the first line says it
        before = self._words.get(words)
        self._words[words] = posted
        self._answered[words] += 1
        if before is None or posted.at - before.at >= AGAIN_S or before.process != posted.process:
            return
        if before.at - self._led_since() <= TAKEN_OVER_S:  # it was the word of the one who led before
            return
        wrong = notice.key.startswith("reminder/") and abs(posted.wall - posted.at) >= LEAPT_S
        leapt = wrong or abs((posted.wall - before.wall) - (posted.at - before.at)) >= LEAPT_S
        about = [name for name in WORD.findall(notice.title) if name in self._befell]
        news = any(self._befell[name] >= before.at for name in about) or self.judge.leapt_s(before.at) > 0
        news |= any(n >= self._answered[words] for order, n in self._ordered.items() if f" {order}: " in words[1])
        again = f"people were told again after {(posted.at - before.at) / 60:.0f} minutes: {notice.title}"
        self.expect(leapt or news, None, again)

    def _led_since(self) -> float:
        return max((b.led_since for b in self.run.brains if b.led_since is not None), default=float("-inf"))

    def _judge_count(self, notice: Notice, posted: Posted) -> None:
        if notice.key.startswith("reminder/"):  # by the day, and a clock that leapt makes days
            return
        if notice.case.startswith("absence."):
            self._judge_incident(notice, posted)
        elif notice.case:
            self._told[notice.case].append(posted.at)
            lately = sum(posted.at - at < DAY_S for at in self._told[notice.case])
            said, befell = self._said_of(notice.case, posted.at), self._befell_more(notice.case, posted.at)
            words = f"people were told {lately} things of {notice.case} within a day, of which they had said {said}"
            self.expect(lately <= HANDFUL + said + befell, None, f"{words} and {befell} had befallen it besides")

    def _said_of(self, case: str, now: float) -> int:
        """What people did about it within the day, and pauses over it that ended: it goes on then, which is told."""
        node = case.rpartition(".")[0]
        known = self.world.nodes.get(node)
        scopes = ("fleet", f"node:{node}", f"pool:{known.pool if known else ''}")
        resumed = sum(now - at < DAY_S and scope in scopes for at, scope in self._resumed)
        return resumed + sum(now - at < DAY_S for key in (case, node) for at in self._said[key])

    def _befell_more(self, case: str, now: float) -> int:
        """Other faults of its node, and other accusations, than the one that it was opened for."""
        struck = self._struck[case.rpartition(".")[0]]
        return max(0, sum(now - at < DAY_S for at in struck.values()) - 1)

    def _judge_incident(self, notice: Notice, posted: Posted) -> None:
        known = self._incident
        if self._stands():
            known.last = posted.at
        if "/began" in notice.key and known.is_over(posted.at):
            self._former = known
            self._incident = known = replace(known, began=posted.at, over=False, told=0, cases=frozenset({notice.case}))
        elif "/began" in notice.key and notice.case in self._unread:
            return  # it was told of under another number meanwhile, and now it can be read what was owed (50001313)
        elif notice.case in self._former.cases - known.cases:  # that the last one is over, told after the next began
            known = self._former
        known.told, known.cases = known.told + 1, known.cases | {notice.case}
        days = int((posted.at - max(known.began, self._born) + KNOWN_S) // DAY_S)
        words = f"people were told {known.told} things of one incident of many nodes, the last: {notice.title}"
        self.expect(known.told <= ABSENCES + days, None, words)

    def _judge_flaps(self) -> None:
        flaps: dict[str, int] = defaultdict(int)
        for case in self.run.store.history(Case, limit=10_000):
            dismissed = case.phase is Phase.DISMISSED and not case.cancelled
            flaps[case.node] += dismissed and not case.newcomer
        for node, count in flaps.items():
            self.exercised += bool(count)
            if count > FLAPS:
                self.complain(None, f"{node} had {count} cases that went away by themselves")
