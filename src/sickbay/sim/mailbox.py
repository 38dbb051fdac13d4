"""What people of a run were told, when, and by which controller process. Read by the judge; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sickbay.model import Done, Notice, Outcome


@dataclass(frozen=True, slots=True)
class Posted:
    """When a notice came, and from whom."""

    at: float  # world time
    wall: float  # as the clock of the brains showed it
    process: int  # of the controllers of this run; 0: none of them


@dataclass
class Mailbox:
    """Keeps what people were told. Each controller process has a slot of its own in it (`slot_of`)."""

    now: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
    notices: list[Notice] = field(default_factory=list)
    posted: list[Posted] = field(default_factory=list)  # of each notice

    def send(self, notice: Notice, process: int = 0) -> Outcome:
        self.notices.append(notice)
        self.posted.append(Posted(*self.now(), process))
        return Done()


@dataclass
class Slot:
    """The notifier of one controller process."""

    mailbox: Mailbox
    process: int
    name: str = "mailbox"

    def send(self, notice: Notice) -> Outcome:
        return self.mailbox.send(notice, self.process)
