"""What both desks share: records whose pending action waits for an answer, and notices that wait to be told.

The loop talks to a desk through this alone; controller/desk.py (nodes) and controller/jobs.py (jobs) are the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar

from sickbay.controller.containment import Containment
from sickbay.controller.dispatch import Dispatcher
from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core.turn import Now
from sickbay.model import Action, Notice, Outcome

Unsaid = dict[str, tuple[str, str, Notice]]  # notice key -> (kind of record, its owner, the notice)


class Asking(ABC):
    kind: ClassVar[str]  # "node" | "job"

    def __init__(self, containment: Containment, records: Records, view: View) -> None:
        self._containment, self._records, self._view = containment, records, view
        self._answers: dict[str, tuple[str, Outcome]] = {}
        self._waiting: dict[str, None] = {}  # owners with a pending action, in the order they asked
        self._resend: set[str] = set()
        self._unsaid: Unsaid = {}

    @abstractmethod
    def pending(self, owner: str) -> Action | None:
        """The action this owner's record waits for."""

    @abstractmethod
    def put_sent(self, owner: str, action: Action) -> None:
        """Write down that the call is about to be made."""

    def waits_for(self, owner: str, words: str, *, held: bool = False, delivered: bool = True) -> None:
        """Under way, and this is what it waits for: kept where a person looks, if the record has a place for it.
        `held`: by somebody who keeps it from beginning. Not `delivered`: the door could not even ask for it."""
        return

    @abstractmethod
    def told(self, kind: str, owner: str, keys: set[str]) -> None:
        """Delivered: take these notices off the record that carried them."""

    @abstractmethod
    def _touch(self, owner: str) -> None: ...

    @abstractmethod
    def _may_ask(self, owner: str) -> bool:
        """False while a hold or a pause keeps our hands off."""

    def hear(self, owner: str, key: str, outcome: Outcome) -> None:
        self._answers[owner] = (key, outcome)
        self._touch(owner)

    def resend(self, owner: str) -> None:
        """The first call is known lost: it may be made once more."""
        self._resend.add(owner)

    def wants_resend(self, owner: str) -> bool:
        return owner in self._resend

    def may_ask_for(self, owner: str) -> Action | None:
        """What its record, as it stands now, lets us ask for: nothing while it is held or paused."""
        action = self.pending(owner)
        return action if action is not None and self._may_ask(owner) else None

    def due(self, dispatcher: Dispatcher, now: Now) -> list[tuple[str, str]]:
        return [(self.kind, owner) for owner, action in self._askable() if dispatcher.is_due(action, now.watch)]

    def asks(self, dispatcher: Dispatcher) -> list[float]:
        """Watch times of the next asks."""
        times = [dispatcher.due_at(action) for _, action in self._askable()]
        return [t for t in times if t is not None]

    def unsay(self, owners: set[str]) -> None:
        """What was decided for these was dropped, and with it what it had to say; what was read again counts."""
        if not owners:
            return
        for key in [key for key, letter in self._unsaid.items() if letter[1] in owners]:
            del self._unsaid[key]  # in place: the monitor writes into the same book
        for owner in sorted(owners):
            self._say(owner)

    @abstractmethod
    def _say(self, owner: str) -> None:
        """Hand in what this owner's records still carry: one who decides nothing about them would never tell it."""

    def _owe(self, kind: str, owner: str, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self._unsaid[notice.key] = (kind, owner, notice)

    def letters(self) -> list[tuple[str, str, str, Notice]]:
        if not self._unsaid:
            return []
        letters = [(key, kind, owner, notice) for key, (kind, owner, notice) in self._unsaid.items()]
        self._unsaid.clear()
        return letters

    def _askable(self) -> list[tuple[str, Action]]:
        found = [(owner, self.may_ask_for(owner)) for owner in self._waiting]
        return [(owner, action) for owner, action in found if action is not None]

    def attend(self, owner: str, now: Now, decide: Callable[[], object]) -> None:
        """Decide about it; if that raises it is left alone until it is tried again: nothing is written or asked."""
        if self._containment.rests(self.kind, owner, now):
            return
        if not self._containment.run(self.kind, owner, now, decide):
            self.leave_alone(owner, now)

    def leave_alone(self, owner: str, now: Now) -> None:
        self._expect(owner, False)
        self._containment.run("record of", owner, now, lambda: self._records.undo(self.kind, owner))
        self._view.due(self.kind, owner, self._containment.again_at(self.kind, owner))

    def _expect(self, owner: str, waits: bool) -> None:
        """Keep the index of owners that wait for an answer."""
        if waits:
            self._waiting[owner] = None
        else:
            self._waiting.pop(owner, None)
            self._resend.discard(owner)
