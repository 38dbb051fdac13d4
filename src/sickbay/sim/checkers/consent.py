"""What people allow: approval of a verb, maintenance windows, how far a pool may be treated, evictions, pauses.

All of it is read from the settings, from what people truly did (the world's log) and from the pauses they wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Pause, Phase, When
from sickbay.settings import LEVELS
from sickbay.settings_rules import DAYS
from sickbay.sim.checkers.checker import Checker, case_of, waited_s
from sickbay.sim.checkers.diary import Seen
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

# What would do something next: be closed, emptied, treated, examined, returned.
GOES_ON = frozenset(Phase) - {Phase.SUSPECTED, Phase.ESCALATED, Phase.RESOLVED, Phase.DISMISSED, Phase.DEFERRED}
LATE_S = 120.0  # from a decision to the judge's look at it


def verb_of(fact: Fact) -> str:
    """The verb of `policy` that a fact falls under; "" for none. A drain that stops no work takes nothing away."""
    if fact.kind == "cordon":
        return "CORDON"
    if fact.kind == "drain":
        return "DRAIN" if fact.detail["job"] != "-" else ""
    return str(fact.detail["verb"]) if fact.kind == "treat-start" else ""


class Given:
    """Who approved what, by what people truly said: (case, verb). REPLACE of a case about many that are away is meant
    for those who do not answer when it is said, in the next case of each, until they answer again."""

    def __init__(self) -> None:
        self._cases: set[tuple[str, str]] = set()
        self._silent: set[str] = set()
        self._exchanged: dict[str, str] = {}  # node -> its next case, once that has begun

    def fact(self, fact: Fact) -> None:
        act = fact.detail.get("act") if fact.kind == "person" else ""
        if act == "approve":
            case, verb = str(fact.detail["case"]), str(fact.detail["verb"])
            self._cases.add((case, verb))
            if case.startswith("absence.") and verb == "REPLACE":
                self._exchanged.update(dict.fromkeys(self._silent, ""))
        if act == "delete-command" and fact.detail["verb"] == "approve":  # nobody has read it
            self._cases = {each for each in self._cases if each[0] != fact.detail["case"]}
        if fact.kind == "not-ready":
            self._silent.add(fact.node)
        if fact.kind == "ready":
            self._silent.discard(fact.node)
            self._exchanged.pop(fact.node, None)
        if fact.kind == "cordon" and fact.node in self._exchanged:
            self._exchanged[fact.node] = self._exchanged[fact.node] or case_of(fact)

    def covers(self, case: str, verb: str, node: str) -> bool:
        if (case, verb) in self._cases:
            return True
        if verb != "REPLACE" or node not in self._exchanged:
            return False
        used = self._exchanged[node] = self._exchanged[node] or case
        return used == case


class Approved(Checker):
    """Nothing that `policy.approval` names is done before a person has approved it for this case: every verb."""

    floor: ClassVar[float] = 30.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "CORDON": 1.5, "DRAIN": 0.05, "RESET_GPU": 0.3, "REBOOT": 0.4, "POWER_CYCLE": 0.2, "REPLACE": 26.0,
    }  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._given = Given()

    def fact(self, fact: Fact) -> None:
        self._given.fact(fact)
        verb = verb_of(fact)
        if verb and verb in self.policy_of(fact.node).approval:
            case = case_of(fact)
            words = f"{verb} of {fact.node} in {case} though nobody had approved it"
            self.expect(self._given.covers(case, verb, fact.node), fact, words, verb)


class WithinLevel(Checker):
    """Nothing is done to a node beyond `max_verb` of its pool, and no job is stopped in a pool below DRAIN."""

    floor: ClassVar[float] = 600.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "CORDON": 290.0, "DRAIN": 30.0, "RESET_GPU": 50.0, "REBOOT": 60.0, "POWER_CYCLE": 23.0, "REPLACE": 34.0,
        "STOP_JOB": 100.0,
    }  # fmt: skip

    def fact(self, fact: Fact) -> None:
        verb = verb_of(fact)
        if verb:
            top = self.policy_of(fact.node).max_verb
            fits = LEVELS.index(verb) <= LEVELS.index(top)
            self.expect(fits, fact, f"{verb} of {fact.node} though its pool's max_verb is {top}", verb)
        if fact.kind == "job-end" and str(fact.detail["why"]).startswith(f"stopped by {fact.detail['job']}#"):
            self._judge_stop(fact)

    def _judge_stop(self, fact: Fact) -> None:
        ended = self.world.jobs[str(fact.detail["job"])].lived(int(fact.detail["attempt"]), fact.t)
        tops = {self.policy_of(name).max_verb for name in ended.nodes}
        fits = all(LEVELS.index(top) >= LEVELS.index("DRAIN") for top in tops)
        words = f"{fact.detail['job']} was stopped though max_verb is {', '.join(sorted(tops))}"
        self.expect(fits, fact, words, "STOP_JOB")


class WorkLeftAlone(Checker):
    """Where `evict` is false no drain stops work."""

    floor: ClassVar[float] = 1.0

    def fact(self, fact: Fact) -> None:
        if fact.kind == "drain" and not self.policy_of(fact.node).evict:
            job = fact.detail["job"]
            self.expect(job == "-", fact, f"the drain of {fact.node} stopped {job} though its pool may not evict")


class InMaintenance(Checker):
    """What can wait is done within the maintenance windows of its pool."""

    floor: ClassVar[float] = 1.0
    branches: ClassVar[Mapping[str, float | str]] = {"cordon": 0.3, "treatment": 0.05}

    def fact(self, fact: Fact) -> None:
        if fact.kind not in ("cordon", "treat-start") or self.world.nodes[fact.node].gate or "was" in fact.detail:
            return  # whoever was closed in our name already is not taken out by being adopted
        windows, case = self.policy_of(fact.node).windows, case_of(fact)
        known = self.judge.as_it_is(case)
        stuck = self.world.nodes[fact.node].stuck or fact.detail.get("stuck", "-") != "-"
        if not windows or known is None or self.judge.told.soonest(known) is not When.IDLE or stuck:
            return
        key = str(fact.detail.get("key", ""))
        wall = self.run.clock.now()
        then = self.judge.diary.granted(case, key, Seen(fact.t, wall, When.IDLE))
        moments = (wall, wall - LATE_S, then.wall, then.wall - LATE_S)
        words = f"{verb_of(fact)} of {fact.node} outside the maintenance windows {', '.join(windows)}"
        what = "cordon" if fact.kind == "cordon" else "treatment"
        self.expect(any(is_open(windows, at) for at in moments), fact, words, what)


_WINDOW = re.compile(r"(?:(\w{3})(?:-(\w{3}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)")


def is_open(windows: Sequence[str], wall: float) -> bool:
    """Does one of them hold this moment? One that ends before it begins goes on past midnight."""
    at = datetime.fromtimestamp(wall, UTC)
    minute = at.weekday() * 1440 + at.hour * 60 + at.minute
    return any(begin <= minute + week < end for begin, end in _spans(windows) for week in (0, 7 * 1440))


def _spans(windows: Sequence[str]) -> list[tuple[int, int]]:
    """Minutes of the week, begin and end; the last may reach into the next week."""
    found = []
    for window in windows:
        match = _WINDOW.fullmatch(window)
        assert match is not None, window
        first, last, h1, m1, h2, m2 = match.groups()
        begin, end = int(h1) * 60 + int(m1), int(h2) * 60 + int(m2)
        end += 1440 if end <= begin else 0
        day = DAYS.index(first) if first else 0
        days = (DAYS.index(last or first) - day) % 7 + 1 if first else 7
        found += [((day + n) % 7 * 1440 + begin, (day + n) % 7 * 1440 + end) for n in range(days)]
    return found


class PauseObeyed(Checker):
    """From the pass that saw a pause until it ends, nothing in its scope is closed, drained, examined or treated, and
    no job is stopped or placed there by us. What was sent before runs to its end, also where it waited in a line. One
    that a person ends, or writes another with an end over, is in force no longer, though a store that is put back shows
    it again: by a clock that had leapt that end was past (seed 50003210)."""

    floor: ClassVar[float] = 28.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "fleet": 28.0,
        "pool": 3.0,
        "node": 3.0,
    }

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._paused: dict[str, float] = {}  # scope -> since when it has been seen without a break
        self._stopped: set[tuple[str, str, int]] = set()  # pause, and the case and step that it kept from going on
        self._did: list[Fact] = []

    def fact(self, fact: Fact) -> None:
        d, job = fact.detail, str(fact.detail.get("job"))
        if fact.kind == "person" and (d["act"] == "resume" or (d["act"] == "pause" and d.get("until", "-") != "-")):
            self._paused.pop(str(d["scope"]), None)
        ours = fact.kind == "place" and d["by"] not in ("owner", "scheduler")
        stopped = fact.kind == "job-end" and str(d["why"]).startswith(f"stopped by {job}#")
        if ours or stopped or fact.kind in ("cordon", "treat-start", "drain", "verify-start"):
            self._did.append(fact)

    def moment(self) -> None:
        """In force before this turn and after it: nothing may have been done in between."""
        wall, now = self.run.clock.now(), self.world.now
        pauses = [p.value for p in self.run.store.list(Pause)]
        active = {p.scope: self._paused.get(p.scope, now) for p in pauses if p.until is None or wall < p.until}
        throughout = {scope: since for scope, since in active.items() if scope in self._paused}
        self._note_stopped(frozenset(throughout))
        for fact in self._did if throughout else ():
            sent = fact.t - waited_s(fact)
            scopes = {each for each in self._scopes(fact) if throughout.get(each, float("inf")) <= sent}
            if scopes:
                self.expect(False, fact, f"{fact.kind} of {fact.node or fact.detail['job']} while {scopes} is paused")
        self._paused, self._did = active, []

    def _note_stopped(self, scopes: frozenset[str]) -> None:
        """Cases that would go on but for a pause; one that rests with a person would not."""
        for case in self.judge.open if scopes else ():
            if case.phase in GOES_ON and not case.factor:
                mine = {"fleet", f"node:{case.node}", f"pool:{case.pool}"} & scopes
                kept = {(scope, case.id, case.step) for scope in mine} - self._stopped
                self._stopped |= kept
                for scope, _, _ in sorted(kept):
                    self.looked(scope.partition(":")[0])

    def _scopes(self, fact: Fact) -> set[str]:
        """A pause of a node keeps work off it; a gang that has one rank there may be stopped for the others."""
        if fact.kind == "job-end":
            names = self.world.jobs[str(fact.detail["job"])].lived(int(fact.detail["attempt"]), fact.t).nodes
        else:
            names = (fact.node,) if fact.node else tuple(str(fact.detail["nodes"]).split(","))
        alone = () if fact.kind == "job-end" else names
        return {"fleet", *(f"node:{name}" for name in alone), *(f"pool:{self.world.nodes[n].pool}" for n in names)}
