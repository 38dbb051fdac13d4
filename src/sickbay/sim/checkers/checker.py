"""What a checker is: fed every new Fact, looked at after each turn, asked once at the end. See `Judge`.

A checker says how often it was exercised: how often something happened that it would have complained about had it been
done wrongly. One that never is proves nothing (`floor`). One that looks at several things counts each (`branches`): a
count of all of them would hide a branch that is dead. It asks the world, the settings and what people wrote; it must
never ask the brain what is right, so nothing here may import core or the controller (.importlinter holds that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from sickbay.model import Notice, When
from sickbay.ports import Clock, Store
from sickbay.settings import Policy, Settings
from sickbay.sim.mailbox import Posted
from sickbay.sim.world import Fact, World

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge


class Letters(Protocol):
    notices: list[Notice]
    posted: list[Posted]


class Process(Protocol):
    """A controller process, seen from outside."""

    first_led: float | None

    @property
    def led_since(self) -> float | None: ...


class Bench(Protocol):
    """What is judged: a world, the settings in force, and what was written and told. sim/run.py's SimRun is one."""

    world: World
    settings: Settings
    store: Store

    @property
    def mailbox(self) -> Letters: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def brains(self) -> Sequence[Process]: ...


class Checker:
    # Times that 100 seeds must exercise it, about a quarter of what they do; fewer, and a run of many seeds fails.
    floor: ClassVar[float]
    # The same for each thing that it looks at (`what` of `expect`); or in words, why a world of seeds cannot reach it.
    branches: ClassVar[Mapping[str, float | str]] = {}

    def __init__(self, judge: Judge) -> None:
        self.judge, self.run, self.world = judge, judge.run, judge.run.world
        self.exercised = 0
        self.reached: Counter[str] = Counter()  # branch -> times

    def fact(self, fact: Fact) -> None:
        """One thing that truly happened."""

    def moment(self) -> None:
        """After each turn of a brain in which anything has moved."""

    def passed(self) -> None:
        """After each turn of a brain, also if nothing has moved."""

    def end(self) -> None:
        """After the calm."""

    def expect(self, holds: bool, fact: Fact | None, words: str, what: str = "") -> None:
        """The checker was exercised, in this branch of it; a complaint if it does not hold."""
        self.looked(what)
        if not holds:
            self.complain(fact, words)

    def looked(self, what: str = "", times: int = 1) -> None:
        self.exercised += times
        if what:
            self.reached[what] += times

    def complain(self, fact: Fact | None, words: str) -> None:
        self.judge.complain(fact, words, by=type(self).__name__)

    def forgotten_since(self, restored: Fact) -> float:
        """A store was put back: what was written there after this moment nobody knows of any more. Infinite where
        whoever leads now has led all the while. Asked after the first pass that anybody made since then."""
        since = [brain.led_since for brain in self.run.brains if brain.led_since is not None]
        if since and max(since) < restored.t:
            return float("inf")
        return restored.t - float(str(restored.detail["age"])) - 1.0  # the age is told in whole seconds

    def policy_of(self, node: str) -> Policy:
        return self.run.settings.policy_for(self.world.nodes[node].pool)


OURS = "sickbay"  # who did it, in a journal, where no person had a hand in it
URGENCY = (When.NOW, When.CHECKPOINT, When.IDLE)


def case_of(fact: Fact) -> str:
    """The case in whose name it was done: named, or before the slash in the action's key."""
    return str(fact.detail.get("case") or str(fact.detail.get("key", "")).rsplit("/", 1)[0])


def waited_s(fact: Fact) -> float:
    """What was sent so long before it began, because it waited in a line. A second more: the wait is told in whole
    ones."""
    waited = float(str(fact.detail.get("waited", 0)))
    return waited + 1.0 if waited else 0.0
