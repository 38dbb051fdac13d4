"""One node and its case over time, driven through core/decide only: what a test says happened, then what became of it.

    bed = Bedside().finds("xid.79").grants().answers(Done())
    assert bed.phase is Phase.HOLDING

Nothing here decides: every method makes one NodeSlice, calls `decide`, and keeps the Decision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.core.admit import Refusal
from sickbay.core.decide import decide
from sickbay.core.turn import Decision, NodeSlice
from sickbay.model import Case, Done, Finding, Node, NodeRecord, Notice, Outcome, Phase, Verb
from sickbay.settings import Policy
from tests.builders import EVERY_VERB, a_command, a_context, a_finding, a_node, a_pass, a_policy


class Bedside:
    def __init__(
        self,
        case: Case | None = None,
        *,
        record: NodeRecord | None = None,
        node: Node | None = None,
        policy: Policy | None = None,
        verbs: frozenset[Verb] = EVERY_VERB,
        now: float = 1_000.0,
    ) -> None:
        self.now, self.policy, self.verbs = now, policy or a_policy(), verbs
        self.node: Node | None = node or a_node()
        self.record = record or NodeRecord("n1", instance="i-n1", boot_id=self.node.boot_id)
        self.live: Case | None = case
        self.last: Case | None = case  # also after it has ended
        self.decision: Decision | None = None
        self.notices: dict[str, Notice] = {}
        self.condemned: dict[str, tuple[str, ...]] = {}
        self.carriers: dict[str, tuple[str, ...]] = {}
        self.explained: dict[str, str] = {}
        self.busy = False
        self.died = False
        self.paused = ""

    # -- what happens

    def turns(self, **seen: Any) -> Bedside:
        """One decision about the node as it stands."""
        s = NodeSlice(
            record=self.record, node=self.node, case=self.live, busy=self.busy, died=self.died,
            paused=self.paused, condemned=self.condemned, carriers=self.carriers, explained=self.explained,
        )  # fmt: skip
        self.decision = decide(replace(s, **seen), a_context(self.now, self.policy, self.verbs))
        self.record, self.last = self.decision.record, self.decision.case or self.last
        self.live = None if self.decision.ended else self.decision.case
        carried = (*(self.last.notices if self.last else ()), *self.record.notices)
        self.notices.update({n.key: n for n in carried})
        return self

    def shows(self, **changed: Any) -> Bedside:
        """The platform shows the node anew, changed like this."""
        assert self.node is not None
        self.node = replace(self.node, version=self.node.version + 1, **changed)
        return self.turns()

    def vanishes(self) -> Bedside:
        self.node = None
        return self.turns()

    def finds(self, code: str, n: int = 1, **changed: Any) -> Bedside:
        return self.reports(a_finding(code, n, **{"boot": self._boot, **changed}))

    def passes(self, check: str, n: int) -> Bedside:
        return self.reports(a_pass(check, n, boot=self._boot))

    def reports(self, *findings: Finding) -> Bedside:
        """The agent adds these to what it says."""
        assert self.node is not None
        return self.shows(findings=(*self.node.findings, *findings))

    def grants(self) -> Bedside:
        """A seat, once nothing new has been seen for a moment."""
        self.now += self.policy.settle_s if self.phase is Phase.QUEUED else 0.0
        return self.turns(granted=True)

    def refuses(self, why: str = "the limit is full") -> Bedside:
        return self.turns(refusal=Refusal(why, self.now + 60.0))

    def answers(self, outcome: Outcome | None = None) -> Bedside:
        """The door answers the pending action."""
        assert self.case.pending is not None, f"{self.case.phase} asks for nothing"
        return self.turns(outcome=outcome or Done(), answers=self.case.pending.key)

    def is_sent(self) -> Bedside:
        """The controller commits that it is about to call."""
        assert self.case.pending is not None
        self.live = self.last = replace(self.case, pending=replace(self.case.pending, sends=1, sent_at=self.now))
        return self

    def commands(self, verb: str, /, **args: str) -> Bedside:
        return self.turns(commands=(a_command(verb, **args),))

    def waits(self, seconds: float) -> Bedside:
        self.now += seconds
        return self.turns()

    def verified(self, *, n: int = 50, boot: str = "", sick: tuple[Finding, ...] = ()) -> Bedside:
        """The examination answers: everything passed, but for `sick`."""
        assert self.case.pending is not None
        assert self.case.pending.verb is Verb.VERIFY
        key, failed = self.case.pending.key, {f.check for f in sick}
        passed = [a_pass(c, n, boot=boot or self._boot) for c in self.case.plan.verify_with if c not in failed]
        return self.answers(Done("examined", tuple(replace(f, answers=key) for f in (*passed, *sick))))

    # -- the way to a phase

    def until(self, phase: Phase) -> Bedside:
        """Everything goes well until the case is there."""
        for _ in range(12):
            if self.phase is phase:
                return self
            self._goes_well()
        raise AssertionError(f"{self.phase} does not lead to {phase}")

    def _goes_well(self) -> None:
        if self.phase in (Phase.WAITING, Phase.QUEUED):
            self.grants()
        elif self.phase is Phase.CORDONING:
            self.marked().answers(Done())
        elif self.phase is Phase.HOLDING:
            self.waits(self.policy.settle_s)
        elif self.phase is Phase.VERIFYING:
            self.verified()
        elif self.phase is Phase.REPAIRING:
            self.is_sent().treated()
        else:
            self.answers()

    def marked(self) -> Bedside:
        """Our mark is on the node: what a cordon that worked looks like."""
        assert self.node is not None
        self.node = replace(self.node, version=self.node.version + 1, cordoned=True, mark=self.case.id)
        return self

    def treated(self) -> Bedside:
        """The treatment is done; a boot gives a new boot id and an agent that starts anew."""
        assert self.node is not None
        if self.case.rung in (Verb.REBOOT, Verb.POWER_CYCLE):
            boot = f"{self.node.boot_id}+"
            self.node = replace(self.node, boot_id=boot, findings=(), version=self.node.version + 1)
        elif self.case.rung is Verb.RESET_GPU:
            self.node = replace(self.node, findings=(), version=self.node.version + 1)
        return self.answers()

    # -- what became of it

    @property
    def _boot(self) -> str:
        assert self.node is not None
        return self.node.boot_id

    @property
    def case(self) -> Case:
        assert self.last is not None, "no case was opened"
        return self.last

    @property
    def phase(self) -> Phase:
        return self.case.phase

    @property
    def asks(self) -> Verb | None:
        return self.case.pending.verb if self.case.pending else None

    @property
    def path(self) -> list[str]:
        """The phases it went through, in order."""
        return [phase for phase, _ in self.case.timeline]

    @property
    def why(self) -> str:
        return self.case.journal[-1].why

    @property
    def faults(self) -> set[str]:
        return {la.fault for la in self.record.latched}
