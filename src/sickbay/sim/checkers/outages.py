"""Networks and power that many share: healthy nodes are left alone, and no second attempt writes.

Judged by the world's cuts: who was cut off, for how long, and whether anything was wrong with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Ledger, Pause, Recovery
from sickbay.settings import LEVELS
from sickbay.sim.checkers.checker import Checker, case_of
from sickbay.sim.checkers.consent import Given
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge
    from sickbay.sim.hardware import SimNode
    from sickbay.sim.world import World

ENDS_S = 600.0  # all others are back for so long: the case about many is over
STRAGGLES_S = 1_800.0  # most are back for so long: the others are treated for themselves
KNOWN_S = 300.0  # a platform is 40 s late, and a view of it some minutes
AFTER_S = 86_400.0  # for so long after its return nothing may be done to a node for having been away
ABSENT = "node-not-ready"  # the fault that a case about a node's absence names
NEWCOMER = "newcomer"  # and the one of a machine that nobody has examined yet
HEARD_S = 900.0  # after a provider is back: a first look at the fleet may be ten minutes old
TOLD_S = 480.0  # five minutes, of which the brain hears up to three late
BY_OTHERS = ("owner", "scheduler")
FACTORS = ("pool", "rack", "domain", "switch", "zone")  # what nodes that are away may share
SMALL_POOLS = (2, 3)  # all of such a pool are many


class Absent(Checker):
    """Who is away with many others. Many is who is away now, however they became so."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.away: dict[str, float] = {}  # node -> until when its absence explains it; inf while it is away with many
        self.many_since: dict[str, float] = {}
        self.cut_now: Counter[str] = Counter()  # node -> cuts that keep it from answering
        self._earlier: set[str] = set()  # away alone before the others: a case of their own may go on
        self._silent: set[str] = set()
        self._down_before: set[str] = set()  # cut off when they did not answer anyway, for something of their own
        self._let_until: dict[str, float] = {}  # away with many, which people have closed: theirs for a while
        self._split: set[str] = set()  # a person had them treated alone, and they have not answered since
        self._back_at = float("-inf")  # when somebody was back last
        self._alone_from: dict[str, float] = {}  # cut off again, soon after many were back -> patients from then on
        self._patients: set[str] = set()  # stragglers that became patients before the cut ended, and are not up yet

    def fact(self, fact: Fact) -> None:
        names = [n for n in str(fact.detail.get("nodes", "")).split(",") if n]
        if fact.detail.get("what") == "data":  # they are ready, and nobody misses them
            return
        if fact.kind == "cut":
            self._go_away(names, fact.t)
        if fact.kind in ("not-ready", "ready"):
            (self._silent.add if fact.kind == "not-ready" else self._silent.discard)(fact.node)
            self._down_before.discard(fact.node)
        if fact.kind == "ready":
            self._split.discard(fact.node)
        if fact.kind == "ready" or (fact.kind == "boot" and fact.node not in self.cut_now):
            self._is_up(fact.node, fact.t)  # a boot that nobody can see is none (50001586)
        if fact.kind == "treat-start" and self.world.ailing(fact.node):  # away by our doing, for something of its own
            self._down_before.add(fact.node)
        if fact.kind == "mended":
            self._come_back(names, fact.t)
        if fact.kind in ("order", "person") and str(fact.detail.get("case", "")).startswith("absence."):
            self._let_go(str(fact.detail["act"]), fact.t, str(fact.detail.get("verb", "")))
        if fact.kind == "joined":
            self._exchange(self.world.nodes[fact.node])
            self._forget_moment(fact.t)
        if fact.kind == "person" and fact.detail["act"] == "terminate":
            self._forget_moment(fact.t)
        if fact.kind == "person" and fact.detail["act"] == "reboot" and fact.node not in self.cut_now:
            self.away.pop(fact.node, None)  # somebody's reboot: this is another absence, and its own (seed 1576)

    def _go_away(self, names: Sequence[str], t: float) -> None:
        fresh = {name for name in names if not self.cut_now[name]}
        for name in fresh:
            if name in self._silent:
                self._down_before.add(name)
            if t <= self.away.get(name, -1.0):  # the first one may not be over yet
                self._alone_from[name] = self._back_at + STRAGGLES_S
            if self.away.get(name) != float("inf"):
                self.away.pop(name, None)  # whatever it was away for before: this is another absence
        self.cut_now.update(names)
        for name in self.members() - self._split:
            if self.away.get(name) != float("inf") and (name in fresh or not self._is_straggler(name, t)):
                self.away[name], self.many_since[name] = float("inf"), t
                self._let_until.pop(name, None)
                (self._earlier.discard if name in names else self._earlier.add)(name)

    def _is_straggler(self, name: str, t: float) -> bool:
        """A patient by when it can be known that others have gone away too: it stays one until it answers, as those do
        whom a person has treated alone. Two that were cut off again minutes after all had booted were (seed 60008)."""
        return self._alone_from.get(name, self.away.get(name, float("inf"))) <= t + KNOWN_S

    def _is_up(self, name: str, t: float) -> None:
        self._silent.discard(name)
        self._alone_from.pop(name, None)
        self._back_at = t
        if name in self._patients:
            self._patients.discard(name)
            self.away[name] = t + AFTER_S

    def _exchange(self, node: SimNode) -> None:
        """Another machine: not cut off, or shown to nobody before that ends, and then it is no company."""
        if node.reachable and node.powered:
            self.cut_now.pop(node.name, None)
        elif node.name in self.cut_now:
            self._down_before.add(node.name)

    def _come_back(self, names: Iterable[str], t: float) -> None:
        for name in names:
            self.cut_now[name] -= 1
            if self.cut_now[name] <= 0:
                del self.cut_now[name]
                self._alone_from.pop(name, None)
        back = [name for name in names if name not in self.cut_now and name in self.away]
        late = {name for name in back if self.away[name] < t and name in self._silent}
        self._patients |= late  # until they are up: a machine that has its power back takes minutes to boot
        self.away.update(dict.fromkeys(set(back) - late, t + AFTER_S))
        members = self.members(self._split)  # who is left of the others is soon an ordinary patient
        for name in [n for n in self.cut_now if self.away.get(n) == float("inf") and n not in members]:
            later = t + (ENDS_S if name in self._earlier else STRAGGLES_S)
            until = self._let_until.get(name, -1.0)
            self.away[name] = until if until >= t else later

    def _let_go(self, act: str, t: float, verb: str = "") -> None:
        """A person who closes the case about many has them for a while; who is away alone after that is a patient, and
        those who are many still are many again. One who splits it, or has them exchanged, has them treated."""
        missing = self.missing() | {name for name in self.away if name in self._silent}  # it boots (seed 50001555)
        if act == "split" or (act, verb) == ("approve", "REPLACE"):
            self.away.update(dict.fromkeys(missing, t))
            self._split.update(missing)
        if act in ("abort", "delete-record"):
            self._let_until.update(dict.fromkeys(missing, t + self.run.settings.policy.quiet_s))

    def _forget_moment(self, t: float) -> None:
        """They were many for a moment that nobody could notice."""
        members = self.members()
        for name in [n for n, since in self.many_since.items() if t - since < KNOWN_S and n not in members]:
            self.away.pop(name, None)

    def missing(self) -> set[str]:
        """Who is away with many, and not treated alone."""
        return {name for name, until in self.away.items() if until == float("inf")}

    def unsettled(self, t: float) -> set[str]:
        """Who of them is not left to people, who have closed the case about them: theirs keep no incident going."""
        return {name for name in self.missing() if self._let_until.get(name, -1.0) < t}

    def members(self, alone: Collection[str] = ()) -> set[str]:
        """Who is one of many now, by the settings in force: whoever says that a million nodes are many wants each node
        treated alone. Not away with the others is a machine that its provider took away, one that somebody else holds,
        one that was down, and who is treated `alone`. Many of the fleet, of what some of it share, or all of a pool of
        two or three."""
        nodes, limits = self.world.nodes, self.run.settings.controller
        known = [nodes[name] for name in self.cut_now if name not in self._down_before and name not in alone]
        counted = [n for n in known if not n.gone and not n.others]
        if len(counted) >= max(limits.absent_nodes, limits.absent_share * len(nodes)):
            return set(self.cut_now)
        found = set[str]()
        for factor in FACTORS:
            for value in {getattr(node, factor) for node in counted} - {""}:
                all_of_it = [n for n in nodes.values() if getattr(n, factor) == value]
                away = [n for n in counted if getattr(n, factor) == value]
                share = limits.absent_factor_share * len(all_of_it)
                whole = factor == "pool" and len(away) == len(all_of_it) in SMALL_POOLS
                if whole or len(away) >= max(limits.absent_nodes, share):
                    found |= {n.name for n in all_of_it if n.name in self.cut_now}
        return found


class _CalledAlive:
    """Which machine that does not answer its provider calls alive, and for so long that whoever treats it has heard
    that."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._moved: dict[str, float] = {}  # node -> when the truth about it, or what is shown, changed last
        self._provider = float("-inf")  # when it went or came back last

    def fact(self, fact: Fact) -> None:
        if fact.kind in ("cut", "mended"):
            self._moved.update(dict.fromkeys(str(fact.detail["nodes"]).split(","), fact.t))
        if fact.kind in ("ready", "not-ready", "boot", "joined", "rejoined", "treat-end"):
            self._moved[fact.node] = fact.t
        if fact.detail.get("what") == "provider":
            self._provider = fact.t

    def is_so(self, name: str, t: float) -> bool:
        world, node = self.world, self.world.nodes[name]
        told = world.provider_tells and not world.services.is_away("provider") and not node.ready
        heard = max(self._provider + HEARD_S, self._moved.get(name, float("-inf")) + KNOWN_S)
        return told and node.provider_status == "running" and t >= heard


class HealthyLeftAlone(Absent):
    """A node with nothing wrong is neither treated nor replaced because it vanished together with many others, nor
    after it is back; unless a person approved it. One that vanished alone is at most rebooted, and not even that while
    its provider says that it runs."""

    floor: ClassVar[float] = 180.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._given = Given()
        self._own: set[str] = set()  # cut off, with something of their own
        self._accused: set[str] = set()  # something was said of them, or went wrong, besides their absence
        self._alive = _CalledAlive(self.world)

    def fact(self, fact: Fact) -> None:
        before = self.missing()
        super().fact(fact)
        self._alive.fact(fact)
        self._own &= set(self.cut_now)
        for name in self.missing() - before:
            self.exercised += 1
            if name in self._own or self.world.ailing(name):  # though the cut itself may cure it: a boot does
                self._spare(name)
        if self._is_its_own(fact):
            self._spare(fact.node)
        if fact.kind in ("fault", "outsider") or fact.detail.get("bad"):
            self._accused.add(fact.node)
        self._given.fact(fact)
        if fact.kind == "treat-start" and not self.world.ailing(fact.node):
            judge = self._judge if self._is_explained(fact) else self._judge_alone
            judge(fact, str(fact.detail["verb"]))
        if self._closes_member(fact) and self._is_explained(fact) and not self.world.ailing(fact.node):
            self._judge(fact, "CORDON")

    def _closes_member(self, fact: Fact) -> bool:
        """In our name for the first time, and not a newcomer, which is examined whatever happens."""
        first = fact.kind == "cordon" and "was" not in fact.detail and not fact.detail["gate"]
        return bool(first) and fact.node in self.missing()

    def _is_its_own(self, fact: Fact) -> bool:
        """It has something of its own now, or is another machine, which the cut has not reached."""
        if fact.kind == "fault":  # a program's error leaves nothing on its node
            return str(fact.detail["cure"]) != "none"
        if fact.kind == "joined":
            return fact.node not in self.cut_now
        return fact.kind in ("relapse", "boot-hung", "came-back")

    def _judge(self, fact: Fact, verb: str) -> None:
        words = f"{verb} of {fact.node}, which had nothing wrong: it was away with many others"
        meant = "REPLACE" if verb == "CORDON" else verb  # whoever has it exchanged has it closed first (50000709)
        given = any(self._given.covers(case_of(fact), each, fact.node) for each in (verb, meant))
        self.expect(given, fact, words)

    def _judge_alone(self, fact: Fact, verb: str) -> None:
        """A healthy node that is away alone may be dead for all that anybody knows: a REBOOT, and no more. One without
        power is dead indeed, until the power is back."""
        alone = fact.node in self.cut_now and self.world.nodes[fact.node].powered
        if alone and fact.node not in self._own | self._accused:
            alive = self._alive.is_so(fact.node, fact.t) and self._is_only_away(fact)
            words = f"{verb} of {fact.node}, which had nothing wrong: it was cut off alone"
            words += ", and its provider said that it runs" if alive else ""
            may = (verb == "REBOOT" and not alive) or self._given.covers(case_of(fact), verb, fact.node)
            self.expect(may, fact, words)

    def _spare(self, name: str) -> None:
        self.away.pop(name, None)
        self._own.add(name)

    def _is_explained(self, fact: Fact) -> bool:
        """Away with many, and for long enough that it could be known: what was sent before that is under way. What its
        case is not about, a row that was too hot for one, is not done to it for its absence."""
        known = fact.t >= self.many_since.get(fact.node, 0.0) + KNOWN_S
        theirs = fact.t > self._let_until.get(fact.node, float("inf")) and fact.node not in self.members()
        explained = known and not theirs and fact.t <= self.away.get(fact.node, -1.0)
        return explained and self._is_for_absence(fact)

    def _is_only_away(self, fact: Fact) -> bool:
        case = self.judge.as_it_is(case_of(fact))
        return case is not None and {d.fault for d in case.diagnoses} <= {ABSENT, NEWCOMER}

    def _is_for_absence(self, fact: Fact) -> bool:
        case = self.judge.as_it_is(case_of(fact))
        for_that = case is None or any(d.fault == ABSENT for d in case.diagnoses)
        return for_that or fact.node not in self._accused


class OneAttemptWrites(Checker):
    """We start no attempt beside ranks of an earlier one that still write, wherever they are: cut off too. Unless the
    job's owner has said so while some of them did not answer: the word is about those, not about later attempts."""

    floor: ClassVar[float] = 10.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._said: dict[str, int] = {}  # job -> the attempt that was its last when its owner had it restarted
        self._last: dict[str, int] = {}  # job -> its last attempt

    def fact(self, fact: Fact) -> None:
        d, job = fact.detail, str(fact.detail.get("job", ""))
        if fact.kind == "orphans" and d["writes"]:
            self.exercised += 1
        if fact.kind == "person" and d["act"] == "restart-job" and d["dark"] != "-":
            self._said[job] = self._last.get(job, 0)
        if fact.kind == "two-attempts" and d["by"] not in BY_OTHERS:
            words = f"{job} attempt {d['attempt']} began while attempt {d['beside']} writes on {d['nodes']}"
            self.expect(not d["writes"] or int(d["beside"]) <= self._said.get(job, -1), fact, words)
        if fact.kind == "asked-beside":  # its platform refused; who asks for it leans on that
            self.expect(False, fact, f"an attempt of {job} was asked for beside ranks that write on {d['nodes']}")
        if fact.kind == "place":
            self._last[job] = int(d["attempt"])
            if d["by"] == "owner":  # another job of the name: of that he has said nothing
                self._said.pop(job, None)


class OwnersTold(Checker):
    """An owner whose job waits for ranks that nobody reaches hears within minutes why, and how to end that."""

    floor: ClassVar[float] = 5.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._waits: dict[tuple[str, int], float] = {}  # job, attempt -> since when its ranks are out of reach
        self._undone = float("-inf")  # when we could last do nothing
        self._off = set[str]()  # what hands were off at the last look

    def fact(self, fact: Fact) -> None:
        job = str(fact.detail.get("job", ""))
        if fact.kind == "orphans" and fact.detail["writes"] and self._is_ours(job):
            self._waits[job, int(fact.detail["attempt"])] = fact.t
        if fact.kind in ("orphans-end", "place") and job:
            self._waits = {key: since for key, since in self._waits.items() if key[0] != job}

    def _scopes(self, job: str) -> set[str]:
        """What hands may be off, for nothing to be done about this job: its owner hears of the pause then."""
        names = self.world.jobs[job].nodes
        pools = (f"pool:{self.world.nodes[n].pool}" for n in names)
        return {"fleet", f"job:{job}", *(f"node:{n}" for n in names), *pools}

    def _paused(self) -> set[str]:
        """By a person's word, or by a record that nobody can read: then its owner hears of that."""
        store = self.run.store
        said = {pause.value.scope for pause in store.list(Pause)}
        unread = {(one.kind, one.key) for one in store.unread()}
        said |= {"fleet" if kind is Ledger else key for kind, key in unread if kind in (Ledger, Pause)}
        return said | {f"job:{key}" for kind, key in unread if kind is Recovery}

    def _is_ours(self, job: str) -> bool:
        known, jobs = self.world.jobs[job], self.run.settings.jobs
        tops = [LEVELS.index(self.policy_of(name).max_verb) for name in known.nodes]
        waits = known.spec.managed and not known.spec.fenced  # what is fenced waits for no ranks
        return waits and jobs.enabled and min(tops) >= LEVELS.index("DRAIN")

    def moment(self) -> None:
        led = [brain.led_since for brain in self.run.brains if brain.led_since is not None]
        if self.world.services.is_away("api") or not led:
            self._undone = self.world.now
        before, self._off = self._off, self._paused() if self._waits else set()
        off = before | self._off  # one that is over was not until now: nothing may have moved in between
        self._waits.update((key, self.world.now) for key in self._waits if off & self._scopes(key[0]))
        since = max(self._undone, *led) if led else self._undone
        for (job, attempt), at in [*self._waits.items()]:
            if self.world.now - max(at, since) > TOLD_S:
                del self._waits[job, attempt]
                told = any(f"sickbay job restart {job}" in notice.body for notice in self.run.mailbox.notices)
                words = f"the owner of {job} does not know that ranks of attempt {attempt} are out of reach"
                self.expect(told, None, words)
