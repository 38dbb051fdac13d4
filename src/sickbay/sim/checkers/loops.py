"""Nothing goes round in circles: what is done to a place, and what one sick part may end, is bounded by the truth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Phase
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.hardware import SimNode
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

FREE, EACH = 6, 5  # treatments of one place in any case, and for each true fault of it: a ladder has four rungs
VERB_FREE, VERB_EACH = 4, 2  # the same of each verb that treats nothing, for each thing that truly befell the node
VERBS = {
    "cordon": "closed",
    "release": "opened",
    "drain": "drained",
    "verify-start": "examined",
    "collect": "collected from",
}
TOUCHES = frozenset((
    "fault", "relapse", "boot-hung", "came-back", "joined", "outsider", "rolled-out", "person", "order", "forgot",
    "mark-put-back",
))  # fmt: skip
BEFALLS = frozenset(("boot-hung", "came-back", "fault", "forgot", "joined", "mark-put-back", "outsider"))
TO_MANY = frozenset(("cut", "row-hot"))
WORDS = frozenset(("approve", "silence-agent", "pause", "resume", "opt-out", "opt-in"))  # what people only say
KILLS = 3  # jobs that one part may end before a person decides
HANGS = frozenset(("hang", "stuck"))


class DisruptionsBounded(Checker):
    """What is done to one place is bounded by what truly befell it: no loop of any verb. Treatments by its faults;
    closing, opening, draining, examining and collecting by whatever happened there, a person's word included."""

    floor: ClassVar[float] = 1600.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._faults: dict[str, int] = defaultdict(int)
        self._befell: Counter[str] = Counter()
        self._treated: dict[str, int] = defaultdict(int)
        self._did: Counter[tuple[str, str]] = Counter()
        self._touched: set[str] = set()  # something has befallen them, or was said of them

    def _is_order(self, fact: Fact) -> bool:
        return fact.kind == "order" and fact.detail["act"] in ("retry", "examine")

    def fact(self, fact: Fact) -> None:
        if fact.kind in TO_MANY:
            names = str(fact.detail["nodes"]).split(",")
            self._befell.update(names)
            self._touched.update(names if fact.kind == "cut" else ())
        if fact.kind == "etcd-restored":
            self._befell.update(self.world.nodes.keys())
        by_person = fact.kind == "person" and fact.detail["act"] not in WORDS
        if fact.kind in TOUCHES and (by_person or fact.kind != "person"):
            self._touched.add(fact.node)
        if fact.kind == "cordon" and fact.detail["sick"]:
            self._touched.add(fact.node)
        self._befell[fact.node] += by_person or fact.kind in BEFALLS or fact.kind == "order"
        faults = by_person or fact.kind in ("fault", "boot-hung") or self._is_order(fact)
        self._faults[self._place(fact.node)] += faults
        if fact.kind == "treat-start":
            self._judge_treatment(fact)
        if fact.kind in VERBS and fact.node:
            self._judge_verb(fact)

    def _judge_treatment(self, fact: Fact) -> None:
        untouched = f"{fact.node} was treated though nothing had ever happened to it"
        self.expect(fact.node in self._touched, fact, untouched)
        place = self._place(fact.node)
        self._treated[place] += 1
        most = FREE + EACH * self._faults[place]
        words = f"{fact.node} was treated {self._treated[place]} times for {self._faults[place]} faults"
        self.expect(self._treated[place] <= most, fact, words)

    def _place(self, name: str) -> str:
        """Whose place it took, where successors have names of their own: a part comes back with its fault under another
        name (seed 436)."""
        node = self.world.nodes.get(name) or self.world.nodes.former.get(name)
        return (node.place or name) if node is not None else name

    def _judge_verb(self, fact: Fact) -> None:
        done, befell = self._did[fact.node, fact.kind] + 1, self._befell[fact.node]
        self._did[fact.node, fact.kind] = done
        words = f"{fact.node} was {VERBS[fact.kind]} {done} times, and {befell} things had befallen it"
        self.expect(done <= VERB_FREE + VERB_EACH * befell, fact, words)


class LemonsKillFewJobs(Checker):
    """One sick part ends at most three jobs that we placed on it; after a person's word, three more. A job has ended
    when its ranks died, when they hang, and when their host is taken down for what it has: the host is a part too. Jobs
    that it ended since a backup was taken nobody knows of once that is put back, unless he who leads has led all the
    while."""

    floor: ClassVar[float] = 45.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._ours: set[tuple[str, int]] = set()
        self._killed: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)  # part -> attempts, and when
        self._treated = ("", 0.0)  # the node that was treated last, and when

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        if fact.kind == "place" and d["by"] not in ("owner", "scheduler"):
            self._ours.add((str(d["job"]), int(d["attempt"])))
        if fact.kind == "order" and d["act"] in ("retry", "examine"):
            self._decided(fact.node, str(d["case"]))
        self._forget(fact)
        if fact.kind == "treat-start":
            self._treated = fact.node, fact.t
        if fact.kind in ("ranks-dead", "ranks-hung"):
            self._judge_ranks(fact)
        if fact.kind == "job-end":
            self._judge_end(fact)

    def _forget(self, fact: Fact) -> None:
        """A person wants the node in service, whatever we think of it; or has deleted all that we knew of it."""
        acts = {"person": ("uncordon", "delete-node-record"), "order": ("acknowledge",)}
        node = self.world.nodes.get(fact.node)
        if node is not None and fact.detail.get("act") in acts.get(fact.kind, ()):
            for part in (node.instance, *(gpu.serial for gpu in node.gpus)):
                self._killed.pop(part, None)
        if fact.kind == "etcd-restored":
            since = self.forgotten_since(fact)
            for part, ended in self._killed.items():
                self._killed[part] = {each: at for each, at in ended.items() if at < since}

    def _decided(self, node: str, name: str) -> None:
        """Whoever wants it tried again knows that it rests with them, and why: by the case as it stood at that time."""
        case = next((c for c in self.judge.open if c.id == name and c.phase is Phase.ESCALATED), None)
        if case is not None and node in self.world.nodes:
            self._killed.pop(self.world.nodes[node].instance, None)
        for diagnosis in case.diagnoses if case else ():
            self._killed.pop(diagnosis.part, None)

    def _judge_ranks(self, fact: Fact) -> None:
        """Of several parts with the same ailment it is that which the rank worked on."""
        job = self.world.jobs[str(fact.detail["job"])]
        first, where = str(fact.detail["ranks"]).split(",")[0], job.rank_nodes
        if not first or int(first) >= len(where):  # all of them hang for what they share, or the job is another by now
            return
        rank = int(first)
        node = self.world.nodes[where[rank]]
        own = [gpu.serial for gpu in node.gpus][where[:rank].count(where[rank]) :][:1]
        sick = list(self._sick_parts(node, str(fact.detail.get("why", ""))))
        self._blame(fact, node, own if set(own) & set(sick) else sick, (job.id, job.attempt))

    def _sick_parts(self, node: SimNode, why: str) -> Iterable[str]:
        """`why`: the kind that killed; where it is not said, it was one that hangs."""
        for gpu, ailment in self.world.ailing(node.name):
            if ailment.kind.name == why if why else (ailment.effect in HANGS and not ailment.dormant):
                yield gpu.serial if gpu is not None else node.instance

    def _judge_end(self, fact: Fact) -> None:
        """Its host was taken down while it ran there."""
        node, at = self._treated
        if fact.detail["why"] == f"{node} went down" and fact.t == at:
            host = self.world.nodes[node]
            parts = {part for _, a in self.world.ailing(node) for part in self._sick_parts(host, a.kind.name)}
            self._blame(fact, host, sorted(parts), (str(fact.detail["job"]), int(fact.detail["attempt"])))

    def _blame(self, fact: Fact, node: SimNode, parts: Iterable[str], attempt: tuple[str, int]) -> None:
        """Where the node's agent is bad nobody can know of it; nor do we look at how a job ended that is not ours."""
        unknown = node.agent_fault or not self.world.jobs[attempt[0]].spec.managed
        for part in () if unknown else parts:
            self._killed[part].setdefault(attempt, fact.t)
            count = len(self._killed[part])
            if attempt in self._ours:  # those that others placed there are known of too
                what = f"part {part} of {node.name}" if part != node.instance else node.name
                self.expect(count <= KILLS, fact, f"{what} has killed {count} jobs")
