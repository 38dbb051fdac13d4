"""What people rely on: an uncordon and a hold are obeyed, time-outs are fair, numbers are not used again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, NodeRecord, Phase
from sickbay.sim.checkers.checker import Bench, Checker, case_of, waited_s
from sickbay.sim.checkers.consent import GOES_ON
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

# The setting that bounds each phase, as docs/cases.md promises it. ESCALATED has none: a person owns it.
DEADLINES = {
    Phase.SUSPECTED: "suspect_s", Phase.WAITING: "waiting_s", Phase.CORDONING: "cordon_s", Phase.HOLDING: "hold_s",
    Phase.DRAINING: "drain_s", Phase.COLLECTING: "collect_s", Phase.QUEUED: "queued_s", Phase.VERIFYING: "verify_s",
    Phase.RETURNING: "return_s", Phase.CANCELLING: "cancel_s",
}  # fmt: skip


SEEN_S = 120.0  # a label on a node: as late as sim/swarm.py tells a change
HEARD_S = 120.0  # what people say is heard by then: whoever acts has read it in that very pass


def was_never_read(fact: Fact, verb: str) -> bool:
    """Somebody deleted the Command that asked for this, before anybody had read it."""
    deleted = fact.kind == "person" and fact.detail.get("act") == "delete-command"
    return deleted and fact.detail["verb"] == verb


def without(said: Mapping[str, float], lost: Sequence[str]) -> dict[str, float]:
    return {case: at for case, at in said.items() if case not in lost}


class Unheard:
    """What people said of a node while nobody could read its records: nobody has obeyed it, also he who led all the
    while, and a store that is put back without it never had it (seed 1871)."""

    def __init__(self, run: Bench) -> None:
        self._run = run
        self._until: dict[str, float] = {}  # case -> when it could be read again; inf while it cannot

    def fact(self, fact: Fact) -> None:
        if fact.kind == "order":
            self._until.pop(case := str(fact.detail["case"]), None)
            if self._is_unread(case):
                self._until[case] = float("inf")

    def moment(self) -> None:
        """What can be read is heard soon."""
        now = self._run.world.now
        for case in [case for case in self._until if not self._is_unread(case)]:
            self._until[case] = min(self._until[case], now)
            if now - self._until[case] > HEARD_S:
                del self._until[case]

    def lost(self, restored: Fact) -> list[str]:
        """The cases of which a word was lost that nobody had heard."""
        return [case for case, until in self._until.items() if restored.t - until <= HEARD_S]

    def _is_unread(self, case: str) -> bool:
        about = {(Case, case), (NodeRecord, case.rpartition(".")[0])}
        return any((each.kind, each.key) in about for each in self._run.store.unread())


class PersonObeyed(Checker):
    """A node that a person uncordoned is not taken again, nor treated, by the same case. A restored store may never
    have had that uncordon: then only he who led all the while knows of it. And where nobody had heard of it when the
    node's object was made anew, nobody can: that one was never closed."""

    floor: ClassVar[float] = 34.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "uncordon": 13.0, "abort": 21.0,
        "unheard": "whoever acts has read what people say in that very pass: only a look that was late would get there",
    }  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._freed: dict[str, tuple[str, float]] = {}  # node -> which case a person took it from, and when
        self._let_go: dict[str, float] = {}  # case -> when a person said abort
        self._unheard = Unheard(self.run)

    def moment(self) -> None:
        self._unheard.moment()

    def fact(self, fact: Fact) -> None:
        self._judge_orders(fact)
        self._unheard.fact(fact)
        if fact.kind == "etcd-restored":
            self._forget_since(self.forgotten_since(fact), fact.t - HEARD_S)
            self._let_go = without(self._let_go, self._unheard.lost(fact))
        if fact.kind == "person" and fact.detail.get("act") == "uncordon":
            mark = self._case_held(fact.node)
            if mark:
                self.looked("uncordon")
                self._freed[fact.node] = mark, fact.t
        if fact.kind == "rejoined" and self._case_held(fact.node):
            self._freed.pop(fact.node, None)
        freed, _ = self._freed.get(fact.node, ("", 0.0))
        if fact.kind == "cordon" and freed == fact.detail["case"]:
            self.complain(fact, f"{freed} took {fact.node} again after a person uncordoned it")
        if fact.kind == "treat-start" and freed == case_of(fact):
            self.complain(fact, f"{fact.detail['key']} treated {fact.node} after a person uncordoned it")

    def _forget_since(self, taken: float, heard: float) -> None:
        """What was done since the backup, and what was said and not read yet."""
        self._freed = {node: (case, at) for node, (case, at) in self._freed.items() if at < taken}
        self._let_go = {case: at for case, at in self._let_go.items() if at < min(taken, heard)}

    def _judge_orders(self, fact: Fact) -> None:
        """A cancel withdraws what has not started."""
        if fact.kind == "order":
            case, act = str(fact.detail["case"]), fact.detail["act"]
            self._let_go[case] = fact.t
            if act == "abort":
                self.looked("abort")
            else:
                del self._let_go[case]
        if was_never_read(fact, "abort"):
            self._let_go.pop(str(fact.detail["case"]), None)
        if fact.kind in ("treat-start", "drain") and case_of(fact) in self._let_go:
            heard = fact.t - self._let_go[case_of(fact)] <= HEARD_S
            words = f"{fact.kind} of {fact.node} by {case_of(fact)}, which a person has cancelled"
            self.expect(heard, fact, words, "unheard")

    def _case_held(self, node: str) -> str:
        """The case that had been told its cordon was done: before that, the uncordon may have come first."""
        for case in self.judge.open:
            if case.node == node and case.cordon_version and case.phase not in (Phase.CORDONING, Phase.RETURNING):
                return case.id
        return ""


class HoldObeyed(Checker):
    """From the pass that heard a hold until its release, the case sends nothing new."""

    floor: ClassVar[float] = 50.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "held": 13.0, "paused": 38.0,
        "unheard": "whoever acts has read what people say in that very pass: only a look that was late would get there",
    }  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._held: set[str] = set()
        self._kept: set[tuple[str, int]] = set()  # case and step that a hold or a pause kept from going on
        self._asked: dict[str, float] = {}  # case -> when a person said hold, and nothing else since
        self._did: list[tuple[Fact, str]] = []
        self._unheard = Unheard(self.run)

    def fact(self, fact: Fact) -> None:
        self._unheard.fact(fact)
        if fact.kind == "order":
            self._asked[str(fact.detail["case"])] = fact.t
            if fact.detail["act"] != "hold":
                del self._asked[str(fact.detail["case"])]
        if fact.kind == "etcd-restored":
            forgotten = min(self.forgotten_since(fact), fact.t - HEARD_S)  # an order that nobody has read goes as well
            self._asked = {case: at for case, at in self._asked.items() if at < forgotten}
            self._asked = without(self._asked, self._unheard.lost(fact))
        gone = fact.kind == "person" and fact.detail.get("act") == "delete-record"
        if gone or was_never_read(fact, "hold"):  # the hold is gone with the case that it was about
            self._asked.pop(str(fact.detail["case"]), None)
        if fact.kind in ("treat-start", "cordon", "drain"):
            self._did += [(fact, case_of(fact))] if not waited_s(fact) else []
            if (asked := self._asked.get(case_of(fact))) is not None:
                words = f"{fact.kind} of {fact.node} although a person had {case_of(fact)} held"
                self.expect(fact.t - waited_s(fact) - asked <= HEARD_S, fact, words, "unheard")

    def moment(self) -> None:
        """Held before this turn and still held after it: nothing may have been done in between."""
        self._unheard.moment()
        held = {c.id for c in self.judge.open if c.held or c.paused}
        self._note_kept(held & self._held)
        for fact, case in self._did:
            if case in self._held and case in held:
                self.complain(fact, f"{fact.kind} of {fact.node} although {case} was held")
        self._held, self._did = held, []

    def _note_kept(self, held: set[str]) -> None:
        """Cases that would go on but for that, each step of theirs once."""
        for case in self.judge.open:
            if case.id in held and case.phase in GOES_ON and (case.id, case.step) not in self._kept:
                self._kept.add((case.id, case.step))
                self.looked("held" if case.held else "paused")


class OptedOut(Checker):
    """Nothing is done to a node that a person has opted out, from the pass that has seen it until they take it back:
    it is not closed, emptied, examined or treated. What was sent to it before and waits in a line is taken back. The
    label goes with the node's object, and comes back with a restored one."""

    floor: ClassVar[float] = 7.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._out: dict[str, float] = {}  # node -> since when

    def fact(self, fact: Fact) -> None:
        act = fact.detail.get("act") if fact.kind == "person" else ""
        if act == "opt-out":
            self._out[fact.node] = fact.t
            self.exercised += bool(self.world.nodes[fact.node].mark or self.world.ailing(fact.node))
        if act == "opt-in" or fact.kind in ("rejoined", "joined"):
            self._out.pop(fact.node, None)
        self.exercised += fact.kind == "fault" and fact.node in self._out
        if fact.kind == "etcd-restored":
            self._out = {n.name: fact.t for n in self.world.nodes.values() if n.opted_out}
        if fact.kind in ("cordon", "drain", "verify-start", "treat-start") and fact.node in self._out:
            seen = fact.t - self._out[fact.node] <= SEEN_S
            self.expect(seen, fact, f"{fact.kind} of {fact.node} by {case_of(fact)}, though it is opted out")


class TimedFairly(Checker):
    """A phase that timed out truly lasted as long as its setting: no clock jump or outage makes anything late. So did
    each step of CANCELLING: a treatment that had begun is seen to its end, then our mark is taken off."""

    floor: ClassVar[float] = 100.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._entered: dict[tuple[str, int], tuple[float, str]] = {}

    def moment(self) -> None:
        recent = [*self.judge.ended, *self.judge.open]
        for case in recent:
            key = (case.id, case.step)
            if key in self._entered:
                continue
            self._entered[key] = (self.world.now, case.phase.value)
            last = case.journal[-1] if case.journal else None
            if last is not None and last.event == "TIMED_OUT" and last.step == case.step:
                self._judge(case)

    def _judge(self, case: Case) -> None:
        before = self._entered.get((case.id, case.step - 1))
        setting = DEADLINES.get(Phase(before[1])) if before else None
        if before is None or setting is None:
            return
        due = float(getattr(self.run.settings.policy_for(case.pool), setting))
        lasted = self.world.now - before[0]
        fair = lasted + self.judge.leapt_s(before[0]) >= 0.9 * due - 30.0
        self.expect(fair, None, f"{case.id} timed out in {before[1]} after {lasted:.0f} of {due:.0f} seconds")


class NumberedOnce(Checker):
    """A case number is never used again, and no node has two open cases. The number of one that had done nothing yet
    when somebody deleted its record may be: nobody knows of it any more, and no door has heard of it. Nor is there
    anybody who knows of a case that a restored store never had, once he who led when it was put back leads no more; or
    if a person has deleted the record of the node before, so that only the archive knew of it (seed 426). The archive
    does not know of one whose own record a person had deleted, and then that of its node, before the lead changed and
    before it was written again (seed 1827); nor of one that was deleted while nobody could read that of its node, in
    which it could not be noted (seed 737)."""

    floor: ClassVar[float] = 500.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._opened: dict[str, float] = {}
        self._idle: set[str] = set()  # cases that had done nothing when they were seen last
        self._acted: set[str] = set()  # cases in whose name something was truly done
        self._seen_at: dict[str, float] = {}
        self._wiped: set[str] = set()  # nodes whose record a person has deleted
        self._deleted: set[str] = set()  # cases of which a person deleted the record
        # Such a case, of a node that was wiped since or whose record was unreadable: only he who led then knows it.
        self._in_mind: dict[str, float] = {}

    def fact(self, fact: Fact) -> None:
        if fact.kind == "person" and fact.detail.get("act") == "delete-node-record":
            self._wiped.add(fact.node)
            theirs = [case for case in self._deleted if case.rpartition(".")[0] == fact.node]
            self._in_mind.update(dict.fromkeys(theirs, fact.t))
        if fact.kind == "person" and fact.detail.get("act") == "delete-record":
            case = str(fact.detail["case"])
            self._deleted.add(case)
            if fact.node in self._unread(NodeRecord):
                self._in_mind[case] = fact.t
        if fact.kind in ("cordon", "drain", "collect", "treat-start"):
            self._acted.add(case_of(fact))
            self._idle.discard(case_of(fact))
        if fact.kind == "etcd-restored":
            self._forget_since(self.forgotten_since(fact))
            self._forget_unread(fact)
        if fact.kind == "person" and fact.detail.get("act") == "delete-record" and fact.detail["case"] in self._idle:
            self._opened.pop(str(fact.detail["case"]), None)

    def moment(self) -> None:
        nodes = [case.node for case in self.judge.open]
        for node in sorted({n for n in nodes if nodes.count(n) > 1}):
            self.complain(None, f"{node} has {nodes.count(node)} open cases")
        early = {c.id for c in self.judge.open if c.phase in (Phase.SUSPECTED, Phase.WAITING)}
        self._idle = (early | self._idle & self._unread(Case)) - self._acted
        self._forget_untold()
        for case in self.judge.open:
            self.exercised += case.id not in self._opened
            self._seen_at.setdefault(case.id, self.world.now)
            first = self._opened.setdefault(case.id, case.opened_at)
            if first != case.opened_at:
                self.complain(None, f"{case.id} was used for two cases")
                self._opened[case.id] = case.opened_at

    def _forget_untold(self) -> None:
        """Who led when the last record went may have written it again; once another leads nobody can."""
        led = [brain.led_since for brain in self.run.brains if brain.led_since is not None]
        for case, at in [*self._in_mind.items()]:
            if any(since <= at for since in led):
                node, _, number = case.rpartition(".")
                if self._on_record().get(node, 0) >= int(number):
                    del self._in_mind[case]
            elif led:
                self._opened.pop(case, None)
                del self._in_mind[case]

    def _on_record(self) -> dict[str, int]:
        """The last number of each node, as its record has it."""
        return {stored.value.node: stored.value.last_n for stored in self.run.store.list(NodeRecord)}

    def _unread(self, kind: type[Case] | type[NodeRecord]) -> set[str]:
        """What nobody can read just now. In the name of such a case nothing is done meanwhile."""
        return {each.key for each in self.run.store.unread() if each.kind is kind}

    def _forget_since(self, taken: float) -> None:
        for case in [case for case, at in self._seen_at.items() if at >= taken]:
            self._opened.pop(case, None)

    def _forget_unread(self, restored: Fact) -> None:
        """Nor can he who goes on leading write a number that he knows where the record of the node, as it was put
        back, is one that he cannot read: it is left as it is, and the next leader reads what was put back. And one that
        went with a record which a person deleted he does not know."""
        unread = self._unread(NodeRecord) | self._wiped
        taken = restored.t - float(str(restored.detail["age"])) - 1.0
        for case in [c for c, at in self._seen_at.items() if at >= taken and c.rpartition(".")[0] in unread]:
            self._opened.pop(case, None)
