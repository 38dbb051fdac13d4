"""A world and the brain in one virtual time: the harness behind simulator, demo, proofs and tests.

The controller is the real one, with an inline crew and a virtual clock; it takes a turn when the world wakes it or when
it asked to. Composition only: nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from sickbay.catalog import Catalog, load
from sickbay.controller.crew import InlineCrew
from sickbay.controller.leader import SoloLeader
from sickbay.controller.loop import Controller
from sickbay.controller.outbox import Outbox
from sickbay.errors import ApiError, NotLeader, NotNow
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.ports import Clock, EvidenceStore, Leader, Platform, Store
from sickbay.settings import Settings
from sickbay.sim.mailbox import Mailbox, Slot
from sickbay.sim.world import World
from sickbay.stores.memory import MemoryStore

REACTION_S = 0.2  # from a change in the world to the controller's turn
MISHAP_S = 5.0  # until a controller that could not ask its cluster begins again (controller/app.py)
STANDBY_S = 15.0  # how often a controller without the lead tries to take it


class Brain:
    """One controller process: can crash, be started again, or stand by."""

    def __init__(self, name: str, make: Callable[[], Controller], world: World) -> None:
        self.name, self._make, self._world = name, make, world
        self.controller: Controller | None = None
        self._standby: Controller | None = None
        self.next_turn = world.now
        self.first_led: float | None = None
        self.unprovoked: list[str] = []  # what left a turn as if its cluster did not answer, though it did
        self._took_over = world.now

    @property
    def led_since(self) -> float | None:
        """When the controller took the lead that believes to have it; None while there is none."""
        return self._took_over if self.controller is not None else None

    def start(self) -> bool:
        self._standby = self._standby or self._make()
        try:
            leads = self._standby.start()
        except (ApiError, NotNow, NotLeader) as error:  # the process (app.py) tries again after each of them
            self._note(error)
            self.controller = self._standby
            self._begin_again()
            return False
        if not leads:
            self.next_turn = self._world.now + STANDBY_S
            return False
        self.controller, self._standby, self.next_turn = self._standby, None, self._world.now
        self.first_led = self._world.now if self.first_led is None else self.first_led
        self._took_over = self._world.now
        return True

    def crash(self) -> None:
        """Gone without a word: nothing is released, nothing is finished."""
        if self.controller is not None:
            self.controller.abandon()
        self.controller = self._standby = None
        self.next_turn = float("inf")

    def _note(self, error: Exception) -> None:
        """It is nobody's fault while the API server is away; and a lead may be lost at any moment."""
        if not isinstance(error, NotLeader) and not self._world.services.is_away("api"):
            self.unprovoked.append(f"{type(error).__name__}: {error}")

    def _begin_again(self) -> None:
        """What it leans on did not answer: as the process does, it starts again from the records in a moment."""
        if self.controller is not None:
            self.controller.stop()
            self.controller._leader.release()  # a start that broke holds it and does not lead yet
        self.controller = self._standby = None
        self.next_turn = self._world.now + MISHAP_S

    def turn(self) -> None:
        if self.controller is None:
            self.start()
            return
        try:
            sleep = self.controller.turn()
        except (ApiError, NotNow) as error:
            self._note(error)
            self._begin_again()
            return
        except NotLeader:
            self.controller.stop()  # gives back what it may still hold: an orphaned lock would keep everybody out
            self.controller, self.next_turn = None, self._world.now + STANDBY_S
            return
        self.next_turn = self._world.now + max(sleep, 0.01)

    def wake(self) -> None:
        if self.controller is not None and self.controller.woken.is_set():
            self.next_turn = min(self.next_turn, self._world.now + REACTION_S)


_next_turn = attrgetter("next_turn")


class SimRun:
    def __init__(
        self, world: World, settings: Settings, *, store: Store | None = None, served: Store | None = None,
        catalog: Catalog | None = None,
        evidence: EvidenceStore | None = None, wrap: Callable[[Platform], Platform] | None = None,
        leader: Callable[[], Leader] = SoloLeader, clock: Clock | None = None, progress_s: float = 60.0,
    ) -> None:  # fmt: skip
        self.world, self.settings = world, settings
        self.catalog = catalog or load()
        self.store: Store = store or MemoryStore()
        self._served = served  # the same records as its controllers reach them: not while the API is away
        self.platform = SimulatedPlatform(world, evidence=evidence, progress_s=progress_s)
        self._door: Platform = wrap(self.platform) if wrap else self.platform
        self._leader, self.clock = leader, clock or world.clock
        self.mailbox = Mailbox(lambda: (self.world.now, self.clock.now()))
        self._processes = 0
        self.brains: list[Brain] = []
        self.on_turn: list[Callable[[], None]] = []

    def add_brain(self, name: str = "brain-0") -> Brain:
        brain = Brain(name, self._controller, self.world)
        self.brains.append(brain)
        return brain

    def _controller(self) -> Controller:
        return Controller(
            self._door, self._served or self.store, self.catalog, self.settings, self.clock, self._leader(),
            self._outbox(), InlineCrew(),
        )  # fmt: skip

    def _outbox(self) -> Outbox:
        self._processes += 1
        return Outbox([Slot(self.mailbox, self._processes)])

    @property
    def leader(self) -> Controller | None:
        return next((b.controller for b in self.brains if b.controller is not None), None)

    def run_for(self, seconds: float) -> None:
        self.run_until(self.world.now + seconds)

    def run_until(self, end: float) -> None:
        """Let time pass for world and brains together, in order."""
        world = self.world
        while True:
            event = world.next_at()
            brain = min(self.brains, key=_next_turn, default=None)
            turn = brain.next_turn if brain else float("inf")
            soonest = min(turn, event if event is not None else float("inf"))
            if soonest > end:
                world.run_until(end)
                return
            if brain is not None and turn <= soonest:
                world.run_until(turn)
                brain.turn()
                for hook in self.on_turn if brain.controller else ():
                    hook()
            else:
                world.run_until(soonest)
            for each in self.brains:
                each.wake()
