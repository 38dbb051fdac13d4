"""What people are told: each thing once, a handful a day, and few about one incident. Judged by what was sent.

Only what truly happened, or what a person said, makes the same words news again; and a clock that leapt, for reminders
are counted by the day. What a process had sent when it died is sent again by the next one: it cannot know that it came.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, Notice, Phase
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.mailbox import Posted
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

AGAIN_S = 3_240.0  # an hour, by a clock that may run a tenth fast
TAKEN_OVER_S = 300.0  # what its forerunner owed people is told by then, and what it had not written down is lost
LEAPT_S = 600.0  # further apart than this: the clock of the brains was set
DAY_S, INCIDENT_S = 86_400.0, 3_600.0
HANDFUL = 4  # of one case within a day: closed, asked about, with a person, over; and one for each word of a person
ABSENCES = 3  # about nodes that are away together: it began, what is lost, it is over
FLAPS = 12
OURS = frozenset(
    ("cordon", "release", "drain", "collect", "verify", "verify-start", "treat-start", "treat-waits", "unguarded")
)
AWAY = frozenset(("cut", "mended", "not-ready", "ready"))
WORD = re.compile(r"[^\s,:()]+")


@dataclass(slots=True)
class Incident:
    """Nodes that are away together; who goes away again within an hour goes on with it."""

    began: float = float("-inf")
    last: float = float("-inf")  # when two or more were last away
    told: int = 0

    def goes_on(self, now: float) -> None:
        if now - self.last > INCIDENT_S:
            self.began, self.told = now, 0
        self.last = now


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
        self._befell: dict[str, float] = {}  # node, job or "" (something that many share) -> when something happened
        self._said: dict[str, list[float]] = defaultdict(list)  # case -> when a person said or did something about it
        self._told: dict[str, list[float]] = defaultdict(list)  # case -> when people were told of it
        self._incident = Incident()

    def fact(self, fact: Fact) -> None:
        if fact.kind in OURS:
            return
        everybody = (*self.world.nodes, *self.world.jobs) if fact.kind == "etcd-restored" else ()
        names = {*everybody, fact.node, str(fact.detail.get("job", "")), *str(fact.detail.get("nodes", "")).split(",")}
        self._befell.update(dict.fromkeys(names, fact.t))
        if fact.kind in ("order", "person"):
            self._said[str(fact.detail.get("case", fact.node))].append(fact.t)
        if fact.kind in AWAY and self._are_away():
            self._incident.goes_on(fact.t)

    def _are_away(self) -> bool:
        away = [n for n in self.world.nodes.values() if n.present and not (n.ready or n.treating)]
        return len(away) > 1

    def moment(self) -> None:
        self._hear()

    def end(self) -> None:
        self._hear()
        self._judge_flaps()

    def _hear(self) -> None:
        box = self.run.mailbox
        for notice, posted in zip(box.notices[self._read :], box.posted[self._read :], strict=True):
            if not self._is_sent_again(notice, posted):
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
        before = self._words.get((notice.level, notice.title))
        self._words[notice.level, notice.title] = posted
        if before is None or posted.at - before.at >= AGAIN_S or before.process != posted.process:
            return
        if before.at - self._led_since() <= TAKEN_OVER_S:  # it was the word of the one who led before
            return
        wrong = notice.key.startswith("reminder/") and abs(posted.wall - posted.at) >= LEAPT_S
        leapt = wrong or abs((posted.wall - before.wall) - (posted.at - before.at)) >= LEAPT_S
        about = [name for name in WORD.findall(notice.title) if name in self._befell]
        news = any(self._befell[name] >= before.at for name in about) or self.judge.leapt_s(before.at) > 0
        words = f"people were told again after {(posted.at - before.at) / 60:.0f} minutes: {notice.title}"
        self.expect(leapt or news, None, words)

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
            node = notice.case.rpartition(".")[0]
            said = sum(posted.at - at < DAY_S for key in (notice.case, node) for at in self._said[key])
            words = f"people were told {lately} things of {notice.case} within a day, of which they had said {said}"
            self.expect(lately <= HANDFUL + said, None, words)

    def _judge_incident(self, notice: Notice, posted: Posted) -> None:
        """One that people have closed is over; whoever is away after that is news."""
        known = self._incident
        known.told += 1
        said = sum(at >= known.began for case, times in self._said.items() for at in times if "absence" in case)
        days = int((posted.at - max(known.began, self._born)) // DAY_S)
        words = f"people were told {known.told} things of one incident of many nodes, the last: {notice.title}"
        self.expect(known.told <= ABSENCES * (1 + said) + days, None, words)

    def _judge_flaps(self) -> None:
        flaps: dict[str, int] = defaultdict(int)
        for case in self.run.store.history(Case, limit=10_000):
            dismissed = case.phase is Phase.DISMISSED and not case.cancelled
            flaps[case.node] += dismissed and not case.newcomer
        for node, count in flaps.items():
            self.exercised += bool(count)
            if count > FLAPS:
                self.complain(None, f"{node} had {count} cases that went away by themselves")
