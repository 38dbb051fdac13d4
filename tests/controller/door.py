"""A platform of a few nodes that answers as it is told, a clock set by hand, and a controller between them.

For tests of the shell only: what hardware does is the simulator's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sickbay.controller.crew import InlineCrew
from sickbay.controller.loop import Controller
from sickbay.controller.outbox import Outbox
from sickbay.model import (
    SENT_ONCE,
    Action,
    Case,
    Change,
    Done,
    Finding,
    Fleet,
    Job,
    JobChanged,
    Node,
    NodeChanged,
    NodeDeleted,
    Notice,
    Outcome,
    Retry,
    Verb,
)
from sickbay.notifiers.log import LogNotifier
from sickbay.ports import Store
from sickbay.settings import Settings
from sickbay.stores.memory import MemoryStore
from tests.builders import CATALOG, a_node, a_pass, a_policy

Said = Callable[[Action], Outcome]


class HandClock:
    def __init__(self) -> None:
        self.wall, self.mono = 1_800_000_000.0, 0.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.mono += seconds


class Lead:
    """A lead that can be taken away."""

    def __init__(self) -> None:
        self.mine = True

    def acquire(self) -> bool:
        return self.mine

    def release(self) -> None:
        self.mine = False


class Door:
    """Cordons, drains, treats and examines at once and well, unless `says` has another answer for the verb."""

    verbs = frozenset(Verb)

    def __init__(self, *nodes: Node, jobs: tuple[Job, ...] = ()) -> None:
        self.nodes = {n.name: n for n in nodes or (a_node(),)}
        self.jobs = {j.id: j for j in jobs}
        self.gone: set[str] = set()  # instances that no longer exist
        self.says: dict[Verb, Said] = {}
        self.asked: list[Action] = []
        self._sinks: list[Callable[[Change], None]] = []

    def observe(self) -> Fleet:
        return Fleet(tuple(self.nodes.values()), tuple(self.jobs.values()), 0.0)

    def look(self, node: str) -> Node | None:
        return self.nodes.get(node)

    def ask_after(self, node: str, instance: str) -> None:
        if instance in self.gone:
            self.tell(NodeDeleted(node, 1_000, gone=True))

    def watch(self, sink: Callable[[Change], None]) -> Callable[[], None]:
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink) if sink in self._sinks else None

    def perform(self, action: Action) -> Outcome:
        self.asked.append(action)
        said = self.says.get(action.verb)
        return said(action) if said else self._does(action)

    def _does(self, action: Action) -> Outcome:
        name, case = action.place.node, action.key.rpartition("/")[0]
        if action.verb is Verb.CORDON:
            self.shows(name, cordoned=True, mark=case)
        elif action.verb is Verb.RELEASE:
            self.shows(name, cordoned=False, mark="")
        elif action.verb is Verb.REBOOT and action.call:
            self.shows(name, boot_id=f"{self.nodes[name].boot_id}+", findings=())
        elif action.verb is Verb.REPLACE and action.call:
            new = f"{self.nodes[name].instance}+"
            self.shows(name, instance=new, uid=f"uid-{new}", cordoned=False, mark="", findings=())
        elif action.verb is Verb.VERIFY:
            return Done("", tuple(self._passed(action)))
        return Done()

    def _passed(self, action: Action) -> list[Finding]:
        boot = self.nodes[action.place.node].boot_id if action.place.node else ""
        return [a_pass(c, 900, boot=boot, answers=action.key) for c in action.args["checks"].split(",")]

    # -- what happens out there

    def shows(self, name: str, **changed: Any) -> None:
        node = self.nodes[name]
        self.nodes[name] = replace(node, version=node.version + 1, **changed)
        self.tell(NodeChanged(self.nodes[name]))

    def shows_job(self, job: str, **changed: Any) -> None:
        self.jobs[job] = replace(self.jobs[job], version=self.jobs[job].version + 1, **changed)
        self.tell(JobChanged(self.jobs[job]))

    def tell(self, change: Change) -> None:
        for sink in tuple(self._sinks):
            sink(change)

    # -- what it was asked

    def called(self, verb: Verb) -> list[Action]:
        """Asks that were allowed to act."""
        return [a for a in self.asked if a.verb is verb and (a.call or verb not in SENT_ONCE)]


class Pager:
    """A notifier that can be out of order."""

    name = "pager"

    def __init__(self, *, up: bool = True) -> None:
        self.up, self.told = up, list[Notice]()

    def send(self, notice: Notice) -> Outcome:
        if not self.up:
            return Retry(0.0, "the pager does not answer")
        self.told.append(notice)
        return Done()

    def keys(self, level: str) -> list[str]:
        return [notice.key for notice in self.told if notice.level == level]


class Shift:
    """One controller on duty at a door. `passes` lets time go by in steps of its own sleep."""

    def __init__(
        self, door: Door, store: Store | None = None, clock: HandClock | None = None, pager: Pager | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.door, self.store, self.clock, self.lead = door, store or MemoryStore(), clock or HandClock(), Lead()
        self.said, self.pager, self.turns = list[str](), pager or Pager(), 0
        policy = settings.pop("policy", a_policy(approval=()))
        self.controller = Controller(
            door, self.store, CATALOG, Settings(cluster="", policy=policy, **settings), self.clock, self.lead,
            Outbox([LogNotifier(self.said.append), self.pager]), InlineCrew(),
        )  # fmt: skip
        assert self.controller.start()

    def passes(self, seconds: float) -> Shift:
        until = self.clock.mono + seconds
        for _ in range(100_000):
            sleep = self.controller.turn()
            self.turns += 1
            if self.clock.mono >= until:
                return self
            self.clock.passes(min(max(sleep, 0.05), until - self.clock.mono))
        raise AssertionError("the controller turns in a circle")

    def case(self, node: str = "n1") -> Case | None:
        stored = self.controller.view.cases.get(node)
        return stored.value if stored else None

    def successor(self) -> Shift:
        """This one dies where it stands; another takes over from the store."""
        self.controller.abandon()
        return Shift(self.door, self.store, self.clock, self.pager, policy=self.controller._settings.policy)


def busy(_: Action) -> Outcome:
    return Retry(30.0, "not yet")
